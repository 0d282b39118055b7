"""A batch's aggregates are those of plain Spark, whatever is spread and however."""

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from keygrouping.spark import NotMergeableError, SkewError, skewed
from pyspark.errors import AnalysisException, ArithmeticException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf

from .same import assert_same

pytestmark = pytest.mark.spark

SCHEMA = "user string, ts timestamp, a long, b double, d decimal(10,2), yes boolean, item string, few int"
ORIGIN = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # clocks are put back at 1:00
NULL = st.none()
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["hot", "hot", "hot", "warm", "cold", None]),
        st.integers(0, 90).map(lambda minute: ORIGIN + timedelta(minutes=minute)),
        st.integers(-1000, 1000) | NULL,
        st.integers(-100, 100).map(lambda n: n / 4) | NULL,
        st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-2)) | NULL,
        st.booleans() | NULL,
        st.integers(0, 30).map(str) | NULL,
        st.just(7) | NULL,
    ),
    max_size=60,
)
WIDTHS = st.dictionaries(st.sampled_from(["hot", "warm", None]), st.integers(1, 5), min_size=1)
REGRESSIONS = (
    F.regr_avgx, F.regr_avgy, F.regr_count, F.regr_intercept, F.regr_r2, F.regr_slope, F.regr_sxx, F.regr_sxy,
    F.regr_syy,
)  # fmt: skip
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def aggregates() -> list[Column]:
    """Made when there is a session, which a Column needs."""
    a, b, d, few = F.col("a"), F.col("b"), F.col("d"), F.col("few")
    return [
        F.count("*"),
        F.count("a").alias("of a", metadata={"what": "numbers"}),
        F.count_if(a > 0),
        *(of(column) for of in (F.sum, F.avg, F.min, F.max) for column in (a, b, d)),
        *(of(column) for of in (F.var_pop, F.var_samp, F.variance) for column in (a, b, few)),
        *(of("b") for of in (F.stddev, F.stddev_samp, F.stddev_pop, F.std)),
        F.covar_pop("a", "b"),
        F.covar_samp("a", "b"),
        *(of("yes") for of in (F.bool_and, F.bool_or, F.every, F.some)),
        *(of("a") for of in (F.bit_and, F.bit_or, F.bit_xor)),
        F.product(F.lit(1.0)),
        F.collect_list("a"),
        F.array_agg("item"),
        F.collect_set("item"),
        F.max_by("a", F.struct("a", "item")),
        F.min_by("item", F.struct("a", "item")),
        F.count_distinct("item", "few"),
        F.count_distinct("d"),
        *(of("b") for of in (F.skewness, F.kurtosis)),
        *(of("b", "a") for of in REGRESSIONS),
        F.median("b"),
        F.percentile("a", [0.1, 0.9]),
        F.mode("item", True),
        F.listagg("few"),
    ]


@settings(max_examples=8, derandomize=True, suppress_health_check=SLOW, phases=[Phase.explicit, Phase.generate])
@given(
    rows=ROWS,
    widths=WIDTHS,
    windowed=st.booleans(),
    tasks=st.integers(1, 5),
    chosen=st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True),
    spread=st.sampled_from(["partials", "rows"]),
)
def test_parts_merge_to_the_rows_of_plain_spark(
    spark: SparkSession,
    rows: list[Any],
    widths: dict[str | None, int],
    windowed: bool,
    tasks: int,
    chosen: list[int],
    spread: Any,
) -> None:
    frame = spark.createDataFrame(rows, SCHEMA)
    keys = [F.window("ts", "40 minutes", "20 minutes"), F.col("user")] if windowed else [F.upper("user")]
    every = aggregates()
    asked = [every[each % len(every)] for each in chosen]
    found = skewed(frame, "user", widths=widths, spread=spread, partitions=tasks).groupBy(*keys).agg(*asked)
    assert_same(found, frame.groupBy(*keys).agg(*asked))


