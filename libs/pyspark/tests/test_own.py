"""The library's aggregates, and one of a user, give on Spark what their own code gives of the same values."""

import json
import math
from collections import defaultdict
from typing import Any

import pytest
from keygrouping.aggregate import Aggregate, parse_aggregates
from keygrouping.spark import SkewError, skewed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import assert_same

pytestmark = pytest.mark.spark

RANGE = """
from keygrouping.aggregate import Aggregate, NumberField


class Range(Aggregate):
    field: NumberField

    def initial(self):
        return []

    def add_many(self, state, values):
        given = [*state, *(value for value in values if value is not None)]
        return [min(given), max(given)] if given else []

    def merge(self, left, right):
        return self.add_many(left, right)

    def finish(self, state):
        return state[1] - state[0] if state else None
"""
JOB: list[dict[str, object]] = [
    {"name": "top", "op": "top-k", "field": "item", "k": 3},
    {"name": "bins", "op": "histogram", "field": "amount", "bins": 200},
    {"name": "bayes", "op": "naive-bayes", "field": "bought", "features": ["item", "/more/page"]},
    {"name": "many", "op": "distinct", "field": "item"},
    {"name": "rows", "op": "count"},
    {"name": "slashed", "op": "distinct", "field": "a/b"},
    {"name": "given", "op": "count", "field": "amount"},
    {"name": "total", "op": "sum", "field": "amount"},
]


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    rows = [
        (
            "hot" if n % 3 else "cold" if n % 2 else None,
            None if n % 7 == 0 else float("nan") if n % 11 == 0 else (n * 37 % 101) / 4,
            None if n % 13 == 0 else f"i{n * n % 17}",
            n % 2,
            (f"p{n % 4}",),
        )
        for n in range(200)
    ]
    schema = "user string, amount double, item string, bought int, more struct<page: string>"
    return spark.createDataFrame(rows, schema).withColumn("a/b", F.col("item"))


@pytest.fixture(scope="module")
def ranges(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Aggregate:
    """A user's aggregate, in a module that Spark's Python processes get."""
    file = tmp_path_factory.mktemp("users") / "users_range.py"
    file.write_text(RANGE)
    spark.sparkContext.addPyFile(str(file))
    (found,) = parse_aggregates([{"name": "range", "op": "users_range:Range", "field": "amount"}])
    return found


def events(frame: DataFrame) -> dict[str | None, list[dict[str, Any]]]:
    """The rows of each user as events have them, without what is no JSON number."""
    found = defaultdict(list)
    for row in frame.collect():
        amount = None if row["amount"] is None or math.isnan(row["amount"]) else row["amount"]
        bought = str(row["bought"])
        event = {"amount": amount, "item": row["item"], "a/b": row["item"], "bought": bought}
        event["/more/page"] = row["more"]["page"]
        found[row["user"]].append(event)
    return found


def told(aggregate: Aggregate, rows: list[dict[str, Any]]) -> Any:
    """What the aggregate's own code publishes of the values of these events, in one piece."""
    fields = [each.field for each in aggregate.inputs]
    values = [tuple(row[field] for field in fields) for row in rows]
    state = aggregate.add_many(aggregate.initial(), [value[0] for value in values] if len(fields) == 1 else values)
    return json.loads(json.dumps(aggregate.finish(state)))


@pytest.mark.parametrize("spread", ["partials", "rows"])
def test_they_give_what_they_give_natively(clicks: DataFrame, ranges: Aggregate, spread: Any) -> None:
    aggregates = [*parse_aggregates(JOB), ranges]
    groups = skewed(clicks, "user", widths={"hot": 4, None: 2}, partitions=3, spread=spread).groupBy("user")
    found = groups.agg(F.max("amount"), *aggregates)
    assert found.columns == ["user", "max(amount)", *(each.name for each in aggregates)]
    wanted = events(clicks)
    for row in found.collect():
        for each in aggregates:
            assert json.loads(row[each.name]) == told(each, wanted[row["user"]]), each.name
    assert found.count() == len(wanted)


def test_without_hot_keys_and_without_rows_they_are_the_same(clicks: DataFrame) -> None:
    aggregates = parse_aggregates(JOB)
    none = clicks.where("amount > 1e9")
    for frame, keys in ((clicks, ["user"]), (none, []), (none, ["user"])):
        plain = skewed(frame, "user", widths={}, partitions=3).groupBy(*keys).agg(*aggregates)
        assert_same(skewed(frame, "user", widths=["hot"], partitions=3).groupBy(*keys).agg(*aggregates), plain)


def test_a_field_of_another_kind_is_refused_by_what_to_do(clicks: DataFrame) -> None:
    groups = skewed(clicks, "user", widths=["hot"]).groupBy("user")
    for spec, message in (
        ({"op": "sum", "field": "item"}, "aggregate a: item is string, not a number: cast it to double"),
        ({"op": "distinct", "field": "amount"}, "amount is double, not text or a whole number: cast it to string"),
    ):
        with pytest.raises(SkewError, match=message):
            groups.agg(*parse_aggregates([{"name": "a", **spec}]))
