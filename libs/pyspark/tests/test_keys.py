"""Keys of every type that Spark has: learned, given as Spark or as people write them, or refused."""

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from keygrouping.spark import SkewError, learned_widths, skewed, skewed_join
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import assert_same, rows_of

pytestmark = pytest.mark.spark

# Spark's workers can't import a test.
PICKLE: Any = cloudpickle
PICKLE.register_pickle_by_value(sys.modules[__name__])

LEARNED = {
    "true": True,
    "1Y": 1,
    "1S": 1,
    "1": 1,
    "1L": 1,
    "0.1f": 0.10000000149011612,
    "0.1d": 0.1,
    "double('NaN')": None,
    "1.50bd": Decimal("1.50"),
    "'a'": "a",
    "collate('a', 'UTF8_LCASE')": "a",
    "cast('a' AS char(3))": "a",
    "x'ff'": b"\xff",
    "date'2026-01-01'": date(2026, 1, 1),
    "date'0001-01-01'": date(1, 1, 1),
    "timestamp'2026-01-01 00:00:00Z'": None,
    "timestamp_ntz'2026-01-01 00:00:00'": datetime(2026, 1, 1),
    "interval '1 02' day to hour": timedelta(days=1, hours=2),
    "interval '1-2' year to month": "INTERVAL '1-2' YEAR TO MONTH",
    "interval '-3' month": "INTERVAL '-3' MONTH",
}
"""What they are to Python; None for what depends on the machine's time zone, or does not equal itself."""


def of_keys(spark: SparkSession, value: str) -> DataFrame:
    """Four of five rows have this key, the others none."""
    return spark.range(50).selectExpr(f"IF(id % 5 < 4, {value}, NULL) AS k", "id")


def rows_split(frame: DataFrame, **settings: Any) -> int:
    source = skewed(frame, "k", partitions=2, **settings)
    return 0 if source.width is None else source.frame.where(source.width > 1).count()


@pytest.mark.parametrize("value", LEARNED)
def test_keys_of_every_type_are_learned_and_found_again(spark: SparkSession, value: str) -> None:
    frame = of_keys(spark, value)
    widths = learned_widths(frame, "k", partitions=2, sample=1.0)
    if LEARNED[value] is not None:
        assert widths == {LEARNED[value]: 2}
    assert rows_split(frame, widths=widths) == 40


def test_so_are_structs_of_them(spark: SparkSession) -> None:
    frame = of_keys(spark, f"struct({', '.join(LEARNED)})")
    widths = learned_widths(frame, "k", partitions=2, sample=1.0)
    assert [len(each) for each in widths] == [len(LEARNED)]
    assert rows_split(frame, widths=widths) == 40


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("0.1f", 0.1),
        ("0.1f", "0.1"),
        ("1.50bd", 1.5),
        ("1.50bd", "1.5"),
        ("1.50bd", Decimal("1.500")),
        ("2.00bd", 2),
        ("2.00bd", np.int64(2)),
        ("date'2026-01-01'", "2026-1-1"),
        ("date'2026-01-01'", datetime(2026, 1, 1)),
        ("timestamp'2026-01-01 00:00:00'", "2026-01-01"),
        ("timestamp'2026-01-01 00:00:00'", date(2026, 1, 1)),
        ("timestamp'2026-01-01 00:00:00Z'", datetime(2026, 1, 1, tzinfo=UTC)),
        ("timestamp_ntz'2026-01-01 01:00:00'", datetime(2026, 1, 1, tzinfo=UTC)),
        ("timestamp_ntz'2026-01-01 00:00:00'", "2026-01-01 00:00:00"),
        ("interval '1' day", timedelta(days=1)),
        ("interval '1-2' year to month", "1-2"),
        ("true", "true"),
        ("struct(0.1f AS a, date'2026-01-01' AS b)", (0.1, "2026-01-01")),
    ],
)
def test_keys_may_be_given_as_spark_would_cast_them(spark: SparkSession, value: str, given: Any) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    assert rows_split(of_keys(spark, value), widths=[given]) == 40


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("date'2026-01-01'", "cold"),
        ("date'2026-01-01'", 5),
        ("date'2026-01-01'", datetime(2026, 1, 1, 12)),
        ("timestamp'2026-01-01 00:00:00'", "cold"),
        ("interval '1' day", 1),
        ("interval '1-2' year to month", timedelta(days=1)),
        ("true", 1),
        ("1Y", 300),
        ("1", 1.5),
        ("1", float("inf")),
        ("1.50bd", "1.555"),
        ("1.50bd", 10),
        ("1.50bd", float("nan")),
        ("1.50bd", "cold"),
        ("struct(1 AS a, date'2026-01-01' AS b)", (1, "cold")),
    ],
)
def test_what_is_no_value_of_the_keys_type_is_refused(spark: SparkSession, value: str, given: Any) -> None:
    with pytest.raises(SkewError, match="is no value of a column of type"):
        skewed(of_keys(spark, value), "k", widths=[given])


@pytest.mark.parametrize("value", ["make_interval(1, 2)", "parse_json('1')", "map(1, 2)", "array(1)"])
def test_types_that_spark_does_not_compare_or_hash_are_refused(spark: SparkSession, value: str) -> None:
    for written in (value, f"struct({value} AS a)"):
        with pytest.raises(SkewError, match=r"a key of type .* can't be spread: give a part of it, to_json of it"):
            skewed(of_keys(spark, written), "k", widths={})


