"""Aggregates that count each value once, or by how often it is there: several of them, and others beside them."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from keygrouping.aggregate import parse_aggregates
from keygrouping.spark import NotMergeableError, skewed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import assert_same

pytestmark = pytest.mark.spark

SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SCHEMA = """user string, shop int, item string, n long, x double, d decimal(12,2), pair struct<a: int, b: double>,
    yes boolean"""
FLOATS = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 1.5, 2.5, None])
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["hot", "hot", "hot", "warm", None]),
        st.integers(0, 2),
        st.sampled_from(["a", "A", "b", "", None]),
        st.integers(-3, 3) | st.none(),
        FLOATS,
        st.integers(-3, 3).map(lambda n: Decimal(n).scaleb(-2)) | st.none(),
        st.tuples(st.integers(0, 1) | st.none(), FLOATS) | st.none(),
        st.booleans() | st.none(),
    ),
    max_size=40,
)


def of_values() -> list[str]:
    return [
        "count(DISTINCT item)",
        "count(DISTINCT n, item)",
        "count(DISTINCT x)",
        "count(DISTINCT pair)",
        "count(DISTINCT pair.b, d)",
        "count(DISTINCT collate(item, 'UTF8_LCASE'))",
        "sum(DISTINCT n)",
        "sum(DISTINCT d)",
        "avg(DISTINCT n)",
        "avg(DISTINCT d)",
        "max(DISTINCT x)",
        "min(DISTINCT item)",
        "stddev(DISTINCT n)",
        "covar_pop(DISTINCT n, d)",
        "collect_list(DISTINCT n)",
        "count(DISTINCT item) FILTER (WHERE n > 0)",
        "sum(DISTINCT n) FILTER (WHERE yes)",
        "percentile(n, 0.3)",
        "percentile(d, array(0.1, 0.9))",
        "median(n) FILTER (WHERE NOT yes)",
        "mode(item, true)",
    ]


def others() -> list[str]:
    return [
        "sum(n)",
        "count(*)",
        "count(*) FILTER (WHERE n > 0)",
        "sum(d) FILTER (WHERE yes)",
        "avg(n)",
        "max(x)",
        "collect_list(item) FILTER (WHERE n > 0)",
        "collect_set(n)",
        "max_by(item, struct(n, item)) FILTER (WHERE yes)",
        "variance(n)",
        "regr_slope(n, d)",
        "approx_count_distinct(item)",
        "bool_or(yes)",
    ]


def check(
    frame: DataFrame, keys: list[Any], *asked: Any, widths: Any = ("hot", None), spread: Any = "partials"
) -> None:
    found = skewed(frame, "user", widths=widths, spread=spread, partitions=3).groupBy(*keys).agg(*asked)
    assert_same(found, frame.groupBy(*keys).agg(*asked))


@settings(max_examples=10, derandomize=True, suppress_health_check=SLOW, phases=[Phase.explicit, Phase.generate])
@given(
    rows=ROWS,
    values=st.lists(st.sampled_from(of_values()), min_size=1, max_size=4),
    beside=st.lists(st.sampled_from(others()), max_size=3, unique=True),
    keys=st.sampled_from([["user"], ["user", "shop"], ["shop"], []]),
)
def test_values_count_once_as_in_plain_spark(
    spark: SparkSession, rows: list[Any], values: list[str], beside: list[str], keys: list[str]
) -> None:
    frame = spark.createDataFrame(rows, SCHEMA)
    check(frame, list(keys), *map(F.expr, [*values, *beside]))


def clicks(spark: SparkSession) -> DataFrame:
    rows = [
        (
            "hot" if n % 4 else None if n % 3 else "warm",
            n % 2,
            None if n % 11 == 0 else "aAbBc"[n % 5],
            None if n % 7 == 0 else n * n % 13,
            [0.0, -0.0, float("nan"), 1.5, None][n % 5],
            None if n % 5 == 0 else Decimal(n % 9).scaleb(-2),
            None if n % 6 == 0 else (n % 3, [0.0, -0.0, float("nan")][n % 3]),
            None if n % 3 == 0 else n % 2 == 0,
        )
        for n in range(90)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def test_all_of_them_at_once_are_those_of_plain_spark(spark: SparkSession) -> None:
    check(clicks(spark), ["user"], *map(F.expr, [*of_values(), *others()]))


def test_as_columns_too(spark: SparkSession) -> None:
    asked = [
        F.count_distinct("item"), F.count_distinct("shop"), F.sum("n"), F.sum_distinct("n").alias("once"),
        F.count_distinct("item", F.upper("item")), F.median("n"), F.mode("item", True), F.percentile("n", [0.2, 0.7]),
        F.count_distinct("*"), F.count_distinct(F.struct("*")), F.median(F.hash("*")), F.mode(F.hash("*"), True),
        F.sum_distinct(F.hash("*").cast("long")), F.max(F.expr("n * 2")), F.listagg_distinct("item"),
    ]  # fmt: skip
    frame = clicks(spark).where("item != 'B'")
    found = skewed(frame, "user", widths=["hot"], spread="partials").groupBy("user").agg(*asked)
    plain = frame.groupBy("user").agg(*asked)
    assert found.schema == plain.schema

    def texts(frame: DataFrame) -> list[Any]:
        """A list of texts is one text, in any order."""
        return sorted((row["user"] or "", sorted(row[-1]), row[1:-1]) for row in frame.collect())

    assert texts(found) == texts(plain)


def test_texts_are_distinct_as_the_numbers_that_they_are(spark: SparkSession) -> None:
    rows = [("hot", text) for text in ("1", "1.0", "01", "2", "2.50", "2.5", None)]
    frame = spark.createDataFrame(rows, "user string, text string")
    check(frame, ["user"], *(F.expr(f"{each}(DISTINCT text)") for each in ("sum", "avg", "var_pop", "count", "max")))


def test_columns_with_one_name_are_two_sets(spark: SparkSession) -> None:
    left = spark.createDataFrame([("hot", n % 2, n) for n in range(12)], "user string, v int, id int")
    right = spark.createDataFrame([(n, n) for n in range(12)], "v int, id int")
    both = left.join(right, left["id"] == right["id"])
    check(both, ["user"], F.count_distinct(left["v"]), F.count_distinct(right["v"]))


def test_a_frame_of_widths_and_aggregates_of_the_library_may_stand_beside_them(spark: SparkSession) -> None:
    frame = clicks(spark)
    table = spark.createDataFrame([("hot", 2), (None, 3)], "name string, parts int")
    check(frame, ["user"], F.count_distinct("item"), F.count_distinct("*"), F.sum("n"), widths=table)
    texts = ["to_json(struct(*))", "hash(n, *)", "struct(pair.*)", "hash(/* all */ *)", "hash(-- all\n*)"]
    called = [F.struct("*"), F.udf(str.upper)(F.struct("*")), F.when(F.expr("hash(*) > 0"), 1)]
    for starred in (*called, *map(F.expr, texts)):
        for others, its in (([F.count_distinct("item")], ["hot"]), ([], table)):
            with pytest.raises(NotMergeableError, match=r"\* has more columns: name yours"):
                check(frame, ["user"], *others, F.collect_list(starred), widths=its)
    top = parse_aggregates([{"name": "top", "op": "top-k", "field": "item", "k": 3}])
    asked: list[Any] = [F.count_distinct("item"), *top, F.sum_distinct("n")]
    both: list[Any] = [{}, ["hot"]]
    whole, parts = (skewed(frame, "user", widths=each, spread="partials").groupBy("user") for each in both)
    assert_same(parts.agg(*asked), whole.agg(*asked))


def test_without_rows_they_are_those_of_plain_spark(spark: SparkSession) -> None:
    for keys in ([], ["user"]):
        check(clicks(spark).where("n > 99"), list(keys), *map(F.expr, [*of_values(), *others()]))
