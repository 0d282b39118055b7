"""Laws of the replay while its requests are delayed: every line once, and the position behind the last one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from keygrouping_local.proxy import Api, Proxy, Stray
from keygrouping_producer.replay import Replay
from keygrouping_service import settings as settings_module

Cluster = Any  # the fixture's class, of which conftest.py is the only home

pytestmark = pytest.mark.kafka

LINES = 5_000
FILE = {"workload": "file", "key": "key", "time_field": "at", "time_format": "epoch_ms"}


async def test_a_commit_that_comes_late_doubles_no_line(
    cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "REQUEST_TIMEOUT_MS", 4000)
    file = cluster.write_lines(LINES)
    servers = {"bootstrap_servers": proxy.bootstrap_servers}
    replay = Replay(cluster.settings(file=file, transaction_events=1_000, **servers, **FILE))
    stray = Stray(proxy, lambda request: request.api is Api.END_TXN)
    written = stray.hold_in_next(Api.PRODUCE, answer=True)
    task = asyncio.create_task(replay.run())
    await written.caught()
    offsets = proxy.hold(lambda request: request.api is Api.TXN_OFFSET_COMMIT)
    written.release()
    await offsets.caught()
    await stray.deliver()
    offsets.release()
    await asyncio.wait_for(replay.done(), 300)
    replay.stop()
    await task
    assert replay.status().sent == LINES
    assert cluster.numbers_in(await cluster.read()) == cluster.expected_numbers(LINES)
