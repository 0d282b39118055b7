"""The worker query: records of `routed` in, one partial per worker, window and key of each micro-batch out.

The library's own compiled code fetches, reads and aggregates them, as in a native worker. Each task has the records of
one partition, so nothing is shuffled.

A micro-batch that is replayed has the same offsets, hence the same partials with the same identity; so the plain
(at-least-once) Kafka sink is enough, because merging drops duplicates. If the checkpoint is lost, `batch_log` knows
which micro-batch that was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from keygrouping_spark import metrics
from keygrouping_spark.fetching import Fetching, Range
from keygrouping_spark.kafka import json_offsets, sink_options, source_options
from keygrouping_spark.pre_aggregation import PreAggregation, Seen, Task, Together
from keygrouping_spark.settings import SparkSettings

log = logging.getLogger(__name__)

_COLUMNS = "key binary, value binary"


@dataclass(frozen=True)
class Worker:
    """Writes the partials of batches. `topic_id` is that of `routed`."""

    spark: SparkSession
    settings: SparkSettings
    topic_id: str
    seen: Accumulator[Seen] = field(init=False)
    """One for all batches, as Spark's driver forgets none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", self.spark.sparkContext.accumulator({}, Together()))

    def write(self, ranges: Iterable[Range], epoch: int) -> None:
        """Writes those of a batch, or writes them again; a task for each range."""
        wanted = tuple(each for each in ranges if each.begin < each.end)
        if not wanted:
            return
        self.seen.value = {}  # of a batch that was broken off
        fetching = Fetching(self.settings.access(), self.settings.routed_topic)
        task = Task(fetching, wanted, PreAggregation(self.settings.job, epoch, self.topic_id), self.seen)
        numbers = self.spark.range(0, len(wanted), 1, numPartitions=len(wanted))
        written = numbers.mapInArrow(task, _COLUMNS).write.format("kafka")
        written.options(**sink_options(self.settings, self.settings.partials_topic)).save()
        self._tell(self.seen.value)

    def _tell(self, seen: Seen) -> None:
        """What the batch had, which Spark can't know, and what of it is of no use: the router wrote none such."""
        metrics.INPUT_ROWS.labels("worker").inc(sum(records for records, _, _ in seen.values()))
        for (partition, _), (_, refused, first) in sorted(seen.items()):
            if refused:
                topic = self.settings.routed_topic
                log.error(
                    "%s[%d]: %d records are left out, as they can't be used: %s", topic, partition, refused, first
                )


def start(
    worker: Worker,
    offsets: Mapping[int, int],
    epoch: Callable[[], int],
    begin: Callable[[int], Iterable[Range]],
) -> StreamingQuery:
    """Starts the query. `offsets` is where each partition begins if the checkpoint is new; `begin` hears of batches,
    and says what they have to read."""
    settings = worker.settings

    def flush(_: DataFrame, batch: int) -> None:
        worker.write(begin(batch), epoch())

    routed = (
        worker.spark.readStream.format("kafka")
        .options(**source_options(settings, settings.routed_topic))
        .option("startingOffsets", json_offsets(settings.routed_topic, offsets))
        .load()
    )
    return (
        routed.writeStream.queryName("worker")
        .foreachBatch(flush)
        .option("checkpointLocation", f"{settings.checkpoint}/worker")
        .trigger(processingTime=settings.trigger)
        .start()
    )
