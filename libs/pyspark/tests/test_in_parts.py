"""applyInPandas in parts, and joins, have the rows of plain Spark, on tasks with equally many rows."""

import functools
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from keygrouping.spark import SkewError, skewed, skewed_join
from keygrouping_pyspark import in_parts
from pyspark import cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import assert_same, rows_of

pytestmark = pytest.mark.spark

# Spark's workers can't import a test.
PICKLE: Any = cloudpickle
PICKLE.register_pickle_by_value(sys.modules[__name__])

FOLDED = datetime(2026, 10, 24, 23, 45, tzinfo=UTC)
"""A quarter of an hour before the first of the two hours from 2:00 to 3:00 in Berlin."""


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    """Four of five rows have the user hot; every fiftieth has none."""
    user = (
        F.when(F.col("id") % 50 == 0, None)
        .when(F.col("id") % 5 > 0, "hot")
        .otherwise(F.concat(F.lit("k"), F.col("id") % 90))
    )
    at = F.timestamp_seconds(F.lit(int(FOLDED.timestamp())) + F.col("id") * 20)
    return spark.range(600).select(user.alias("user"), "id", at.alias("at")).cache()


def counted(key: tuple[Any, ...], rows: Any) -> Any:
    import pandas as pd

    found = {"user": [key[-1]], "rows": [len(rows)], "last": [rows["at"].max()], "ids": [sorted(rows["id"])]}
    return pd.DataFrame(found)


def added(parts: Any) -> Any:
    import pandas as pd

    ids = sorted(each for some in parts["ids"] for each in some)
    return pd.DataFrame(
        {"user": parts["user"][:1], "rows": [parts["rows"].sum()], "last": [parts["last"].max()], "ids": [ids]}
    )


def sizes(rows: Any) -> Any:
    import pandas as pd

    return pd.DataFrame({"rows": [len(rows)], "ids": [sorted(rows["id"])]})


def summed(parts: Any) -> Any:
    import pandas as pd

    assert len(parts) > 1, "merge is not called for groups that are not split"
    return pd.DataFrame(
        {"rows": [parts["rows"].sum()], "ids": [sorted(each for some in parts["ids"] for each in some)]}
    )


SIZES = "rows long, ids array<long>"
COUNTED = "user string, rows long, last timestamp, ids array<long>"


def test_the_parts_of_a_group_are_merged(clicks: DataFrame) -> None:
    plain = clicks.groupBy("user").applyInPandas(counted, COUNTED)
    found = skewed(clicks, "user", widths=["hot", None], partitions=3).groupBy("user")
    assert_same(found.applyInPandas(counted, COUNTED, merge=added), plain)


def test_groups_in_the_hour_that_comes_twice_stay_apart(clicks: DataFrame) -> None:
    keys = [F.window("at", "30 minutes"), F.col("user")]
    plain = clicks.groupBy(*keys).applyInPandas(counted, COUNTED)
    found = skewed(clicks, "user", widths={"hot": 2}, partitions=3).groupBy(*keys)
    assert_same(found.applyInPandas(counted, COUNTED, merge=added), plain)


def test_a_function_without_names_or_rows_is_taken_as_spark_takes_it(clicks: DataFrame) -> None:
    def unnamed(rows: Any) -> Any:
        import pandas as pd

        return pd.DataFrame([[rows["user"].iloc[0], len(rows)]] if len(rows) > 20 else [])

    def one(parts: Any) -> Any:
        return parts.groupby("user", as_index=False).sum()

    plain = clicks.groupBy("user").applyInPandas(unnamed, "user string, rows long")
    found = skewed(clicks, "user", widths=["hot"], partitions=3).groupBy("user")
    assert rows_of(found.applyInPandas(unnamed, "user string, rows long", merge=one)) == rows_of(plain)


def test_a_merge_may_give_no_rows_or_no_names(clicks: DataFrame) -> None:
    def nothing(_: Any) -> Any:
        import pandas as pd

        return pd.DataFrame()

    def unnamed(parts: Any) -> Any:
        return added(parts).set_axis(range(4), axis="columns")

    groups = skewed(clicks, "user", widths=["hot"], partitions=3).groupBy("user")
    plain = clicks.groupBy("user").applyInPandas(counted, COUNTED)
    assert rows_of(groups.applyInPandas(counted, COUNTED, merge=unnamed)) == rows_of(plain)
    others = plain.where("user IS NULL OR user != 'hot'")
    assert rows_of(groups.applyInPandas(counted, COUNTED, merge=nothing)) == rows_of(others)


