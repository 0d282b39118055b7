"""Which keys are hot: given, read from a report, learned from a sample, or looked up."""

import json
from pathlib import Path
from typing import Any

import pytest
from keygrouping.spark import NotMergeableError, SkewError, learned_widths, skewed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import assert_same

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    """Half of the rows are of one user, a fifth of none, the others of a thousand."""
    user = F.when(F.col("id") % 10 < 5, 7).when(F.col("id") % 10 < 7, None).otherwise(F.col("id") + 100)
    return spark.range(3000).select(user.alias("user"), "id")


def parts(frame: DataFrame, **settings: Any) -> dict[Any, int]:
    """Into how many parts each key is split that is split."""
    source = skewed(frame, "user", **settings)
    if source.width is None:
        return {}
    found = source.frame.select("user", source.part(source.width).alias("part")).distinct().groupBy("user").count()
    return {row["user"]: row["count"] for row in found.collect() if row["count"] > 1}


def test_they_are_learned_from_a_sample(clicks: DataFrame) -> None:
    assert learned_widths(clicks, "user", partitions=4, sample=1.0) == {7: 4, None: 4}
    assert parts(clicks, partitions=4, sample=0.5)[7] == 4
    assert parts(clicks.where("id % 10 > 6"), partitions=4, sample=1.0) == {}


def test_equal_rows_give_an_equal_sample(spark: SparkSession) -> None:
    """Otherwise a batch that is run a second time would spread other keys."""
    orders = spark.range(2000).select((F.col("id") % 60).alias("user"))
    first = learned_widths(orders, "user", partitions=7, sample=0.6)
    assert first
    assert [learned_widths(orders, "user", partitions=7, sample=0.6) for _ in range(4)] == [first] * 4
    assert learned_widths(orders, "user", partitions=7, sample=1) == learned_widths(
        orders, "user", partitions=7, sample=1.0
    )


def test_they_are_given(clicks: DataFrame) -> None:
    assert parts(clicks, widths={7: 3, None: 2, 8: 5}) == {7: 3, None: 2}
    assert parts(clicks, widths=["7"], partitions=5) == {7: 5}
    with pytest.raises(SkewError, match="'seven' is no value of a column of type bigint"):
        parts(clicks, widths=["seven"])


def report(folder: Path, hashed: bool = False) -> Path:
    top = [{"key": "7", "share": 0.5}, {"key": "107", "share": 0.001}]
    path = folder / "report.json"
    path.write_text(json.dumps({"keys": {"hashed": hashed, "top": top}}))
    return path


def test_they_are_read_from_a_report_of_inspect(clicks: DataFrame, tmp_path: Path) -> None:
    assert parts(clicks, widths=report(tmp_path), partitions=4) == {7: 4}
    with pytest.raises(SkewError, match="without --hash-keys"):
        parts(clicks, widths=str(report(tmp_path, hashed=True)))
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(SkewError, match="is no report"):
        parts(clicks, widths=tmp_path / "other.json")


def test_they_are_looked_up_in_a_frame(spark: SparkSession, clicks: DataFrame) -> None:
    table = spark.createDataFrame([(7, 2), (7, 3), (None, 4), (8, None)], "name long, parts int")
    assert parts(clicks, widths=table) == {7: 3, None: 4}
    found = skewed(clicks, "user", widths=table, spread="partials").groupBy("user").agg(F.sum("id"), F.count("*"))
    assert_same(found, clicks.groupBy("user").agg(F.sum("id"), F.count("*")))
    with pytest.raises(SkewError, match="key and width is wanted, not of name"):
        skewed(clicks, "user", widths=table.select("name"))


def test_a_frame_of_widths_may_have_its_keys_as_texts_or_numbers(spark: SparkSession, clicks: DataFrame) -> None:
    """As files without a schema have them: "7" and "07" are one number, and what is none is no key."""
    texts = spark.createDataFrame([("7", "2"), ("07", "3"), ("cold", "2"), (None, "2")], "k string, w string")
    assert parts(clicks, widths=texts) == {7: 3, None: 2}
    found = skewed(clicks, "user", widths=texts, partitions=3).groupBy("user").count()
    assert_same(found, clicks.groupBy("user").count())
    named = clicks.withColumn("user", F.coalesce(F.col("user").cast("string"), F.lit("cold")))
    assert parts(named, widths=spark.createDataFrame([(7, 2)], "k int, w int")) == {"7": 2}
    assert parts(named, widths=[b"7"], partitions=2) == {"7": 2}


@pytest.mark.parametrize("spread", [None, "rows", "partials"])
def test_a_frame_of_widths_adds_no_columns_to_those_of_a_star(
    spark: SparkSession, clicks: DataFrame, spread: Any
) -> None:
    table = spark.createDataFrame([(7, 3)], "user long, parts int")
    few = clicks.where("id < 60")
    groups = skewed(few, "user", widths=table, spread=spread).groupBy("user")
    for asked in (F.collect_list(F.struct("*")), F.count_distinct("*"), F.expr("count(DISTINCT *)")):
        if spread == "partials":
            with pytest.raises(NotMergeableError, match="leave spread out"):
                groups.agg(asked)
        else:
            assert_same(groups.agg(asked), few.groupBy("user").agg(asked))
    assert_same(groups.agg(F.count("*")), few.groupBy("user").agg(F.count("*")))
