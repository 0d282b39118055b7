"""The metrics of an observer."""

from __future__ import annotations

from keygrouping_service.observability.metrics import INVALID_PARTIAL, LATENCY_BUCKETS, Registration

_own = Registration("observer")

EVENTS = _own.counter("events_total", "events", "Events in the partials of a worker.", "worker")
PARTIALS = _own.counter(
    "partials_total",
    "partials",
    "Partials counted, or passed over as repeated.",
    "outcome",
    values=("counted", "repeated"),
)
DEAD = _own.counter(
    "dead_letters_total", "partials", "Records that are no partial.", "reason", values=(INVALID_PARTIAL,)
)
DISPLACED = _own.counter(
    "displaced_total", "partials", "Partials that count in a later interval than their own time says."
)
WORKERS = _own.gauge("workers", "workers", "Workers in use in the last interval.")
IMBALANCE = _own.gauge(
    "imbalance",
    "ratio",
    "λ: load of the busiest worker over the average, by capacity; routing `key`: what key hashing would have given.",
    "span",
    "routing",
)
LEAST_SHARE = _own.gauge("least_share", "ratio", "Load of the emptiest worker over the average, by capacity.", "span")
STD_DEV = _own.gauge(
    "std_dev_points",
    "percentage points",
    "Standard deviation of the workers' shares, by capacity; routing `key`: what key hashing would have given.",
    "span",
    "routing",
)
DIST_COST = _own.gauge(
    "dist_cost", "ratio", "Replication factor (DIST_COST): distinct workers per distinct key.", "span"
)
MESSAGES = _own.gauge("messages_per_event", "ratio", "Partials per event.", "span")
EFFICIENCY = _own.gauge("efficiency", "ratio", "Throughput over what the workers in use could do.", "span")
THROUGHPUT = _own.gauge(
    "worker_events_per_second", "events per second", "Throughput of a worker in the last interval.", "worker"
)
LAG = _own.gauge("worker_lag_records", "records", "Routed events that a worker has not processed.", "worker")
LATENCY = _own.histogram(
    "latency_seconds",
    "seconds",
    "From an event's own timestamp to that of the partial that holds it, of sampled events.",
    buckets=LATENCY_BUCKETS,
)
AUDIT_RANGES = _own.counter(
    "audit_ranges_total",
    "ranges",
    "Ranges of the input that were compared with what became of them.",
    "verdict",
    values=("proven", "differs"),
)
AUDIT_WINDOWS = _own.counter(
    "audit_windows_total",
    "windows",
    "Final windows whose results were compared with what was routed.",
    "verdict",
    values=("proven", "differs"),
)
AUDIT_DIFFERENCES = _own.gauge(
    "audit_differences", "places", "Ranges of the input, or windows, that the audit can't account for.", "kind"
)
AUDIT_OPEN = _own.gauge("audit_open_windows", "windows", "Windows that are yet to be compared.")
AUDIT_PROVEN = _own.gauge(
    "audit_proven_seconds", "seconds", "Event time up to which all windows have been compared, since 1970."
)
AUDIT_COMPARED = _own.gauge(
    "audit_compared_seconds", "seconds", "When the audit had last read and compared all there was, since 1970."
)
INTERVAL_END = _own.gauge("interval_end_seconds", "seconds", "End of the last interval, in seconds since 1970.")
RUN_SAMPLE = _own.gauge("run_sample", "ratio", "Part of all keys on which the replication factor of the run rests.")
