"""The aggregator query: partials in, one final result per key and window out, once the window is complete.

Spark's watermark is the largest event time of a batch over all its rows, which says nothing about what is still to
come from a slower partition. So no partial ever moves it: the only rows with a watermark are the *marks*, records
that the driver writes to a topic of its own when every window that ends at or before the mark is known to be complete
(see `progress`). The marks are united with the partials and dropped again at once, behind the watermark. What Spark
then does by itself is what is wanted: duplicates and open windows are kept in the state as long as window_end > mark,
and a window is sent on and forgotten at window_end <= mark. Partials that come again later are dropped as late.
"""

from __future__ import annotations

from collections.abc import Callable

from keygrouping.job import JobSpec
from keygrouping.partial import VERSION
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DataType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from keygrouping_spark.aggregates import native
from keygrouping_spark.kafka import source_options
from keygrouping_spark.settings import SparkSettings

# All marks are later than this: it drops them, but only after the watermark has seen them, because the optimizer moves
# no filter on a watermark's column below the watermark.
_NEVER = "window_end < timestamp'1970-01-01'"

IDENTITY = ["window_end", "key", "start", "topic", "worker", "first"]
"""Columns of a partial of which no two are counted."""


def weight_type(job: JobSpec) -> DataType:
    """Type of the weights' sum: whole unless the weight is a field."""
    return DoubleType() if job.weight.kind == "field" else LongType()


def read_partials(records: DataFrame, job: JobSpec, floor: int) -> DataFrame:
    """Columns of the partials in Kafka records, without windows that ended at or before `floor` (ms)."""
    states = StructType([StructField(a.name, a.json_type) for a in native(job.aggregates)])
    members: list[tuple[str, DataType]] = [
        ("v", IntegerType()),
        ("worker", IntegerType()),
        ("start", LongType()),
        ("end", LongType()),
        ("events", LongType()),
        ("weight", weight_type(job)),
        ("first", LongType()),
        ("topic", StringType()),
        ("aggregates", states),
    ]
    schema = StructType([StructField(name, kind) for name, kind in members])
    partial = F.from_json(F.col("value").cast("string"), schema)
    columns = [
        F.col(f"partial.{name}") for name in ("topic", "worker", "start", "first", "events", "weight", "aggregates")
    ]
    return (
        records.select("key", partial.alias("partial"))
        .where((F.col("partial.v") == VERSION) & (F.col("partial.end") > floor))
        .select(F.timestamp_millis("partial.end").alias("window_end"), "key", *columns)
    )


def read_marks(records: DataFrame, like: DataFrame, checkpoint_id: str) -> DataFrame:
    """The marks of this checkpoint as rows like partials that set the watermark, and never come through."""
    mark = F.from_json(F.col("value").cast("string"), "checkpoint string, watermark bigint")
    nothing = [F.lit(None).cast(f.dataType).alias(f.name) for f in like.schema.fields if f.name != "window_end"]
    return (
        records.select(mark.alias("mark"))
        .where(F.col("mark.checkpoint") == checkpoint_id)
        .select(F.timestamp_millis("mark.watermark").alias("window_end"), *nothing)
        .withWatermark("window_end", "0 seconds")
        .where(_NEVER)
    )


def merge(partials: DataFrame, job: JobSpec) -> DataFrame:
    """Columns key, start, window_end, events, weight and one per aggregate, of partials without duplicates."""
    aggregates = native(job.aggregates)
    states = [F.col("aggregates").getField(aggregate.name) for aggregate in aggregates]
    merged = [column for a, state in zip(aggregates, states, strict=True) for column in a.merge_columns(state)]
    finals = [a.result(state) for a, state in zip(aggregates, states, strict=True)]
    return (
        partials.groupBy("window_end", "start", "key")
        .agg(F.sum("events").alias("events$"), F.sum("weight").alias("weight$"), *merged)
        .select(
            "key",
            "start",
            F.unix_millis("window_end").alias("end"),
            F.col("events$").alias("events"),
            F.col("weight$").alias("weight"),
            F.struct(*finals).alias("aggregates") if finals else F.create_map().alias("aggregates"),
        )
    )


def start(
    spark: SparkSession,
    settings: SparkSettings,
    checkpoint_id: str,
    floor: int,
    write: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Starts the query. Windows that ended by `floor` were final before this checkpoint; `write` gets each batch."""

    def read(topic: str) -> DataFrame:
        options = {**source_options(settings, topic), "startingOffsets": "earliest"}
        return spark.readStream.format("kafka").options(**options).load()

    partials = read_partials(read(settings.partials_topic), settings.job, floor)
    marks = read_marks(read(settings.progress_topic), partials, checkpoint_id)
    return (
        merge(marks.unionByName(partials).dropDuplicatesWithinWatermark(IDENTITY), settings.job)
        .writeStream.queryName("aggregator")
        .outputMode("append")
        .foreachBatch(write)
        .option("checkpointLocation", f"{settings.checkpoint}/aggregator")
        .trigger(processingTime=settings.trigger)
        .start()
    )
