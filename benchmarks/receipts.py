"""What receipts cost: the router's account of its transactions, and the hashes in the worker's partials.

    python benchmarks/receipts.py [--rounds 21] [--events 2000000]

CPU time on one core. The router's account is measured by itself, the best of some rounds, for transactions of several
shapes: numbers of events, of windows and of workers. The worker is a whole process that reads events from a
broker, in which the calls that receipts add are timed: their share of its CPU time, from a tenth of the events until
all are in partials. It counts or sums two fields, of 1,000 keys by Zipf's law in two windows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping import accumulator
from keygrouping.grouped import Runs
from keygrouping.identity import Offsets, Seeds, Sums
from keygrouping.job import JobSpec
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_router.data.usable import Usable
from keygrouping_service.events.receipts import Ledger
from keygrouping_service.records.columns import Columns, Row
from keygrouping_service.records.protocols import Written
from keygrouping_worker import cli
from keygrouping_worker.settings import WorkerSettings
from numpy.typing import NDArray

JOBS: dict[str, list[dict[str, str]]] = {
    "count": [],
    "two sums": [{"name": "total", "op": "sum", "field": "a"}, {"name": "sales", "op": "sum", "field": "b"}],
}
WINDOW_MS = 10_000
NOW = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS
TOPIC = "AAAAAAAAAAAAAAAAAAAAAA"
KEYS = 1000
PARTITIONS = 4
BATCH_BYTES = 1 << 20


# the router


class Shape(NamedTuple):
    """A transaction of the router."""

    events: int
    windows: int
    workers: int


SHAPES = [
    *(Shape(50_000, 2, 10), Shape(5000, 2, 10), Shape(5000, 1000, 10)),
    *(Shape(500, 2, 10), Shape(500, 100, 10), Shape(500, 500, 10), Shape(500, 100, 100), Shape(500, 500, 200)),
    *(Shape(200, 2, 10), Shape(50, 2, 10)),
]


def account(ledger: Ledger, usable: Usable, workers: NDArray[np.int32], written: Written) -> None:
    """What a router does for the receipt of one transaction."""
    entry = ledger.entry(0)
    entry.consume(usable.batch.offsets)
    entry.route(usable.batch.offsets, usable.times, workers)
    ledger.close(entry, len(workers))
    list(entry.records(written))


def seconds(work: Callable[[], None], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - start) / repeats


def router(shape: Shape, rounds: int) -> None:
    events, windows, count = shape
    rows: list[Row] = [(offset, NOW + offset * windows // events * WINDOW_MS, b"", b"", ()) for offset in range(events)]
    batch = Columns.of("events", 0, rows)
    usable = Usable(batch, [b""] * events, batch.timestamps)
    workers = (np.arange(events) % count).astype(np.int32)
    written = {("routed", worker): [(0, int(size))] for worker, size in enumerate(np.bincount(workers))}
    ledger = Ledger(TOPIC, 0, ("routed", TOPIC), job_of("count"), 0)
    repeats = max(1, 50_000 // events)
    taken = [seconds(lambda: account(ledger, usable, workers, written), repeats) for _ in range(rounds)]
    of_one, each = min(taken), f"{events:,} events in {windows} windows for {count} workers"
    print(f"router, {each}: {of_one * 1e6:.0f} µs, {of_one / events * 1e6:.3f} µs per event", flush=True)


# the worker


def job_of(name: str) -> JobSpec:
    return JobSpec.from_json({"window": WINDOW_MS, "aggregates": JOBS[name]})


@dataclass
class Spent:
    """CPU time (seconds) of the process and of its receipts, and what it has done for that."""

    process: float = 0.0
    receipts: float = 0.0
    events: int = 0
    partials: int = 0

    def since(self, other: Spent) -> Spent:
        return Spent(
            self.process - other.process,
            self.receipts - other.receipts,
            self.events - other.events,
            self.partials - other.partials,
        )


class Watch:
    """Follows a worker from a tenth of the events until all of them are in partials, so that there are some."""

    def __init__(self, events: int) -> None:
        self.done = asyncio.Event()
        self.first: Spent | None = None
        self.last = Spent()
        self._now = Spent()
        self._events = events
        self._held: dict[Seeds, int] = {}

    def began(self, partition: Seeds) -> None:
        """A session on a partition begins: it holds no events."""
        self._held[partition] = 0

    def added(self, partition: Seeds, since: float, events: int) -> None:
        """Receipts of these events have taken the thread's CPU time since then."""
        self._took(since)
        self._now.events += events
        self._held[partition] += events
        if self.first is None and 10 * self._now.events >= self._events:
            self.first = self._spent()

    def flushed(self, partition: Seeds, since: float, partials: int) -> None:
        """Receipts of these partials, all that were held, have taken the thread's CPU time since then."""
        self._took(since)
        self._now.partials += partials
        self._held[partition] = 0
        if not self.done.is_set() and self._now.events >= self._events and not any(self._held.values()):
            self.last = self._spent()
            self.done.set()

    def _took(self, since: float) -> None:
        self._now.receipts += time.thread_time() - since

    def _spent(self) -> Spent:
        return replace(self._now, process=time.process_time())


