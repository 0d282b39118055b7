"""Keys and values that are easily taken for others: the rows are those of plain Spark, or it says what to do."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from keygrouping.spark import NotMergeableError, SkewError, learned_widths, skewed
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import assert_same

pytestmark = pytest.mark.spark

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    rows = [
        ("hot" if n % 3 else None if n % 2 else "cold", n, ORIGIN + timedelta(minutes=2 * n), f"{'aA'[n % 2]}{n % 5}")
        for n in range(60)
    ]
    return spark.createDataFrame(rows, "user string, n long, ts timestamp, item string").cache()


def check(
    frame: DataFrame,
    keys: Sequence[Any],
    *asked: Column,
    key: Any = "user",
    widths: Any = ("hot", None),
    spread: Any = "partials",
) -> None:
    found = skewed(frame, key, widths=widths, spread=spread, partitions=3).groupBy(*keys).agg(*asked)
    assert_same(found, frame.groupBy(*keys).agg(*asked))


def test_sessions_are_not_made_of_parts(clicks: DataFrame) -> None:
    keys = [F.session_window("ts", "7 minutes"), F.col("user")]
    with pytest.raises(NotMergeableError, match="session window"):
        check(clicks, keys, F.sum("n"))
    check(clicks, keys, F.sum("n"), spread=None)


def test_texts_with_a_collation_are_not_told_apart_by_their_bytes(clicks: DataFrame) -> None:
    folded = clicks.withColumn("item", F.collate("item", "UTF8_LCASE"))
    check(folded, ["user"], F.count_distinct("item"))
    for asked in (F.approx_count_distinct("item"), F.mode("item")):
        with pytest.raises(NotMergeableError, match="no partials of"):
            check(folded, ["user"], asked)
    check(folded, ["user"], F.approx_count_distinct("item"), F.count_distinct("item"), spread=None)


def test_nan_zeros_and_nulls_are_taken_as_spark_takes_them(spark: SparkSession) -> None:
    values = [0.0, -0.0, float("nan"), float("nan"), None, 1.0, float("inf")] * 3
    frame = spark.createDataFrame([("hot", value) for value in values], "user string, v double")
    of = [F.count_distinct("v"), F.max("v"), F.min("v"), F.avg("v"), F.variance("v"), F.count("v")]
    check(frame, ["user"], *of)
    check(frame, ["user"], F.collect_set("v"), spread=None)
    with pytest.raises(NotMergeableError):
        check(frame, ["user"], F.collect_set("v"))


def test_without_ansi_a_text_that_is_no_number_has_no_part_in_an_average(
    spark: SparkSession, clicks: DataFrame
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        texts = clicks.withColumn("text", F.when(F.col("n") % 4 == 0, "none").otherwise(F.col("n").cast("string")))
        check(texts, ["user"], F.avg("text"), F.sum("text"), F.stddev("text"), F.max("text"))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_keys_of_bytes_and_of_several_columns(clicks: DataFrame) -> None:
    coded = clicks.withColumn("code", F.col("user").cast("binary"))
    check(coded, ["code"], F.sum("n"), key="code", widths=["hot", b"cold"])
    assert learned_widths(coded, "code", partitions=2, sample=1.0) == {b"hot": 2}
    both = F.struct("user", (F.col("n") % 2).alias("odd"))
    learned = learned_widths(coded, both, partitions=5, sample=1.0)
    assert learned.keys() == {("hot", 0), ("hot", 1)}
    source = skewed(coded, both, widths=learned)
    assert source.width is not None
    split = source.frame.where(source.width > 1).select("user").distinct().collect()
    assert [row["user"] for row in split] == ["hot"]
    check(coded, ["user", F.col("n") % 2], F.sum("n"), key=both, widths=learned)
    with pytest.raises(SkewError, match=r"a key of type array<string> can't be spread: .*to_json"):
        check(coded, ["user"], F.sum("n"), key=F.array("user"))


def test_the_ways_to_name_a_column(clicks: DataFrame) -> None:
    check(clicks, [1], F.sum("n"))
    check(clicks, [clicks.user, clicks["item"]], F.sum(clicks.n), key=clicks.user)
    check(
        clicks, [F.upper("user").alias("u"), F.col("n") % 3], F.sum(F.col("n") + 1), key=F.upper("user"), widths=["HOT"]
    )
    twice = clicks.join(clicks.select("user", F.lit(1).alias("N")).distinct(), "user")
    check(twice, ["user"], F.max("item"), F.count("*"))


def test_no_rows_and_no_keys(clicks: DataFrame) -> None:
    asked = [
        F.count("*"), F.sum("n"), F.avg("n"), F.stddev("n"), F.collect_list("n"), F.collect_set("n"),
        F.max_by("n", "ts"), F.bool_or(F.col("n") > 1),
    ]  # fmt: skip
    for frame in (clicks, clicks.where("n < 0")):
        check(frame, [], *asked)
        check(frame, [], *asked, F.count_distinct("n"), spread=None)
        check(frame, [], F.count_distinct("n"))
    check(clicks.where("n < 0"), ["user"], *asked, F.count_distinct("n"))


def test_every_other_aggregate_is_combined_by_spark(clicks: DataFrame) -> None:
    n = F.col("n")
    check(
        clicks, ["user"], F.median("n"), F.kurtosis("n"), F.any_value(F.lit(1)), F.try_sum("n"), F.sum("n").cast("int"),
        F.expr("sum(n) FILTER (WHERE n > 3)"), F.percentile("n", 0.5), F.first(F.lit(2)), spread=None,
    )  # fmt: skip
    check(clicks, ["user"], F.expr("count(DISTINCT *)"), F.regr_slope(n, n), spread=None)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_with_and_without_adaptive_execution(spark: SparkSession, clicks: DataFrame, adaptive: str) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        for spread in ("partials", "rows"):
            check(clicks, ["user"], F.sum("n"), F.collect_set("item"), spread=spread)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_what_makes_other_than_a_column_of_each_aggregate_is_combined_by_spark(
    spark: SparkSession, clicks: DataFrame
) -> None:
    for spread in (None, "rows"):
        check(clicks, ["user"], F.posexplode(F.sort_array(F.collect_list("item"))), spread=spread)
    spark.conf.set("spark.sql.retainGroupColumns", "false")
    try:
        check(clicks, ["user"], F.collect_set("item"), spread=None)
        with pytest.raises(NotMergeableError, match="leaves out keys"):
            check(clicks, ["user"], F.collect_set("item"))
    finally:
        spark.conf.unset("spark.sql.retainGroupColumns")
