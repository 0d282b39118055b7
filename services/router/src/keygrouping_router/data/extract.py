"""From a batch of records to events that can be routed: extraction, and what is late or of no use. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from aiokafka import ConsumerRecord
from keygrouping.job import MAX_KEY_BYTES, Extracted, JobSpec, Rejection
from keygrouping_service.records.surrogateescape import lenient
from numpy.typing import NDArray

from keygrouping_router.data.lateness import ACCEPTED, PartitionClock

Record: TypeAlias = "ConsumerRecord[bytes, bytes]"
Records: TypeAlias = Sequence[Record]

_SLICE = 1000
"""Records that are read as JSON at a stretch, before other tasks get a turn."""


@dataclass(slots=True)
class Usable:
    """The records of a batch that the job can use, column by column; `weights` is None if all weigh 1."""

    records: Records
    keys: list[bytes]
    times: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    def where(self, chosen: NDArray[np.bool_]) -> Usable:
        """Only the chosen records."""
        indexes = np.flatnonzero(chosen).tolist()
        weights = None if self.weights is None else self.weights[chosen]
        records = [self.records[i] for i in indexes]
        return Usable(records, [self.keys[i] for i in indexes], self.times[chosen], weights)


@dataclass(slots=True)
class Judged:
    """A batch, sorted out: what is usable and in time, what is late (and which of `REASONS`), what is unusable.

    `skipped` has, for each of the job's fields (by position), the usable records with a value of the wrong type.
    """

    usable: Usable
    late: list[tuple[Record, int]] = field(default_factory=list)
    rejected: list[tuple[Record, Rejection]] = field(default_factory=list)
    skipped: dict[int, list[Record]] = field(default_factory=dict)


@dataclass(slots=True)
class Routed:
    """The workers' shares of a batch, in the order in which the records came."""

    workers: NDArray[np.int32]
    hashes: NDArray[np.int64]

    def shares(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Each worker that gets something, with the indexes of its records."""
        order = np.argsort(self.workers, kind="stable")
        counts = np.bincount(self.workers)
        ends = np.cumsum(counts)
        for worker in np.flatnonzero(counts).tolist():
            yield worker, order[ends[worker] - counts[worker] : ends[worker]]


def parts(records: Records, most_bytes: int) -> Iterator[Records]:
    """Cuts a batch into parts of at most `most_bytes` of keys and values (a larger record is a part of its own)."""
    start = size = 0
    for index, record in enumerate(records):
        added = max(0, record.serialized_key_size) + max(0, record.serialized_value_size)
        if size + added > most_bytes and index > start:
            yield records[start:index]
            start, size = index, 0
        size += added
    yield records[start:]


class Extractor:
    """Reads what the job needs of records.

    Where key, timestamp and a weight of 1 are all there is to it (`plain`), whole columns are checked at once; the
    records one by one only if there is something wrong with one of them.
    """

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self.plain = not job.needs_value and (job.key.kind, job.weight.kind, job.time.kind) == (
            "record",
            "one",
            "timestamp",
        )

    async def extract(self, records: Records, now_ms: int) -> Judged:
        """Sorts out what can be used; lets other tasks run between slices."""
        if self.plain and not lenient():
            keys = [record.key for record in records]
            times = np.fromiter([record.timestamp for record in records], np.int64, len(records))
            if _all_usable(keys, times, now_ms + self._job.max_future_ms):
                return Judged(Usable(records, keys, times))
        return await self._one_by_one(records, now_ms)

    async def _one_by_one(self, records: Records, now_ms: int) -> Judged:
        usable: list[Record] = []
        extracted: list[Extracted] = []
        rejected: list[tuple[Record, Rejection]] = []
        skipped: dict[int, list[Record]] = {}
        for start in range(0, len(records), _SLICE):
            for record in records[start : start + _SLICE]:
                result = self._job.extract(record.key, record.value, record.headers, record.timestamp, now_ms)
                if isinstance(result, Rejection):
                    rejected.append((record, result))
                else:
                    usable.append(record)
                    extracted.append(result)
                    for position in result.skipped:
                        skipped.setdefault(position, []).append(record)
            await asyncio.sleep(0)
        times = np.fromiter((e.time_ms for e in extracted), np.int64, len(extracted))
        weights = None
        if self._job.weight.kind != "one":
            weights = np.fromiter((float(e.weight) for e in extracted), np.float64, len(extracted))
        return Judged(Usable(usable, [e.key for e in extracted], times, weights), [], rejected, skipped)


def _all_usable(keys: list[bytes], times: NDArray[np.int64], latest: int) -> bool:
    """Whether `JobSpec.extract` would refuse none of these records."""
    if not keys:
        return True
    return None not in keys and max(map(len, keys)) <= MAX_KEY_BYTES and times.min() >= 0 and times.max() <= latest


def sort_out_late(judged: Judged, clock: PartitionClock) -> Judged:
    """Takes the late events out; the clock moves on."""
    verdict = clock.judge(judged.usable.times)
    if not verdict.any():
        return judged
    records = judged.usable.records
    late = [(records[i], int(verdict[i])) for i in np.flatnonzero(verdict).tolist()]
    return Judged(judged.usable.where(verdict == ACCEPTED), late, judged.rejected, judged.skipped)
