"""What Spark combines before its shuffle is left to Spark, unless a way to spread it is asked for."""

from typing import Any

import pytest
from keygrouping.spark import skewed
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    user = F.when(F.col("id") % 5 > 0, "hot").otherwise("cold")
    return spark.range(100).select(user.alias("user"), F.col("id").alias("n"), (F.col("id") % 7).alias("item"))


def is_spread(clicks: DataFrame, *asked: Any, **settings: Any) -> bool:
    groups = skewed(clicks, "user", widths={"hot": 2}, **settings).groupBy("user")
    plan: Any = groups.agg(*asked)
    # By its parts, or by a repartition that plain Spark has no need of.
    text = str(plan._jdf.queryExecution().analyzed())
    return "__skewed" in text or "RepartitionByExpression" in text


def combined() -> list[Any]:
    n, item = F.col("n"), F.col("item")
    return [
        F.sum("n"),
        F.count("*").alias("rows", metadata={"what": "clicks"}),
        F.avg(n * 2 + item),
        F.max_by("n", "item"),
        F.approx_count_distinct("item", 0.02),
        F.percentile_approx("n", 0.5),
        F.first("n"),
        F.kurtosis("n"),
        F.round(F.avg("n"), 2),
        (F.sum("n") / F.count("*")).cast("float").alias("mean"),
        F.sum("n") - F.lit(1),
        F.count_distinct("item"),
        F.sum_distinct("item") / F.count_distinct("item", "n"),
        F.percentile("n", 0.5),
        F.mode("item"),
        F.regr_slope("n", "item"),
        F.hll_sketch_agg("n"),
        F.expr("sum(n) AS total"),
        F.expr("count(DISTINCT item) FILTER (WHERE n > 3)"),
        {"n": "sum", "item": "max"},
    ]


def others() -> list[Any]:
    return [
        F.collect_list("n"),
        F.sum("n") + F.size(F.collect_set("item")),
        F.expr("collect_list(DISTINCT n)"),
        F.expr("sum(n) + 1"),
        {"n": "collect_list"},
    ]


def test_what_spark_combines_is_left_to_spark(clicks: DataFrame) -> None:
    assert [is_spread(clicks, each) for each in combined()] == [False] * len(combined())
    assert not is_spread(clicks, *[each for each in combined() if isinstance(each, Column)])


def test_all_else_is_spread_and_so_is_what_stands_beside_it(clicks: DataFrame) -> None:
    assert [is_spread(clicks, each) for each in others()] == [True] * len(others())
    assert is_spread(clicks, F.sum("n"), F.collect_list("n"))


@pytest.mark.parametrize("spread", ["partials", "rows"])
def test_a_way_that_is_asked_for_is_taken(clicks: DataFrame, spread: str) -> None:
    assert is_spread(clicks, F.sum("n"), spread=spread)


def test_no_sample_is_taken_for_what_is_left_to_spark(clicks: DataFrame) -> None:
    source = skewed(clicks, "user", sample=1.0)
    source.groupBy("user").agg(F.sum("n"))
    assert "width" not in vars(source)
    source.groupBy("user").agg(F.collect_list("n"))
    assert "width" in vars(source)