@pytest.mark.parametrize("third", range(3))
def test_each_aggregate_with_a_known_merge_is_that_of_plain_spark(spark: SparkSession, third: int) -> None:
    asked = aggregates()[third::3]
    rows = [
        (
            None if n % 10 == 0 else "hot" if n % 3 else f"k{n % 4}",
            ORIGIN + timedelta(minutes=n % 90),
            None if n % 11 == 0 else n * 37 % 101 - 50,
            None if n % 7 == 0 else n * 13 % 29 / 4,
            None if n % 6 == 0 else Decimal(n * 104729 % 10**9).scaleb(-2),
            None if n % 5 == 0 else n % 2 == 0,
            None if n % 13 == 0 else str(n % 17),
            None if n % 4 == 0 else 7,
        )
        for n in range(120)
    ]
    frame = spark.createDataFrame(rows, SCHEMA)
    found = skewed(frame, "user", widths={"hot": 4, None: 2}, spread="partials").groupBy("user")
    assert_same(found.agg(*asked), frame.groupBy("user").agg(*asked))


def numbers(spark: SparkSession, kind: str, values: list[Any]) -> DataFrame:
    return spark.createDataFrame([("hot", value) for value in values], f"user string, value {kind}")


def spread_out(frame: DataFrame, *found: Column, spread: Any = "partials") -> DataFrame:
    return skewed(frame, "user", widths={"hot": 3}, spread=spread).groupBy("user").agg(*found)


@pytest.mark.parametrize("spread", ["partials", "rows"])
def test_the_words_of_grouped_data_work(spark: SparkSession, spread: Any) -> None:
    frame = numbers(spark, "long", [1, 2, None])
    groups = skewed(frame, "user", widths=["hot"], spread=spread).groupBy(["user"])
    assert_same(groups.count(), frame.groupBy("user").count())
    asked = {"value": "SUM", "user": "max"}
    assert_same(groups.agg(asked), frame.groupBy("user").agg(asked))
    whole = skewed(frame.where("value > 9"), "user", widths=["hot"], spread=spread).groupBy()
    assert_same(whole.agg(F.count("*"), F.sum("value")), frame.where("value > 9").agg(F.count("*"), F.sum("value")))


@pytest.mark.parametrize("spread", [None, "partials", "rows"])
@pytest.mark.parametrize("order", itertools.permutations(["id", "d", "b"]), ids="-".join)
def test_columns_of_a_mapping_have_their_own_values(spark: SparkSession, order: tuple[str, ...], spread: Any) -> None:
    """Spark makes them in another order than that of the mapping."""
    frame = spark.range(40).selectExpr("if(id % 5 > 0, 'hot', 'cold') user", "7L id", "8L d", "9L b")
    groups, plain = skewed(frame, "user", widths=["hot"], spread=spread).groupBy("user"), frame.groupBy("user")
    for name in ("collect_set", "mean"):
        asked = {**dict.fromkeys(order, name), "*": "count"}
        assert_same(groups.agg(asked), plain.agg(asked))
    assert_same(groups.agg({}), plain.agg({}))


@pytest.mark.parametrize("spread", [None, "partials", "rows"])
@pytest.mark.parametrize("name", ["sum", "avg", "mean", "min", "max"])
def test_the_aggregates_of_grouped_data_are_methods(spark: SparkSession, name: str, spread: Any) -> None:
    rows = [("hot" if n % 3 else "cold", n, n / 4, n % 2 == 0) for n in range(30)]
    frame = spark.createDataFrame(rows, "user string, n int, b double, yes boolean")
    groups, plain = skewed(frame, "user", widths=["hot"], spread=spread).groupBy("user"), frame.groupBy("user")
    for columns in ([], ["n"], ["n", "b", "n"]):
        assert_same(getattr(groups, name)(*columns), getattr(plain, name)(*columns))
    with pytest.raises(AnalysisException, match="not a numeric column"):
        getattr(groups, name)("user")
    texts = frame.select("user")
    found = skewed(texts, "user", widths=["hot"], spread=spread).groupBy("user")
    assert_same(getattr(found, name)(), getattr(texts.groupBy("user"), name)())


def test_an_overflow_is_an_error_in_ansi_mode_and_else_what_spark_makes_of_it(spark: SparkSession) -> None:
    longs = numbers(spark, "long", [2**63 - 1, 2**62, 2**62])
    decimals = numbers(spark, "decimal(38,0)", [Decimal(10**38 - 1)] * 5)
    for frame in (longs, decimals):
        with pytest.raises(ArithmeticException):
            spread_out(frame, F.sum("value")).collect()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for frame in (longs, decimals):
            assert_same(spread_out(frame, F.sum("value")), frame.groupBy("user").agg(F.sum("value")))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_a_correlation_is_that_of_spark_even_where_nothing_varies(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("hot", n % 5, n % 7) for n in range(40)], "user string, x int, y int")
    assert_same(spread_out(frame, F.corr("x", "y")), frame.groupBy("user").agg(F.corr("x", "y")))
    constant = frame.withColumn("y", F.lit(0.1))
    with pytest.raises(ArithmeticException):
        spread_out(constant, F.corr("x", "y")).collect()


