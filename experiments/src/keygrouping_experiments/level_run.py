"""Runs of streams through several sources, interval by interval, with urgent plans inside of intervals."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from keygrouping.grouping import CHECKS, Grouping, Planned, UrgentlyPlanned
from keygrouping.measure import IndexedDistribution
from keygrouping.workload import Workload
from numpy.typing import NDArray

INTERVAL = 150_000
"""Events of an interval, which is the flush window, too."""
_SERVICE_TIME = 1e-3
_LOAD = 0.95


@dataclass(frozen=True)
class Course:
    """Figures of each interval of a run, and how long each plan at an end of one has taken, in seconds."""

    lambdas: NDArray[np.float64]
    std_devs: NDArray[np.float64]
    costs: NDArray[np.float64]
    run_costs: NDArray[np.float64]
    new_pairs: NDArray[np.float64]
    """Pairs that never occurred before in the run, per key of the interval, beyond the first of each key."""
    plan_times: NDArray[np.float64]


def run(
    stream: Workload, groupings: Sequence[Grouping], resizes: dict[int, int] | None = None, interval: int = INTERVAL
) -> Course:
    """Deal a stream's events to the sources in turn; `resizes`: new number of workers from these intervals on.

    Groupings that share plans get one at the end of each interval, and urgent ones inside of it. Time goes on as if
    workers took 1 ms per event, at 95 % of what they can do.
    """
    course = _Course(stream, groupings, interval)
    for number, keys in enumerate(intervals(stream, interval)):
        workers = (resizes or {}).get(number)
        if workers is not None:
            course.resize(workers)
        course.take(keys)
    return course.figures()


def intervals(stream: Workload, interval: int) -> Iterator[NDArray[np.int64]]:
    """The keys of each interval of a stream."""
    parts: list[NDArray[np.int64]] = []
    size = 0
    for chunk in stream.chunks():
        keys = chunk.keys
        while len(keys):
            part, keys = keys[: interval - size], keys[interval - size :]
            parts.append(part)
            size += len(part)
            if size == interval:
                yield np.concatenate(parts)
                parts, size = [], 0
    if parts:
        yield np.concatenate(parts)


class _Course:
    """A run under way."""

    def __init__(self, stream: Workload, groupings: Sequence[Grouping], interval: int) -> None:
        self._stream = stream
        self._groupings = groupings
        self._interval = interval
        self._planned = [each for each in groupings if isinstance(each, Planned) and each.shared]
        self._urgent = [each for each in groupings if isinstance(each, UrgentlyPlanned) and each.shared]
        self._distribution = IndexedDistribution(groupings[0].workers)
        self._events = 0
        self._rows: list[tuple[float, ...]] = []
        self._plan_times: list[float] = []

    def resize(self, workers: int) -> None:
        for grouping in self._groupings:
            grouping.resize(workers)

    def take(self, keys: NDArray[np.int64]) -> None:
        """An interval, and the plan after it."""
        begin = 0
        loads = np.zeros(self._groupings[0].workers)
        for check in (*CHECKS, 1.0):
            end = round(check * len(keys))
            loads += self._route(keys[begin:end])
            begin = end
            if check < 1 and any(each.urgent for each in self._urgent):
                plan = self._urgent[0].plan([each.interim_statistics() for each in self._urgent])
                for each in self._urgent:
                    each.apply(plan)
        measures = self._distribution.interval()
        run_cost = self._distribution.run().dist_cost
        shares = loads / loads.sum()
        lambda_, std_dev = float(shares.max() * len(shares)), float(100 * shares.std())
        self._rows.append((lambda_, std_dev, measures.dist_cost, run_cost, measures.width_changes / measures.keys))
        self._plan()

    def figures(self) -> Course:
        lambdas, std_devs, costs, run_costs, new_pairs = np.array(self._rows).T
        return Course(lambdas, std_devs, costs, run_costs, new_pairs, np.array(self._plan_times))

    def _route(self, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        sources, workers = len(self._groupings), self._groupings[0].workers
        now = self._events * _SERVICE_TIME / (_LOAD * workers)
        routed = np.empty(len(keys), np.int32)
        for source, grouping in enumerate(self._groupings):
            part = slice((source - self._events) % sources, None, sources)
            hashes = np.take(self._stream.table.hashes(grouping.seeds), keys[part], axis=0)
            routed[part] = grouping.route_batch(hashes, None, now)
        self._events += len(keys)
        self._distribution.add_many(routed, keys)
        return np.bincount(routed, minlength=workers).astype(np.float64)

    def _plan(self) -> None:
        if not self._planned:
            return
        statistics = [each.statistics() for each in self._planned]
        began = time.perf_counter()
        plan = self._planned[0].plan(statistics)
        self._plan_times.append(time.perf_counter() - began)
        for each in self._planned if plan["changed"] else ():
            each.apply(plan)
