"""The native stages as processes of their own against a real broker, behind a stand-in for the routers."""

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import httpx
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.process import last_lines, spawn, terminate
from keygrouping_local.records import read_all, read_results
from keygrouping_local.topics import environment_of, settings_for
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import END, Progress, read_progress
from keygrouping_service.kafka.topics import create_topics, topics_of
from keygrouping_service.records.record import Record

JOB = '{"window": 1000, "lateness": 0, "aggregates": [{"name": "n", "op": "count"}]}'
WORKERS = 6
TIMEOUT = 300.0
Row = tuple[int, bytes, int]  # routed partition, key, event time


class Pipeline:
    """Topics of one test, the processes of both stages, and the expected result of what has been routed."""

    def __init__(self, broker: EmbeddedBroker, application: str, folder: Path) -> None:
        self.settings = settings_for(broker.bootstrap_servers, application)
        self.expected: Counter[tuple[bytes, int]] = Counter()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.admin: AIOKafkaAdminClient
        self.producer: AIOKafkaProducer
        self._folder = folder
        self._routed = 0
        self._chance = random.Random(application)

    def start(self, name: str, **environment: str) -> None:
        """Starts `worker-N` or `aggregator-N`."""
        stage, _, number = name.rpartition("-")
        mine = {"KEYGROUPING_JOB": JOB, "KEYGROUPING_SESSION_TIMEOUT": "6"}
        mine[f"KEYGROUPING_{stage.upper()}_FLUSH_INTERVAL"] = "0.1"
        if stage == "worker":
            mine["KEYGROUPING_WORKER_ORDINAL"] = number
        everything = {**os.environ, **environment_of(self.settings), **mine, **environment}
        command = [sys.executable, "-m", f"keygrouping_{stage}"]
        self.processes[name] = spawn(command, self.log(name), everything)

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self, name: str) -> int:
        return terminate(self.processes.pop(name), TIMEOUT)

    async def route(self, rows: Iterable[Row], watermark: int) -> None:
        """Writes events and how far they are complete, in one transaction as the routers do."""
        rows = list(rows)
        progress = Progress(watermark, epoch=7).encode()
        async with self.producer.transaction():
            for partition, key, time_ms in rows:
                await self.producer.send(self.settings.routed_topic, b"{}", key, partition, time_ms)
                self.expected[key, time_ms // 1000 * 1000] += 1
            self._routed += len(rows)
            offsets = {TopicPartition(self.settings.events_topic, p): self._routed for p in range(2)}
            await self.producer.send_offsets_to_transaction(
                {tp: OffsetAndMetadata(offset, progress) for tp, offset in offsets.items()},
                self.settings.group("router"),
            )

    async def route_skewed(self, count: int, start: int, watermark: int | None = None) -> None:
        """Routes events of skewed keys within the five windows from `start`; hot keys go to all workers."""
        drawn = (min(int(self._chance.paretovariate(0.8)) - 1, 19) for _ in range(count))
        await self.route((self._row(key, start) for key in drawn), start if watermark is None else watermark)

    def _row(self, key: int, start: int) -> Row:
        worker = self._chance.randrange(WORKERS) if key < 3 else key % WORKERS
        return worker, b"key-%d" % key, start + self._chance.randrange(5000)

    async def progress(self, stage: str) -> dict[int, Progress]:
        """What a stage has committed, per partition of its input."""
        topic, count = {
            "worker": (self.settings.routed_topic, WORKERS),
            "aggregator": (self.settings.partials_topic, 2),
        }[stage]
        found = await read_progress(self.admin, self.settings.group(stage), topic, range(count))
        return {partition: committed.progress for partition, committed in found.items()}

    async def results(self, time_ms: int = END) -> dict[tuple[bytes, int], int]:
        """Waits until everything before an event time is final; events by key and window of all final results.

        Fails if a key has two results for a window.
        """

        async def is_final() -> bool:
            return all(p.time >= time_ms for p in (await self.progress("aggregator")).values())

        await self.until(is_final)
        found = await read_results(self.settings)
        assert all(r.final and r.events == r.weight == r.aggregates["n"] for r in found.values())
        return {place: result.events for place, result in found.items()}

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not await condition():
            for name, process in self.processes.items():
                assert process.poll() is None, (name, last_lines(self.log(name)))
            assert time.monotonic() < deadline, {name: last_lines(self.log(name), 5) for name in self.processes}
            await asyncio.sleep(0.05)

    async def metrics(self, name: str) -> str:
        """What a process shows at `/metrics`, once it says that it is ready."""
        (address,) = re.findall(r"listening on (http://\S+)", self.log(name).read_text())
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:

            async def is_ready() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await self.until(is_ready)
            return (await client.get("/metrics")).text

    async def records(self, topic: str) -> list[Record]:
        return [record async for records in read_all(self.settings, topic) for record in records]


@pytest.fixture
async def pipeline(broker: EmbeddedBroker, application: str, tmp_path: Path) -> AsyncIterator[Pipeline]:
    run = Pipeline(broker, application, tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        run.admin = await stack.enter_async_context(clients.started(clients.admin(run.settings)))
        await create_topics(run.admin, topics_of(run.settings, partitions=2, max_workers=WORKERS))
        producer = clients.producer(run.settings, transactional_id=f"{application}-stand-in")
        run.producer = await stack.enter_async_context(clients.started(producer))
        yield run
        for process in run.processes.values():
            process.kill()
            process.wait()
