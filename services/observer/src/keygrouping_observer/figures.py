"""The figures of an interval and of the run, all of them by the library's formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from keygrouping.measure import dist_cost, efficiency, lambda_, least_share, std_dev


def added(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Two rows of numbers by worker, added up; the shorter one is continued with zeros."""
    return [a + b for a, b in zip_longest(one, other, fillvalue=0.0)]


@dataclass
class Totals:
    """What adds up over time, of an interval or the run. Rows are by worker."""

    seconds: float = 0.0
    worker_seconds: float = 0.0
    """Number of workers in use times seconds."""
    messages: int = 0
    """Partials, each once."""
    events: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    loads_before: list[float] = field(default_factory=list)
    """What key hashing would have given the workers in use."""
    samples: int = 0
    """Events whose latency has been looked up."""
    latency_counts: list[float] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        """Takes in all of another one."""
        self.seconds += other.seconds
        self.worker_seconds += other.worker_seconds
        self.messages += other.messages
        self.samples += other.samples
        self.events = added(self.events, other.events)
        self.loads = added(self.loads, other.loads)
        self.loads_before = added(self.loads_before, other.loads_before)
        self.latency_counts = added(self.latency_counts, other.latency_counts)


def figures_of(
    totals: Totals, keys: int, pairs: int, service_rate: float | None, capacities: Sequence[float]
) -> dict[str, Any]:
    """All figures, as JSON data; `keys` and `pairs` are distinct keys and (key, worker) pairs.

    `capacities` are those of the first workers, by which loads are judged; the others have 1.
    λ, least share, STD_DEV and replication factor (`dist_cost`) as in `keygrouping.measure`; `..._before` is what key
    hashing of the same keys onto the same workers would have given; throughputs are per second; `efficiency` is None
    without a service rate.
    """
    seconds, events, weight = totals.seconds, sum(totals.events), sum(totals.loads)
    workers = len(totals.loads)
    given = [*capacities[:workers], *[1.0] * (workers - len(capacities))]
    return {
        "seconds": seconds,
        "workers": workers,
        "capacities": given,
        "events": int(events),
        "weight": weight,
        "lambda": lambda_(totals.loads, given),
        "least_share": least_share(totals.loads, given),
        "std_dev": std_dev(totals.loads, given),
        "dist_cost": dist_cost(pairs, keys),
        "lambda_before": lambda_(totals.loads_before, given),
        "std_dev_before": std_dev(totals.loads_before, given),
        "messages": totals.messages,
        "messages_per_event": totals.messages / events if events else 0.0,
        "throughput": events / seconds if seconds else 0.0,
        "efficiency": _efficiency(totals, weight, service_rate),
        "loads": totals.loads,
        "loads_before": totals.loads_before,
        "throughputs": [n / seconds for n in totals.events] if seconds else [],
    }


def _efficiency(totals: Totals, weight: float, service_rate: float | None) -> float | None:
    if service_rate is None or not totals.worker_seconds:
        return None
    return efficiency(weight / totals.seconds, totals.worker_seconds / totals.seconds, service_rate)