def test_times_that_python_does_not_have_are_not_learned(spark: SparkSession) -> None:
    with pytest.raises(SkewError, match="a hot key is a time that Python does not have"):
        learned_widths(of_keys(spark, "date'12026-01-01'"), "k", partitions=2, sample=1.0)
    assert rows_split(of_keys(spark, "date'12026-01-01'"), widths=["+12026-01-01"]) == 40


def sizes(rows: Any) -> Any:
    import pandas as pd

    return pd.DataFrame({"rows": [len(rows)], "ids": [sorted(rows["id"])]})


def summed(parts: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(
        {"rows": [parts["rows"].sum()], "ids": [sorted(each for some in parts["ids"] for each in some)]}
    )


def test_fields_of_a_key_may_differ_in_case_alone(spark: SparkSession) -> None:
    frame = spark.range(40).selectExpr("named_struct('a', id % 2, 'A', id % 3) AS k", "id")
    groups = skewed(frame, "k", widths=[(1, 1), (0, 2)], partitions=2).groupBy("k")
    plain = frame.groupBy("k").applyInPandas(sizes, "rows long, ids array<long>")
    assert rows_of(groups.applyInPandas(sizes, "rows long, ids array<long>", merge=summed)) == rows_of(plain)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("map(1, 2)", r"k is map<int,int>, and Spark joins by none: join by a part of it, or by to_json\(k\)"),
        ("parse_json('1')", "k is variant, and Spark joins by none"),
        ("array(parse_json('1'))", "k has a variant in it, and Spark joins by none"),
        ("struct(collate('a', 'UTF8_LCASE') AS a)", r"k has a collation and can't be placed: .* lower\(k\)"),
    ],
)
def test_why_a_join_has_no_such_key_is_said_by_its_type(spark: SparkSession, value: str, message: str) -> None:
    frame = of_keys(spark, value)
    for on in ("k", ["id", "k"]):
        with pytest.raises(SkewError, match=message):
            skewed_join(frame, frame, on, widths={})


def namesakes(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """A frame all of whose columns have a namesake, and the one whose columns tell which is meant."""
    orders = spark.range(60).selectExpr("id", "IF(id % 3 > 0, 'hot', 'cold') AS user")
    others = orders.selectExpr("id AS ID", "user AS USER")
    return orders.join(others, orders["id"] == others["ID"]), orders


def test_what_has_no_column_of_one_name_is_spread_by_columns(spark: SparkSession) -> None:
    both, orders = namesakes(spark)
    asked = F.collect_list(orders["id"]).alias("ids")
    plain = both.groupBy(orders["user"]).agg(asked)
    by: Any
    for by in (orders["id"], [orders["id"]], (orders["id"], orders["user"])):
        source = skewed(both, orders["user"], widths=["hot"], by=by, partitions=3)
        assert source.width is not None
        assert both.select(source.part(source.width)).distinct().count() == 3
        assert_same(source.groupBy(orders["user"]).agg(asked), plain)
    with pytest.raises(SkewError, match=r'give by=, Columns .*, such as clicks\["id"\] .*, or F.to_json\("tags"\)'):
        skewed(both, orders["user"], widths=["hot"]).groupBy(orders["user"]).agg(asked)
    mapped = spark.range(9).selectExpr("map('n', id) AS m")
    user = F.lit("hot")
    found = skewed(mapped, user, widths=["hot"], by=F.to_json("m")).groupBy(user.alias("user")).agg(F.collect_list("m"))
    assert_same(found, mapped.groupBy(user.alias("user")).agg(F.collect_list("m")))


def test_a_frame_without_hot_keys_needs_no_columns_to_tell_rows_apart(spark: SparkSession) -> None:
    both, orders = namesakes(spark)
    asked = F.collect_list(orders["id"]).alias("ids")
    settings: Any
    for settings in ({"widths": {}}, {"sample": 0.000001}):
        found = skewed(both, orders["user"], **settings).groupBy(orders["user"]).agg(asked)
        assert_same(found, both.groupBy(orders["user"]).agg(asked))


def test_a_join_after_a_join_takes_columns_to_tell_rows_apart(spark: SparkSession) -> None:
    orders = spark.range(60).selectExpr("IF(id < 50, 'hot', 'cold') AS user", "id", "id % 7 AS shop")
    others = spark.range(60).selectExpr("id AS ID", "id % 5 AS SHOP")
    both = orders.join(others, orders["id"] == others["ID"])
    plans = spark.createDataFrame([("hot", 1), ("hot", 2)], "user string, plan int").hint("merge")

    def tasks(**settings: Any) -> int:
        found = skewed_join(both, plans, "user", widths=["hot"], partitions=3, **settings)
        assert rows_of(found) == rows_of(both.join(plans, "user"))
        return found.groupBy(F.spark_partition_id()).count().count()

    assert tasks(by=[orders["id"]]) == 3
    with pytest.warns(
        UserWarning, match="no column but user can be hashed by its name, so nothing is spread: give by="
    ):
        assert tasks() == 1
