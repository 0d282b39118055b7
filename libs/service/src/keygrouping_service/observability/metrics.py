"""Every metric of every service: the one place where names, units and meanings are written.

A metric is used by its Python name, so a misspelt one is an error of the type checker; `DEFINITIONS` is what documents,
dashboards and alerts are checked against.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from keygrouping.job import REASONS
from keygrouping.version import version
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, Metric, disable_created_metrics, generate_latest

Kind = Literal["counter", "gauge", "histogram", "info"]

SERVICES = ("router", "worker", "aggregator", "producer", "observer", "spark", "inspect")
"""A metric of one service has the service's name after the prefix; the others are those of all services."""

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
    "python": "version of Python that the process runs on",
    "query": "a query of the Spark job: one per stage",
    "rank": "place among the widest or the heaviest keys, from 1 to a fixed number; never the key itself",
    "reason": "why, as in the header of the record: a few words",
    "routing": "`used`: as it was routed; `key`: as key hashing would have",
    "span": "`interval`: the last whole one; `run`: since the start",
    "status": "HTTP status of the answer",
    "topic": "a topic of the pipeline, or the one that is inspected",
    "version": "of keygrouping, as `--version` tells it",
    "verdict": "of the audit: `proven` or `differs`",
    "worker": "number of a worker, 0 to W-1",
    "workers": "a number of workers that is tried: those that were asked for, and the topic's partitions",
}
"""All labels there are, with what bounds their values."""


@dataclass(frozen=True, slots=True)
class Definition:
    """Name as it is scraped, kind, unit, labels and meaning of a metric."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def service(self) -> str | None:
        """The service that has it; None: all."""
        word = self.name.split("_")[1]
        return word if self.name.startswith("keygrouping_") and word in SERVICES else None


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

disable_created_metrics()  # type: ignore[no-untyped-call]


def _define(name: str, kind: Kind, unit: str, meaning: str, labels: tuple[str, ...]) -> Definition:
    definition = Definition(f"keygrouping_{name}", kind, unit, meaning, labels)
    DEFINITIONS.append(definition)
    return definition


def counter(name: str, unit: str, meaning: str, *labels: str, values: Iterable[str] = ()) -> Counter:
    """Defines a counter; its name ends in `_total`.

    `values` are those that its only label is known to take: they are shown as 0 from the start, as Prometheus can't
    see the first increase of a series that begins with it. Labels that are known later (a group, a worker) are shown
    by whoever knows them first.
    """
    d = _define(name, "counter", unit, meaning, labels)
    made = Counter(d.name, meaning, labels)
    for value in values:
        made.labels(value)
    return made


def gauge(name: str, unit: str, meaning: str, *labels: str) -> Gauge:
    """Defines a gauge."""
    d = _define(name, "gauge", unit, meaning, labels)
    return Gauge(d.name, meaning, labels)


def histogram(name: str, unit: str, meaning: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
    """Defines a histogram with its bucket bounds in `unit`."""
    d = _define(name, "histogram", unit, meaning, labels)
    return Histogram(d.name, meaning, labels, buckets=buckets)


def info(name: str, meaning: str, labels: Mapping[str, str]) -> None:
    """Defines a metric that is always 1 and says something by its labels."""
    d = _define(name, "gauge", "info", meaning, tuple(labels))
    Gauge(d.name, meaning, tuple(labels)).labels(**labels).set(1)


class _Exposed:
    """What a service shows: the metrics of all services and its own."""

    def __init__(self, hidden: tuple[str, ...]) -> None:
        self._hidden = hidden

    def collect(self) -> Iterator[Metric]:
        return (metric for metric in REGISTRY.collect() if not metric.name.startswith(self._hidden))


def exposition(title: str) -> bytes:
    """All metrics in Prometheus's text format, without those of services that `title` doesn't name.

    A router must not say that the imbalance of its observer is 0.
    """
    words = title.lower().split()
    others = () if not set(words) & set(SERVICES) else tuple(s for s in SERVICES if s not in words)
    return generate_latest(_Exposed(tuple(f"keygrouping_{service}_" for service in others)))


LATENCY_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Bounds in seconds of what is promised to users; each promise is one of them."""

LATE_REASONS = ("late", "partition-was-idle", "input-was-finished")
"""Why an event goes to the late topic."""

