"""Which keys are hot: given, read from a report, learned from a sample, or looked up."""

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keygrouping.inspection.names import KeyNaming
from keygrouping.spark import NotMergeableError, SkewError, learned_widths, skewed
from keygrouping_pyspark.widths import given_widths
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, LongType, StringType

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


def test_the_heaviest_are_kept_in_one_pass_and_of_equal_ones_always_the_same(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["keygrouping_pyspark.widths"], "_MOST", 3)
    read = spark.sparkContext.accumulator(0)

    def counted(user: int) -> int:
        read.add(1)
        return user

    user = F.when(F.col("id") % 10 < 4, 99).otherwise(F.col("id") % 6)
    orders = spark.range(600).select(user.cast("int").alias("user"))
    first = learned_widths(orders, F.udf(counted, "int")("user"), partitions=7, sample=1.0)
    assert len(first) == 3 and first[99] > 1 and read.value == 600
    for order in (orders.orderBy("user"), orders.repartition(5), orders.orderBy(F.desc("user"))):
        assert learned_widths(order, "user", partitions=7, sample=1.0) == first


def test_they_are_given(clicks: DataFrame) -> None:
    assert parts(clicks, widths={7: 3, None: 2, 8: 5}) == {7: 3, None: 2}
    assert parts(clicks, widths=["7"], partitions=5) == {7: 5}
    with pytest.raises(SkewError, match="'seven' is no value of a column of type bigint"):
        parts(clicks, widths=["seven"])


def report(folder: Path, hashed: bool = False, top: dict[str, float] | None = None) -> Path:
    keys = [{"key": key, "share": share} for key, share in (top or {"7": 0.5, "107": 0.001}).items()]
    path = folder / "report.json"
    path.write_text(json.dumps({"keys": {"hashed": hashed, "top": keys}}))
    return path


def test_keys_of_a_report_have_as_few_parts_as_even_tasks_need(clicks: DataFrame, tmp_path: Path) -> None:
    top = {"7": 0.1, "8": 0.004, **{str(100 + each): 0.00012 for each in range(100)}}
    widths = given_widths(clicks, LongType(), report(tmp_path, top=top), 200)
    assert widths.pop(7) > 150 and 2 <= widths.pop(8) <= 60
    assert sum(widths.values()) <= 150


def test_keys_that_are_no_text_have_their_bytes_in_a_report(clicks: DataFrame, tmp_path: Path) -> None:
    name = KeyNaming().name
    raw, text, literal, long = b"\xff\x00\x81", b"hot", b"base64url:aG90", b"\xff" * 300
    path = report(tmp_path, top={name(key): 0.2 for key in (raw, text, literal, long, b"e" * 300)})
    with pytest.warns(UserWarning, match="2 keys are left out: .*has only the first 256 bytes"):
        assert given_widths(clicks, BinaryType(), path, 4).keys() == {raw, text, literal}
    with pytest.warns(UserWarning, match="3 keys are left out: .*is no value of a column of type string"):
        assert given_widths(clicks, StringType(), path, 4).keys() == {"hot", "base64url:aG90"}


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("bigint", {7, 107}),
        ("tinyint", {7, 107}),
        ("decimal(3,0)", {Decimal(7), Decimal(107)}),
        ("date", {"2026-01-01"}),
        ("struct<a: string, b: string>", set()),
    ],
)
def test_keys_of_another_type_are_left_out_of_a_report(
    clicks: DataFrame, tmp_path: Path, kind: str, known: set[Any]
) -> None:
    texts = {"7": 0.5, "107": 0.2, "2000": 0.1, "cold": 0.1, "ab": 0.1, "2026-01-01": 0.1}
    path = report(tmp_path, top={**texts, str(2**64): 0.05, KeyNaming().name(b"\xff"): 0.05})
    typed: Any = DataType.fromDDL(kind)
    with pytest.warns(UserWarning, match="'cold' is no value of a column"):
        assert given_widths(clicks, typed, path, 4).keys() >= known
        assert "cold" not in given_widths(clicks, typed, path, 4)


def test_whole_numbers_of_numpy_are_widths_and_one_name_is_a_column(clicks: DataFrame) -> None:
    assert parts(clicks, widths={7: np.int64(3), np.int64(8): 2}, by="id") == {7: 3}
    for wrong in (True, 2.0, np.float64(2), 0):
        with pytest.raises(SkewError, match="a whole number of at least 1 is wanted"):
            parts(clicks, widths={7: wrong})


def test_they_are_read_from_a_report_of_inspect(clicks: DataFrame, tmp_path: Path) -> None:
    assert parts(clicks, widths=report(tmp_path), partitions=4) == {7: 4}
    with pytest.raises(SkewError, match="without --hash-keys"):
        parts(clicks, widths=str(report(tmp_path, hashed=True)))
    with pytest.raises(SkewError, match=r"widths='hot' is no file .*: give .* a list of hot keys such as \[\"hot\"\]"):
        parts(clicks, widths="hot")
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
    for asked in (F.collect_list(F.struct("*")), F.expr("collect_list(struct(*))")):
        if spread == "partials":
            with pytest.raises(NotMergeableError, match="leave spread out"):
                groups.agg(asked)
        else:
            assert_same(groups.agg(asked), few.groupBy("user").agg(asked))
    for asked in (F.count("*"), F.count_distinct("*"), F.expr("count(DISTINCT *)")):
        assert_same(groups.agg(asked), few.groupBy("user").agg(asked))
