"""What tasks of the queries write of records, without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from keygrouping.job import Headers, JobSpec
from keygrouping.partial import Result
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_spark.aggregator import written
from keygrouping_spark.fetching import Range
from keygrouping_spark.pre_aggregation import PreAggregation
from keygrouping_spark.results import records_of
from pyspark.sql import DataFrame

Record = tuple[bytes | None, bytes | None, int, int, int, Sequence[tuple[str, bytes | None]]]
"""Key, value, partition, offset, timestamp and headers."""


def partials_of(records: Iterable[Record], job: JobSpec, epoch: int, topic_id: str) -> list[tuple[bytes, bytes]]:
    """Keys and values of the partials of a batch with these records."""
    by_partition: dict[int, list[tuple[int, int, bytes | None, bytes | None, Headers]]] = {}
    for key, value, partition, offset, timestamp, headers in records:
        by_partition.setdefault(partition, []).append((offset, timestamp, key, value, tuple(headers)))
    task = PreAggregation(job, epoch, topic_id)
    made: list[tuple[bytes, bytes]] = []
    for partition, rows in by_partition.items():
        whole: RecordBatch = Columns.of("routed", partition, rows)
        made += pairs(task(Range(partition, rows[0][0], rows[-1][0] + 1), [whole], {}))
    return made


def pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of what a task gives to Spark."""
    for batch in batches:
        yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)


def results_of(merged: DataFrame, job: JobSpec) -> list[tuple[Result, str]]:
    """The results that are written of rows of `aggregator.merge`, and what is wrong with the values of each."""
    return [(Result.decode(row.value), row.fault) for row in records_of(written(merged, job).toArrow())]
