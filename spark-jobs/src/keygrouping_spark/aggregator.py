"""The aggregator query: partials in, one final result per key and window out, once the window is complete.

Spark's watermark is the largest event time of a batch over all its rows, which says nothing about what is still to
come from a slower partition. So no partial ever moves it: the only rows that do are *watermark records*, which
the driver writes to a topic of its own once every window that ends by then is known to be complete (see `progress`).
They are united with the partials, and dropped as soon as Spark has taken its watermark from them. Spark then does by
itself what is wanted: duplicates and open windows are kept in the state while window_end > watermark, and a window is
sent on and forgotten once window_end <= watermark. Partials that come again later are dropped as late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from keygrouping.aggregate.exact import Total
from keygrouping.job import JobSpec
from keygrouping.partial import Result, decode_receipt
from keygrouping_service.records.batches import partition_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from keygrouping_spark import sums
from keygrouping_spark.kafka import source_options
from keygrouping_spark.native import Native
from keygrouping_spark.reading import Letters, read_partials
from keygrouping_spark.receipts import receipt_of, sums_of_receipts
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.support import native

# All watermark records are later than this: it drops them, but only after Spark's watermark has seen them, because the
# optimizer moves no filter on a watermark's column below the watermark.
_NEVER = "window_end < timestamp'1970-01-01'"

_ANY_PARTITION = 1 << 31
"""As if the topic had all partitions that there can be: how many it has is known where results are written."""

_WRITTEN = pa.schema(
    {"hash": pa.int64(), "end": pa.int64(), "key": pa.binary(), "value": pa.binary(), "fault": pa.string()}
)
_COLUMNS = "hash bigint, end bigint, key binary, value binary, fault string"

IDENTITY = ["window_end", "key", "start", "topic", "worker", "first"]
"""Columns of a partial of which no two are counted."""


def read_watermarks(records: DataFrame, like: DataFrame, checkpoint_id: str) -> DataFrame:
    """The watermark records of this checkpoint as rows like partials that set the watermark, and never come through."""
    published = F.from_json(F.col("value").cast("string"), "checkpoint string, watermark bigint")
    nothing = [F.lit(None).cast(f.dataType).alias(f.name) for f in like.schema.fields if f.name != "window_end"]
    return (
        records.select(published.alias("published"))
        .where(F.col("published.checkpoint") == checkpoint_id)
        .select(F.timestamp_millis("published.watermark").alias("window_end"), *nothing)
        .withWatermark("window_end", "0 seconds")
        .where(_NEVER)
    )


def merge(partials: DataFrame, job: JobSpec) -> DataFrame:
    """Columns key, start, window_end, events, weight, aggregates and receipt, of partials without duplicates."""
    aggregates = native(job.aggregates)
    states = [F.col("aggregates").getField(aggregate.name) for aggregate in aggregates]
    merged = [column for a, state in zip(aggregates, states, strict=True) for column in a.merge_columns(state)]
    finals = [a.result(state) for a, state in zip(aggregates, states, strict=True)]
    return (
        partials.groupBy("window_end", "start", "key")
        .agg(
            F.try_sum("events").alias("events$"),
            sums.sum_of_numbers(F.col("weight")).alias("weight$"),
            *sums_of_receipts(),
            *merged,
        )
        .select(
            "key",
            "start",
            F.unix_millis("window_end").alias("end"),
            F.col("events$").alias("events"),
            F.col("weight$").alias("weight"),
            F.struct(*finals).alias("aggregates") if finals else F.create_map().alias("aggregates"),
            receipt_of().alias("receipt"),
        )
    )


def written(merged: DataFrame, job: JobSpec) -> DataFrame:
    """Records of the results of `merge`, made where the results are.

    Columns: the key and value of the record, `hash` modulo the partitions says where it goes, the window's end (ms),
    and what is wrong with its values in one line ("": nothing), which are null in it.
    """
    return merged.mapInArrow(_Writing(job), _COLUMNS)


@dataclass(frozen=True)
class _Writing:
    """What a task does with results."""

    job: JobSpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        aggregates = native(self.job.aggregates)
        for batch in batches:
            rows = [_record_of(row, aggregates) for row in batch.to_pylist(maps_as_pydicts="strict")]
            yield pa.RecordBatch.from_pylist(rows, _WRITTEN)


def _record_of(row: Mapping[str, Any], aggregates: Sequence[Native]) -> dict[str, Any]:
    """What is written of a row of `merge`."""
    finished = row["aggregates"]
    values = {a.name: a.published(finished[a.name]) for a in aggregates}
    faults = (a.failure(finished[a.name]) for a in aggregates)
    whole, real = row["weight"]["whole"], row["weight"]["real"]
    weight = Total(int(whole or 0), () if real is None else (real,)).rounded()
    place = (row["key"], row["start"], row["end"])
    result = Result(*place, row["events"], weight, True, values, decode_receipt(row["receipt"]))
    return {
        "hash": partition_of(result.key, _ANY_PARTITION),
        "end": result.end,
        "key": result.record_key,
        "value": result.encode(),
        "fault": "; ".join(filter(None, faults)),
    }


def start(
    spark: SparkSession,
    settings: SparkSettings,
    checkpoint_id: str,
    floor: int,
    letters: Letters,
    write: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Starts the query. Windows that ended by `floor` were final before this checkpoint.

    `write` gets the results of each batch (see `written`); when it has computed them, `letters` have what was refused.
    """

    def read(topic: str) -> DataFrame:
        options = {**source_options(settings, topic), "startingOffsets": "earliest", "includeHeaders": "true"}
        return spark.readStream.format("kafka").options(**options).load()

    partials = read_partials(read(settings.partials_topic), settings.job, floor, letters)
    watermarks = read_watermarks(read(settings.progress_topic), partials, checkpoint_id)
    once = watermarks.unionByName(partials).dropDuplicatesWithinWatermark(IDENTITY)
    return (
        written(merge(once, settings.job), settings.job)
        .writeStream.queryName("aggregator")
        .outputMode("append")
        .foreachBatch(write)
        .option("checkpointLocation", f"{settings.checkpoint}/aggregator")
        .trigger(processingTime=settings.trigger)
        .start()
    )