READER_REASONS = ("record-too-large", "undecodable-batch", "refused-by-broker", "unprocessable")
"""Why a stage's reader leaves a record out, whatever the job."""

INVALID_PARTIAL = "invalid-partial"
"""Why a record of `partials` can't be used."""

STORED_KINDS = (
    "control",
    "control-history",
    "keyspace",
    "plan",
    "plan-history",
    "replicas",
    "round",
    "starts",
    "worker-pods",
)
"""What is kept in the store."""

STATUSES = (400, 401, 403, 404, 405, 408, 409, 411, 412, 413, 415, 421, 422, 428, 429, 500, 503)
"""With which requests are refused."""

# all services
info(
    "build_info",
    "1; the labels say which build of keygrouping this is.",
    {"version": version(), "python": platform.python_version()},
)
EVENT_LOOP_LAG = histogram(
    "event_loop_lag_seconds",
    "seconds",
    "How late the event loop wakes a task: while it is late, no heartbeat is sent and no request answered.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
)
HTTP_PROBLEMS = counter(
    "http_problems_total", "requests", "Requests answered with an error.", "status", values=map(str, STATUSES)
)

# all stages
COMMITS = counter("commits_total", "commits", "Commits of output, offset and progress.", "group")
REBALANCES = counter("rebalances_total", "rebalances", "Times the partitions were taken back.", "group")
RESTARTS = counter(
    "partition_restarts_total", "restarts", "Times work on a partition began anew after an error.", "group"
)
EXPIRED_OFFSETS = counter(
    "expired_offsets_total", "offsets", "Offsets that retention deleted before they were read.", "group"
)
PREMISE = gauge(
    "premise",
    "state",
    "1 if what exactness rests on was so when the service started, 0 if not; what could not be checked is missing.",
    "check",
)
PURGED = counter(
    "purged_offsets_total",
    "offsets",
    "Offsets (records and markers of transactions) deleted of a topic after all its readers had committed them.",
    "topic",
)
LAG = gauge("lag_records", "records", "Offsets between what was read and the end of the input.", "group")
INPUT_SEEN = gauge(
    "input_seen_timestamp_seconds",
    "seconds",
    "When the ends of the input and the group's offsets were last looked up in Kafka, in seconds since 1970; the start "
    "of the process before that.",
    "group",
)
EXPIRING = gauge(
    "expiring_records",
    "records",
    "Records that retention deletes soon and that are not read yet: older than three quarters of the time that their "
    "topic keeps, or among the oldest quarter of a topic whose size is limited.",
    "group",
)
WATERMARK = gauge(
    "watermark_timestamp_seconds",
    "seconds",
    "Event time up to which a partition of a stage's input is complete in what the stage has committed, since 1970; 0: "
    "nothing is known yet. The lowest of a stage holds its results back. One that is idle holds nothing back and is "
    "not shown.",
    "group",
    "partition",
)
TRANSACTION_ABORTS = counter(
    "transaction_aborts_total", "transactions", "Transactions that were begun and not committed.", "group"
)
LAST_RESULT = gauge(
    "last_result_timestamp_seconds",
    "seconds",
    "When an aggregator stage last wrote final results, in seconds since 1970.",
    "group",
)
RESULT_DELAY = histogram(
    "result_delay_seconds",
    "seconds",
    "From when a window could be final (its end and the allowed lateness) to when its final results were committed; "
    "once per window, on the native runner per window and partition. A window that is a day late is not counted.",
    "group",
    buckets=LATENCY_BUCKETS,
)

