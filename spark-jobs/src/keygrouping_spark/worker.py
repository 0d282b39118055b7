"""The worker query: records of `routed` in, one partial per worker, window and key of each micro-batch out.

A micro-batch that is replayed has the same offsets, hence the same partials with the same identity; so the plain
(at-least-once) Kafka sink is enough, because merging drops duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from keygrouping.job import JobSpec
from keygrouping.partial import MEMBERS, VERSION
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from keygrouping_spark import sums
from keygrouping_spark.events import extract, field_column, needs_headers
from keygrouping_spark.in_python import InPython
from keygrouping_spark.kafka import json_offsets, sink_options, source_options
from keygrouping_spark.receipts import receipt_of, sums_of_events
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.support import native


def partials(records: DataFrame, job: JobSpec, epoch: int, topic_id: str) -> DataFrame:
    """Columns key and value of the partials of a batch of records, as `keygrouping.partial.Partial` reads them.

    `topic_id` is that of the topic that the records are of.
    """
    start = F.col("time") - F.pmod(F.col("time") - job.window_offset_ms, F.lit(job.window_ms))
    values = [[F.col(field_column(index)) for index in positions] for positions in job.fields_of]
    aggregates = native(job.aggregates)
    # By number: an aggregate may be called like one of the other columns.
    states = [a.state(*given).alias(f"state{i}") for i, (a, given) in enumerate(zip(aggregates, values, strict=True))]
    columns = [(F.col(f"state{i}"), aggregate) for i, aggregate in enumerate(aggregates)]
    named = [column.alias(aggregate.name) for column, aggregate in columns if not isinstance(aggregate, InPython)]
    members = [column for column, aggregate in columns if isinstance(aggregate, InPython)]
    grouped = (
        extract(records, job)
        .groupBy(F.col("partition").alias("worker"), start.alias("start"), "key")
        .agg(
            F.count(F.lit(1)).alias("events"),
            _weight(job).alias("weight"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            *sums_of_events(topic_id),
            *states,
        )
    )
    return grouped.select("key", _json(job, named, members, epoch, topic_id).alias("value"))


def _weight(job: JobSpec) -> Column:
    weight = F.col("weight")
    return sums.text_of_sum(weight) if job.weight.kind == "field" else F.sum(weight)


def _json(job: JobSpec, states: list[Column], members: list[Column], epoch: int, topic_id: str) -> Column:
    """The partial; `members` are JSON text of further aggregates."""
    made = {
        "end": F.col("start") + job.window_ms,
        "epoch": F.lit(epoch),
        "aggregates": F.struct(*states) if states else F.create_map(),
        "receipt": receipt_of(),
        "topic": F.lit(topic_id),
    }
    # The aggregates last, so that more of them can be written behind them.
    names = sorted(MEMBERS, key=lambda name: name == "aggregates")
    columns = [made.get(name, F.col(name)).alias(name) for name in names]
    text = F.to_json(F.struct(F.lit(VERSION).alias("v"), *columns), {"ignoreNullFields": "false"})
    if not members:
        return text
    open_end = F.substring(text, 1, F.length(text) - len("}}"))
    return F.concat(open_end, F.lit("," if states else ""), F.concat_ws(",", *members), F.lit("}}"))


def start(
    spark: SparkSession,
    settings: SparkSettings,
    offsets: Mapping[int, int],
    topic_id: str,
    epoch: Callable[[], int],
    begin: Callable[[int], None],
) -> StreamingQuery:
    """Starts the query. `offsets` is where each partition begins if the checkpoint is new, `topic_id` the id of the
    topic; `begin` hears of batches."""

    def flush(records: DataFrame, batch: int) -> None:
        begin(batch)
        written = partials(records, settings.job, epoch(), topic_id).write.format("kafka")
        written.options(**sink_options(settings, settings.partials_topic)).save()

    routed = (
        spark.readStream.format("kafka")
        .options(**source_options(settings, settings.routed_topic))
        .option("startingOffsets", json_offsets(settings.routed_topic, offsets))
        .option("includeHeaders", needs_headers(settings.job))
        .load()
    )
    return (
        routed.writeStream.queryName("worker")
        .foreachBatch(flush)
        .option("checkpointLocation", f"{settings.checkpoint}/worker")
        .trigger(processingTime=settings.trigger)
        .start()
    )
