"""What a native aggregator does with partials, without Kafka: reading and merging them, in one run.

    python benchmarks/aggregator.py [--rounds 5]

Microseconds of CPU time on one core for each partial, the best of some rounds, for the jobs of `benchmarks/worker.py`:
partials of many keys in two windows, of which each is in two partials, in ten, or in one, and of one key in 10,000
partials of 100 workers. In turn with them the same as what is unusual is read, by itself. Then what a result costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from keygrouping.accumulator import Accumulator
from keygrouping.job import JobSpec
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_aggregator.work import SLICE
from keygrouping_service.kafka.progress import END, MIN_TIME
from keygrouping_service.records.columns import Row
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.run import collect_rarely
from worker import BATCH, JOBS, NOW, TOPIC, batch_of

POLLED = 5000


class Case(NamedTuple):
    """Keys, and the partials of each: so many workers, with so many flushes."""

    keys: int
    workers: int
    flushes: int


CASES = (Case(10_000, 2, 5), Case(100_000, 2, 1), Case(100_000, 1, 1), Case(1, 100, 50))


def partials_of(job: JobSpec, case: Case) -> list[Row]:
    rows: list[Row] = []
    for flush in range(case.flushes):
        accumulator = Accumulator(job, 0, TOPIC)
        for number in range(max(1, case.keys // BATCH)):
            accumulator.add(batch_of((flush * 100 + number) * BATCH, case.keys, 0.0))
        flushed = list(accumulator.partials(0))
        for worker in range(case.workers):
            rows += [(0, NOW, key, replace(partial, worker=worker).encode(), ()) for key, partial in flushed]
    return [(offset, *row[1:]) for offset, row in enumerate(rows)]


def unusual(row: Row) -> Row:
    """The same partial as no worker writes it: names with escapes are not read in columns."""
    offset, time_ms, key, value, headers = row
    assert value is not None
    return offset, time_ms, key, value.replace(b'"v":', b'"\\u0076":', 1), headers


def in_batches(windows: OpenWindows, batches: list[BufferBatch]) -> None:
    for batch in batches:
        for start in range(0, len(batch), SLICE):
            if windows.add_all(batch.cut(start, start + SLICE)).refused:
                raise AssertionError("the job can't use a partial of its benchmark")


def closes(windows: OpenWindows, _: list[BufferBatch]) -> None:
    for result in windows.close(END):
        result.encode()


def seconds(
    work: Callable[[OpenWindows, list[BufferBatch]], None], windows: OpenWindows, batches: list[BufferBatch]
) -> float:
    start = time.process_time()
    work(windows, batches)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    collect_rarely()
    for name, aggregates in JOBS.items():
        job = JobSpec.from_json({"window": "10s", "aggregates": aggregates})
        for case in CASES:
            rows = partials_of(job, case)
            batches, others = (
                [BufferBatch.of("partials", 0, some[start : start + POLLED]) for start in range(0, len(rows), POLLED)]
                for some in (rows, list(map(unusual, rows)))
            )
            took: list[tuple[float, float, float]] = []
            for _ in range(rounds + 1):
                windows = OpenWindows(job, MIN_TIME, lambda: NOW / 1000)
                single = seconds(in_batches, OpenWindows(job, MIN_TIME, lambda: NOW / 1000), others)
                merging = seconds(in_batches, windows, batches)
                groups = windows.groups
                took.append((merging, single, seconds(closes, windows, batches)))
            batch, single, close = (min(column) * 1e6 for column in zip(*took[1:], strict=True))
            print(
                f"{name}, {case.keys:,} keys, {case.workers} workers, {case.flushes} flushes: {len(rows):,} partials, "
                f"{batch / len(rows):.2f} µs each, {single / len(rows):.2f} as unusual ones; "
                f"{groups:,} results, {close / groups:.2f} µs each"
            )


if __name__ == "__main__":
    main()