def test_regressions_and_skewness_of_what_hardly_varies_are_those_of_spark(spark: SparkSession) -> None:
    pairs: dict[str, list[tuple[Any, Any]]] = {
        "one": [(1, 2)],
        "level": [(1, 2), (1, 3), (1, 7)],
        "steep": [(1, 2), (2, 2), (5, 2)],
        "none": [(None, 1), (2, None)],
        "some": [(1, 1), (2, 3), (3, 3.5), (None, 9), (4, None)],
    }
    rows = [(name, None if y is None else float(y), float(x or 0)) for name, of in pairs.items() for y, x in of]
    frame = spark.createDataFrame(rows, "user string, y double, x double")
    asked = [F.skewness("x"), F.kurtosis("x"), *(of("y", "x") for of in REGRESSIONS)]
    found = skewed(frame, "user", widths=list(pairs), spread="partials").groupBy("user")
    assert_same(found.agg(*asked), frame.groupBy("user").agg(*asked))


def test_equal_values_do_not_vary(spark: SparkSession) -> None:
    """For plain Spark, too, but for what it rounds as it merges partitions."""
    rows = spark.range(1, 40).selectExpr("'hot' AS user", "id AS size", "explode(sequence(1, id)) AS n", "123.45D AS v")
    groups = skewed(rows.repartition(3, "n"), "user", widths={"hot": 4}, spread="partials").groupBy("size")
    asked = ["var_pop(v)", "covar_pop(v, n)", "skewness(v)", "kurtosis(v)", "regr_slope(n, v)"]
    found = groups.agg(*map(F.expr, asked))
    assert {row[1:] for row in found.collect()} == {(0.0, 0.0, None, None, None)}
    whole = rows.where("size = 9").withColumn("user", F.lit("cold"))
    unbounded = whole.withColumn("n", F.when(F.col("n") > 4, float("inf")).otherwise(F.col("n")))
    assert_same(spread_out(unbounded, F.covar_pop("v", "n")), unbounded.groupBy("user").agg(F.covar_pop("v", "n")))


def test_what_has_no_known_merge_is_combined_by_spark_itself(spark: SparkSession) -> None:
    frame = numbers(spark, "int", list(range(50)))
    asked = [F.approx_count_distinct("value"), F.percentile_approx("value", 0.5), F.sum("value") / F.count("*")]
    assert_same(spread_out(frame, *asked, spread=None), frame.groupBy("user").agg(*asked))
    two = [F.count_distinct("value"), F.sum_distinct("value")]
    assert_same(spread_out(frame, *two, spread=None), frame.groupBy("user").agg(*two))


@pytest.mark.parametrize("widths", [{}, {"hot": 3}, None])
def test_in_partials_it_is_refused_with_what_to_do(spark: SparkSession, widths: Any) -> None:
    """Without a hot key, too: otherwise a batch that learns its widths would fail on the day that one gets hot."""
    frame = numbers(spark, "decimal(30,2)", []).withColumn("pair", F.struct("user", "value"))
    groups = skewed(frame, "user", widths=widths, spread="partials").groupBy("user")
    for refused in (
        F.percentile_approx("value", 0.5), F.avg("value"), F.expr("sum(value) + 1"), F.first("value"),
        F.sum("value") + F.length("user"), F.percentile("value", 0.5, F.lit(2)), F.count_distinct("pair.*"),
        *map(F.expr, [
            "count(DISTINCT parse_json(user))", "collect_set(parse_json(user))", "count(DISTINCT make_interval(1))",
            "max(map('k', 1)::map<string,bigint>['k'])",
            "approx_count_distinct(value, 0.01D)",
        ]),
    ):  # fmt: skip
        with pytest.raises(NotMergeableError, match=r'leave spread out, or give spread="rows"'):
            groups.agg(refused)


