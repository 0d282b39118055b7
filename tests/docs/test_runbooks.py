"""The Python in the runbooks works; the calls of the router are tried by the router's tests."""

from __future__ import annotations

import asyncio
import os
import re
import sys

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.testing import Cluster

from .pages import DOCS, blocks

pytestmark = pytest.mark.kafka


def script(word: str) -> str:
    """The one that has this in it."""
    shell = "\n".join(block.text for block in blocks(DOCS / "runbooks.md", "sh"))
    (found,) = (text for text in re.findall(r"-- python - <<'END'\n(.*?)^END$", shell, re.S | re.M) if word in text)
    return str(found)


async def run(python: str, broker: EmbeddedBroker, **settings: str) -> str:
    """What it prints as a process of a service with these settings."""
    given = {"KEYGROUPING_BOOTSTRAP_SERVERS": broker.bootstrap_servers, **settings}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", python),
        env={**os.environ, **given},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    return said.decode()


async def test_dead_letters_are_shown(broker: EmbeddedBroker, application: str) -> None:
    topic = f"{application}.dead"
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{topic: 2})
        for number in range(8):
            await cluster.write(topic, [(b"shop", b"value %d" % number)])
    said = await run(script("record.value"), broker, KEYGROUPING_DEAD_LETTERS_TOPIC=topic)
    assert re.findall(r"value \d", said) == [f"value {number}" for number in range(3, 8)]


async def test_late_events_are_shown(broker: EmbeddedBroker, application: str) -> None:
    topic = f"{application}.late"
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{topic: 1})
        for number in range(8):
            await cluster.write(topic, [(b"shop", b"")], timestamp_ms=1000 + number)
    said = await run(script("record.timestamp"), broker, KEYGROUPING_LATE_TOPIC=topic)
    assert [line.split()[0] for line in said.splitlines()] == [f"{1000 + number}" for number in range(3, 8)]


async def test_partitions_without_a_leader_are_named(broker: EmbeddedBroker, application: str) -> None:
    topic = f"{application}.events"
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{topic: 2})
    said = await run(script("without a leader"), broker)
    assert f"{topic} without a leader: []" in said.splitlines()
