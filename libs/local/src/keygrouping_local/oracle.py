"""What the results must be: one plain single-threaded program over `events`, sharing none of the stages' arithmetic.

Times and numbers are read by its own means too; which events can't be used it asks the job.
"""

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from datasketches import hll_sketch, hll_union, tgt_hll_type
from keygrouping.aggregate import Aggregate
from keygrouping.aggregate.bounds import bounds_of
from keygrouping.job import FieldValue, JobSpec, Rejection, picker
from keygrouping_service.records.batches import QUARANTINED
from keygrouping_service.records.bisection import REFUSED, UNPROCESSABLE
from keygrouping_service.records.fetching import TOO_LARGE, UNDECODABLE
from keygrouping_service.settings import ServiceSettings

from keygrouping_local.oracle_reading import Reading, read
from keygrouping_local.records import Record, dead_letters, read_all, reasons

WAS_IDLE = "partition-was-idle"
_LG_K = 12
_NOT_THE_JOBS = {TOO_LARGE, UNDECODABLE, REFUSED, UNPROCESSABLE}

Place = tuple[int, int]
"""Partition and offset of a record of `events`."""


class Value(NamedTuple):
    """A value, None also where it is beyond the floats, and its size.

    The size is the magnitude of what was added up, below which rounding has its say; 0 means exact.
    Where memory is bounded, `accept` says which other values are as good, because the split decides between them.
    """

    value: Any
    size: float
    accept: Callable[[Any], bool] | None = None


@dataclass
class Expected:
    """What must come of the events read so far: results by (key, window start), and the events left out."""

    windows: dict[tuple[bytes, int], dict[str, Value]] = field(default_factory=dict)
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
        self._fields: dict[tuple[bytes, int], list[tuple[FieldValue, ...]]] = defaultdict(list)
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
        for window, rows in self._fields.items():
            expected.events[window] = len(rows)
            expected.windows[window] = {
                aggregate.name: _value(aggregate, _present(rows, picker(positions)))
                for aggregate, positions in zip(self._job.aggregates, self._job.fields_of, strict=True)
            }
        return expected

    def _take(self, place: Place, key: bytes, event: Reading) -> None:
        confirmed = self._confirmed.get(place[0], -1)
        self._confirm(place[0], event.time_ms, confirmed)
        if place in self._left_out:
            return
        if event.time_ms < confirmed - self._job.lateness_ms:
            self._expected.late.add(place)
            return
        start = event.time_ms - (event.time_ms - self._job.window_offset_ms) % self._job.window_ms
        self._fields[key, start].append(event.fields)
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


def _present(rows: list[tuple[FieldValue, ...]], pick: Callable[[Sequence[Any]], Any] | None) -> list[Any]:
    """The values of an aggregate's inputs, if the first of them is there."""
    if pick is None:
        return rows
    values = [pick(row) for row in rows]
    return [value for value in values if (value[0] if isinstance(value, tuple) else value) is not None]


def _value(aggregate: Aggregate, values: list[Any]) -> Value:
    bounds = bounds_of(aggregate, values)
    if bounds is not None:
        return Value(bounds.exact, 0, bounds.accept)
    value = _AGGREGATE[aggregate.op](values)
    return value if value.value is None or math.isfinite(value.value) else Value(None, 0)


def _count(values: Sequence[Any]) -> Value:
    return Value(len(values), 0)


def _sum(values: Sequence[float]) -> Value:
    """Exact where all are integers."""
    if not values:
        return Value(None, 0)
    total = _total(values)
    return Value(total, 0 if isinstance(total, int) else _total(map(abs, values)))


def _mean(values: Sequence[float]) -> Value:
    return Value(_total(values) / len(values), _total(map(abs, values)) / len(values)) if values else Value(None, 0)


def _variance(values: Sequence[float]) -> Value:
    if len(values) < 2:
        return Value(None, 0)
    mean = _total(values) / len(values)
    squares = _total((value - mean) ** 2 for value in values)
    return Value(squares / (len(values) - 1), _total(value * value for value in values) / (len(values) - 1))


def _vwap(values: Sequence[tuple[float, float | None]]) -> Value:
    pairs = [(price, weight) for price, weight in values if weight is not None]
    weights = _total(weight for _, weight in pairs)
    if not weights:
        return Value(None, 0)
    # Weights that cancel out magnify the rounding of their sum.
    magnified = _total(abs(weight) for _, weight in pairs) / abs(weights)
    size = _total(abs(price * weight) for price, weight in pairs) / abs(weights) * magnified
    return Value(_total(price * weight for price, weight in pairs) / weights, size)


def _min(values: Sequence[float]) -> Value:
    return Value(min(values, default=None), 0)


def _max(values: Sequence[float]) -> Value:
    return Value(max(values, default=None), 0)


def _distinct(values: Sequence[str | int]) -> Value:
    sketch, union = hll_sketch(_LG_K, tgt_hll_type.HLL_8), hll_union(_LG_K)
    for value in set(map(str, values)):
        sketch.update(value)
    # United with itself, the estimate depends on the set alone and not on the order of updates.
    union.update(sketch)
    union.update(sketch)
    return Value(round(union.get_result(tgt_hll_type.HLL_8).get_estimate()), 0)


def _total(values: Iterable[float]) -> float:
    """The exact sum of integers; with fractions among them that of both, rounded; infinite beyond the floats."""
    numbers = list(values)
    fractions = [number for number in numbers if isinstance(number, float)]
    whole = sum(number for number in numbers if isinstance(number, int))
    if not fractions:
        return whole
    try:
        return float(Fraction(whole) + Fraction(math.fsum(fractions)))
    except OverflowError:
        return math.inf


_AGGREGATE: dict[str, Callable[[Sequence[Any]], Value]] = {
    "count": _count,
    "sum": _sum,
    "mean": _mean,
    "variance": _variance,
    "vwap": _vwap,
    "min": _min,
    "max": _max,
    "distinct": _distinct,
}
