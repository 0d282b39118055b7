"""From the reports of Spark's queries to the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keygrouping_service.observability.metrics import EXPIRED_OFFSETS

from keygrouping_spark import metrics
from keygrouping_spark.kafka import read_offsets


def show(query: str, group: str) -> None:
    """Shows the figures of a query and its group, all of them 0: an alert sees also one that never ends a batch."""
    metrics.BATCH_SECONDS.labels(query)
    EXPIRED_OFFSETS.labels(group)
    for counter in (metrics.INPUT_ROWS, metrics.DROPPED_ROWS, metrics.QUERY_RESTARTS):
        counter.labels(query)


def record(query: str, progress: Mapping[str, Any]) -> None:
    """Takes one of Spark's progress reports into the metrics."""
    durations = progress.get("durationMs", {})
    if "addBatch" in durations:
        metrics.BATCH_SECONDS.labels(query).observe(durations.get("triggerExecution", 0) / 1000)
        for phase in durations.keys() - {"triggerExecution"}:
            metrics.PHASE_SECONDS.labels(query, phase).observe(durations[phase] / 1000)
        metrics.INPUT_ROWS.labels(query).inc(progress.get("numInputRows", 0))
    operators = progress.get("stateOperators", [])
    for operator in operators:
        name = operator.get("operatorName", "")
        metrics.STATE_ROWS.labels(query, name).set(operator.get("numRowsTotal", 0))
        metrics.DROPPED_ROWS.labels(query).inc(operator.get("numRowsDroppedByWatermark", 0))
    if operators:
        metrics.STATE_BYTES.labels(query).set(max(map(_memory, operators)))
    for source in progress.get("sources", []):
        _record_lag(query, source)


def _memory(operator: Mapping[str, Any]) -> float:
    """Bytes in an executor. Its stores share a cache, each tells of all of it, and `memoryUsedBytes` is 0 then."""
    told = operator.get("customMetrics", {}).get("rocksdbPinnedBlocksMemoryUsage", 0)
    return float(told / max(1, operator.get("numStateStoreInstances", 1)))


def _record_lag(query: str, source: Mapping[str, Any]) -> None:
    latest, ends = source.get("latestOffset"), source.get("endOffset")
    for topic in latest if isinstance(latest, Mapping) else {}:
        read = read_offsets(ends, topic)
        lag = sum(offset - read.get(partition, 0) for partition, offset in read_offsets(latest, topic).items())
        metrics.SOURCE_LAG.labels(query, topic).set(max(0, lag))
