"""The metrics of Spark's driver."""

from __future__ import annotations

from keygrouping.job import REASONS
from keygrouping_service.observability.metrics import INVALID_PARTIAL, Registration

_own = Registration("spark")

BATCH_SECONDS = _own.histogram(
    "batch_seconds",
    "seconds",
    "Time of one micro-batch from trigger to commit.",
    "query",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800),
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
