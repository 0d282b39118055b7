"""What a native worker does with events, without Kafka: reading fields, grouping, folding and its partials, in one run.

    python benchmarks/worker.py [--rounds 7]

Events per second of CPU time on one core, the best of some rounds, for jobs that count, that also sum two fields,
and that keep a variance, distinct values and a top-k. A flush comes after ten batches of 10,000 events of 100
bytes: one key has 80 % of them, a thousand others share the rest, and they lie in two windows. The share of
`extract_columns`, which reads key, time and fields, stands beside it, so that the rest is grouping, folding and
encoding. Then what a partial costs at a flush of 10,000 and 100,000 groups: to be made, and to be written into record
batches, also with lz4.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from keygrouping.accumulator import Accumulator
from keygrouping.job import JobSpec, extract_columns
from keygrouping.slices import Slices
from keygrouping_service.records.columns import Columns, Row
from keygrouping_service.records.inflating import LZ4
from keygrouping_service.records.protocols import Partitions
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.built import built
from keygrouping_service.run import collect_rarely
from keygrouping_worker.work import add_partials

BATCH = 10_000
BATCHES = 10
"""Between two flushes."""
KEYS = 1000
HOT = 0.8
NOW = 1_800_000_000_000
TOPIC = "AAAAAAAAAAAAAAAAAAAAAA"
ANY_TIME = 1 << 62
GROUPS = (10_000, 100_000)
TARGETS = 8
"""Partitions of `partials`."""
JOBS = {
    "count": [],
    "count and two sums": [
        {"name": "total", "op": "sum", "field": "price"},
        {"name": "items", "op": "sum", "field": "quantity"},
    ],
    "variance, distinct, top-k": [
        {"name": "spread", "op": "variance", "field": "price"},
        {"name": "users", "op": "distinct", "field": "user"},
        {"name": "top", "op": "top-k", "field": "user", "k": 10},
    ],
}


def batch_of(base: int, keys: int = KEYS, hot: float = HOT) -> Columns:
    chance = random.Random(base)
    rows: list[Row] = []
    for number in range(BATCH):
        key = 0 if chance.random() < hot else chance.randrange(1, keys + 1)
        head = b'{"user":"u%04d","price":%.2f,"quantity":%d,"note":"' % (
            *(chance.randrange(10**4), chance.random() * 1000),
            chance.randrange(1, 9),
        )
        when = NOW + number * 20_000 // BATCH
        rows.append((base + number, when, b"key-%d" % key, head.ljust(98, b"x") + b'"}', ()))
    batch = Columns.of("routed", 0, rows)
    return replace(batch, keys=Slices.of(batch.keys), values=Slices.of(batch.values))


def counts(job: JobSpec, batches: list[Columns]) -> None:
    accumulator = Accumulator(job, 0, TOPIC)
    for batch in batches:
        if accumulator.add(batch):
            raise AssertionError("the job can't use an event of its benchmark")
    for _, partial in accumulator.partials(0):
        partial.encode()


def extracts(job: JobSpec, batches: list[Columns]) -> None:
    for batch in batches:
        extract_columns(job, batch, ANY_TIME)


def seconds(work: Callable[[JobSpec, list[Columns]], None], job: JobSpec, batches: list[Columns]) -> float:
    start = time.process_time()
    work(job, batches)
    return time.process_time() - start


class Packing:
    """A sink that keeps nothing of what it packs."""

    def __init__(self, codec: int) -> None:
        self._codec = codec

    def add(
        self, _: str, partitions: Partitions, timestamp: int, keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        for batches in built(BufferBatch.new(timestamp, keys, values), partitions, self._codec, 1 << 20, True).values():
            for batch in batches:
                batch.compress()


def flushes(accumulator: Accumulator, rounds: int) -> list[float]:
    """Microseconds for each partial: to be made, to be made and written, the same with lz4; the best of all rounds."""

    def made() -> None:
        for _, partial in accumulator.partials(0):
            partial.encode()

    def written(codec: int) -> None:
        sink: Any = Packing(codec)
        asyncio.run(add_partials(sink, accumulator, 0, "partials", TARGETS))

    found = []
    for work in (made, lambda: written(0), lambda: written(LZ4)):
        took = []
        for _ in range(rounds + 1):
            start = time.process_time()
            work()
            took.append(time.process_time() - start)
        found.append(min(took[1:]) / len(accumulator) * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    collect_rarely()
    batches = [batch_of(number * BATCH) for number in range(BATCHES)]
    for name, aggregates in JOBS.items():
        job = JobSpec.from_json({"window": "10s", "aggregates": aggregates})
        pairs = [(seconds(counts, job, batches), seconds(extracts, job, batches)) for _ in range(rounds + 1)][1:]
        whole, reading = (min(column) / BATCH / BATCHES * 1e6 for column in zip(*pairs, strict=True))
        print(f"{name}: {1 / whole:.2f} M events/s, {whole:.3f} µs per event, {reading:.3f} of it for reading")
        for groups in GROUPS:
            accumulator = Accumulator(job, 0, TOPIC)
            for number in range(groups // BATCH):
                accumulator.add(batch_of(number * BATCH, groups, 0.0))
            made, written, packed = flushes(accumulator, rounds)
            print(
                f"  {len(accumulator):,} partials: {made:.2f} µs each to be made, {written - made:.2f} to be written, "
                f"with lz4 {packed - made:.2f}"
            )


if __name__ == "__main__":
    main()
