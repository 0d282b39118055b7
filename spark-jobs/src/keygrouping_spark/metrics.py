"""The metrics of Spark's driver."""

from __future__ import annotations

from keygrouping.job import REASONS
from keygrouping_service.observability.metrics import INVALID_PARTIAL, Registration

_own = Registration("spark")
_SHORT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)

BATCH_SECONDS = _own.histogram(
    "batch_seconds",
    "seconds",
    "Time of one micro-batch from trigger to commit.",
    "query",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800),
)
PHASE_SECONDS = _own.histogram(
    "phase_seconds",
    "seconds",
    "Time of a phase of one micro-batch, by Spark's names: `latestOffset`, `getBatch`, `queryPlanning`, `walCommit`, "
    "`addBatch`, `commitOffsets` and others of its version.",
    "query",
    "phase",
    buckets=_SHORT,
)
STEP_SECONDS = _own.histogram(
    "step_seconds",
    "seconds",
    "Time of a step within `addBatch`. The worker's: `announce` tells Kafka what is written, `write` writes partials, "
    "`refuse` dead letters. The aggregator's: `merge` computes results, `commit` is Kafka's transaction, `publish` "
    "tells what is final next.",
    "query",
    "step",
    buckets=_SHORT,
)
INPUT_ROWS = _own.counter("input_rows_total", "records", "Records read by finished batches.", "query")
STATE_ROWS = _own.gauge("state_rows", "rows", "Rows in the query's state.", "query", "operator")
STATE_BYTES = _own.gauge(
    "state_memory_bytes",
    "bytes",
    "Memory that the state in one executor can't give back, on average: operators and queries there share it.",
    "query",
)
DROPPED_ROWS = _own.counter(
    "dropped_rows_total", "records", "Duplicates of partials that came after their window closed.", "query"
)
SOURCE_LAG = _own.gauge(
    "source_lag_records", "records", "Records of a topic that are still to be read.", "query", "topic"
)
RESULTS = _own.counter("results_total", "results", "Final results written.")
DEAD = _own.counter(
    "dead_letters_total",
    "records",
    "Unusable events, partials that can't be merged, and results of which an aggregate's own code failed.",
    "reason",
    values=(*REASONS, INVALID_PARTIAL),
)
QUERY_RESTARTS = _own.counter("query_restarts_total", "restarts", "Times a query restarted after an error.", "query")
