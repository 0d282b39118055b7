"""From a batch of records to events that can be routed: extraction, and what is late or of no use. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple, cast

import numpy as np
from keygrouping.job import JobSpec, Rejection, extract_columns, is_plain
from keygrouping.slices import Slices
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import Record
from numpy.typing import NDArray

from keygrouping_router.data.lateness import ACCEPTED, PartitionClock


@dataclass(slots=True)
class Usable:
    """The records of a batch that the job can use, column by column; `weights` is None if all weigh 1."""

    batch: RecordBatch
    keys: Sequence[bytes]
    times: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    def cut(self, start: int, stop: int) -> Usable:
        """The records from row `start` up to `stop`, without it."""
        here = slice(start, stop)
        weights = None if self.weights is None else self.weights[here]
        return Usable(self.batch.cut(start, stop), self.keys[here], self.times[here], weights)

    def where(self, chosen: NDArray[np.bool_]) -> Usable:
        """Only the chosen records."""
        weights = None if self.weights is None else self.weights[chosen]
        keys = _chosen(self.keys, chosen)
        return Usable(self.batch.where(chosen), keys, self.times[chosen], weights)


def _chosen(keys: Sequence[bytes], chosen: NDArray[np.bool_]) -> Sequence[bytes]:
    if isinstance(keys, Slices):
        return cast("Sequence[bytes]", keys.where(chosen))
    return list(compress(keys, chosen.tolist()))


class Late(NamedTuple):
    """A late event: which of `REASONS`, and by how many ms (see `Judgement`)."""

    record: Record
    verdict: int
    by: int


@dataclass(slots=True)
class Judged:
    """A batch, sorted out: what is usable and in time, what is late (and which of `REASONS`), what is unusable.

    `skipped` has, for each of the job's fields (by position), the usable records with a value of the wrong type: their
    number, and the first of them.
    """

    usable: Usable
    late: list[Late] = field(default_factory=list)
    rejected: list[tuple[Record, Rejection]] = field(default_factory=list)
    skipped: dict[int, tuple[int, Record]] = field(default_factory=dict)


@dataclass(slots=True)
class Routed:
    """The worker of each record of a batch, and the hashes of its key."""

    workers: NDArray[np.int32]
    hashes: NDArray[np.int64]


def parts(batch: RecordBatch, most_bytes: int) -> Iterator[RecordBatch]:
    """Cuts a batch into parts of at most `most_bytes` of keys and values (a larger record is a part of its own)."""
    ends = np.cumsum(batch.sizes())
    start, before = 0, 0
    while start < len(batch):
        stop = max(start + 1, int(np.searchsorted(ends, before + most_bytes, side="right")))
        yield batch if stop - start == len(batch) else batch.cut(start, stop)
        start, before = stop, int(ends[stop - 1])


class Extractor:
    """Reads what the job needs of records, in a thread where that is more than a look at columns.

    What is compiled runs beside other tasks there; what is read one by one takes turns with them.
    """

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self.plain = is_plain(job)

    async def extract(self, batch: RecordBatch, now_ms: int) -> Judged:
        """Sorts out what can be used; `now_ms` is the wall clock."""
        if self.plain:
            return self._judged(batch, now_ms)
        return await asyncio.to_thread(self._judged, batch, now_ms)

    def _judged(self, batch: RecordBatch, now_ms: int) -> Judged:
        found = extract_columns(self._job, batch, now_ms)
        weights = None if found.weights is None else found.weights.floats()
        rejected = [(batch.record(row), why) for row, why in found.rejected]
        skipped = {position: (len(rows), batch.record(rows[0])) for position, rows in found.skipped.items()}
        return Judged(Usable(found.events, found.keys, found.times, weights), [], rejected, skipped)


def sort_out_late(judged: Judged, clock: PartitionClock) -> Judged:
    """Takes the late events out; the clock moves on."""
    verdict, late_by = clock.judge(judged.usable.times)
    if not verdict.any():
        return judged
    batch = judged.usable.batch
    late = [Late(batch.record(i), int(verdict[i]), int(late_by[i])) for i in np.flatnonzero(verdict).tolist()]
    return Judged(judged.usable.where(verdict == ACCEPTED), late, judged.rejected, judged.skipped)