def test_every_task_has_as_many_rows(clicks: DataFrame) -> None:
    tasks = 4

    def on_a_task(rows: Any) -> Any:
        import pandas as pd
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context
        return pd.DataFrame({"task": [context.partitionId()], "rows": [len(rows)]})

    many = clicks.crossJoin(clicks.sparkSession.range(10).toDF("copy"))
    groups = skewed(many, "user", partitions=tasks, sample=1.0).groupBy("user")
    found = groups.applyInPandas(on_a_task, "task int, rows long", merge=lambda parts: parts)
    load = {row["task"]: row["rows"] for row in found.groupBy("task").agg(F.sum("rows").alias("rows")).collect()}
    assert len(load) == tasks and max(load.values()) / (6000 / tasks) <= 1.1, load


def test_without_a_hot_key_it_is_plain_spark(clicks: DataFrame) -> None:
    plain = clicks.groupBy("user").applyInPandas(counted, COUNTED)
    found = skewed(clicks, "user", widths={}).groupBy("user").applyInPandas(counted, COUNTED, merge=added)
    assert rows_of(found) == rows_of(plain)


def test_it_runs_where_the_package_is_not_installed() -> None:
    loads = (
        "import pickle, sys; sys.modules['keygrouping_pyspark'] = None; print(pickle.load(sys.stdin.buffer).__name__)"
    )
    for function in (in_parts._of_parts(len, ["user"], 0, []), in_parts._of_groups(in_parts._merged(len, []), None)):
        sent = PICKLE.dumps(function)
        done = subprocess.run([sys.executable, "-c", loads], input=sent, capture_output=True, check=False)
        assert done.stdout.decode().strip() == function.__name__, done.stderr


@pytest.mark.parametrize("how", ["inner", "left", "LEFTOUTER", "left_semi", "semi", "leftanti"])
def test_a_join_has_the_rows_of_plain_spark(spark: SparkSession, clicks: DataFrame, how: Any) -> None:
    right = spark.createDataFrame([("hot", 1), ("hot", 2), ("k5", 3), (None, 4)], "user string, plan int")
    found = skewed_join(clicks, right, "user", how, widths=["hot", None], partitions=3)
    assert_same(found, clicks.join(right, "user", how))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_name_with_a_dot_is_a_column_as_in_plain_spark(spark: SparkSession, clicks: DataFrame, how: Any) -> None:
    left = clicks.withColumnRenamed("user", "a.b")
    right = spark.createDataFrame([("hot", 1), ("k5", 2)], "`a.b` string, plan int")
    for on in ("a.b", ["a.b"]):
        found = skewed_join(left, right, on, how, widths=["hot"], partitions=3)
        assert_same(found, left.join(right, on, how))


def test_a_join_by_several_columns_moves_no_row_twice(spark: SparkSession, clicks: DataFrame) -> None:
    left = clicks.withColumn("day", (F.col("id") % 3).cast("int"))
    right = spark.createDataFrame([("hot", 1, 1.5), ("k5", 2, 2.5)], "user string, day int, price double")
    found = skewed_join(left, right.hint("merge"), ["user", "day"], widths={"hot": 9}, partitions=3)
    assert found._jdf.queryExecution().executedPlan().toString().count("Exchange hashpartitioning") == 2
    assert_same(found, left.join(right, ["user", "day"]))


def test_a_join_gives_every_task_as_many_rows(clicks: DataFrame) -> None:
    many = clicks.crossJoin(clicks.sparkSession.range(10).toDF("copy"))
    right = clicks.select("user").distinct().withColumn("plan", F.lit(1))
    found = skewed_join(many, right.hint("merge"), "user", widths=["hot"], partitions=4)
    load = found.where("user = 'hot'").groupBy(F.spark_partition_id()).count().collect()
    assert len(load) == 4 and max(row["count"] for row in load) <= 1.1 * 4800 / 4


