"""The tutorial on an existing topic works: its commands as they stand, from the first to the last."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import free_ports
from keygrouping_service.testing import Cluster

from .pages import DOCS, blocks

PAGE = DOCS / "tutorials" / "existing-topic.md"
SHOPS = ("Lyon", "Lyon", "Lyon", "Bari", "Gent")
PARTITIONS, EVENTS, STEP = 2, 60, 10_000

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]


def script(address: str, application: str, port: int) -> str:
    """All shell and Python of the page as one script; broker, names and port are the test's own."""
    parts = ["set -eu"]
    for block in blocks(PAGE, "sh", "python"):
        python = block.language == "python"
        parts.append(f"python - <<'END'\n{block.text}END" if python else block.text)
    text = "\n".join(parts)
    changes = {
        "kafka-0.example.com:9092": address,
        "orders-by-shop": application,
        "TOPIC=orders\n": f"TOPIC={application}.orders\n",
        "8080": str(port),
    }
    for shown, used in changes.items():
        assert shown in text
        text = text.replace(shown, used)
    return text


async def test_the_tutorial_works(broker: EmbeddedBroker, application: str, tmp_path: Path) -> None:
    (job,) = blocks(PAGE, "json")
    (tmp_path / "job.json").write_text(job.text)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{f"{application}.orders": PARTITIONS})
        for number in range(EVENTS):
            value = b'{"shop": "%s", "price": %d.5}' % (SHOPS[number % len(SHOPS)].encode(), number)
            time = 1_700_000_000_000 + number * STEP
            await cluster.write(f"{application}.orders", [(None, value)], number % PARTITIONS, time)
    (port,) = free_ports(1)
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", script(broker.bootstrap_servers, application, port)),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(900):
            said, _ = await shell.communicate()
    finally:
        if shell.returncode is None:
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, said.decode()[-4000:]
    assert said.count(b"'turnover'") == 3, said.decode()[-4000:]