def test_a_value_counts_once_in_groups_with_and_without_the_key(spark: SparkSession) -> None:
    rows = [("cold" if n % 3 else "hot", n % 2, n % 7) for n in range(60)]
    frame = spark.createDataFrame(rows, "user string, shop int, value int")
    asked = [F.count_distinct("value"), F.sum("value")]
    without: list[list[Any]] = [["shop"], [F.upper("user")], []]
    for keys in without:
        for spread in (None, "partials"):
            found = skewed(frame, "user", widths={"hot": 4}, spread=spread).groupBy(*keys).agg(*asked)
            assert_same(found, frame.groupBy(*keys).agg(*asked))
    of_the_key: list[list[Any]] = [["user"], [frame["user"], "shop"], [F.col("user").alias("who")], [1]]
    for keys in of_the_key:
        found = skewed(frame, "user", widths={"hot": 4}, spread="partials").groupBy(*keys).agg(*asked)
        assert_same(found, frame.groupBy(*keys).agg(*asked))


@pytest.mark.parametrize("spread", [None, "partials", "rows"])
@pytest.mark.parametrize("given", ["sum", None, ["value"]])
def test_what_is_no_aggregate_is_refused_with_what_to_give(spark: SparkSession, given: Any, spread: Any) -> None:
    with pytest.raises(SkewError, match=r'is no aggregate: give Columns such as F.sum\("amount"\), a mapping such as'):
        spread_out(numbers(spark, "int", []), given, spread=spread)


def test_python_aggregates_are_refused_wherever_they_stand(spark: SparkSession) -> None:
    frame = numbers(spark, "int", [])
    mean: Any = pandas_udf(lambda values: float(values.mean()), "double", PandasUDFType.GROUPED_AGG)
    spark.udf.register("python_mean", mean)
    for refused in (mean("value"), mean("value").alias("mean"), mean("value") + 1, F.expr("python_mean(value)")):
        for spread in (None, "rows"):
            with pytest.raises(NotMergeableError, match=r"use applyInPandas\(function, schema, merge=\.\.\.\)"):
                spread_out(frame, F.sum("value"), refused, spread=spread)
    shouted = F.udf(str.upper)
    plain = frame.groupBy(shouted("user")).agg(F.sum("value"))
    assert_same(skewed(frame, "user", widths=["hot"]).groupBy(shouted("user")).agg(F.sum("value")), plain)


def test_sketches_count_the_distinct_to_the_error_asked_for(spark: SparkSession) -> None:
    frame = numbers(spark, "string", [str(n % 3000) for n in range(6000)] + [None])
    told = F.call_function("approx_count_distinct", "value", F.lit(Decimal("0.01")))
    row = spread_out(frame, F.approx_count_distinct("value", 0.01), F.expr("approx_count_distinct(value, 0.01)"), told)
    found = set(row.collect()[0][1:])
    assert len(found) == 1 and abs(found.pop() - 3000) < 150


def test_the_part_of_a_row_is_the_same_whenever_it_is_read(spark: SparkSession) -> None:
    frame = numbers(spark, "int", list(range(100)))
    for order in (frame, frame.orderBy(F.desc("value")).repartition(3)):
        source = skewed(order, "user", widths={"hot": 4})
        assert source.width is not None
        found = {row[0]: row[1] for row in order.select("value", source.part(source.width)).collect()}
        if order is frame:
            first = found
    assert found == first and set(found.values()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"widths": {"hot": 0}}, "widths: a whole number of at least 1 is wanted, not 'hot': 0"),
        ({"widths": ["hot"], "spread": "evenly"}, "spread='evenly'"),
        ({"widths": 5}, r'widths=5: give a list of hot keys such as \["hot"\]'),
        *(({"partitions": wrong}, "partitions=.*: give the number of tasks") for wrong in ("4", 0, 2.5, True)),
        *(({"sample": wrong}, "sample=.*: give the fraction of rows") for wrong in (5, -1, 0, "x", float("nan"))),
        *(({"by": wrong}, "by=.*: give the columns in which a key's rows differ") for wrong in ([], 5, [5])),
        ({"by": "nobody"}, r"by='nobody': give columns that the frame has \(.*nobody"),
    ],
)
def test_a_wrong_setting_names_the_fix(spark: SparkSession, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(SkewError, match=message):
        skewed(numbers(spark, "int", []), "user", **asked)


def test_what_spark_does_not_hash_tells_no_rows_apart(spark: SparkSession) -> None:
    for wrong, kind in ((F.create_map("value", "value"), "map"), (F.struct(F.expr("parse_json('1')")), "variant")):
        with pytest.raises(
            SkewError, match=f"by: Spark hashes no {kind}, as in .*: give a part of it, or to_json of it"
        ):
            skewed(numbers(spark, "int", []), "user", widths={}, by=wrong)
