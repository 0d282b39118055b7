"""Functions with a state in streams: in parts they put out the rows of plain Spark, in the same micro-batches."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from keygrouping.spark import SkewError, skewed
from keygrouping_pyspark import with_state
from keygrouping_pyspark.in_parts import GROUP, PART
from pyspark import cloudpickle
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from .same import results

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

# Spark's workers can't import a test.
PICKLE: Any = cloudpickle
PICKLE.register_pickle_by_value(sys.modules[__name__])

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SCHEMA = "user string, ts timestamp, amount long"
COLUMNS = ["user", "ts", "amount", "end"]
TOTALS = "user string, rows long, total long"
FOLDED = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
"""In the first of the two hours from 2:00 to 3:00 in Berlin."""
FILES = [[0, 60], [135, 1], [260, 1], [450, 1], [900]]
"""Minutes after it, one file a micro-batch. Those of the second close what was before, with rows of the third still
to come; those of the fourth come late."""
STARTS: list[tuple[range, dict[Any, int]]] = [
    (range(1), {}),
    (range(1, 3), {"hot": 2, None: 2}),
    (range(3, len(FILES)), {None: 2}),
]
"""Files that are new at each start, and its widths."""


def write(folder: Path, files: range) -> None:
    for file in files:
        rows = [
            {
                "user": None if n % 11 == 0 else "hot" if n % 5 else f"k{n % 3}",
                "ts": f"{FOLDED + timedelta(minutes=FILES[file][n % len(FILES[file])], seconds=n):%FT%TZ}",
                "amount": file * 100 + n,
            }
            for n in range(60)
        ]
        path = folder / f"{file}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        # Spark reads by time of change, and a file system's clock may give all the same.
        os.utime(path, (file, file))


def clicks(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).option("latestFirst", "false")
    # No timestamp: Python's processors have one state for both of the two that are the same when clocks are put back.
    end = F.unix_millis(F.date_trunc("minute", "ts")) + 60_000
    return reader.json(str(folder)).withWatermark("ts", "70 minutes").withColumn("end", end)


def closed(user: Any, rows: Any, total: Any) -> Any:
    import pandas as pd

    return pd.DataFrame({"user": [user], "rows": [rows], "total": [total]})


def added(parts: Any) -> Any:
    assert len(parts) > 1, "merge is not called for groups that are not split"
    return parts.groupby("user", dropna=False, as_index=False).sum()


def until_it_closes(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Counts and adds up, and puts out a minute as soon as it is before the watermark."""
    rows, total = state.getOption or (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield closed(key[1], rows, total)
        return
    for frame in frames:
        assert list(frame.columns) == COLUMNS
        rows, total = rows + len(frame), total + int(frame.amount.sum())
    if key[0] < state.getCurrentWatermarkMs():
        state.remove()
        yield closed(key[1], rows, total)
    else:
        state.update((rows, total))
        state.setTimeoutTimestamp(int(key[0]))


class UntilItCloses(StatefulProcessor):
    """The same by a timer."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.state = handle.getValueState("sums", "rows long, total long")

    def handleInputRows(self, key: Any, rows: Any, _: Any) -> Iterator[Any]:
        count, total = self.state.get() or (0, 0)
        for frame in rows:
            assert list(frame.columns) == COLUMNS
            count, total = count + len(frame), total + int(frame.amount.sum())
        self.state.update((count, total))
        self.handle.registerTimer(int(key[0]))
        return iter(())

    def handleExpiredTimer(self, key: Any, **_: Any) -> Iterator[Any]:  # type: ignore[override]
        yield closed(key[1], *self.state.get())
        self.state.clear()


class RowsUntilItCloses(UntilItCloses):
    """The same for transformWithState."""

    def handleInputRows(self, key: Any, rows: Any, _: Any) -> Iterator[Any]:
        count, total = self.state.get() or (0, 0)
        for row in rows:
            count, total = count + 1, total + row.amount
            assert list(row.asDict()) == COLUMNS
        self.state.update((count, total))
        self.handle.registerTimer(key[0])
        return iter(())

    def handleExpiredTimer(self, key: Any, **_: Any) -> Iterator[Any]:  # type: ignore[override]
        from pyspark.sql import Row

        rows, total = self.state.get()
        self.state.clear()
        yield Row(user=key[1], rows=rows, total=total)


def in_pandas_with_state(groups: Any, **merge: Any) -> DataFrame:
    return groups.applyInPandasWithState(  # type: ignore[no-any-return]
        until_it_closes, TOTALS, "rows long, total long", "append", "EventTimeTimeout", **merge
    )


def transformed_in_pandas(groups: Any, **merge: Any) -> DataFrame:
    return groups.transformWithStateInPandas(UntilItCloses(), TOTALS, "Append", "EventTime", **merge)  # type: ignore[no-any-return]


def transformed(groups: Any, **merge: Any) -> DataFrame:
    return groups.transformWithState(RowsUntilItCloses(), TOTALS, "Append", "EventTime", **merge)  # type: ignore[no-any-return]


KEYS = ["end", "user"]


@pytest.fixture
def with_rocks(spark: SparkSession) -> Iterator[SparkSession]:
    """States of processors need that store; all tests have one session."""
    spark.conf.set(PROVIDER, ROCKS)
    yield spark
    spark.conf.unset(PROVIDER)


@pytest.mark.parametrize("method", [in_pandas_with_state, transformed_in_pandas, transformed])
def test_windows_close_with_the_rows_of_plain_spark(
    with_rocks: SparkSession, tmp_path: Path, method: Callable[..., DataFrame]
) -> None:
    if not hasattr(GroupedData, "transformWithState") and method is transformed:
        pytest.skip("Spark has it since 4.1")
    spark = with_rocks
    source = tmp_path / "clicks"
    source.mkdir()
    frame = clicks(spark, source)
    plain: list[list[Any]] = []
    found: list[list[Any]] = []
    for files, widths in STARTS:
        write(source, files)
        plain += results(method(frame.groupBy(*KEYS)), "append", tmp_path / "plain")
        groups = skewed(frame, "user", widths=widths).groupBy(*KEYS)
        found += results(method(groups, merge=added), "append", tmp_path / "found")
    assert found == plain
    assert sum(map(len, plain)) >= 16


def counted(rows: Any) -> Any:
    return closed(rows.user.iloc[0], len(rows), rows.amount.sum())


def so_far(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """The count and the sum since the beginning, of rows or of what `counted` has made of them."""
    rows, total = state.getOption or (0, 0)
    for frame in frames:
        done = "rows" in frame.columns
        rows += int(frame.rows.sum()) if done else len(frame)
        total += int((frame.total if done else frame.amount).sum())
    state.update((rows, total))
    yield closed(key[0], rows, total)


def test_in_update_mode_a_state_of_what_parts_have_made_is_that_of_plain_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "clicks"
    source.mkdir()
    write(source, range(3))
    frame = clicks(spark, source)
    worked = skewed(frame, "user", widths=["hot", None]).groupBy("user").applyInPandas(counted, TOTALS, merge=added)
    plain, found = (
        results(
            each.groupBy("user").applyInPandasWithState(so_far, TOTALS, "rows long, total long", "update", "NoTimeout"),
            "update",
            tmp_path / name,
        )
        for name, each in (("plain", frame), ("found", worked))
    )
    assert found == plain
    assert len(plain) == 3 and len(plain[0]) == 5


def task_of(key: Any, frames: Iterator[Any], _: Any) -> Iterator[Any]:
    import pandas as pd
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context
    yield pd.DataFrame({"user": [key[0]], "task": [context.partitionId()], "rows": [sum(map(len, frames))]})


def test_spark_has_the_states_of_a_key_on_tasks_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "clicks"
    source.mkdir()
    spark.range(4000).selectExpr("if(id % 5 > 0, 'hot', string(id % 70)) AS user", "id").write.json(
        str(source), "overwrite"
    )
    tasks, schema = 4, "user string, task int, rows long"
    spark.conf.set("spark.sql.shuffle.partitions", tasks)
    try:
        groups = skewed(spark.readStream.schema("user string, id long").json(str(source)), "user", widths=["hot"])
        found = groups.groupBy("user").applyInPandasWithState(
            task_of, schema, "n long", "append", "NoTimeout", merge=lambda parts: parts
        )
        (batch,) = results(found, "append", tmp_path / "found")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
    hot = {task: rows for user, task, rows in batch if user == "hot"}
    assert len(hot) == tasks
    assert max(hot.values()) / (3200 / tasks) <= 1.1


@pytest.mark.parametrize("tasks", [1, 5])
def test_a_part_has_its_place_and_the_first_one_is_always_the_same(spark: SparkSession, tasks: int) -> None:
    frame = spark.range(400).selectExpr("id % 9 AS user", "CAST(id DIV 9 % 3 AS INT) AS part")
    keys = [F.col("user")]
    placed = with_state.with_parts(with_state.Parts(frame, keys, F.least("part", F.lit(tasks - 1)), tasks))
    where = F.pmod(F.hash("user", GROUP, PART), F.lit(tasks)).alias("where")
    found = placed.select("user", "part", F.col(PART), where).distinct().collect()
    first = {row["user"]: row["where"] for row in found if row["part"] == 0}
    assert len(found) == 9 * 3
    for row in found:
        assert (row[PART] == 0) == (row["part"] == 0 or tasks == 1)
        assert row["where"] == (first[row["user"]] + min(row["part"], tasks - 1)) % tasks


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_the_type_of_a_states_key_hangs_neither_on_widths_nor_on_ansi(spark: SparkSession, ansi: str) -> None:
    """A state's key that may be null is another type, which a checkpoint does not take."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.range(4).selectExpr("id % 2 AS user", "id")
        for widths in ({}, {0: 2}, [0, None]):
            parts = skewed(frame, "user", widths=widths).groupBy("user")._parts()
            assert not with_state.with_parts(parts).schema[PART].nullable
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "true")


