"""The metrics of a router."""

from __future__ import annotations

from keygrouping.job import REASONS
from keygrouping_service.events.lateness import LATE_REASONS
from keygrouping_service.observability.metrics import READER_REASONS, Registration

_own = Registration("router")

STORED_KINDS = (
    "control",
    "control-history",
    "keyspace",
    "loads",
    "plan",
    "plan-history",
    "replicas",
    "round",
    "starts",
    "worker-pods",
)
"""What is kept in the store."""

ROUTED = _own.counter("routed_total", "events", "Events sent to a worker.", "worker")
LATE = _own.counter("late_total", "events", "Events sent to the late topic.", "reason", values=LATE_REASONS)
SKIPPED_FIELDS = _own.counter(
    "skipped_fields_total",
    "events",
    "Events with a value of the wrong type: the field's aggregates skip it.",
    "field",
)
DEAD = _own.counter(
    "dead_letters_total",
    "events",
    "Events that the job can't use.",
    "reason",
    values=(*REASONS, *READER_REASONS),
)
QUARANTINED = _own.counter(
    "quarantined_total", "events", "Events sent to the quarantine topic, as overrides of their keys say."
)
OVERRIDES = _own.gauge("overrides", "keys", "Keys that go where people say rather than the grouping.", "action")
RESTING_OVERRIDES = _own.gauge(
    "resting_overrides", "keys", "Overrides that play no part, as their worker is not in use or taken."
)
OVERRIDE_END = _own.gauge(
    "override_end_timestamp_seconds",
    "seconds",
    "When the next override of this action ends, in seconds since 1970; missing without one.",
    "action",
)
OVERRIDDEN = _own.counter(
    "overridden_total", "events", "Events sent to a worker because an override of their key says so.", "worker"
)
BATCH_SECONDS = _own.histogram(
    "batch_seconds",
    "seconds",
    "Time to route and pack one batch, once its records are read; other partitions' turns included.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
IMBALANCE = _own.gauge(
    "imbalance", "ratio", "λ: load of the busiest worker over the average, by capacity, last interval."
)
LEAST_SHARE = _own.gauge(
    "least_share", "ratio", "Load of the emptiest worker over the average, by capacity, last interval."
)
EPOCH = _own.gauge("epoch", "epoch", "Number of the plan in force.")
IMBALANCE_BEFORE = _own.gauge("imbalance_before", "ratio", "λ that key hashing would have given, last interval.")
KERNEL_SECONDS = _own.histogram(
    "kernel_seconds",
    "seconds",
    "Time to hash and route one batch.",
    buckets=(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5),
)
WORKERS = _own.gauge("workers", "workers", "W: workers in use.")
WORKER_CAPACITY = _own.gauge(
    "worker_capacity",
    "ratio",
    "What a worker in use can do, relative to the others; loads are over that.",
    "worker",
)
SPLITTING = _own.gauge(
    "splitting", "state", "1 while the grouping in force may spread keys, 0 while all go by their hash."
)
SHARING = _own.gauge("sharing", "state", "1 while all routers are to have one plan, 0 while each makes its own.")
RESULT_WAIT = _own.gauge(
    "result_wait_seconds",
    "seconds",
    "Length of a window and the allowed lateness: while events flow, results come at least that often.",
)
HOT_KEYS = _own.gauge("hot_keys", "keys", "Keys that are spread wider than a cold key.")
WIDTH = _own.gauge("width", "workers", "Workers of the widest keys, the widest of rank 1.", "rank")
TRACKED_KEYS = _own.gauge("tracked_keys", "keys", "Keys with a count.")
PLAN_CHANGES = _own.counter("plan_changes_total", "plans", "Plans that were put in force.")
PLAN_SECONDS = _own.histogram(
    "plan_seconds",
    "seconds",
    "Time to make a plan of what all replicas have seen.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
MOVED_KEYS = _own.counter("moved_keys_total", "keys", "Keys that a plan gave to other workers.")
RESHUFFLES = _own.counter(
    "reshuffles_total",
    "plans",
    "Plans that gave at least half of the keys that they name to other workers, or that were not made in a round: "
    "nobody has counted what those move.",
)
LOST_ROUNDS = _own.counter(
    "lost_rounds_total", "rounds", "Rounds of which no plan came in time: the plan before stays in force."
)
CONTROL_CHANGES = _own.counter("control_changes_total", "changes", "Changes of what can be set, taken over.")
CONTROL_VERSION = _own.gauge("control_version", "version", "Version of the control document in force.")
STORE_DEGRADED = _own.gauge("store_degraded", "state", "1 while the store can't be used, else 0.")
BAD_STORE_VALUES = _own.counter(
    "store_bad_values_total",
    "values",
    "Values in the store that could not be used when they were read, and were taken for missing.",
    "kind",
    values=STORED_KINDS,
)
REPLICAS = _own.gauge("replicas", "replicas", "Routers that share the store and are alive.")
WORKER_LAG = _own.gauge("worker_lag_records", "records", "Routed events that a worker has not processed.", "worker")
SHADOW_IMBALANCE = _own.gauge(
    "shadow_imbalance", "ratio", "λ of a grouping that is fed with a sample, last interval.", "grouping"
)
DROPPED_LISTENERS = _own.counter(
    "dropped_listeners_total", "listeners", "Listeners to events that were too slow and were cut off."
)
