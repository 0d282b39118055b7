"""What the tests on a real broker share: topics of their own, and what a read_committed consumer sees in them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_producer.filling import Partitions
from keygrouping_producer.settings import ProducerSettings
from keygrouping_service.kafka import clients
from keygrouping_service.records.record import Record
from keygrouping_service.testing import fetch

PARTITIONS = 4
TIMEOUT = 300.0
ANSWER_SECONDS = 60.0
"""Of a process that shares its cores with others; httpx would wait for 5."""

Records = dict[int, list[Record]]


async def eventually(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Waits until a condition holds; fails after TIMEOUT seconds."""
    deadline = time.monotonic() + TIMEOUT
    while not await holds():
        assert time.monotonic() < deadline, f"in vain waited for: {what}"
        await asyncio.sleep(0.02)


@dataclass
class Cluster:
    """The topics of one test on the shared broker."""

    broker: EmbeddedBroker
    prefix: str
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def settings(self, **changes: Any) -> ProducerSettings:
        """Settings of a producer that writes to the test's topics."""
        return ProducerSettings(**{**self._settings(), **changes})

    def start(self, *arguments: str, **changes: Any) -> Service:
        """Starts the service, or another module, as a process of its own, configured by the environment."""
        shared = {name.upper(): value for name, value in self._settings().items()}
        own = {f"PRODUCER_{name.upper()}": value for name, value in changes.items()}
        environment = {f"KEYGROUPING_{name}": str(value) for name, value in (shared | own).items()}
        log = self.folder / f"producer-{len(self.processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *(arguments or ["keygrouping_producer"])],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stderr=output,
            )
        self.processes.append(process)
        return Service(process, log)

    def write_lines(self, count: int) -> Path:
        """A file of events i with key, event time and some without key."""
        path = self.folder / "events.jsonl"
        rows = ({"i": i, "key": f"k{i % 37}" if i % 10 else None, "at": 1_000_000 + i} for i in range(count))
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        return path

    async def create_topics(self) -> None:
        """The events topic, dead-letters and positions."""
        settings = self.settings()
        forever = {"retention.ms": "-1"}
        async with clients.started(clients.admin(settings)) as admin:
            await admin.create_topics(
                [
                    NewTopic(settings.events_topic, PARTITIONS, 1, topic_configs=forever),
                    NewTopic(settings.dead_letters_topic, 1, 1, topic_configs=forever),
                    NewTopic(settings.positions_topic, 1, 1, topic_configs=forever),
                ]
            )

    async def read(self, topic: str | None = None, partitions: int = PARTITIONS) -> Records:
        """All committed records of the events topic (or another one), by partition; waits for transactions under way.

        What a producer has committed may be shown a little later, so the ends are those with transactions under way.
        """
        tps = [TopicPartition(topic or self.settings().events_topic, p) for p in range(partitions)]
        found: Records = {p: [] for p in range(partitions)}
        async with clients.started(clients.reader(self.settings(), committed=False)) as probe:
            ends = await probe.end_offsets(tps)
        async with clients.started(clients.reader(self.settings())) as consumer:
            consumer.assign(tps)
            await consumer.seek_to_beginning(*tps)
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for tp, records in (await fetch(consumer, timeout_ms=200)).items():
                    found[tp.partition] += records
        return found

    @staticmethod
    def expected_numbers(count: int) -> dict[int, list[int]]:
        """Which event numbers of `Cluster.write_lines` belong into each partition, in order."""
        table, unkeyed = Partitions(PARTITIONS), 0
        numbers: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
        for i in range(count):
            if i % 10:
                partition = table[f"k{i % 37}".encode()]
            else:
                partition, unkeyed = unkeyed % PARTITIONS, unkeyed + 1
            numbers[partition].append(i)
        return numbers

    @staticmethod
    def numbers_in(records: Records) -> dict[int, list[int]]:
        """The event numbers found in each partition."""
        return {p: [orjson.loads(record.value or b"")["i"] for record in found] for p, found in records.items()}

    @staticmethod
    async def eventually(holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Waits until a condition holds."""
        await eventually(holds, what)

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.broker.bootstrap_servers,
            "application": self.prefix,
            "events_topic": f"{self.prefix}-events",
            "dead_letters_topic": f"{self.prefix}-dead-letters",
            "positions_topic": f"{self.prefix}-positions",
        }


@dataclass
class Service:
    """A producer running as a process."""

    process: subprocess.Popen[bytes]
    log: Path

    async def url(self) -> str:
        """Its address, once it answers there."""

        async def answers() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            if not self._found():
                return False
            async with httpx.AsyncClient(base_url=self._found(), timeout=ANSWER_SECONDS) as client:
                with contextlib.suppress(httpx.TransportError):
                    return (await client.get("/healthz")).is_success
            return False

        await eventually(answers, "the service's address")
        return self._found()

    async def sent_at_least(self, count: int) -> None:
        """Returns when its status says so."""
        url = await self.url()
        async with httpx.AsyncClient(base_url=url, timeout=ANSWER_SECONDS) as client:

            async def has_sent() -> bool:
                return int((await client.get("/status")).json()["sent"]) >= count

            await eventually(has_sent, f"{count} events sent")

    async def ends(self) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self.process.wait, TIMEOUT)

    def _found(self) -> str:
        match = re.search(r"listening on (http://\S+)\n", self.log.read_text())
        return match[1] if match else ""


@pytest.fixture
async def cluster(broker: EmbeddedBroker, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Topics of this test on the shared broker; its processes are ended afterwards."""
    made = Cluster(broker, topic_prefix, tmp_path)
    await clients.retry(made.create_topics, "creating the topics")
    yield made
    for process in _running(made.processes):
        process.kill()
        process.wait()


def _running(processes: list[subprocess.Popen[bytes]]) -> Iterator[subprocess.Popen[bytes]]:
    return (process for process in processes if process.poll() is None)
