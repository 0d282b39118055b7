"""From a batch of records to events that can be routed: extraction, and what is late or of no use. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import NamedTuple, cast

import numpy as np
from keygrouping.job import ExtractedColumns, JobSpec, Rejection, extract_columns, is_plain
from keygrouping.slices import Slices
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import Record
from numpy.typing import NDArray

from keygrouping_router.data.lateness import ACCEPTED, PartitionClock

_SLICE = 2500
"""Records that are read as JSON at a stretch, before other tasks get a turn."""


@dataclass(slots=True)
class Usable:
    """The records of a batch that the job can use, column by column; `weights` is None if all weigh 1."""

    batch: RecordBatch
    keys: Sequence[bytes]
    times: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

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


def parts(batch: RecordBatch, most_bytes: int) -> Iterator[RecordBatch]:
    """Cuts a batch into parts of at most `most_bytes` of keys and values (a larger record is a part of its own)."""
    ends = np.cumsum(batch.sizes())
    start, before = 0, 0
    while start < len(batch):
        stop = max(start + 1, int(np.searchsorted(ends, before + most_bytes, side="right")))
        yield batch if stop - start == len(batch) else batch.cut(start, stop)
        start, before = stop, int(ends[stop - 1])


class Extractor:
    """Reads what the job needs of records, letting other tasks run where that takes long."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self.plain = is_plain(job)

    async def extract(self, batch: RecordBatch, now_ms: int) -> Judged:
        """Sorts out what can be used; `now_ms` is the wall clock."""
        if self.plain:
            return _judged([extract_columns(self._job, batch, now_ms)], [batch])
        slices = [batch.cut(start, start + _SLICE) for start in range(0, max(1, len(batch)), _SLICE)]
        found = []
        for part in slices:
            found.append(extract_columns(self._job, part, now_ms))
            await asyncio.sleep(0)
        return _judged(found, slices)


def _judged(found: Sequence[ExtractedColumns[RecordBatch]], slices: Sequence[RecordBatch]) -> Judged:
    """One batch of what was found in slices of it."""
    rejected: list[tuple[Record, Rejection]] = []
    skipped: dict[int, tuple[int, Record]] = {}
    for one, part in zip(found, slices, strict=True):
        rejected += [(part.record(row), why) for row, why in one.rejected]
        for position, rows in one.skipped.items():
            known, first = skipped.get(position) or (0, part.record(rows[0]))
            skipped[position] = (known + len(rows), first)
    return Judged(_joined(found), [], rejected, skipped)


def _joined(found: Sequence[ExtractedColumns[RecordBatch]]) -> Usable:
    first, *later = found
    weights = None
    if first.weights is not None:
        weights = np.array([float(weight) for one in found for weight in one.weights or ()], np.float64)
    if not later:
        return Usable(first.events, first.keys, first.times, weights)
    events = first.events.followed_by([one.events for one in later])
    return Usable(events, _all_keys([one.keys for one in found]), np.concatenate([one.times for one in found]), weights)


def _all_keys(columns: Sequence[Sequence[bytes]]) -> Sequence[bytes]:
    lying = [column for column in columns if isinstance(column, Slices)]
    if len(lying) == len(columns):
        return cast("Sequence[bytes]", lying[0].followed_by(lying[1:]))
    return list(chain.from_iterable(columns))


def sort_out_late(judged: Judged, clock: PartitionClock) -> Judged:
    """Takes the late events out; the clock moves on."""
    verdict, late_by = clock.judge(judged.usable.times)
    if not verdict.any():
        return judged
    batch = judged.usable.batch
    late = [Late(batch.record(i), int(verdict[i]), int(late_by[i])) for i in np.flatnonzero(verdict).tolist()]
    return Judged(judged.usable.where(verdict == ACCEPTED), late, judged.rejected, judged.skipped)
