"""What a native aggregator does with partials, without Kafka: reading and merging them, in one run.

    python benchmarks/aggregator.py [--rounds 5]

Microseconds of CPU time on one core for each partial, the best of some rounds, for the jobs of `benchmarks/worker.py`:
partials of 10,000 and of 100,000 keys in two windows, by two workers, five flushes of the former and one of the latter.
Batches as they are polled, and, in turn with them, one by one, as what is unusual is read. Then what a result costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from keygrouping.accumulator import Accumulator
from keygrouping.job import JobSpec
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_aggregator.work import SLICE
from keygrouping_service.kafka.progress import END, MIN_TIME
from keygrouping_service.records.columns import Row
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.run import collect_rarely
from worker import BATCH, JOBS, NOW, TOPIC, batch_of

WORKERS = 2
KEYS = {10_000: 5, 100_000: 1}
"""Flushes of each worker, by keys."""
POLLED = 5000


def partials_of(job: JobSpec, keys: int, flushes: int) -> list[Row]:
    rows: list[Row] = []
    for flush in range(flushes):
        for worker in range(WORKERS):
            accumulator = Accumulator(job, worker, TOPIC)
            for number in range(keys // BATCH):
                accumulator.add(batch_of((flush * 100 + number) * BATCH, keys, 0.0))
            rows += [(0, NOW, key, partial.encode(), ()) for key, partial in accumulator.partials(0)]
    return [(offset, *row[1:]) for offset, row in enumerate(rows)]


def in_batches(windows: OpenWindows, batches: list[BufferBatch]) -> None:
    for batch in batches:
        for start in range(0, len(batch), SLICE):
            if windows.add_all(batch.cut(start, start + SLICE)).refused:
                raise AssertionError("the job can't use a partial of its benchmark")


def one_by_one(windows: OpenWindows, batches: list[BufferBatch]) -> None:
    for batch in batches:
        for offset, key, value in zip(batch.offsets.tolist(), batch.keys, batch.values, strict=True):
            windows.add(offset, key, value)


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
        for keys, flushes in KEYS.items():
            rows = partials_of(job, keys, flushes)
            polled = (rows[start : start + POLLED] for start in range(0, len(rows), POLLED))
            batches = [BufferBatch.of("partials", 0, some) for some in polled]
            took: list[tuple[float, float, float]] = []
            for _ in range(rounds + 1):
                windows, others = (OpenWindows(job, MIN_TIME, lambda: NOW / 1000) for _ in range(2))
                merging = seconds(in_batches, windows, batches), seconds(one_by_one, others, batches)
                groups = windows.groups
                took.append((*merging, seconds(closes, windows, batches)))
            batch, single, close = (min(column) * 1e6 for column in zip(*took[1:], strict=True))
            print(
                f"{name}, {keys:,} keys: {len(rows):,} partials, {batch / len(rows):.2f} µs each, "
                f"{single / len(rows):.2f} one by one; {groups:,} results, {close / groups:.2f} µs each"
            )


if __name__ == "__main__":
    main()