def test_what_a_join_can_not_do_is_refused(spark: SparkSession, clicks: DataFrame) -> None:
    right = spark.createDataFrame([(1,)], "user int")
    hows: dict[Any, str] = {
        "right": "swap sides",
        "Right_Outer": "swap sides",
        "outer": 'use "left", and add',
        "full": "left_anti",
        "cross": "give one of inner, left",
    }
    for how, message in hows.items():
        with pytest.raises(SkewError, match=message):
            skewed_join(clicks, clicks, "user", how, widths=["hot"])
    no_names: list[Any] = [F.col("user"), [F.col("user")], []]
    for on in no_names:
        with pytest.raises(SkewError, match="on: give names of columns that both sides have"):
            skewed_join(clicks, clicks, on, widths=["hot"])
    with pytest.raises(SkewError, match="user is string left and int right: cast one of them"):
        skewed_join(clicks, right, "user", widths=["hot"])
    folded = clicks.withColumn("user", F.collate("user", "UTF8_LCASE"))
    with pytest.raises(SkewError, match="collation"):
        skewed_join(folded, folded, "user", widths=["hot"])
    table: Any = spark.createDataFrame([("hot", 2)], "user string, parts int")
    with pytest.raises(SkewError, match=r"a join looks up no frame: give a mapping, such as dict\(frame.collect\(\)\)"):
        skewed_join(clicks, clicks, "user", widths=table)
    assert skewed_join(clicks, clicks, "user", widths=dict(table.collect())).columns == ["user", "id", "at", "id", "at"]


@pytest.mark.parametrize("widths", [{}, ["hot"]])
def test_keys_that_can_not_be_placed_are_refused_whether_one_is_hot_or_not(clicks: DataFrame, widths: Any) -> None:
    folded = clicks.withColumn("user", F.collate("user", "UTF8_LCASE"))
    with pytest.raises(SkewError, match="collation"):
        skewed(folded, "user", widths=widths).groupBy("user").applyInPandas(counted, COUNTED, merge=added)
    with pytest.raises(SkewError, match="to_json"):
        skewed(clicks, "user", widths=widths).groupBy(F.array("id")).applyInPandas(counted, COUNTED, merge=added)


def test_names_of_columns_that_are_made_are_refused(clicks: DataFrame) -> None:
    for name in ("__skewed_salt", "__SKEWED_width"):
        taken = clicks.withColumnRenamed("id", name)
        with pytest.raises(SkewError, match=rf"{name}: columns named __skewed_\.\.\. are made here"):
            skewed(taken, "user", widths=["hot"])
        with pytest.raises(SkewError, match="give them other names"):
            skewed_join(clicks, taken, "user", widths=["hot"])
    with pytest.raises(SkewError, match="__skewed_part: columns named"):
        skewed(clicks, "user").groupBy("user").applyInPandas(counted, "__skewed_part int", merge=added)


FLOATS = [0.0, -0.0, float("nan"), None, 1.0] * 6
"""Zeros are one key, null and NaN are two."""


@pytest.mark.parametrize("keys", [["shop"], ["shop", "upper(user)"], ["substring(user, 1, 1)"], []])
def test_groups_without_the_key_are_merged_of_all_its_parts(clicks: DataFrame, keys: list[str]) -> None:
    """Their rows lie on many tasks, and most of them are of keys that are not hot."""
    named = [F.expr(each) for each in keys]
    shops = clicks.withColumn("shop", F.when(F.col("id") % 7 > 0, F.col("id") % 7))
    plain = shops.groupBy(*named).applyInPandas(sizes, SIZES)
    found = skewed(shops, "user", widths=["hot"], partitions=3).groupBy(*named)
    assert rows_of(found.applyInPandas(sizes, SIZES, merge=summed)) == rows_of(plain)


@pytest.mark.parametrize("hot", [[1.0], [0.0], [-0.0, float("nan"), None]])
def test_keys_that_pandas_takes_for_others_than_spark(spark: SparkSession, hot: list[Any]) -> None:
    frame = spark.createDataFrame([(key, place) for place, key in enumerate(FLOATS)], "user double, id int")
    grouped = skewed(frame, "user", widths=hot, partitions=3)

    for keys in (["user"], [F.struct("user", F.lit(1))]):
        found = grouped.groupBy(*keys).applyInPandas(sizes, SIZES, merge=summed)
        assert rows_of(found) == rows_of(frame.groupBy(*keys).applyInPandas(sizes, SIZES))


@pytest.mark.parametrize("how", ["inner", "left_anti"])
def test_a_join_takes_zeros_of_either_sign_for_one_key(spark: SparkSession, how: Any) -> None:
    left = spark.createDataFrame([(key, place) for place, key in enumerate(FLOATS)], "user double, id int")
    right = spark.createDataFrame([(-0.0, 1), (float("nan"), 2), (None, 3)], "user double, plan int")
    # So many that Spark looks for them in a set, by their bits.
    many = [float(each) for each in range(12)]
    assert_same(skewed_join(left, right, "user", how, widths=many, partitions=3), left.join(right, "user", how))


