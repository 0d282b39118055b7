"""The page on consumers of `routed`: its program handles every event once behind routers that are killed, and what it
says of assignors and isolation is so."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_service.kafka import clients
from keygrouping_service.testing import Cluster, is_shared, until

from .pages import DOCS, blocks

PAGE = DOCS / "howto" / "consumers.md"
START = 1_700_000_000_000
EVENTS = 4000

pytestmark = [pytest.mark.kafka]


async def routed_by(deploy: Deploy, shell: str) -> Deployment:
    """A router with the page's settings and two partitions in use of four."""
    deployment = await deploy(shell.split("KEYGROUPING_JOB='")[1].split("'")[0], Shape(partitions=2, max_workers=4))
    assert "KEYGROUPING_ROUTER_WORKERS=2 keygrouping-router" in shell
    deployment.start("router-0", workers=2, max_batch=100)
    return deployment


def program(deployment: Deployment) -> str:
    """The page's Python, with the test's own names."""
    (code,) = blocks(PAGE, "python")
    text = code.text
    for shown, used in {
        "kafka-0.example.com:9092": deployment.settings.bootstrap_servers,
        '"billing"': repr(f"{deployment.settings.application}-billing"),
        '"routed"': repr(deployment.settings.routed_topic),
    }.items():
        assert shown in text
        text = text.replace(shown, used)
    return text


@asynccontextmanager
async def running(text: str, *logs: Path) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """The program, once for each log that takes what it prints."""
    members = []
    for path in logs:
        with path.open("wb") as log:
            members.append(await asyncio.create_subprocess_exec(sys.executable, "-c", text, stdout=log))
    try:
        yield members
    finally:
        for member in members:
            if member.returncode is None:
                member.kill()
            await member.wait()


async def test_the_page_works(deploy: Deploy, tmp_path: Path) -> None:
    (shell,) = blocks(PAGE, "sh")
    deployment = await routed_by(deploy, shell.text)
    logs = [tmp_path / "one", tmp_path / "two"]
    wanted = [(b"hot" if number % 2 else b"k%d" % number, b"%d" % number) for number in range(EVENTS)]

    def handled() -> list[str]:
        return [line for log in logs for line in log.read_text().splitlines()]

    async with running(program(deployment), *logs) as members:
        # A member that joins later takes over events that another one has handled and not yet committed.
        await until(lambda: is_shared(deployment.admin, f"{deployment.settings.application}-billing", len(logs)))
        for begin in range(0, EVENTS, 1000):
            part = wanted[begin : begin + 1000]
            rows = enumerate(part, begin)
            await deployment.write(Event(n % 2, key, value, START + n) for n, (key, value) in rows)
            deployment.kill("router-0")
            deployment.revive()
        await until(lambda: len(handled()) >= EVENTS)
        assert all(member.returncode is None for member in members)
    assert Counter(handled()) == Counter(f"{key!r} {value!r}" for key, value in wanted)


@pytest.mark.parametrize(
    ("assignor", "parts"), [("range", [{0, 1}, {2, 3}]), ("roundrobin", [{0, 2}, {1, 3}])], ids=["range", "roundrobin"]
)
async def test_the_assignors_deal_as_the_page_says(
    deploy: Deploy, broker: EmbeddedBroker, assignor: str, parts: list[set[int]]
) -> None:
    assert f"| `{assignor}`" in PAGE.read_text()
    for part in parts:
        assert ", ".join(map(str, sorted(part))) in PAGE.read_text()
    (shell,) = blocks(PAGE, "sh")
    deployment = await deploy(shell.text.split("KEYGROUPING_JOB='")[1].split("'")[0], Shape(max_workers=4))
    options = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"{deployment.settings.application}-{assignor}",
        "partition.assignment.strategy": assignor,
    }
    members = [Consumer(options) for _ in range(2)]
    for member in members:
        member.subscribe([deployment.settings.routed_topic])
    try:
        await until(lambda: dealt(members) == parts)
    finally:
        for member in members:
            member.close()


def dealt(members: list[Any]) -> list[set[int]]:
    for member in members:
        member.poll(0.1)
    return sorted(({tp.partition for tp in member.assignment()} for member in members), key=sorted)


async def test_who_reads_uncommitted_sees_what_was_aborted(deploy: Deploy) -> None:
    (shell,) = blocks(PAGE, "sh")
    deployment = await routed_by(deploy, shell.text)
    settings = deployment.settings
    await deployment.write(Event(n % 2, b"k%d" % n, b"%d" % n, START + n) for n in range(100))
    await deployment.until(deployment.is_routed)
    async with aborted(deployment):
        pass
    async with Cluster(settings.bootstrap_servers) as cluster:
        await cluster.transactions_end(settings.routed_topic)
    seen = {
        level: await asyncio.to_thread(read, settings.bootstrap_servers, settings.routed_topic, level)
        for level in ("read_committed", "read_uncommitted")
    }
    assert len(seen["read_committed"]) == 100
    assert seen["read_uncommitted"] - seen["read_committed"] == Counter({b"aborted": 1})


@asynccontextmanager
async def aborted(deployment: Deployment) -> AsyncIterator[None]:
    """Writes as a router does that dies before it commits, and is followed by one that aborts it."""
    producer = clients.producer(deployment.settings, transactional_id=f"{deployment.settings.application}-dying")
    async with clients.started(producer):
        await producer.begin_transaction()
        await producer.send_and_wait(deployment.settings.routed_topic, b"aborted", b"k", partition=0)
        yield
        await producer.abort_transaction()


def read(servers: str, topic: str, level: str) -> Counter[bytes]:
    """The values of all that a consumer with this isolation level is given."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{topic}-{level}",
            "isolation.level": level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    found: Counter[bytes] = Counter()
    ended: set[int | None] = set()
    try:
        while len(ended) < 4:
            for message in consumer.consume(100, 1.0):
                if message.error() is None:
                    found[message.value() or b""] += 1
                else:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found
