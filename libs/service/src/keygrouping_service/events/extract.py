"""From a batch of records to events that can be used: extraction, and what is late or of no use. No I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from keygrouping.job import ExtractedColumns, JobSpec, Rejection, extract_columns, is_plain

from keygrouping_service.events.lateness import ACCEPTED, PartitionClock
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import Record


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

    usable: ExtractedColumns[RecordBatch]
    late: list[Late] = field(default_factory=list)
    rejected: list[tuple[Record, Rejection]] = field(default_factory=list)
    skipped: dict[int, tuple[int, Record]] = field(default_factory=dict)


def parts(batch: RecordBatch, most_bytes: int) -> Iterator[RecordBatch]:
    """Cuts a batch into parts of at most `most_bytes` of content (a larger record is a part of its own)."""
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
        rejected = [(batch.record(row), why) for row, why in found.rejected]
        skipped = {position: (len(rows), batch.record(rows[0])) for position, rows in found.skipped.items()}
        return Judged(found, [], rejected, skipped)


def sort_out_late(judged: Judged, clock: PartitionClock) -> Judged:
    """Takes the late events out; the clock moves on."""
    verdict, late_by = clock.judge(judged.usable.times)
    if not verdict.any():
        return judged
    batch = judged.usable.events
    late = [Late(batch.record(i), int(verdict[i]), int(late_by[i])) for i in np.flatnonzero(verdict).tolist()]
    return Judged(judged.usable.where(verdict == ACCEPTED), late, judged.rejected, judged.skipped)