def test_a_frame_joins_itself(clicks: DataFrame) -> None:
    few = clicks.where("id < 30")
    found, plain = (
        skewed_join(few, clicks, "user", "left", widths=["hot"], partitions=3),
        few.join(clicks, "user", "left"),
    )
    assert found.columns == plain.columns
    assert sorted(map(repr, found.collect())) == sorted(map(repr, plain.collect()))


def test_a_function_gets_the_columns_of_its_frame_and_no_others(spark: SparkSession, clicks: DataFrame) -> None:
    def columns(rows: Any) -> Any:
        import pandas as pd

        return pd.DataFrame({"columns": [",".join(rows.columns)]})

    looked_up = skewed(clicks, "user", widths=spark.createDataFrame([("hot", 2)], "user string, parts int"))
    found = looked_up.groupBy("user").applyInPandas(columns, "columns string", merge=lambda parts: parts)
    assert {row[0] for row in found.collect()} == {"user,id,at"}


@pytest.mark.parametrize(
    ("merge", "fault"),
    [
        (lambda _: None, "merge returned NoneType: return a pandas frame with the columns \\['rows'\\]"),
        (lambda parts: parts.rows, "merge returned Series: return a pandas frame"),
        (lambda parts: parts.rename(columns={"rows": "n"}), "merge returned a frame without the columns \\['rows'\\]"),
    ],
)
def test_what_merge_returns_by_mistake_is_told(clicks: DataFrame, merge: Any, fault: str) -> None:
    def counted(rows: Any) -> Any:
        import pandas as pd

        return pd.DataFrame({"rows": [len(rows)]})

    found = skewed(clicks, "user", widths=["hot"], partitions=3).groupBy("user")
    with pytest.raises(PythonException, match=fault):
        found.applyInPandas(counted, "rows long", merge=merge).collect()


def test_a_function_is_called_as_spark_calls_it(clicks: DataFrame) -> None:
    def scaled(rows: Any, *, scale: int = 1) -> Any:
        import pandas as pd

        return pd.DataFrame({"rows": [len(rows) * scale]})

    def one(parts: Any) -> Any:
        return parts.sum().to_frame().T

    for function in (scaled, functools.partial(scaled, scale=2)):
        found = skewed(clicks, "user", widths=["hot"], partitions=3).groupBy("user")
        plain = clicks.groupBy("user").applyInPandas(function, "rows long")
        assert rows_of(found.applyInPandas(function, "rows long", merge=one)) == rows_of(plain)


@pytest.mark.parametrize("widths", [{}, ["hot"]])
def test_a_function_of_iterators_is_refused(clicks: DataFrame, widths: Any) -> None:
    def each(frames: Iterator[Any]) -> Iterator[Any]:
        yield from frames

    groups = skewed(clicks, "user", widths=widths).groupBy("user")
    with pytest.raises(SkewError, match="gets a group in batches: give one of a whole pandas frame"):
        groups.applyInPandas(each, "rows long", merge=added)


@pytest.mark.parametrize("widths", [{}, ["hot"]])
def test_times_that_pandas_would_have_without_a_zone_are_refused(
    spark: SparkSession, clicks: DataFrame, widths: Any
) -> None:
    groups = skewed(clicks, "user", widths=widths).groupBy("user")
    inner = "user string, ends array<timestamp>, seen struct<at: timestamp>"
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        with pytest.raises(SkewError, match="ends, seen: timestamps inside of other types"):
            groups.applyInPandas(counted, inner, merge=added)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        assert groups.applyInPandas(counted, inner, merge=added).columns == ["user", "ends", "seen"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_a_join_does_not_ask_whether_a_field_may_be_null(spark: SparkSession) -> None:
    left = spark.range(30).select(F.struct(F.lit("hot").alias("user")).alias("k"), "id")
    right = spark.createDataFrame([(("hot",), 1)], "k struct<user: string>, plan int")
    found = skewed_join(left, right, "k", widths=[("hot",)], partitions=3)
    assert rows_of(found) == rows_of(left.join(right, "k"))


@pytest.mark.parametrize("number", [0, 4])
def test_columns_have_numbers_from_one(clicks: DataFrame, number: int) -> None:
    with pytest.raises(SkewError, match="columns have numbers from 1 to 3"):
        skewed(clicks, "user", widths=["hot"]).groupBy(number)