def test_groups_that_pandas_takes_for_one_have_texts_of_their_own(spark: SparkSession) -> None:
    moments = [FOLDED, FOLDED + timedelta(hours=1), None]
    floats = [0.0, float("nan"), None]
    words: list[Any] = ["a", "", None]
    frame = spark.createDataFrame(
        [(moment, number, word) for moment in moments for number in floats for word in words],
        "at timestamp, number double, word string",
    )
    micro = F.col("at").cast("timestamp_ntz") + F.expr("INTERVAL 0.000001 SECOND")
    both = frame.withColumn("local", F.col("at").cast("timestamp_ntz")).union(frame.withColumn("local", micro))
    keys = [F.struct("at", "number"), F.col("word"), F.col("local")]
    texts = with_state.with_parts(with_state.Parts(both, keys, F.lit(0), 2)).select(GROUP)
    assert texts.distinct().count() == both.select(*keys).distinct().count() == 45


def test_no_setting_of_the_session_changes_the_text_of_a_group(spark: SparkSession) -> None:
    """It is part of a state's key: after a start with another setting, the state would not be found."""
    frame = spark.sql("SELECT CAST(NULL AS STRING) AS word, DATE'2024-02-03' AS day")
    keys = [F.col("word"), F.col("day")]
    asked = with_state.with_parts(with_state.Parts(frame, keys, F.lit(0), 2)).select(GROUP)
    texts = set()
    for ignored in ("true", "false"):
        spark.conf.set("spark.sql.jsonGenerator.ignoreNullFields", ignored)
        texts.add(asked.select("*").collect()[0][0])
    spark.conf.unset("spark.sql.jsonGenerator.ignoreNullFields")
    assert texts == {'{"k":0,"k0":null,"k1":"2024-02-03"}'}


