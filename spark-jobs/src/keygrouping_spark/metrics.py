"""The Spark job's metrics, from the reports of its queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keygrouping_service.metrics import counter, gauge, histogram

from keygrouping_spark.kafka import read_offsets

BATCH_SECONDS = histogram(
    "spark_batch_seconds",
    "seconds",
    "Time of one micro-batch from trigger to commit.",
    "query",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60),
)
INPUT_ROWS = counter("spark_input_rows_total", "records", "Records read by finished batches.", "query")
STATE_ROWS = gauge("spark_state_rows", "rows", "Rows in the query's state.", "query", "operator")
STATE_BYTES = gauge("spark_state_memory_bytes", "bytes", "Memory used by the query's state.", "query", "operator")
DROPPED_ROWS = counter(
    "spark_dropped_rows_total", "records", "Duplicates of partials that came after their window closed.", "query"
)
SOURCE_LAG = gauge(
    "spark_source_lag_records", "records", "Records of a topic that are still to be read.", "query", "topic"
)
RESULTS = counter("spark_results_total", "results", "Final results written.")
QUERY_RESTARTS = counter("spark_query_restarts_total", "restarts", "Times a query began anew after an error.", "query")


def record(query: str, progress: Mapping[str, Any]) -> None:
    """Takes one of Spark's progress reports into the metrics."""
    durations = progress.get("durationMs", {})
    if "addBatch" in durations:
        BATCH_SECONDS.labels(query).observe(durations.get("triggerExecution", 0) / 1000)
        INPUT_ROWS.labels(query).inc(progress.get("numInputRows", 0))
    for operator in progress.get("stateOperators", []):
        name = operator.get("operatorName", "")
        STATE_ROWS.labels(query, name).set(operator.get("numRowsTotal", 0))
        STATE_BYTES.labels(query, name).set(operator.get("memoryUsedBytes", 0))
        DROPPED_ROWS.labels(query).inc(operator.get("numRowsDroppedByWatermark", 0))
    for source in progress.get("sources", []):
        _record_lag(query, source)


def _record_lag(query: str, source: Mapping[str, Any]) -> None:
    latest, ends = source.get("latestOffset"), source.get("endOffset")
    for topic in latest if isinstance(latest, Mapping) else {}:
        read = read_offsets(ends, topic)
        lag = sum(offset - read.get(partition, 0) for partition, offset in read_offsets(latest, topic).items())
        SOURCE_LAG.labels(query, topic).set(max(0, lag))
