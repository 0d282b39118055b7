"""What a simulation gives: the measures and the performance, per interval and over the run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from keygrouping.measure import Measures, adaptation


@dataclass(frozen=True)
class Performance:
    """How fast the simulated cluster is."""

    throughput: float
    """Events per second at saturation."""
    efficiency: float
    """Throughput as a part of what the workers do at best, 0 to 1."""
    latency_p50: float
    """Median of the latencies at the offered load, in seconds; NaN without events."""
    latency_p99: float


@dataclass(frozen=True)
class Interval:
    """One interval, which is a window too: at its end all workers flush their partials."""

    end: int
    """Events of the run until its end."""
    seconds: float
    """Virtual time at its end."""
    measures: Measures
    run_imbalance: float
    """I(t) of all loads from the run's begin to the interval's end."""
    performance: Performance
    """Throughput is that of the interval's events alone, with all workers idle before them."""
    plan: Mapping[str, float] = field(default_factory=dict)
    """Figures of the plan that all sources got at its begin: numbers like `moved_keys`, and the lengths of lists."""


@dataclass(frozen=True)
class Result:
    """A simulated run."""

    grouping: str
    workload: str
    workers: int
    sources: int
    intervals: tuple[Interval, ...]
    measures: Measures
    """Of the whole run."""
    performance: Performance
    """Of the whole run."""

    @property
    def events(self) -> int:
        """Number of events."""
        return self.measures.events

    @property
    def seconds(self) -> float:
        """Virtual time that the run took at the offered load."""
        return self.intervals[-1].seconds if self.intervals else 0.0

    @property
    def average_imbalance_fraction(self) -> float:
        """Average of I(t) over the average weight so far, at the ends of the intervals; 0 without events.

        Source: "fraction of average imbalance" of Partial Key Grouping, table II. Its figures are those of this
        formula: key grouping on W = 50 has 9.2 %, all of the top key's share, and perfect balance of 22 M messages on
        W = 5 is an average imbalance of 0.4 over an average of 11 M messages, 3.7e-8.
        """
        total = sum(accumulate(interval.measures.weight for interval in self.intervals))
        return sum(interval.run_imbalance for interval in self.intervals) / total if total else 0.0

    def adaptation(self, shift: int, bound: float) -> tuple[int, float] | None:
        """Intervals and virtual seconds until λ is back under a bound, after the stream has changed at event `shift`.

        Whole intervals are looked at, from the one with that event on; the seconds go from the change to the end of the
        interval before the first one at or under the bound. None if there is no such interval.
        """
        at = next((i for i, interval in enumerate(self.intervals) if interval.end > shift), len(self.intervals))
        passed = adaptation([interval.measures.lambda_ for interval in self.intervals], at, bound)
        if passed is None or passed == 0:
            return None if passed is None else (0, 0.0)
        return passed, self.intervals[at + passed - 1].seconds - self._time_of(shift)

    def _time_of(self, event: int) -> float:
        """Virtual time of an event, evenly spaced in its interval."""
        begin, seconds = 0, 0.0
        for interval in self.intervals:
            if event < interval.end:
                part = (event - begin) / (interval.end - begin)
                return seconds + part * (interval.seconds - seconds)
            begin, seconds = interval.end, interval.seconds
        return seconds

    def to_data(self) -> dict[str, Any]:
        """The main figures as plain JSON data; a latency without events is null."""
        return {
            "grouping": self.grouping,
            "workload": self.workload,
            "workers": self.workers,
            "sources": self.sources,
            "events": self.events,
            "intervals": [
                {**_balance(interval.measures), "width_changes": interval.measures.width_changes}
                for interval in self.intervals
            ],
            "run": {
                **_balance(self.measures),
                "throughput": self.performance.throughput,
                "efficiency": self.performance.efficiency,
                "latency_p50_ms": _milliseconds(self.performance.latency_p50),
                "latency_p99_ms": _milliseconds(self.performance.latency_p99),
            },
        }


def _balance(measures: Measures) -> dict[str, float]:
    return {
        "lambda": measures.lambda_,
        "least_share": measures.least_share,
        "std_dev": measures.std_dev,
        "dist_cost": measures.dist_cost,
    }


def _milliseconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else 1000.0 * seconds
