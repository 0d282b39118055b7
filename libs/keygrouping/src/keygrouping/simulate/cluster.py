"""The simulated workers, aggregators and their clock."""

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.base import NO_WEIGHTS
from keygrouping.grouping.protocol import Weights, Workers
from keygrouping.measure import Measures, efficiency
from keygrouping.settings import SettingsError
from keygrouping.simulate.latency import Latencies
from keygrouping.simulate.result import Performance
from keygrouping.simulate.settings import SimulatorSettings


class Cluster:
    """W workers, each with a queue that is first in, first out, in two worlds that get the same events.

    At the offered load, events come evenly spaced (in proportion to their weights) to queues without end, and latency
    is the time from there to the end of the work. At saturation, sources offer events as fast as queues of
    bounded length take them, in their order, and throughput is counted until the last worker is done, in units of the
    service time, so that sums are exact. Memory: the queues' lengths times W numbers, and two histograms.
    """

    def __init__(self, workers: int, settings: SimulatorSettings) -> None:
        speeds = np.array(settings.speeds or (1.0,) * workers)
        if len(speeds) != workers:
            raise SettingsError(f"speeds must be those of {workers} workers, not of {len(speeds)}")
        self._settings = settings
        self._capacity = float(speeds.sum())
        self._gap = settings.service_time / (settings.load * self._capacity)
        self._units: Weights = 1.0 / speeds
        self._service_times = settings.service_time * self._units
        self._offered = np.zeros(1)
        self._free = np.zeros(workers)
        self._latencies = Latencies()
        self._run_latencies = Latencies()
        self._saturated_free = np.zeros(workers)
        self._places = np.zeros((workers, settings.queue))
        self._following = np.zeros(workers, np.int64)
        self._released = np.zeros(1)

    @property
    def now(self) -> float:
        """Virtual time in seconds: when the next event comes at the offered load."""
        return float(self._offered[0] * self._gap)

    def offer(self, events: int, weights: Weights | None) -> NDArray[np.float64]:
        """The times (s) at which the next events come, shape (events,); virtual time goes on past them."""
        from keygrouping.simulate._queue_kernel import offer

        return offer(NO_WEIGHTS if weights is None else weights, events, self._gap, self._offered)

    def serve(self, workers: Workers, weights: Weights | None, times: NDArray[np.float64]) -> None:
        """Let workers do the events that come at these times, all arrays of shape (n,)."""
        from keygrouping.simulate._queue_kernel import saturate, serve

        work = NO_WEIGHTS if weights is None else weights
        latencies = self._latencies
        serve(workers, work, times, self._service_times, self._free, latencies.counts, latencies.sums)
        places, following, released = self._places, self._following, self._released
        saturate(workers, work, self._units, self._saturated_free, places, following, released)

    def interval(self, measures: Measures) -> Performance:
        """The performance in the interval of these measures, which is over now."""
        latencies = self._latencies
        self._run_latencies.add(latencies)
        busiest = float(np.max(np.array(measures.loads) * self._units))
        performance = self._performance(measures, busiest, latencies)
        latencies.clear()
        return performance

    def run(self, measures: Measures) -> Performance:
        """The performance of all intervals that are over, the run's measures being these."""
        return self._performance(measures, float(self._saturated_free.max()), self._run_latencies)

    def _performance(self, measures: Measures, working: float, latencies: Latencies) -> Performance:
        """`working`: time until the last worker is done, in units of the service time."""
        service_time = self._settings.service_time
        aggregators = self._settings.aggregators or len(self._units)
        merging = measures.partials * self._settings.merge_time / aggregators / service_time
        units = max(working, merging)
        return Performance(
            throughput=measures.events / (units * service_time) if units else 0.0,
            efficiency=efficiency(measures.weight / units, self._capacity, 1.0) if units else 0.0,
            latency_p50=latencies.quantile(0.5),
            latency_p99=latencies.quantile(0.99),
        )