# router
ROUTED = counter("router_routed_total", "events", "Events sent to a worker.", "worker")
LATE = counter("router_late_total", "events", "Events sent to the late topic.", "reason", values=LATE_REASONS)
SKIPPED_FIELDS = counter(
    "router_skipped_fields_total",
    "events",
    "Events with a value of the wrong type: the field's aggregates skip it.",
    "field",
)
DEAD = counter(
    "router_dead_letters_total",
    "events",
    "Events that the job can't use.",
    "reason",
    values=(*REASONS, *READER_REASONS),
)
QUARANTINED = counter(
    "router_quarantined_total", "events", "Events sent to the quarantine topic, as overrides of their keys say."
)
OVERRIDES = gauge("router_overrides", "keys", "Keys that go where people say rather than the grouping.", "action")
RESTING_OVERRIDES = gauge(
    "router_resting_overrides", "keys", "Overrides that play no part, as their worker is not in use or taken."
)
OVERRIDE_END = gauge(
    "router_override_end_timestamp_seconds",
    "seconds",
    "When the next override of this action ends, in seconds since 1970; missing without one.",
    "action",
)
OVERRIDDEN = counter(
    "router_overridden_total", "events", "Events sent to a worker because an override of their key says so.", "worker"
)
BATCH_SECONDS = histogram(
    "router_batch_seconds",
    "seconds",
    "Time to route and pack one batch, once its records are read; other partitions' turns included.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
IMBALANCE = gauge(
    "router_imbalance", "ratio", "λ: load of the busiest worker over the average, by capacity, last interval."
)
EPOCH = gauge("router_epoch", "epoch", "Number of the plan in force.")
IMBALANCE_BEFORE = gauge("router_imbalance_before", "ratio", "λ that key hashing would have given, last interval.")
KERNEL_SECONDS = histogram(
    "router_kernel_seconds",
    "seconds",
    "Time to hash and route one batch.",
    buckets=(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5),
)
WORKERS = gauge("router_workers", "workers", "W: workers in use.")
WORKER_CAPACITY = gauge(
    "router_worker_capacity",
    "ratio",
    "What a worker in use can do, relative to the others; loads are over that.",
    "worker",
)
SPLITTING = gauge(
    "router_splitting", "state", "1 while the grouping in force may spread keys, 0 while all go by their hash."
)
SHARING = gauge("router_sharing", "state", "1 while all routers are to have one plan, 0 while each makes its own.")
RESULT_WAIT = gauge(
    "router_result_wait_seconds",
    "seconds",
    "Length of a window and the allowed lateness: while events flow, results come at least that often.",
)
HOT_KEYS = gauge("router_hot_keys", "keys", "Keys that are spread wider than a cold key.")
WIDTH = gauge("router_width", "workers", "Workers of the widest keys, the widest of rank 1.", "rank")
TRACKED_KEYS = gauge("router_tracked_keys", "keys", "Keys with a count.")
PLAN_CHANGES = counter("router_plan_changes_total", "plans", "Plans that were put in force.")
PLAN_SECONDS = histogram(
    "router_plan_seconds",
    "seconds",
    "Time to make a plan of what all replicas have seen.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
MOVED_KEYS = counter("router_moved_keys_total", "keys", "Keys that a plan gave to other workers.")
RESHUFFLES = counter(
    "router_reshuffles_total",
    "plans",
    "Plans that gave at least half of the keys that they name to other workers, or that were not made in a round: "
    "nobody has counted what those move.",
)
LOST_ROUNDS = counter(
    "router_lost_rounds_total", "rounds", "Rounds of which no plan came in time: the plan before stays in force."
)
CONTROL_CHANGES = counter("router_control_changes_total", "changes", "Changes of what can be set, taken over.")
CONTROL_VERSION = gauge("router_control_version", "version", "Version of the control document in force.")
STORE_DEGRADED = gauge("router_store_degraded", "state", "1 while the store can't be used, else 0.")
BAD_STORE_VALUES = counter(
    "router_store_bad_values_total",
    "values",
    "Values in the store that could not be used when they were read, and were taken for missing.",
    "kind",
    values=STORED_KINDS,
)
REPLICAS = gauge("router_replicas", "replicas", "Routers that share the store and are alive.")
WORKER_LAG = gauge("router_worker_lag_records", "records", "Routed events that a worker has not worked off.", "worker")
SHADOW_IMBALANCE = gauge(
    "router_shadow_imbalance", "ratio", "λ of a grouping that is fed with a sample, last interval.", "grouping"
)
DROPPED_LISTENERS = counter(
    "router_dropped_listeners_total", "listeners", "Listeners to events that were too slow and were cut off."
)

# producer
PRODUCER_SENT = counter("producer_sent_total", "events", "Replayed events that the broker has acknowledged.")
PRODUCER_BAD_LINES = counter("producer_bad_lines_total", "lines", "Pieces of a source that went to dead-letters.")
PRODUCER_ACCEPTED = counter(
    "producer_accepted_total", "events", "Events taken by HTTP that the broker has acknowledged."
)

# worker
WORKER_EVENTS = counter("worker_events_total", "events", "Routed events whose partials are committed.")
WORKER_FLUSHES = counter("worker_flushes_total", "flushes", "Flushes of one partition's partials.")
WORKER_PARTIALS = counter("worker_partials_total", "partials", "Partials written.")
WORKER_DEAD = counter(
    "worker_dead_letters_total",
    "events",
    "Routed events that the job can't use.",
    "reason",
    values=(*REASONS, *READER_REASONS),
)
WORKER_GROUPS = gauge("worker_groups", "groups", "Keys times windows held in memory until the next flush.")

# aggregator
AGGREGATOR_PARTIALS = counter(
    "aggregator_partials_total",
    "partials",
    "Partials merged, or passed over: merged before, or window final.",
    "outcome",
    values=("merged", "passed over"),
)
AGGREGATOR_RESULTS = counter("aggregator_results_total", "results", "Final results written.")
AGGREGATOR_DEAD = counter(
    "aggregator_dead_letters_total",
    "partials",
    "Records that are no partial of the job.",
    "reason",
    values=(INVALID_PARTIAL, *READER_REASONS),
)
AGGREGATOR_WINDOWS = gauge(
    "aggregator_open_windows", "windows", "Windows that are not final, per partition of partials."
)
AGGREGATOR_GROUPS = gauge("aggregator_groups", "groups", "Keys times windows held in memory.")

# observer
OBSERVER_EVENTS = counter("observer_events_total", "events", "Events in the partials of a worker.", "worker")
OBSERVER_PARTIALS = counter(
    "observer_partials_total",
    "partials",
    "Partials counted, or passed over as repeated.",
    "outcome",
    values=("counted", "repeated"),
)
OBSERVER_DEAD = counter(
    "observer_dead_letters_total", "partials", "Records that are no partial.", "reason", values=(INVALID_PARTIAL,)
)
OBSERVER_DISPLACED = counter(
    "observer_displaced_total", "partials", "Partials that count in a later interval than their own time says."
)
OBSERVER_WORKERS = gauge("observer_workers", "workers", "Workers in use in the last interval.")
OBSERVER_IMBALANCE = gauge(
    "observer_imbalance",
    "ratio",
    "λ: load of the busiest worker over the average, by capacity; routing `key`: what key hashing would have given.",
    "span",
    "routing",
)
OBSERVER_STD_DEV = gauge(
    "observer_std_dev_points",
    "percentage points",
    "Standard deviation of the workers' shares, by capacity; routing `key`: what key hashing would have given.",
    "span",
    "routing",
)
OBSERVER_DIST_COST = gauge("observer_dist_cost", "ratio", "DIST_COST: distinct workers per distinct key.", "span")
OBSERVER_MESSAGES = gauge("observer_messages_per_event", "ratio", "Partials per event.", "span")
OBSERVER_EFFICIENCY = gauge("observer_efficiency", "ratio", "Throughput over what the workers in use could do.", "span")
OBSERVER_THROUGHPUT = gauge(
    "observer_worker_events_per_second", "events per second", "Throughput of a worker in the last interval.", "worker"
)
OBSERVER_LAG = gauge(
    "observer_worker_lag_records", "records", "Routed events that a worker has not worked off.", "worker"
)
OBSERVER_LATENCY = histogram(
    "observer_latency_seconds",
    "seconds",
    "From an event's own timestamp to that of the partial that holds it, of sampled events.",
    buckets=LATENCY_BUCKETS,
)
AUDIT_RANGES = counter(
    "observer_audit_ranges_total",
    "ranges",
    "Ranges of the input that were compared with what became of them.",
    "verdict",
    values=("proven", "differs"),
)
AUDIT_WINDOWS = counter(
    "observer_audit_windows_total",
    "windows",
    "Final windows whose results were compared with what was routed.",
    "verdict",
    values=("proven", "differs"),
)
AUDIT_DIFFERENCES = gauge(
    "observer_audit_differences", "places", "Ranges of the input, or windows, that the audit can't account for.", "kind"
)
AUDIT_OPEN = gauge("observer_audit_open_windows", "windows", "Windows that are yet to be compared.")
AUDIT_PROVEN = gauge(
    "observer_audit_proven_seconds", "seconds", "Event time up to which all windows have been compared, since 1970."
)
AUDIT_COMPARED = gauge(
    "observer_audit_compared_seconds", "seconds", "When the audit had last read and compared all there was, since 1970."
)
OBSERVER_INTERVAL_END = gauge(
    "observer_interval_end_seconds", "seconds", "End of the last interval, in seconds since 1970."
)
OBSERVER_RUN_SAMPLE = gauge(
    "observer_run_sample", "ratio", "Part of all keys that DIST_COST of the run is measured on."
)

# Spark job
SPARK_BATCH_SECONDS = histogram(
    "spark_batch_seconds",
    "seconds",
    "Time of one micro-batch from trigger to commit.",
    "query",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800),
)
SPARK_INPUT_ROWS = counter("spark_input_rows_total", "records", "Records read by finished batches.", "query")
SPARK_STATE_ROWS = gauge("spark_state_rows", "rows", "Rows in the query's state.", "query", "operator")
SPARK_STATE_BYTES = gauge(
    "spark_state_memory_bytes",
    "bytes",
    "Memory that the state in one executor can't give back, on average: operators and queries there share it.",
    "query",
)
SPARK_DROPPED_ROWS = counter(
    "spark_dropped_rows_total", "records", "Duplicates of partials that came after their window closed.", "query"
)
SPARK_SOURCE_LAG = gauge(
    "spark_source_lag_records", "records", "Records of a topic that are still to be read.", "query", "topic"
)
SPARK_RESULTS = counter("spark_results_total", "results", "Final results written.")
SPARK_DEAD = counter(
    "spark_dead_letters_total",
    "partials",
    "Records that are no partial of the job.",
    "reason",
    values=(INVALID_PARTIAL,),
)
SPARK_QUERY_RESTARTS = counter(
    "spark_query_restarts_total", "restarts", "Times a query began anew after an error.", "query"
)

# inspect: the exporter for a topic that nobody routes
INSPECT_EVENTS = counter(
    "inspect_events_total", "events", "Records that came to the topic; by estimate where a part was read.", "topic"
)
INSPECT_READ = counter("inspect_read_total", "records", "Records of the topic that were read.", "topic")
INSPECT_LEFT_OUT = counter(
    "inspect_left_out_total", "records", "Records that were read and have no key or weight of use.", "topic", "reason"
)
INSPECT_READ_AT = gauge(
    "inspect_read_timestamp_seconds",
    "seconds",
    "When the topic was last read up to its end, since 1970; at first the exporter's start.",
    "topic",
)
INSPECT_PARTITIONS = gauge("inspect_partitions", "partitions", "Partitions of the topic.", "topic")
INSPECT_PARTITION_IMBALANCE = gauge(
    "inspect_partition_imbalance", "ratio", "λ of the topic's partitions: the largest load over the average.", "topic"
)
INSPECT_WORKS_LIKE = gauge(
    "inspect_works_like_workers", "workers", "Whose work the topic's consumers do at most, one a partition.", "topic"
)
INSPECT_USEFUL = gauge(
    "inspect_useful_consumers", "consumers", "Consumers of the topic beyond these do next to nothing more.", "topic"
)
INSPECT_KEY_CEILING = gauge(
    "inspect_key_ceiling_workers",
    "workers",
    "Whose work any number of workers does at most while no key is split: 1 over the heaviest key's share.",
    "topic",
)
INSPECT_IMBALANCE = gauge(
    "inspect_imbalance",
    "ratio",
    "λ that a grouping would have given: key hashing, and level-fill, which splits keys.",
    "topic",
    "grouping",
    "workers",
)
INSPECT_HOT_SHARE = gauge("inspect_hot_key_share", "ratio", "Part of all weight of a heavy key.", "topic", "rank")
INSPECT_HOT_WIDTH = gauge(
    "inspect_hot_key_width",
    "workers",
    "Over how many workers level-fill would spread that key, of as many as there are partitions.",
    "topic",
    "rank",
)
INSPECT_NAMED_SHARE = gauge(
    "inspect_named_key_share", "ratio", "The same as the share, by the key's name.", "topic", "hot_key"
)


def show_group(group: str) -> None:
    """Shows the counters of a stage's group, all of them 0, before there is anything to count."""
    for of_group in (COMMITS, REBALANCES, RESTARTS, EXPIRED_OFFSETS, TRANSACTION_ABORTS):
        of_group.labels(group)
