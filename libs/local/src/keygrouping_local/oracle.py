"""What the results must be: one plain single-threaded program over `events`, sharing none of the stages' arithmetic.

Times and numbers are read by its own means too; which events can't be used it asks the job, and what is to be published
of their values the aggregates' `expected`, which knows no states.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from keygrouping.aggregate import Answer
from keygrouping.job import JobSpec, Rejection
from keygrouping.oracle.counting import Counting
from keygrouping.oracle.reading import Reading, read
from keygrouping_service.records.batches import QUARANTINED
from keygrouping_service.records.bisection import REFUSED, UNPROCESSABLE
from keygrouping_service.records.record import TOO_LARGE, UNDECODABLE, Record
from keygrouping_service.settings import ServiceSettings

from keygrouping_local.records import dead_letters, read_all, reasons

WAS_IDLE = "partition-was-idle"
_NOT_THE_JOBS = {TOO_LARGE, UNDECODABLE, REFUSED, UNPROCESSABLE}

Place = tuple[int, int]
"""Partition and offset of a record of `events`."""


@dataclass
class Expected:
    """What must come of the events read so far: results by (key, window start), and the events left out."""

    windows: dict[tuple[bytes, int], Mapping[str, Answer]] = field(default_factory=dict)
    events: dict[tuple[bytes, int], int] = field(default_factory=dict)
    late: set[Place] = field(default_factory=set)
    dead: dict[Place, str] = field(default_factory=dict)
    skipped: dict[int, list[Place]] = field(default_factory=lambda: defaultdict(list))
    """By position in the job's fields, the events used whose value has the wrong type."""
    read: int = 0


class Oracle:
    """Reads the records of `events`, each partition in offset order, and aggregates them in the most obvious way.

    `left_out` are events that the routers have put into `late` because their partition had been idle, or aside because
    people had quarantined their key: decisions that depend on the wall clock, so they are taken as made. So are those
    in `unprocessed`, the dead letters for reasons that lie in the routers and not in the job. `now_ms` is the clock for
    `max_future`.
    """

    def __init__(
        self,
        job: JobSpec,
        left_out: Set[Place] = frozenset(),
        now_ms: int | None = None,
        unprocessed: Mapping[Place, str] = MappingProxyType({}),
    ) -> None:
        self._job = job
        self._left_out = left_out
        self._unprocessed = unprocessed
        self._now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        self._last: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=2 * job.confirmations))
        self._confirmed: dict[int, int] = {}
        self._counting = Counting(job)
        self._expected = Expected()

    def add(self, records: Iterable[Record]) -> None:
        """Takes the next records of a partition."""
        for record in records:
            self._expected.read += 1
            place = (record.partition, record.offset)
            if place in self._unprocessed:
                self._expected.dead[place] = self._unprocessed[place]
                continue
            event = self._job.extract(record.key, record.value, record.headers, record.timestamp, self._now_ms)
            if isinstance(event, Rejection):
                self._expected.dead[place] = event.reason
            else:
                self._take(place, event.key, read(self._job, record.value, record.timestamp))

    def finish(self) -> Expected:
        """Returns what is expected of all events taken."""
        expected = self._expected
        for place in self._counting.places:
            expected.events[place], expected.windows[place] = self._counting.take(place)
        return expected

    def _take(self, place: Place, key: bytes, event: Reading) -> None:
        confirmed = self._confirmed.get(place[0], -1)
        self._confirm(place[0], event.time_ms, confirmed)
        if place in self._left_out:
            return
        if event.time_ms < confirmed - self._job.lateness_ms:
            self._expected.late.add(place)
            return
        self._counting.add(key, event)
        for position in event.skipped:
            self._expected.skipped[position].append(place)

    def _confirm(self, partition: int, time_ms: int, confirmed: int) -> None:
        """Moves a partition's time to where half of the last 2 x `confirmations` events have come."""
        last = self._last[partition]
        last.append(time_ms)
        if time_ms > confirmed and len(last) >= self._job.confirmations:
            self._confirmed[partition] = max(confirmed, sorted(last)[-self._job.confirmations])


async def expect(settings: ServiceSettings, job: JobSpec) -> Expected:
    """Returns what the results of everything that stands in `events` now must be."""
    late = await reasons(settings, settings.late_topic)
    dead = await dead_letters(settings)
    unprocessed = {place: reason for place, reason in dead.items() if reason in _NOT_THE_JOBS}
    quarantined = {place for place, reason in dead.items() if reason == QUARANTINED}
    was_idle = {place for place, reason in late.items() if reason == WAS_IDLE}
    oracle = Oracle(job, was_idle | quarantined, unprocessed=unprocessed)
    async for records in read_all(settings, settings.events_topic):
        oracle.add(records)
    expected = oracle.finish()
    expected.dead.update(dict.fromkeys(quarantined - expected.dead.keys(), QUARANTINED))
    return expected
