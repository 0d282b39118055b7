"""What receipts cost: the router's account of its transactions, and the hashes in the worker's partials, in one run.

    python benchmarks/receipts.py [--rounds 21]

CPU time on one core, the best of some rounds, for transactions of 500 and 5,000 events that go to ten workers and
lie in two windows. The worker pre-aggregates ten batches of such events, of 1,000 keys by Zipf's law, and encodes their
partials, with and without hashes; no broker, so the share of a whole worker is smaller still.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
from keygrouping.accumulator import Accumulator
from keygrouping.identity import Sums
from keygrouping.job import JobSpec
from keygrouping.slices import Slices
from keygrouping_router.data.extract import Usable
from keygrouping_router.data.receipts import Ledger
from keygrouping_service.records.columns import Columns, Row
from numpy.typing import NDArray

COUNT = JobSpec.from_json({"window": "10s", "aggregates": []})
FIELDS = JobSpec.from_json(
    {
        "window": "10s",
        "aggregates": [{"name": "total", "op": "sum", "field": "a"}, {"name": "sales", "op": "sum", "field": "b"}],
    }
)
NOW = 1_800_000_000_000
TOPIC = "AAAAAAAAAAAAAAAAAAAAAA"
WORKERS = 10
KEYS = 1000
BATCHES = 10
"""Of a worker, between two flushes."""


def batch_of(events: int) -> Columns:
    chance = random.Random(1)
    shares = [1 / rank for rank in range(1, KEYS + 1)]
    rows: list[Row] = [
        (offset, NOW + offset * 20_000 // events, b"key-%d" % key, b'{"a":%d,"b":%d}' % (key, offset), ())
        for offset, key in enumerate(chance.choices(range(KEYS), shares, k=events))
    ]
    batch = Columns.of("routed", 0, rows)
    return replace(batch, keys=Slices.of(batch.keys), values=Slices.of(batch.values))


def account(ledger: Ledger, batch: Columns, places: list[NDArray[np.int64]]) -> None:
    """What a router does for the receipt of one transaction."""
    usable = Usable(batch, cast(list[bytes], batch.keys), batch.timestamps)
    entry = ledger.entry(len(batch), 0)
    entry.consume(batch.offsets)
    for worker, indexes in enumerate(places):
        entry.route(worker, usable, indexes)
    written = {("routed", worker): [(0, len(indexes))] for worker, indexes in enumerate(places)}
    list(entry.records(written))


class NoSums(Sums):
    """Sums of nothing."""

    def add(self, *_: object) -> None:
        """Leaves them as they are."""

    def all(self, numbers: int) -> list[int]:
        """Nothing but zeros."""
        return [0] * numbers


class WithoutHashes(Accumulator):
    def __init__(self, job: JobSpec, worker: int, topic: str) -> None:
        super().__init__(job, worker, topic)
        self._sums = NoSums((0, 0))


def seconds(work: Callable[[], None], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - start) / repeats


def pre_aggregates(kind: type[Accumulator], job: JobSpec, batch: Columns) -> Callable[[], None]:
    """What a worker does from flush to flush, all but Kafka."""

    def work() -> None:
        accumulator = kind(job, 0, TOPIC)
        for _ in range(BATCHES):
            accumulator.add(batch)
        for _, partial in accumulator.partials(0):
            partial.encode()

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    for events in (500, 5000):
        batch = batch_of(events)
        ledger = Ledger(TOPIC, 0, ("routed", TOPIC), COUNT, 0)
        places = [np.arange(worker, events, WORKERS) for worker in range(WORKERS)]
        repeats = max(1, 50_000 // events)
        taken = [seconds(lambda: account(ledger, batch, places), repeats) for _ in range(rounds)]  # noqa: B023
        print(f"router, {events} events per transaction: {min(taken) / events * 1e6:.3f} µs per event")
        for name, job in (("count", COUNT), ("two sums", FIELDS)):
            with_, without = (pre_aggregates(kind, job, batch) for kind in (Accumulator, WithoutHashes))
            pairs = [(seconds(with_, 2), seconds(without, 2)) for _ in range(rounds)]
            whole, bare = (min(column) / events / BATCHES * 1e6 for column in zip(*pairs, strict=True))
            cost = whole - bare
            print(f"worker, {name}, batches of {events}: {cost:.3f} of {whole:.3f} µs per event ({cost / whole:.1%})")


if __name__ == "__main__":
    main()
