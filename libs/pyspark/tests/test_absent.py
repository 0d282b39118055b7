"""What plain Spark's frames and groups have and skewed ones do not says what to do instead; all else is as ever."""

import copy
from typing import Any

import pytest
from keygrouping.spark import skewed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import assert_same

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    return spark.range(60).selectExpr("IF(id % 3 > 0, 'hot', 'cold') AS user", "id % 4 AS item", "id AS n")


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("pivot", r'make its column one of the keys, then pivot .*; it has agg, count, .*, transformWithState$'),
        ("applyInArrow", r"use applyInPandas\(function, schema, merge=...\); it has agg"),
        ("cogroup", "use skewed_join, or cogroup of the frames' own groupBy"),
    ],
)  # fmt: skip
def test_groups_say_what_to_do_instead(clicks: DataFrame, name: str, way: str) -> None:
    groups = skewed(clicks, "user", widths=["hot"]).groupBy("user")
    with pytest.raises(AttributeError, match=f"skewed has no {name}: {way}"):
        getattr(groups, name)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("rollup", "call it on the frame, as Spark combines its aggregates; it has groupBy, groupby$"),
        ("join", r"use skewed_join\(left, right, on\)"),
        ("where", "call it on a plain DataFrame"),
    ],
)
def test_frames_say_what_to_do_instead(clicks: DataFrame, name: str, way: str) -> None:
    with pytest.raises(AttributeError, match=f"skewed has no {name}: {way}"):
        getattr(skewed(clicks, "user", widths=["hot"]), name)


def test_the_way_to_pivot_gives_the_rows_of_plain_spark(clicks: DataFrame) -> None:
    few = skewed(clicks, "user", widths=["hot"], spread="rows").groupby("user", "item").agg(F.sum("n").alias("n"))
    found = few.groupBy("user").pivot("item").agg(F.first("n"))
    assert_same(found, clicks.groupBy("user").pivot("item").agg(F.sum("n")))


def test_other_names_are_missing_as_ever(clicks: DataFrame) -> None:
    source = skewed(clicks, "user", widths=["hot"])
    for of in (source, source.groupBy("user")):
        for name in ("nothing", "__deepcopy__", "_jdf", "_jgd"):
            with pytest.raises(AttributeError, match=f"'{type(of).__name__}' object has no attribute '{name}'"):
                getattr(of, name)
        assert not any(hasattr(of, name) for name in ("select", "pivot", "nothing"))
        assert vars(copy.copy(of)).keys() == vars(of).keys()
        assert not {"select", "pivot"} & set(dir(of))
    with pytest.raises(AttributeError, match="object has no attribute '_skewed'"):
        vars_of_none: Any = object.__new__(type(source.groupBy("user")))
        vars_of_none.count()


def test_a_fault_in_finding_widths_is_told_as_it_is(clicks: DataFrame) -> None:
    def faulty() -> Any:
        raise AttributeError("a fault of its own")

    source = copy.copy(skewed(clicks, "user", widths=["hot"]))
    object.__setattr__(source, "find", faulty)
    with pytest.raises(AttributeError, match="a fault of its own"):
        _ = source.width
