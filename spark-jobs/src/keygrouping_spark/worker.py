"""The worker query: records of `routed` in, one partial per worker, window and key of each micro-batch out.

The library's own compiled code fetches, reads and aggregates them, as in a native worker. Each task has the records of
one partition, so nothing is shuffled.

A micro-batch that is replayed has the same offsets, hence the same partials with the same identity; so the plain
(at-least-once) Kafka sink is enough, because merging drops duplicates. If the checkpoint is lost, `batch_log` knows
which micro-batch that was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from keygrouping.accumulator import Accumulator
from pyspark.accumulators import Accumulator as Shared
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from keygrouping_spark import metrics
from keygrouping_spark.fetching import Fetching, Range
from keygrouping_spark.kafka import json_offsets, sink_options, source_options
from keygrouping_spark.pre_aggregation import PreAggregation, Seen, Task, Together
from keygrouping_spark.refused import Refused
from keygrouping_spark.settings import SparkSettings

_COLUMNS = "key binary, value binary"
_LETTERS = 5_000
"""Dead letters of a transaction."""


@dataclass(frozen=True)
class Worker:
    """Writes the partials of batches. `topic_id` is that of `routed`."""

    spark: SparkSession
    settings: SparkSettings
    topic_id: str
    seen: Shared[Seen] = field(init=False)
    """One for all batches, as Spark's driver forgets none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", self.spark.sparkContext.accumulator({}, Together()))

    def write(self, ranges: Iterable[Range], epoch: int) -> list[Range]:
        """Writes those of a batch, or writes them again; a task for each range. Gives where there are records of no
        use among others."""
        wanted = tuple(each for each in ranges if each.begin < each.end)
        if not wanted:
            return []
        self.seen.value = {}  # of a batch that was broken off
        task = Task(self._fetching(), wanted, PreAggregation(self.settings.job, epoch, self.topic_id), self.seen)
        numbers = self.spark.range(0, len(wanted), 1, numPartitions=len(wanted))
        written = numbers.mapInArrow(task, _COLUMNS).write.format("kafka")
        written.options(**sink_options(self.settings, self.settings.partials_topic)).save()
        seen: Seen = self.seen.value
        metrics.INPUT_ROWS.labels("worker").inc(sum(records for records, _ in seen.values()))  # Spark can't know it.
        return [span for _, (_, span) in sorted(seen.items()) if span is not None]

    def refused(self, span: Range) -> Iterator[tuple[int, list[Refused]]]:
        """The records of no use there, in parts, each with the offset behind it: they are read again, as there may be
        more than fits into memory."""
        for rows in self._fetching().read(span):
            accumulator = Accumulator(self.settings.job, span.partition, self.topic_id)
            rejected = sorted(accumulator.add(rows), key=itemgetter(0))
            for begin in range(0, len(rejected), _LETTERS):
                part = rejected[begin : begin + _LETTERS]
                yield (
                    int(rows.offsets[part[-1][0]]) + 1,
                    [Refused(rows.record(row), why.reason, why.detail) for row, why in part],
                )

    def _fetching(self) -> Fetching:
        return Fetching(self.settings.access(), self.settings.routed_topic)


def start(
    worker: Worker,
    offsets: Mapping[int, int],
    epoch: Callable[[], int],
    begin: Callable[[int], Iterable[Range]],
    refuse: Callable[[list[Range]], None],
) -> StreamingQuery:
    """Starts the query. `offsets` is where each partition begins if the checkpoint is new; `begin` hears of batches,
    and says what they have to read; `refuse` hears where in them records of no use are."""
    settings = worker.settings

    def flush(_: DataFrame, batch: int) -> None:
        with metrics.STEP_SECONDS.labels("worker", "announce").time():
            ranges = begin(batch)
        with metrics.STEP_SECONDS.labels("worker", "write").time():
            spans = worker.write(ranges, epoch())
        with metrics.STEP_SECONDS.labels("worker", "refuse").time():
            refuse(spans)

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
