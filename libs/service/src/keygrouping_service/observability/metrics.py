"""The registry of metrics, and those that every process has.

Each service defines its own metrics in its package and registers them by importing that module, so a process shows
what it has itself and nothing of others: a router does not say that the imbalance of its observer is 0. A metric is
used by its Python name, so a misspelt one is an error of the type checker; `DEFINITIONS` is what documents, dashboards
and alerts are checked against.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Literal

from keygrouping.version import version
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

Kind = Literal["counter", "gauge", "histogram", "info"]

LABELS = {
    "action": "what an override says of its key: a few words",
    "check": "a premise of exactness, as docs/premises.md lists them",
    "field": "a field that the job's aggregates read, as a JSON pointer",
    "group": "consumer group of a stage: one per stage",
    "grouping": "name of a grouping: those that run in the shadow; the second of one name ends in `-2`",
    "hot_key": "a heavy key's name, of a fixed number of keys; only where `--key-labels` asks for it",
    "kind": "what the audit looks at (`input` or `window`), or what is kept in the store: a few words",
    "operator": "an operator of a Spark query: a few",
    "outcome": "what became of it: a few words",
    "partition": "number of a partition of a stage's input; of the worker stage's, that of the worker",
    "phase": "a phase of Spark's micro-batches: about eight",
    "python": "version of Python that the process runs on",
    "query": "a query of the Spark job: one per stage",
    "rank": "place among the widest or the heaviest keys, from 1 to a fixed number; never the key itself",
    "reason": "why, as in the header of the record: a few words",
    "routing": "`used`: as it was routed; `key`: as key hashing would have",
    "span": "`interval`: the last whole one; `run`: since the start",
    "status": "HTTP status of the answer",
    "step": "what a stage of the Spark job does with a micro-batch: a few words",
    "topic": "a topic of the pipeline, or the one that is inspected",
    "version": "of keygrouping, as `--version` shows it",
    "verdict": "of the audit: `proven` or `differs`",
    "worker": "number of a worker, 0 to W-1",
    "workers": "a number of workers that is tried: those that were asked for, and the topic's partitions",
}
"""All labels there are, with what bounds their values."""


@dataclass(frozen=True, slots=True)
class Definition:
    """Name as it is scraped, kind, unit, labels and meaning of a metric, and whose it is."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    service: str | None = None
    """The service that has it; None: all."""


PROCESS = (
    Definition("process_cpu_seconds_total", "counter", "seconds", "CPU time of the process."),
    Definition("process_resident_memory_bytes", "gauge", "bytes", "Memory that the process holds."),
    Definition("process_virtual_memory_bytes", "gauge", "bytes", "Memory that the process has reserved."),
    Definition("process_start_time_seconds", "gauge", "seconds", "When the process started, since 1970."),
    Definition("process_open_fds", "gauge", "files", "Open files and connections."),
    Definition("process_max_fds", "gauge", "files", "Most files and connections that it may open."),
    Definition(
        "python_info",
        "info",
        "info",
        "Version of Python.",
        ("implementation", "major", "minor", "patchlevel", "version"),
    ),
    Definition(
        "python_gc_objects_collected_total", "counter", "objects", "Objects that the collector freed.", ("generation",)
    ),
    Definition(
        "python_gc_objects_uncollectable_total",
        "counter",
        "objects",
        "Objects that it could not free.",
        ("generation",),
    ),
    Definition("python_gc_collections_total", "counter", "runs", "Runs of the collector.", ("generation",)),
)
"""What the client library adds for every process (on Linux)."""

DEFINITIONS: list[Definition] = []
"""All metrics that are registered in this process."""

ENTRY_POINTS = "keygrouping.metrics"
"""Group of the entry points that name the modules that register a service's metrics."""

disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Registration:
    """Defines the metrics of a service, whose names begin with its name; without one, those of all services."""

    service: str | None = None

    def counter(self, name: str, unit: str, meaning: str, *labels: str, values: Iterable[str] = ()) -> Counter:
        """Defines a counter; its name ends in `_total`.

        `values` are those that its only label is known to take: they are shown as 0 from the start, as Prometheus
        can't see the first increase of a series that begins with it. Labels that are known later (a group, a worker)
        are shown by whoever knows them first.
        """
        d = self._define(name, "counter", unit, meaning, labels)
        made = Counter(d.name, meaning, labels)
        for value in values:
            made.labels(value)
        return made

    def gauge(self, name: str, unit: str, meaning: str, *labels: str) -> Gauge:
        """Defines a gauge."""
        d = self._define(name, "gauge", unit, meaning, labels)
        return Gauge(d.name, meaning, labels)

    def histogram(self, name: str, unit: str, meaning: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
        """Defines a histogram with its bucket bounds in `unit`."""
        d = self._define(name, "histogram", unit, meaning, labels)
        return Histogram(d.name, meaning, labels, buckets=buckets)

    def info(self, name: str, meaning: str, labels: Mapping[str, str]) -> None:
        """Defines a metric that is always 1 and says something by its labels."""
        d = self._define(name, "gauge", "info", meaning, tuple(labels))
        Gauge(d.name, meaning, tuple(labels)).labels(**labels).set(1)

    def _define(self, name: str, kind: Kind, unit: str, meaning: str, labels: tuple[str, ...]) -> Definition:
        prefix = f"keygrouping_{self.service}" if self.service else "keygrouping"
        definition = Definition(f"{prefix}_{name}", kind, unit, meaning, labels, self.service)
        DEFINITIONS.append(definition)
        return definition


def register_installed() -> list[str]:
    """Registers the metrics of every service that is installed, for pages and checks; returns the services' names."""
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    for point in points:
        point.load()
    return [point.name for point in points]


def exposition() -> bytes:
    """All metrics that are registered in this process, in Prometheus's text format."""
    return generate_latest(REGISTRY)


LATENCY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Bounds in seconds of what is promised to users; each promise is one of them."""

READER_REASONS = ("record-too-large", "undecodable-batch", "refused-by-broker", "unprocessable")
"""Why a stage's reader leaves a record out, whatever the job."""

INVALID_PARTIAL = "invalid-partial"
"""Why a record of `partials` can't be used."""

STATUSES = (400, 401, 403, 404, 405, 408, 409, 411, 412, 413, 415, 421, 422, 428, 429, 500, 503)
"""With which requests are refused."""

_all = Registration()

# all services
_all.info(
    "build_info",
    "1; the labels say which build of keygrouping this is.",
    {"version": version(), "python": platform.python_version()},
)
EVENT_LOOP_LAG = _all.histogram(
    "event_loop_lag_seconds",
    "seconds",
    "How late the event loop wakes a task: while it is late, no heartbeat is sent and no request answered.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
HTTP_PROBLEMS = _all.counter(
    "http_problems_total", "requests", "Requests answered with an error.", "status", values=map(str, STATUSES)
)

# all stages
COMMITS = _all.counter("commits_total", "commits", "Commits of output, offset and progress.", "group")
REBALANCES = _all.counter("rebalances_total", "rebalances", "Times partitions were revoked.", "group")
RESTARTS = _all.counter(
    "partition_restarts_total", "restarts", "Times work on a partition restarted after an error.", "group"
)
EXPIRED_OFFSETS = _all.counter(
    "expired_offsets_total", "offsets", "Offsets that retention deleted before they were read.", "group"
)
PREMISE = _all.gauge(
    "premise",
    "state",
    "1 if what exactness rests on was so when the service started, 0 if not; what could not be checked is missing.",
    "check",
)
PURGED = _all.counter(
    "purged_offsets_total",
    "offsets",
    "Offsets (records and markers of transactions) deleted of a topic after all its readers had committed them.",
    "topic",
)
LAG = _all.gauge("lag_records", "records", "Offsets between what was read and the end of the input.", "group")
ASSIGNED = _all.gauge(
    "assigned_partitions", "partitions", "Partitions of its input that the group has given to the process.", "group"
)
INPUT_SEEN = _all.gauge(
    "input_seen_timestamp_seconds",
    "seconds",
    "When the ends of the input and the group's offsets were last looked up in Kafka, in seconds since 1970; the start "
    "of the process before that.",
    "group",
)
EXPIRING = _all.gauge(
    "expiring_records",
    "records",
    "Records that retention deletes soon and that are not read yet: older than three quarters of the time that their "
    "topic keeps, or among the oldest quarter of a topic whose size is limited.",
    "group",
)
WATERMARK = _all.gauge(
    "watermark_timestamp_seconds",
    "seconds",
    "Event time up to which a partition of a stage's input is complete in what the stage has committed, since 1970; 0: "
    "nothing is known yet. The lowest of a stage holds its results back. One that is idle holds nothing back and is "
    "not shown.",
    "group",
    "partition",
)
TRANSACTION_ABORTS = _all.counter(
    "transaction_aborts_total", "transactions", "Transactions that were begun and not committed.", "group"
)
LAST_RESULT = _all.gauge(
    "last_result_timestamp_seconds",
    "seconds",
    "When an aggregator stage last wrote final results, in seconds since 1970.",
    "group",
)
RESULT_DELAY = _all.histogram(
    "result_delay_seconds",
    "seconds",
    "From when a window could be final (its end and the allowed lateness) to when its final results were committed; "
    "once per window, on the native runner per window and partition. A window that is a day late is not counted.",
    "group",
    buckets=LATENCY_BUCKETS,
)


def show_group(group: str) -> None:
    """Shows the counters of a stage's group, all of them 0, before there is anything to count."""
    for of_group in (COMMITS, REBALANCES, RESTARTS, EXPIRED_OFFSETS, TRANSACTION_ABORTS):
        of_group.labels(group)
