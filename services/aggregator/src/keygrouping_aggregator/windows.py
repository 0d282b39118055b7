"""The open windows of one partition of `partials`: merging, closing, and from where a restart must read again."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from keygrouping.aggregate.publishing import published
from keygrouping.job import JobSpec
from keygrouping.partial import Partial, RecordError, Result
from keygrouping.partial_columns import PartialReader, Read
from keygrouping.receipt import MODULUS
from keygrouping.slices import Slices
from keygrouping_service.kafka.partials import MOST_WORKERS, OFFSET_BITS, check, checked, states_of
from keygrouping_service.records.protocols import RecordBatch


@dataclass(slots=True)
class _Group:
    """One key in one window: what is merged so far, and the identities of the partials that are in it."""

    events: int
    weight: int | float
    receipt: int
    states: Sequence[Any]
    seen: array[int]

    def is_new(self, identity: int) -> bool:
        """Notes an identity; False if it was there. Sorted integers: 8 bytes for each partial."""
        place = bisect_left(self.seen, identity)
        if place < len(self.seen) and self.seen[place] == identity:
            return False
        self.seen.insert(place, identity)
        return True


@dataclass(slots=True)
class _Window:
    """All keys of one window, and the offset of its first partial."""

    offset: int
    groups: dict[bytes, _Group] = field(default_factory=dict)


class Failure(NamedTuple):
    """A result of which aggregates are null because their code failed, and the offset of its window's first partial."""

    result: Result
    offset: int
    detail: str


@dataclass(slots=True)
class Added:
    """What has become of a batch: how many partials were merged (True) or passed over (False), and the rows of those
    that were refused, with what is wrong with them.
    """

    outcomes: Counter[bool] = field(default_factory=Counter)
    refused: list[tuple[int, str]] = field(default_factory=list)


class OpenWindows:
    """What is known of the windows that are not final yet.

    `closed` (event time in ms): windows that end there or before are final; partials of them are passed over.
    Partials may come twice and in any order: those with the same key, topic, worker, start and first offset count once.
    """

    def __init__(self, job: JobSpec, closed: int, clock: Callable[[], float] = time.time) -> None:
        self._job = job
        self._clock = clock
        self._aggregates = job.aggregates
        self._reader = PartialReader(job.aggregates)
        self._windows: dict[tuple[int, int], _Window] = {}
        self._lanes: dict[tuple[str, int], int] = {}
        """A number for each worker of each topic that partials are of, for as long as windows are open."""
        self.closed = closed
        self._failures: list[Failure] = []

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def groups(self) -> int:
        """Number of keys held, summed over the windows."""
        return sum(len(window.groups) for window in self._windows.values())

    def add_all(self, records: RecordBatch) -> Added:
        """Merges the partials of a batch, one after the other, as `add` would; most are read in columns before."""
        keys, added = Slices.of(records.keys), Added()
        read = self._reader.read(Slices.of(records.values))
        good = checked(keys, read, self._job, int(self._clock() * 1000))
        ready = read.rows(self._aggregates, good, self.closed)
        for row, (offset, key, partial) in enumerate(zip(records.offsets.tolist(), keys, ready, strict=True)):
            try:
                if partial is not None and key is not None:
                    merged = self._put(offset, key, partial)
                else:
                    merged = self.add(offset, key, records.values[row])
            except RecordError as error:
                added.refused.append((row, str(error)))
            else:
                added.outcomes[merged] += 1
        return added

    def add(self, offset: int, key: bytes | None, value: bytes | None) -> bool:
        """Merges the partial at an offset; False if its window is final or it was merged before.

        Raises `RecordError` if it is no partial of this job, or if it can't be merged; no result is changed then.
        """
        partial = Partial.decode(value)
        check(key, partial, self._job, int(self._clock() * 1000))
        assert key is not None
        if partial.end <= self.closed:
            return False
        states = tuple(states_of(partial, self._aggregates))
        members = (partial.worker, partial.start, partial.end, partial.first, partial.events, partial.weight)
        return self._put(offset, key, Read(partial.topic, *members, partial.hashes, states))

    def _put(self, offset: int, key: bytes, partial: Read) -> bool:
        if partial.end <= self.closed:
            return False
        identity = self._lane(partial) << OFFSET_BITS | partial.first
        window = self._windows.get((partial.start, partial.end))
        if window is None:
            window = self._windows[partial.start, partial.end] = _Window(offset)
        group = window.groups.get(key)
        if group is None:
            seen = array("q", (identity,))
            window.groups[key] = _Group(partial.events, partial.weight, partial.hashes, partial.states, seen)
            return True
        return group.is_new(identity) and self._merge(group, partial)

    def _lane(self, partial: Read) -> int:
        if not self._windows:
            self._lanes.clear()
        lane = self._lanes.setdefault((partial.topic, partial.worker), len(self._lanes))
        if lane >= MOST_WORKERS:
            del self._lanes[partial.topic, partial.worker]
            raise RecordError(f"more than {MOST_WORKERS} workers of different topics `routed` in the open windows")
        return lane

    def _merge(self, group: _Group, partial: Read) -> bool:
        merged = []
        for aggregate, left, right in zip(self._aggregates, group.states, partial.states, strict=True):
            try:
                merged.append(aggregate.merge(left, right))
            except Exception as error:
                raise RecordError(aggregate.failed(error)) from error
        group.states = merged
        group.events += partial.events
        group.weight += partial.weight
        group.receipt = (group.receipt + partial.hashes) % MODULUS
        return True

    def next_stop(self, time: int, most: int) -> int:
        """The event time to close up to next on the way to `time`, so that about `most` results come at once.

        A window is never parted: it may hold more than `most` results by itself.
        """
        results = 0
        for (_, end), window in sorted(self._windows.items(), key=lambda item: item[0][1]):
            results += len(window.groups)
            if end >= time or results >= most:
                return min(end, time)
        return time

    def close(self, time: int) -> Iterator[Result]:
        """Final results of all windows that end at `time` or before, the oldest first; they are forgotten.

        To be read to its end: the windows are gone from the first result on.
        """
        self.closed = max(self.closed, time)
        due = sorted(bounds for bounds in self._windows if bounds[1] <= self.closed)
        closing = [(bounds, self._windows.pop(bounds)) for bounds in due]
        return (
            self._result(key, bounds, group, window.offset)
            for bounds, window in closing
            for key, group in window.groups.items()
        )

    def take_failures(self) -> list[Failure]:
        """What has failed in the results that were closed since it was asked last."""
        failures, self._failures = self._failures, []
        return failures

    def _result(self, key: bytes, bounds: tuple[int, int], group: _Group, offset: int) -> Result:
        values = {
            aggregate.name: published(aggregate, aggregate.finish, state)
            for aggregate, state in zip(self._aggregates, group.states, strict=True)
        }
        result = Result(
            key=key,
            start=bounds[0],
            end=bounds[1],
            events=group.events,
            weight=group.weight,
            final=True,
            aggregates={name: value for name, (value, _) in values.items()},
            receipt=group.receipt,
        )
        if detail := "; ".join(fault for _, fault in values.values() if fault):
            self._failures.append(Failure(result, offset, detail))
        return result

    def restart_offset(self, position: int) -> int:
        """The offset from which everything that is still open can be rebuilt, `position` if nothing is open."""
        return min((window.offset for window in self._windows.values()), default=position)
