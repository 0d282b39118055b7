"""The worker query: records of `routed` in, one partial per worker, window and key of each micro-batch out.

The library's own compiled code reads and aggregates them, as in a native worker. Each task has the records of one
partition, so nothing is shuffled.

A micro-batch that is replayed has the same offsets, hence the same partials with the same identity; so the plain
(at-least-once) Kafka sink is enough, because merging drops duplicates. If the checkpoint is lost, `batch_log` knows
which micro-batch that was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from keygrouping.job import JobSpec, is_plain
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from keygrouping_spark.kafka import json_offsets, sink_options, source_options
from keygrouping_spark.pre_aggregation import PreAggregation
from keygrouping_spark.settings import SparkSettings


def partials(records: DataFrame, job: JobSpec, epoch: int, topic_id: str) -> DataFrame:
    """Columns key and value of the partials of a batch of records, see `keygrouping.partial.Partial`.

    `topic_id` is that of the topic that the records are of.
    """
    timestamp = F.unix_millis("timestamp").alias("timestamp")
    value = F.lit(None).cast("binary").alias("value") if is_plain(job) else F.col("value")
    headers = ["headers"] if needs_headers(job) else []
    read = records.select("partition", "offset", timestamp, "key", value, *headers)
    return read.mapInArrow(PreAggregation(job, epoch, topic_id), "key binary, value binary")


def repeat(
    spark: SparkSession, settings: SparkSettings, ranges: Mapping[int, tuple[int, int]], topic_id: str, epoch: int
) -> None:
    """Writes a batch again: `ranges` has where it begins and ends in each partition."""
    topic = settings.routed_topic
    options = {
        **source_options(settings, topic),
        "startingOffsets": json_offsets(topic, {partition: begin for partition, (begin, _) in ranges.items()}),
        "endingOffsets": json_offsets(topic, {partition: end for partition, (_, end) in ranges.items()}),
        "includeHeaders": str(needs_headers(settings.job)),
        "assign": json.dumps({topic: sorted(ranges)}),
    }
    for name in ("subscribe", "maxOffsetsPerTrigger"):
        del options[name]
    _write(spark.read.format("kafka").options(**options).load(), settings, epoch, topic_id)


def _write(records: DataFrame, settings: SparkSettings, epoch: int, topic_id: str) -> None:
    written = partials(records, settings.job, epoch, topic_id).write.format("kafka")
    written.options(**sink_options(settings, settings.partials_topic)).save()


def needs_headers(job: JobSpec) -> bool:
    """Whether the Kafka source must deliver the headers."""
    return job.key.kind == "header"


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
        _write(records, settings, epoch(), topic_id)

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
