"""Runs of streams through several sources, interval by interval, with urgent plans inside of intervals."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from keygrouping.grouping import CHECKS, EXCHANGES, Grouping, Planned, UrgentlyPlanned
from keygrouping.measure import IndexedDistribution
from keygrouping.simulate import Deal, dealt, exchange, exchanging
from keygrouping.workload import Chunk, Workload
from numpy.typing import NDArray

INTERVAL = 150_000
"""Events of an interval, which is the flush window, too."""
_SERVICE_TIME = 1e-3
_LOAD = 0.95


class Routed(NamedTuple):
    """An interval whose events have been routed."""

    chunk: Chunk
    chosen: NDArray[np.int32]
    """The worker of each event."""
    workers: int
    """How many there are."""


@dataclass(frozen=True)
class Course:
    """Figures of each interval of a run, and how long each plan at an end of one has taken, in seconds."""

    lambdas: NDArray[np.float64]
    std_devs: NDArray[np.float64]
    costs: NDArray[np.float64]
    run_costs: NDArray[np.float64]
    new_pairs: NDArray[np.float64]
    """Pairs that never occurred before in the run, per key of the interval, beyond the first of each key."""
    least: NDArray[np.float64]
    """Load of the least loaded worker over the average load."""
    plan_times: NDArray[np.float64]


def run(
    stream: Workload,
    groupings: Sequence[Grouping],
    resizes: Mapping[int, int] | None = None,
    interval: int = INTERVAL,
    deal: Deal = Deal.KEY,
) -> Course:
    """The figures of a stream's way through its sources, see `Drive`."""
    drive = Drive(stream, groupings, resizes, interval, deal)
    distribution = IndexedDistribution(groupings[0].workers)
    rows: list[tuple[float, ...]] = []
    for chunk, chosen, workers in drive:
        distribution.resize(workers)
        distribution.add_many(chosen, chunk.keys, chunk.weights)
        measures = distribution.interval()
        shares = np.bincount(chosen, chunk.weights, minlength=workers)
        shares = shares / shares.sum()
        lambda_, std_dev = float(shares.max() * len(shares)), float(100 * shares.std())
        cost, run_cost = measures.dist_cost, distribution.run().dist_cost
        least = float(shares.min() * len(shares))
        rows.append((lambda_, std_dev, cost, run_cost, measures.width_changes / measures.keys, least))
    lambdas, std_devs, costs, run_costs, new_pairs, leasts = np.array(rows).T
    return Course(lambdas, std_devs, costs, run_costs, new_pairs, leasts, np.array(drive.plan_times))


def intervals(stream: Workload, interval: int) -> Iterator[Chunk]:
    """The events of each interval of a stream."""
    parts: list[Chunk] = []
    size = 0
    for chunk in stream.chunks():
        begin = 0
        while begin < len(chunk):
            part = _part(chunk, begin, begin + interval - size)
            parts.append(part)
            begin += len(part)
            size += len(part)
            if size == interval:
                yield _joined(parts)
                parts, size = [], 0
    if parts:
        yield _joined(parts)


class Drive:
    """Sends a stream through one grouping per source; iterating gives its intervals, each when it has been routed.

    `resizes`: new number of workers from these intervals on. Groupings that share plans get one at the end of each
    interval, and urgent ones inside of it; `EXCHANGES` times they tell each other what they have brought. Time goes on
    as if workers took 1 ms per event of weight 1, at 95 % of what they can do.
    """

    def __init__(
        self,
        stream: Workload,
        groupings: Sequence[Grouping],
        resizes: Mapping[int, int] | None,
        interval: int,
        deal: Deal,
    ) -> None:
        self.plan_times: list[float] = []
        """How long each plan at an end of an interval has taken, in seconds."""
        self._stream = stream
        self._groupings = groupings
        self._resizes = resizes or {}
        self._interval = interval
        self._deal = deal
        self._planned = [each for each in groupings if isinstance(each, Planned) and each.shared]
        self._urgent = [each for each in groupings if isinstance(each, UrgentlyPlanned) and each.shared]
        self._exchanging = exchanging(groupings)
        self._events = 0
        self._now = 0.0

    def __iter__(self) -> Iterator[Routed]:
        for number, chunk in enumerate(intervals(self._stream, self._interval)):
            if number in self._resizes:
                for grouping in self._groupings:
                    grouping.resize(self._resizes[number])
            yield Routed(chunk, self._interval_of(chunk), self._groupings[0].workers)
            self._plan()

    def _interval_of(self, chunk: Chunk) -> NDArray[np.int32]:
        """The workers of an interval's events."""
        chosen = np.empty(len(chunk), np.int32)
        begin = 0
        exchanges = [number / EXCHANGES for number in range(1, EXCHANGES + 1)] if self._exchanging else []
        for mark in sorted({*CHECKS, *exchanges, 1.0}):
            end = round(mark * len(chunk))
            chosen[begin:end] = self._route(_part(chunk, begin, end))
            begin = end
            if mark in exchanges:
                exchange(self._exchanging)
            if mark in CHECKS and any(each.urgent for each in self._urgent):
                plan = self._urgent[0].plan([each.interim_statistics() for each in self._urgent])
                for each in self._urgent:
                    each.apply(plan)
        return chosen

    def _route(self, chunk: Chunk) -> NDArray[np.int32]:
        sources, workers = len(self._groupings), self._groupings[0].workers
        table, weights = self._stream.table, chunk.weights
        chosen = np.empty(len(chunk), np.int32)
        parts = dealt(self._deal, chunk.keys, table, sources, self._events)
        for grouping, part in zip(self._groupings, parts, strict=True):
            hashes = np.take(table.hashes(grouping.seeds), chunk.keys[part], axis=0)
            chosen[part] = grouping.route_batch(hashes, None if weights is None else weights[part], self._now)
        self._events += len(chunk)
        self._now += (len(chunk) if weights is None else weights.sum()) * _SERVICE_TIME / (_LOAD * workers)
        return chosen

    def _plan(self) -> None:
        if not self._planned:
            return
        statistics = [each.statistics() for each in self._planned]
        began = time.perf_counter()
        plan = self._planned[0].plan(statistics)
        self.plan_times.append(time.perf_counter() - began)
        for each in self._planned if plan["changed"] else ():
            each.apply(plan)


def _part(chunk: Chunk, begin: int, end: int) -> Chunk:
    return Chunk(chunk.keys[begin:end], None if chunk.weights is None else chunk.weights[begin:end])


def _joined(parts: Sequence[Chunk]) -> Chunk:
    keys = np.concatenate([part.keys for part in parts])
    weights = [part.weights for part in parts if part.weights is not None]
    return Chunk(keys, np.concatenate(weights) if weights else None)