def test_what_parts_can_not_do_alone_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    groups = skewed(clicks(spark, tmp_path), "user", widths=["hot"]).groupBy(*KEYS)
    way = "by applyInPandas.*keep a state of its results by Spark's own"
    with pytest.raises(SkewError, match=way):
        groups.applyInPandasWithState(so_far, TOTALS, "n long", "update", "NoTimeout", merge=added)
    with pytest.raises(SkewError, match=way):
        groups.applyInPandasWithState(so_far, TOTALS, "n long", "append", "ProcessingTimeTimeout", merge=added)
    with pytest.raises(SkewError, match=way):
        groups.transformWithStateInPandas(UntilItCloses(), TOTALS, "Update", "EventTime", merge=added)
    with pytest.raises(SkewError, match=way):
        groups.transformWithState(RowsUntilItCloses(), TOTALS, "Append", "ProcessingTime", merge=added)


def test_it_runs_where_the_package_is_not_installed() -> None:
    loads = "import pickle, sys; sys.modules['keygrouping_pyspark'] = None; pickle.load(sys.stdin.buffer); print('ok')"
    for sent in (
        with_state.function_of_parts(len, 1, ["user"]),
        with_state.processor_of_parts(None, 1, ["user"]),
        with_state.processor_of_parts(None, 1, None),
    ):
        done = subprocess.run([sys.executable, "-c", loads], input=PICKLE.dumps(sent), capture_output=True, check=False)
        assert done.stdout.decode().strip() == "ok", done.stderr
