"""Every metric of every service: the one place where names, units and meanings are written.

A metric is used by its Python name, so a misspelt one is an error of the type checker; `DEFINITIONS` is what documents,
dashboards and alerts are checked against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import Counter, Gauge, Histogram

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Definition:
    """Name as it is scraped, kind, unit, labels and meaning of a metric."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()


DEFINITIONS: list[Definition] = []


def _define(name: str, kind: Kind, unit: str, meaning: str, labels: tuple[str, ...]) -> Definition:
    definition = Definition(f"keygrouping_{name}", kind, unit, meaning, labels)
    DEFINITIONS.append(definition)
    return definition


def counter(name: str, unit: str, meaning: str, *labels: str) -> Counter:
    """Defines a counter; its name ends in `_total`."""
    d = _define(name, "counter", unit, meaning, labels)
    return Counter(d.name, meaning, labels)


def gauge(name: str, unit: str, meaning: str, *labels: str) -> Gauge:
    """Defines a gauge."""
    d = _define(name, "gauge", unit, meaning, labels)
    return Gauge(d.name, meaning, labels)


def histogram(name: str, unit: str, meaning: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
    """Defines a histogram with its bucket bounds in `unit`."""
    d = _define(name, "histogram", unit, meaning, labels)
    return Histogram(d.name, meaning, labels, buckets=buckets)


# all stages
COMMITS = counter("commits_total", "commits", "Commits of output, offset and progress.", "group")
REBALANCES = counter("rebalances_total", "rebalances", "Times the partitions were taken back.", "group")
RESTARTS = counter(
    "partition_restarts_total", "restarts", "Times work on a partition began anew after an error.", "group"
)
EXPIRED_OFFSETS = counter(
    "expired_offsets_total", "offsets", "Offsets that retention deleted before they were read.", "group"
)
LAG = gauge("lag_records", "records", "Offsets between what was read and the end of the input.", "group")

# router
ROUTED = counter("router_routed_total", "events", "Events sent to a worker.", "worker")
LATE = counter("router_late_total", "events", "Events sent to the late topic.", "reason")
DEAD = counter("router_dead_letters_total", "events", "Events that the job can't use.", "reason")
BATCH_SECONDS = histogram(
    "router_batch_seconds",
    "seconds",
    "CPU-bound time to extract, route and pack one batch.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
)
IMBALANCE = gauge("router_imbalance", "ratio", "λ: load of the busiest worker over the average, last interval.")
EPOCH = gauge("router_epoch", "epoch", "Number of the plan in force.")

# worker
WORKER_EVENTS = counter("worker_events_total", "events", "Routed events read.")
WORKER_FLUSHES = counter("worker_flushes_total", "flushes", "Flushes of one partition's partials.")
WORKER_PARTIALS = counter("worker_partials_total", "partials", "Partials written.")
WORKER_DEAD = counter("worker_dead_letters_total", "events", "Routed events that the job can't use.")
WORKER_GROUPS = gauge("worker_groups", "groups", "Keys times windows held in memory until the next flush.")

# aggregator
AGGREGATOR_PARTIALS = counter(
    "aggregator_partials_total",
    "partials",
    "Partials merged, or passed over: merged before, or window final.",
    "outcome",
)
AGGREGATOR_RESULTS = counter("aggregator_results_total", "results", "Final results written.")
AGGREGATOR_DEAD = counter("aggregator_dead_letters_total", "partials", "Records that are no partial of the job.")
AGGREGATOR_WINDOWS = gauge(
    "aggregator_open_windows", "windows", "Windows that are not final, per partition of partials."
)
AGGREGATOR_GROUPS = gauge("aggregator_groups", "groups", "Keys times windows held in memory.")
