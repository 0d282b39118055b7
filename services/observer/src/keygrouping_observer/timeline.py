"""Which interval a partial belongs to, and when one is complete: from the records, not from when they were read.

Partials carry the time of their writing. Within a partition of `partials` time never goes back here: a record counts at
the latest time seen so far, so every interval is one range of offsets in every partition, and reading again gives the
same. An interval is complete when every partition has shown a later record. A partition that is silent counts as
beyond an interval once its end, looked at `idle_timeout` after the interval, has been read; should it bring an older
record all the same, that counts in the next interval.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from keygrouping_service.records.record import Record

from keygrouping_observer import metrics

_MOST_AHEAD_MS = 60_000
"""A record whose time is further ahead of the clock was written by a wrong clock: it counts at the time before it."""


class Waiting(NamedTuple):
    """A record that has been read and not counted, and the time (ms) at which it counts."""

    time: int
    record: Record


class Span(NamedTuple):
    """An interval: its bounds in ms since the epoch."""

    start: int
    end: int


@dataclass(slots=True)
class Lane:
    """A partition of `partials`: `next` is the offset of the first record that has not been counted."""

    partition: int
    next: int
    position: int
    """Where reading goes on."""
    end: int | None = None
    """The partition's end at the last look."""
    looked: int = 0
    """When that look began (ms)."""
    waiting: deque[Waiting] = field(default_factory=deque)

    def is_beyond(self, time: int, grace: int) -> bool:
        """Whether no record before a time (ms) is to come; a silent lane says so `grace` ms after it."""
        if self.waiting:
            return self.waiting[0].time >= time
        return self.end is not None and self.position >= self.end and self.looked >= time + grace

    def has_counted(self, end: int) -> bool:
        """Whether all records before an offset have been counted."""
        return (self.waiting[0].record.offset if self.waiting else self.position) >= end


class Timeline:
    """Deals the records of all lanes out into intervals, one interval after the other.

    One interval is open at a time. Lanes that are ahead of it keep what has been read and are not read on, so memory is
    bounded however unevenly the partitions are read.
    """

    def __init__(self, lanes: Sequence[Lane], closed: int, interval_ms: int, idle_ms: int) -> None:
        self.lanes = {lane.partition: lane for lane in lanes}
        self.closed = closed
        """The end (ms) of the last interval; no record counts before it any more."""
        self.open: Span | None = None
        self._interval = interval_ms
        self._idle = idle_ms

    @property
    def hungry(self) -> list[int]:
        """Partitions that should be read on."""
        return [partition for partition, lane in self.lanes.items() if not lane.waiting]

    def offer(self, partition: int, records: Iterable[Record], position: int, now: int) -> None:
        """Takes in what was read of a hungry partition; `position` is its next offset, `now` the wall clock in ms."""
        lane = self.lanes[partition]
        time = self.open.start if self.open else self.closed
        for record in records:
            if record.timestamp <= now + _MOST_AHEAD_MS:
                time = max(time, record.timestamp)
            if record.timestamp < time // self._interval * self._interval:
                metrics.DISPLACED.inc()
            lane.waiting.append(Waiting(time, record))
        lane.position = position

    def look(self, ends: Mapping[int, int], at: int) -> None:
        """The ends of the partitions, asked for at `at` (ms) or later."""
        for partition, end in ends.items():
            if partition in self.lanes:
                self.lanes[partition].end = end
                self.lanes[partition].looked = at

    def take(self) -> Iterator[tuple[Lane, Record]]:
        """The records of the open interval that are there; opens the next interval if none is open and that is safe."""
        if self.open is None:
            self.open = self._next()
        if self.open is None:
            return
        for lane in self.lanes.values():
            while lane.waiting and lane.waiting[0].time < self.open.end:
                record = lane.waiting.popleft().record
                lane.next = record.offset + 1
                yield lane, record

    def _next(self) -> Span | None:
        times = [lane.waiting[0].time for lane in self.lanes.values() if lane.waiting]
        if not times:
            return None
        start = max(self.closed, min(times) // self._interval * self._interval)
        if not self._all_beyond(start):
            return None
        return Span(start, (start // self._interval + 1) * self._interval)

    @property
    def complete(self) -> bool:
        """Whether an interval is open and all its records have been taken."""
        return self.open is not None and self._all_beyond(self.open.end)

    def close(self) -> None:
        """Ends the open interval."""
        assert self.open is not None
        self.closed, self.open = self.open.end, None

    def _all_beyond(self, time: int) -> bool:
        return all(lane.is_beyond(time, self._idle) for lane in self.lanes.values())

    def has_counted(self, ends: Mapping[int, int]) -> bool:
        """Whether all records before these ends have been counted."""
        return all(lane.has_counted(ends.get(partition, 0)) for partition, lane in self.lanes.items())
