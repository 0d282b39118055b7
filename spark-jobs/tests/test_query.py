"""The watermark of a running query is raised for its next batch, which also a restart does not take back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keygrouping_service.errors import Fatal
from keygrouping_service.testing import until
from keygrouping_spark import metrics
from keygrouping_spark.fetching import BrokerAwayError, LostRecordsError
from keygrouping_spark.query import QueryRunner
from keygrouping_spark.reports import Reading
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark]


class Counting:
    """A query that counts by windows of a second, whose data never moves its watermark; runs when asked to."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._loop = asyncio.get_running_loop()
        self.found: dict[int, list[int]] = {}
        """By batch: seconds at which the windows begin that it has closed."""
        self.raised = 0
        """Watermark (ms) to which batch 0 raises that of the next one."""
        self.runner = QueryRunner("counting", lambda: self._start("0 seconds"), Reading("t", {}))

    def add(self, name: str, second: int) -> None:
        """Gives it a row to read."""
        source = self._folder / "source"
        source.mkdir(exist_ok=True)
        (source / f"{name}.json").write_text(f'{{"second": {second}}}\n')

    def pausing(self) -> QueryRunner:
        """The same query, which begins no second batch."""
        self.runner = QueryRunner("counting", lambda: self._start("1 hour"), Reading("t", {}))
        return self.runner

    def _start(self, pause: str) -> StreamingQuery:
        rows = self._spark.readStream.schema("second bigint").json(str(self._folder / "source"))
        timed = rows.select(F.timestamp_seconds("second").alias("time")).withWatermark("time", "40000 days")
        counted = timed.groupBy(F.window("time", "1 second")).count().select(F.unix_seconds("window.start").alias("s"))
        written = counted.writeStream.outputMode("append").foreachBatch(self._write)
        return written.option("checkpointLocation", str(self._folder / "c")).trigger(processingTime=pause).start()

    def _write(self, batch: DataFrame, number: int) -> None:
        rows = sorted(row.s for row in batch.collect())
        if number == 0 and self.raised:
            asyncio.run_coroutine_threadsafe(self.runner.advance(self.raised), self._loop).result()
        self.found[number] = rows


@pytest.fixture
async def counting(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Counting]:
    made = Counting(spark, tmp_path)
    yield made
    await made.runner.stop()


def has(counting: Counting, batch: int) -> Callable[[], bool]:
    return lambda: batch in counting.found


async def test_the_batch_after_the_one_that_raises_it_closes_the_windows(counting: Counting) -> None:
    counting.add("a", 100)
    counting.add("b", 200)
    counting.raised = 101_000
    running = asyncio.create_task(counting.runner.run())
    await until(has(counting, 1))
    assert counting.found == {0: [], 1: [100]}
    await counting.runner.advance(50_000)
    counting.add("c", 150)
    await until(has(counting, 2))
    assert counting.found[2] == []
    await counting.runner.stop()
    await running


async def test_a_restart_before_that_batch_does_not_take_it_back(counting: Counting) -> None:
    counting.add("a", 100)
    counting.raised = 101_000
    pausing = counting.pausing()
    running = asyncio.create_task(pausing.run())
    await until(has(counting, 0))
    await until(lambda: (counting._folder / "c" / "commits" / "0").exists())
    await pausing.stop()
    await running
    counting.add("b", 200)
    again = QueryRunner("counting", lambda: counting._start("0 seconds"), Reading("t", {}))
    counting.runner = again
    running = asyncio.create_task(again.run())
    await until(has(counting, 1))
    assert counting.found[1] == [100]
    await again.stop()
    await running


async def test_a_query_that_has_not_started_is_left_alone(counting: Counting) -> None:
    await counting.runner.advance(101_000)


def failing(spark: SparkSession, folder: Path, error: Exception) -> QueryRunner:
    """A query of which every task raises this."""

    def fail(batches: Iterable[Any]) -> Iterator[Any]:
        for _ in batches:
            raise error
        yield from ()

    def write(batch: DataFrame, _: int) -> None:
        batch.mapInArrow(fail, "second bigint").collect()

    return writing(spark, folder, write)


def writing(spark: SparkSession, folder: Path, write: Callable[[DataFrame, int], None]) -> QueryRunner:
    """A query that writes like this, of one batch."""
    (folder / "source").mkdir()
    (folder / "source" / "a.json").write_text('{"second": 1}\n')

    def start() -> StreamingQuery:
        rows = spark.readStream.schema("second bigint").json(str(folder / "source"))
        return rows.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "c")).start()

    return QueryRunner("failing", start, Reading("t", {}))


async def test_what_a_task_raises_is_told_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    runner = failing(spark, tmp_path, LostRecordsError("routed[0] has lost them"))
    with pytest.raises(Fatal) as told:
        await runner.run()
    text = "the failing query failed: keygrouping_spark.fetching.LostRecordsError: routed[0] has lost them"
    assert str(told.value) == text


async def test_what_java_raises_is_told_by_its_innermost_cause(spark: SparkSession, tmp_path: Path) -> None:
    def write(batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr("'k' as key", "'v' as value").write.format("kafka").option("topic", "t")
        rows.option("kafka.bootstrap.servers", "127.0.0.1:1").option("kafka.max.request.size", "zz").save()

    with pytest.raises(Fatal, match=r"the failing query failed: .*Invalid value zz for configuration max.request.size"):
        await writing(spark, tmp_path, write).run()


async def test_a_query_is_begun_again_whose_tasks_miss_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    runner = failing(spark, tmp_path, BrokerAwayError("reading routed[0]: KafkaConnectionError()"))
    restarts = metrics.QUERY_RESTARTS.labels("failing")
    running = asyncio.create_task(runner.run())
    await until(lambda: restarts._value.get() >= 2)
    await runner.stop()
    await running
