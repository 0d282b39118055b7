"""Laws of the router while its requests are delayed: what is sent is what is routed."""

import asyncio
from collections import Counter

import pytest
from keygrouping_local.proxy import Api, Proxy, Stray
from keygrouping_router.service import serve
from keygrouping_router.settings import RouterSettings
from keygrouping_service import settings as settings_module
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka

START_MS = 1_700_000_000_000
EVENTS = 1039


async def test_a_commit_that_comes_late_routes_nothing_twice(
    cluster: Cluster, settings: RouterSettings, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "REQUEST_TIMEOUT_MS", 5000)
    delayed = settings.model_copy(update={"bootstrap_servers": proxy.bootstrap_servers, "max_batch": 100})
    values = [b"%d" % n for n in range(EVENTS)]
    await cluster.write(settings.events_topic, [(value[-1:], value) for value in values], 0, START_MS)
    name = settings.transactional_id("router", 0)
    stray = Stray(proxy, lambda request: request.api is Api.END_TXN and request.transactional_id == name)
    written = stray.hold_in_next(Api.PRODUCE, answer=True)
    offsets = stray.hold_in_next(Api.TXN_OFFSET_COMMIT)
    stop = asyncio.Event()
    task = asyncio.create_task(serve(delayed, stop))
    await written.caught()
    await offsets.caught()
    await stray.deliver()
    written.release()
    offsets.release()

    async def all_committed() -> bool:
        return (await cluster.committed(settings.group("router"), settings.events_topic))[0].offset == EVENTS

    await until(all_committed)
    stop.set()
    await task
    routed = Counter(record.value for record in await cluster.read(settings.routed_topic))
    assert routed == Counter(values)
