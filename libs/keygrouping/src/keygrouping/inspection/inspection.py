"""Takes in events, batch by batch, and reports what they are like."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping import CHECKS
from keygrouping.hashing import SEED, hash_keys
from keygrouping.inspection.batch import Batch, Reading
from keygrouping.inspection.names import KeyNaming
from keygrouping.inspection.report import (
    HotKeyReport,
    Outcome,
    PartitionLoad,
    Report,
    SourceReport,
    TrendPoint,
    heaviest_of,
)
from keygrouping.inspection.span import Span, joined, span_of
from keygrouping.inspection.top_keys import TopKeys
from keygrouping.inspection.trend import CAPACITY, Point, Trend, share, thirds
from keygrouping.inspection.trial import Trial
from keygrouping.keyspace import SpaceSaving
from keygrouping.measure import lambda_

INTERVAL = 50_000
"""Events between two plans, unless told otherwise."""

_SECONDS = 10.0
_TICKS = 32


class Inspection:
    """Feeds each grouping, for each number of workers, with the events, and counts their keys.

    An interval of so many events is played as ten seconds, a router's usual time between two plans; groupings are told
    the time 32 times in it. Memory: that of the groupings, of two sketches, and of `Trend`, whatever is read.
    """

    def __init__(
        self,
        groupings: Sequence[tuple[str, Mapping[str, object]]],
        workers: Sequence[int],
        naming: KeyNaming,
        interval: int = INTERVAL,
    ) -> None:
        if interval < _TICKS:
            raise ValueError(f"interval must be at least {_TICKS} events, not {interval}")
        self.events = 0
        self._interval = interval
        self._marks = [-(-interval * tick // _TICKS) for tick in range(1, _TICKS + 1)]
        self._checks = {round(_TICKS * check) for check in CHECKS}
        self._trials = [Trial(name, count, settings) for count in workers for name, settings in groupings]
        self._keys = TopKeys(naming)
        self._interval_keys = SpaceSaving(CAPACITY)
        self._interval_span: Span | None = None
        self._trend = Trend()
        self._partition_events = np.zeros(0, np.int64)
        self._partition_weights = np.zeros(0)

    def add(self, batch: Batch) -> None:
        """The next events."""
        if not len(batch.keys):
            return
        hashes = {seeds: hash_keys(batch.keys, seeds) for seeds in {(SEED,), *(each.seeds for each in self._trials)}}
        keys = np.ascontiguousarray(hashes[(SEED,)][:, 0])
        self._keys.add(batch.keys, keys, batch.weights)
        self._note(batch)
        begin = 0
        while begin < len(keys):
            tick = self._tick()
            end = min(len(keys), begin + self._marks[tick] - self.events % self._interval)
            if batch.times is not None:
                self._interval_span = joined(self._interval_span, span_of(batch.times[begin:end]))
            self._route(hashes, keys, batch.weights, slice(begin, end), tick)
            begin = end

    def report(self, reading: Reading, top: int) -> Report:
        """What is known by now, with so many keys."""
        points = [*self._trend.points]
        if self.events % self._interval:
            points.append(self._point([trial.interval_loads for trial in self._trials]))
        return Report(
            source=self._source(reading, points),
            keys=self._trials[0].keys,
            top=self._top(points, top),
            partitions=self._partitions(reading.partitions),
            outcomes=[_outcome(trial) for trial in self._trials],
            trend=self._trend_points(points),
            hidden_keys=self._keys.hashed,
        )

    def _route(
        self,
        hashes: Mapping[tuple[int, ...], NDArray[np.int64]],
        keys: NDArray[np.int64],
        weights: NDArray[np.float64] | None,
        part: slice,
        tick: int,
    ) -> None:
        """Events of one tick of the clock; at its end what is then to be done."""
        given = None if weights is None else weights[part]
        now = _SECONDS * (self.events // self._interval + tick / _TICKS)
        for trial in self._trials:
            trial.route(hashes[trial.seeds][part], keys[part], given, now)
        self._interval_keys.update(keys[part], given)
        self.events += part.stop - part.start
        passed = self.events % self._interval
        if passed == 0:
            self._end_interval()
        elif passed == self._marks[tick] and tick + 1 in self._checks:
            for trial in self._trials:
                trial.check()

    def _tick(self) -> int:
        passed = self.events % self._interval
        return next(tick for tick, mark in enumerate(self._marks) if mark > passed)

    def _end_interval(self) -> None:
        loads = [trial.end_interval() for trial in self._trials]
        self._trend.add(self._point(loads, self._interval))
        self._interval_keys = SpaceSaving(CAPACITY)
        self._interval_span = None

    def _point(self, loads: list[NDArray[np.float64]], events: int | None = None) -> Point:
        return Point(events or self.events % self._interval, loads, self._interval_keys, self._interval_span)

    def _note(self, batch: Batch) -> None:
        if batch.partitions is not None:
            counted = np.bincount(batch.partitions, minlength=len(self._partition_events))
            weighed = np.bincount(batch.partitions, batch.weights, len(counted)).astype(np.float64)
            new = len(counted) - len(self._partition_events)
            self._partition_events = np.pad(self._partition_events, (0, new)) + counted
            self._partition_weights = np.pad(self._partition_weights, (0, new)) + weighed

    def _source(self, reading: Reading, points: Sequence[Point]) -> SourceReport:
        return SourceReport(
            kind=reading.kind,
            name=reading.name,
            events=self.events,
            weight=self._keys.total,
            sample=reading.sample,
            followed=reading.followed,
            silence=reading.silence,
            left_out=dict(Counter(reading.left_out).most_common()),
            span=joined(*(point.span for point in points)),
            interval=self._interval,
        )

    def _top(self, points: Sequence[Point], limit: int) -> list[HotKeyReport]:
        ends = thirds(points)
        return [
            HotKeyReport(key.name, key.low, key.high, *(share(end, key.hash) for end in ends))
            if ends
            else HotKeyReport(key.name, key.low, key.high, None, None)
            for key in self._keys.heaviest(limit)
        ]

    def _partitions(self, count: int | None) -> list[PartitionLoad]:
        if count is None:
            return []
        size = max(count, len(self._partition_events))
        events = np.pad(self._partition_events, (0, size - len(self._partition_events)))
        weights = np.pad(self._partition_weights, (0, size - len(self._partition_weights)))
        return [PartitionLoad(*each) for each in zip(range(size), events.tolist(), weights.tolist(), strict=True)]

    def _trend_points(self, points: Sequence[Point]) -> list[TrendPoint]:
        found, until = [], 0
        for point in points:
            until += point.events
            heaviest = heaviest_of(point.keys)
            name = None if heaviest is None else self._keys.name(heaviest[0])
            lambdas = [lambda_(loads) for loads in point.loads]
            found.append(TrendPoint(until, point.span, name, 0.0 if heaviest is None else heaviest[1], lambdas))
        return found


def _outcome(trial: Trial) -> Outcome:
    return Outcome(
        grouping=trial.name,
        label=trial.label(),
        settings=trial.settings_data(),
        workers=trial.workers,
        figures=trial.average(),
        run=trial.run(),
    )
