"""The simulation: a stream through sources to workers, in virtual time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping import CHECKS, EXCHANGES, Grouping
from keygrouping.measure import IndexedDistribution, imbalance
from keygrouping.simulate.cluster import Cluster
from keygrouping.simulate.deal import Deal
from keygrouping.simulate.result import Interval, Result
from keygrouping.simulate.settings import SimulatorSettings
from keygrouping.simulate.sources import Sources
from keygrouping.workload.stream import Chunk, Workload

INTERVAL = 100_000
"""Events of an interval unless told otherwise."""


def simulate(
    workload: Workload,
    groupings: Sequence[Grouping],
    settings: SimulatorSettings | None = None,
    *,
    interval: int = INTERVAL,
    events: int | None = None,
    deal: Deal = Deal.KEY,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Send a stream through one grouping per source, see `create_sources`, to their workers; deterministic.

    `interval`: events per interval, the last one may be shorter; `events`: how many of the workload's are taken (None:
    all of it); `deal`: which source gets an event, unless the workload says so itself; `progress` is told the number
    of events done now and then.

    Sources route at the times at which events come at the offered load. At the end of each interval all workers flush a
    partial for each of their keys, and groupings that leave planning to their owner get one plan out of the statistics
    of all sources; inside of it, at the parts `CHECKS`, those that find a plan urgent do. `EXCHANGES` times in it
    those that want to know tell each other what they have brought.
    Latency is that from an event's arrival to the end of its work, at the offered load and with queues without
    end. Throughput is what the same decisions allow when sources offer events as fast as workers take them:
    events over the time until the last worker finishes or, if that takes longer, the aggregators have merged all
    partials. Loads are sums of weights, which scale the work too. Memory: a chunk, the table, the groupings,
    `IndexedDistribution` and `Cluster`, and 32 bytes per worker and interval.
    """
    if interval < 1:
        raise ValueError(f"interval must be at least 1 event, not {interval}")
    if len({grouping.workers for grouping in groupings}) != 1:
        raise ValueError("needs a grouping for each source, all of them for the same number of workers")
    simulation = _Simulation(workload, groupings, settings or SimulatorSettings(), interval, deal)
    simulation.sources.learn(_first(workload.chunks(), events))
    for chunk in _first(workload.chunks(), events):
        simulation.take(chunk)
        if progress is not None:
            progress(simulation.events)
    return simulation.result()


class _Simulation:
    """A simulation under way."""

    def __init__(
        self,
        workload: Workload,
        groupings: Sequence[Grouping],
        settings: SimulatorSettings,
        interval: int,
        deal: Deal,
    ) -> None:
        self._workload = workload
        self._groupings = groupings
        self._interval = interval
        self._checks = frozenset(round(check * interval) for check in CHECKS) - {0}
        self._exchanges: frozenset[int] = frozenset()
        self._clock_step = settings.clock_step
        self.sources = Sources(groupings, workload.table, deal)
        if self.sources.exchanges:
            self._exchanges = frozenset(round(n * interval / EXCHANGES) for n in range(1, EXCHANGES + 1)) - {0}
        self._cluster = Cluster(groupings[0].workers, settings)
        self._distribution = IndexedDistribution(groupings[0].workers)
        self._intervals: list[Interval] = []
        self._plan_figures: Mapping[str, float] = {}
        self.events = 0

    def take(self, chunk: Chunk) -> None:
        """Simulate the next events."""
        begin = 0
        while begin < len(chunk):
            passed = self.events % self._interval
            until = min(mark for mark in (*self._checks, *self._exchanges, self._interval) if mark > passed)
            end = min(len(chunk), begin + until - passed)
            self._take_between_checks(_part(chunk, begin, end))
            begin = end
            if self.events % self._interval == 0:
                self._end_interval()

    def result(self) -> Result:
        """The outcome, after the last event."""
        if self.events % self._interval:
            self._end_interval()
        measures = self._distribution.run()
        return Result(
            grouping=self._groupings[0].name,
            workload=self._workload.name,
            workers=self._groupings[0].workers,
            sources=len(self._groupings),
            intervals=tuple(self._intervals),
            measures=measures,
            performance=self._cluster.run(measures),
        )

    def _take_between_checks(self, chunk: Chunk) -> None:
        passed = self.events % self._interval
        if passed in self._exchanges or (self.events and not passed):
            self.sources.exchange()
        if self.events and not passed:
            self._plan_figures = {}
            self._note(self.sources.plan())
        elif passed in self._checks:
            self._note(self.sources.plan_if_urgent())
        times = self._cluster.offer(len(chunk), chunk.weights)
        workers = self._route(chunk, times)
        self._distribution.add_many(workers, chunk.keys, chunk.weights)
        self._cluster.serve(workers, chunk.weights, times)
        self.events += len(chunk)

    def _route(self, chunk: Chunk, times: NDArray[np.float64]) -> NDArray[np.int32]:
        """The workers of the events, those within a step of the clock at once."""
        workers = np.empty(len(chunk), np.int32)
        steps = np.floor(times / self._clock_step)
        ends = [*(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(chunk)]
        begin = 0
        for end in ends:
            part = _part(chunk, begin, end)
            now = float(steps[begin]) * self._clock_step
            workers[begin:end] = self.sources.route(part.keys, part.weights, part.sources, self.events + begin, now)
            begin = end
        return workers

    def _note(self, plan: Mapping[str, Any]) -> None:
        if plan:
            self._distribution.moved(plan["moved_keys"], plan["moved_state"])
            self._plan_figures = _figures(plan)

    def _end_interval(self) -> None:
        measures = self._distribution.interval()
        run_imbalance = imbalance(self._distribution.run_loads)
        performance = self._cluster.interval(measures)
        self._intervals.append(
            Interval(self.events, self._cluster.now, measures, run_imbalance, performance, self._plan_figures)
        )


def _first(chunks: Iterator[Chunk], events: int | None) -> Iterator[Chunk]:
    """The first events of a stream, with arrays as kernels want them."""
    left = events
    for chunk in chunks:
        wanted = len(chunk) if left is None else min(len(chunk), left)
        if wanted:
            yield _part(chunk, 0, wanted)
        if left is not None:
            left -= wanted
            if not left:
                return


def _figures(plan: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a plan, and how many things it holds, without the things."""
    return {
        name: len(value) if isinstance(value, list) else value
        for name, value in plan.items()
        if isinstance(value, int | float | list)
    }


def _part(chunk: Chunk, begin: int, end: int) -> Chunk:
    weights, sources = chunk.weights, chunk.sources
    return Chunk(
        np.require(chunk.keys[begin:end], np.int64, ["C", "W"]),
        None if weights is None else np.require(weights[begin:end], np.float64, ["C", "W"]),
        None if sources is None else sources[begin:end],
    )