def timed(watch: Watch) -> type[Sums]:
    """Sums that say how long they take."""

    class Timed(Sums):
        def __init__(self, seeds: Seeds) -> None:
            super().__init__(seeds)
            self._seeds = seeds
            watch.began(seeds)

        def add(self, offsets: Offsets, runs: Runs, sums: NDArray[np.int64]) -> None:
            since = time.thread_time()
            super().add(offsets, runs, sums)
            watch.added(self._seeds, since, len(runs.rows))

        def encoded(self, sums: NDArray[np.int64]) -> list[str]:
            since = time.thread_time()
            found = super().encoded(sums)
            watch.flushed(self._seeds, since, len(found))
            return found

    return Timed


async def work(events: int) -> None:
    """A worker, until all events are in partials."""
    watch = Watch(events)
    setattr(accumulator, "Sums", timed(watch))  # noqa: B010 -- it is not exported
    await cli.serve(WorkerSettings(), watch.done)
    if watch.first is None:
        raise SystemExit("the worker has stopped by itself")
    spent = watch.last.since(watch.first)
    process, receipts = (taken / spent.events * 1e6 for taken in (spent.process, spent.receipts))
    share = f"{receipts:.4f} of {process:.3f} µs of CPU per event, {receipts / process:.1%}"
    print(f"{share}; {spent.events / spent.partials:.0f} events per partial", flush=True)


async def preload(servers: str, events: int) -> None:
    """All topics; events in `routed`."""
    counts = {"events": 1, "routed": PARTITIONS, "partials": PARTITIONS, "dead-letters": 1}
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    positions = NewTopic("positions", 1, 1, topic_configs={"cleanup.policy": "compact"})
    await admin.create_topics([*(NewTopic(name, count, 1) for name, count in counts.items()), positions])
    await admin.close()
    chance = random.Random(1)
    shares = [1 / rank for rank in range(1, KEYS + 1)]
    keys = chance.choices([b"key-%d" % key for key in range(KEYS)], shares, k=10_000)
    values = [(b'{"a":%d,"b":%.2f,"note":"' % (n, chance.random())).ljust(98, b"x") + b'"}' for n in range(100)]
    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=BATCH_BYTES) as producer:
        batch, packed = producer.create_batch(), 0
        for number in range(events):
            row = {"timestamp": NOW + number * 2 * WINDOW_MS // events, "key": keys[number % 10_000]}
            if not batch.append(**row, value=values[number % 100]):
                await producer.send_batch(batch, "routed", partition=packed % PARTITIONS)
                batch, packed = producer.create_batch(), packed + 1
                batch.append(**row, value=values[number % 100])
        await producer.send_batch(batch, "routed", partition=packed % PARTITIONS)
        await producer.flush()


def worker(servers: str, name: str, number: int, events: int) -> None:
    env = {
        "KEYGROUPING_BOOTSTRAP_SERVERS": servers,
        "KEYGROUPING_APPLICATION": f"{name.replace(' ', '-')}-{number}",
        "KEYGROUPING_JOB": json.dumps({"window": WINDOW_MS, "aggregates": JOBS[name]}),
        "KEYGROUPING_LOG_LEVEL": "ERROR",
        "KEYGROUPING_WORKER_PURGE": "false",
    }
    print(f"worker, {name}: ", end="", flush=True)
    command = [sys.executable, __file__, "--worker", str(events)]
    subprocess.run(command, env={**os.environ, **env}, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21, help="of the router; the worker runs three times")
    parser.add_argument("--events", type=int, default=2_000_000, help="of the worker")
    parser.add_argument("--worker", type=int, metavar="EVENTS", help="be the worker")
    options = parser.parse_args()
    if options.worker:
        return asyncio.run(work(options.worker))
    for shape in SHAPES:
        router(shape, options.rounds)
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        asyncio.run(preload(broker.bootstrap_servers, options.events))
        for number in range(3):
            for name in JOBS:
                worker(broker.bootstrap_servers, name, number, options.events)
    return None


if __name__ == "__main__":
    main()
