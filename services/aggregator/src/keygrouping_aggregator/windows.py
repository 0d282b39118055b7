"""The open windows of one partition of `partials`: merging, closing, and from where a restart must read again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from keygrouping.aggregate.publishing import published
from keygrouping.grouped import Groups
from keygrouping.job import JobSpec
from keygrouping.open_groups import Group, OpenGroups
from keygrouping.partial import Partial, RecordError, Result
from keygrouping.partial_columns import PartialColumns, PartialReader
from keygrouping.slices import Slices
from keygrouping_service.kafka.partials import MOST_WORKERS, OFFSET_BITS, check, checked, states_of
from keygrouping_service.records.protocols import RecordBatch
from numpy.typing import NDArray

_MANY = f"more than {MOST_WORKERS} workers of different topics `routed` in the open windows"


@dataclass(slots=True)
class _Window:
    """The offset of a window's first partial, and its number of keys."""

    offset: int
    groups: int = 0


class Failure(NamedTuple):
    """A result of which aggregates are null because their code failed, and the offset of its window's first partial."""

    result: Result
    offset: int
    detail: str


class Added(NamedTuple):
    """What has become of a batch: how many partials were merged, and passed over, and the rows of those that were
    refused, with what is wrong with them.
    """

    merged: int
    passed_over: int
    refused: list[tuple[int, str]]


class OpenWindows:
    """What is known of the windows that are not final yet.

    `closed` (event time in ms): windows that end there or before are final; partials of them are passed over.
    Partials may come twice and in any order: those with the same key, topic, worker, start and first offset count once.
    """

    def __init__(self, job: JobSpec, closed: int, clock: Callable[[], float] = time.time) -> None:
        self._job = job
        self._clock = clock
        self._reader = PartialReader(job.aggregates)
        self._windows: dict[int, _Window] = {}
        """By their starts."""
        self._groups = OpenGroups(job.aggregates)
        """Those of closed windows, too, until they are half of all."""
        self._lanes = Groups()
        """Numbers the workers of each topic that partials are of, for as long as windows are open."""
        self.closed = closed
        self._failures: list[Failure] = []

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def groups(self) -> int:
        """Number of keys held, summed over the windows."""
        return sum(window.groups for window in self._windows.values())

    def add_all(self, records: RecordBatch) -> Added:
        """Merges the partials of a batch in their order.

        What can't be merged, as it is no partial of this job or its aggregates' code fails, changes no result.
        """
        keys, now_ms = Slices.of(records.keys), int(self._clock() * 1000)
        partials = self._reader.read(Slices.of(records.values))
        partials.judge(checked(keys, partials, self._job, now_ms), self.closed)
        refused: dict[int, str] = {}
        for row in np.flatnonzero(~partials.sure).tolist():
            try:
                self._read(partials, row, keys[row], records.values[row], now_ms)
            except RecordError as error:
                refused[row] = str(error)
        is_open = partials.end > self.closed
        is_open[list(refused)] = False
        merged = 0
        if len(rows := np.flatnonzero(is_open)):
            merged, unmerged = self._merge(partials, rows, records.offsets[rows], keys)
            refused |= unmerged
        return Added(merged, len(records) - len(refused) - merged, sorted(refused.items()))

    def _read(self, partials: PartialColumns, row: int, key: bytes | None, value: bytes | None, now_ms: int) -> None:
        """Reads a partial that is none of the usual ones; raises `RecordError` if it is none of this job."""
        partial = Partial.decode(value)
        check(key, partial, self._job, now_ms)
        partials.put(row, partial, states_of(partial, self._job.aggregates) if partial.end > self.closed else ())

    def _merge(
        self, partials: PartialColumns, rows: NDArray[np.int64], offsets: NDArray[np.int64], keys: Slices
    ) -> tuple[int, dict[int, str]]:
        """Merges these rows, whose windows are open; see `OpenGroups.add`."""
        lanes = self._lanes_of(partials, rows)
        known = lanes < MOST_WORKERS
        refused = dict.fromkeys(rows[~known].tolist(), _MANY)
        identities = (lanes << OFFSET_BITS | partials.first[rows])[known]
        rows, before = rows[known], len(self._groups)
        starts, places = np.unique(partials.start[rows], return_index=True)
        for start, offset in zip(starts.tolist(), offsets[known][places].tolist(), strict=True):
            self._windows.setdefault(start, _Window(offset))
        merged, unmerged = self._groups.add(partials, rows, keys.where(rows), identities)
        for start, groups in Counter(self._groups.windows[before:].tolist()).items():
            self._windows[start].groups += groups
        return merged, refused | unmerged

    def _lanes_of(self, partials: PartialColumns, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of their workers; those that are too many are forgotten."""
        if not self._windows:
            self._lanes = Groups()
        lanes = self._lanes.add(partials.topics(rows), partials.worker[rows]).by_row()
        if len(self._lanes) > MOST_WORKERS:
            self._lanes = self._lanes.cut(np.arange(MOST_WORKERS))
        return lanes

    def next_stop(self, time: int, most: int) -> int:
        """The event time to close up to next on the way to `time`, so that about `most` results come at once.

        A window is never parted: it may hold more than `most` results by itself.
        """
        results = 0
        for start, window in sorted(self._windows.items()):
            results += window.groups
            end = start + self._job.window_ms
            if end >= time or results >= most:
                return min(end, time)
        return time

    def close(self, time: int) -> Iterator[Result]:
        """Final results of all windows that end at `time` or before, the oldest first; they are forgotten.

        To be read to its end: the windows are gone from the first result on.
        """
        before, self.closed = self.closed, max(self.closed, time)
        length = self._job.window_ms
        due = [start for start in self._windows if start + length <= self.closed]
        if not due:
            return iter(())
        offsets = {start: self._windows.pop(start).offset for start in due}
        starts, ends = self._groups.windows, self._groups.windows + length
        chosen = np.flatnonzero((ends > before) & (ends <= self.closed))
        closing = self._groups.taken(chosen[np.argsort(starts[chosen], kind="stable")])
        self._groups.release(chosen)
        if 2 * self.groups <= len(self._groups):
            self._groups = self._groups.cut(np.flatnonzero(ends > self.closed))
        return (self._result(group, offsets[group.start]) for group in closing)

    def take_failures(self) -> list[Failure]:
        """What has failed in the results that were closed since it was asked last."""
        failures, self._failures = self._failures, []
        return failures

    def _result(self, group: Group, offset: int) -> Result:
        values = {
            aggregate.name: published(aggregate, aggregate.finish, state)
            for aggregate, state in zip(self._job.aggregates, group.states, strict=True)
        }
        result = Result(
            key=group.key,
            start=group.start,
            end=group.start + self._job.window_ms,
            events=group.events,
            weight=group.weight,
            final=True,
            aggregates={name: value for name, (value, _) in values.items()},
            receipt=group.hashes,
        )
        if detail := "; ".join(fault for _, fault in values.values() if fault):
            self._failures.append(Failure(result, offset, detail))
        return result

    def restart_offset(self, position: int) -> int:
        """The offset from which everything that is still open can be rebuilt, `position` if nothing is open."""
        return min((window.offset for window in self._windows.values()), default=position)
