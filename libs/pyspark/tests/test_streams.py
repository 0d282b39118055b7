"""A stream's aggregates are those of plain Spark, in append mode and in update mode."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from keygrouping.spark import NotMergeableError, SkewError, skewed, skewed_join
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import results

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FILES = 4
SCHEMA = "user string, ts timestamp, amount long, item string"


@pytest.fixture(scope="module")
def clicks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Four files, one a micro-batch, each some minutes later than the one before; the last ends all windows."""
    folder = tmp_path_factory.mktemp("clicks")
    for file in range(FILES):
        rows = [
            {
                "user": "hot" if n % 5 else f"k{n % 3}",
                "ts": f"2026-01-01T00:{file * 2 + n % 2:02}:{n % 60:02}Z",
                "amount": n,
                "item": f"i{n % 7}",
            }
            for n in range(file, 100)
        ]
        if file == FILES - 1:
            rows = [{**rows[0], "ts": "2026-01-01T03:00:00Z"}]
        path = folder / f"{file}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        # Spark reads by time of change, and a file system's clock may give all four the same.
        os.utime(path, (file, file))
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).option("latestFirst", "false")
    return reader.json(str(folder)).withWatermark("ts", "1 minute")


def keys() -> Sequence[Column]:
    return F.window("ts", "1 minute"), F.col("user")


def asked() -> Sequence[Column]:
    return F.sum("amount"), F.count("*"), F.max("item"), F.var_pop("amount"), F.collect_set("item")


def test_in_append_mode_each_batch_gives_the_rows_of_plain_spark(clicks: DataFrame, tmp_path: Path) -> None:
    few = [F.sum("amount"), F.max("item")]
    plain = results(clicks.groupBy(*keys()).agg(*few), "append", tmp_path / "plain")
    assert sum(map(len, plain)) >= 16
    for spread in ("partials", "rows"):
        found = skewed(clicks, "user", widths=["hot"], spread=spread).groupBy(*keys()).agg(*few)
        assert results(found, "append", tmp_path / spread) == plain


def test_in_update_mode_each_batch_gives_the_rows_of_plain_spark(clicks: DataFrame, tmp_path: Path) -> None:
    few = [F.sum("amount"), F.approx_count_distinct("item")]
    plain = results(clicks.groupBy(*keys()).agg(*few), "update", tmp_path / "plain")
    found = skewed(clicks, "user", widths={"hot": 2}, spread="rows").groupBy(*keys()).agg(*few)
    assert results(found, "update", tmp_path / "found") == plain


def test_in_append_mode_the_columns_are_those_of_plain_spark(clicks: DataFrame) -> None:
    found = skewed(clicks, "user", widths=["hot"], spread="partials").groupBy(*keys()).agg(*asked())
    assert found.schema == clicks.groupBy(*keys()).agg(*asked()).schema


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_spark_refuses_partials_in_other_modes_at_the_start(clicks: DataFrame, tmp_path: Path, mode: str) -> None:
    found = skewed(clicks, "user", widths=["hot"], spread="partials").groupBy(*keys()).count()
    with pytest.raises(
        AnalysisException, match="Detected pattern of possible 'correctness' issue due to global watermark"
    ):
        results(found, mode, tmp_path)


def test_what_a_stream_lacks_is_named(clicks: DataFrame) -> None:
    with pytest.raises(SkewError, match="a stream can't be sampled: give widths"):
        skewed(clicks, "user")


def test_distinct_aggregates_are_refused_as_spark_refuses_them(clicks: DataFrame) -> None:
    groups = skewed(clicks, "user", widths=["hot"], spread="partials").groupBy(*keys())
    with pytest.raises(NotMergeableError, match="no distinct aggregates in streams: use approx_count_distinct"):
        groups.agg(F.sum("amount"), F.count_distinct("item"))


def test_in_append_mode_a_median_of_how_often_each_value_is_there(clicks: DataFrame, tmp_path: Path) -> None:
    few = [F.median("amount"), F.expr("sum(amount) FILTER (WHERE item > 'i3')")]
    plain = results(clicks.groupBy(*keys()).agg(*few), "append", tmp_path / "plain")
    found = skewed(clicks, "user", widths=["hot"], spread="partials").groupBy(*keys()).agg(*few)
    assert results(found, "append", tmp_path / "found") == plain and any(plain)


def test_a_stream_joins_a_batch(spark: SparkSession, clicks: DataFrame, tmp_path: Path) -> None:
    right = spark.createDataFrame([("hot", 1), ("hot", 2), ("k1", 3)], "user string, plan int")
    plain = results(clicks.join(right, "user"), "append", tmp_path / "plain")
    found = skewed_join(clicks, right, "user", widths=["hot"])
    assert results(found, "append", tmp_path / "found") == plain


def test_a_stream_joins_a_stream(clicks: DataFrame, tmp_path: Path) -> None:
    right = clicks.where("amount < 20").select("user", F.col("ts").alias("seen"), F.col("amount").alias("before"))
    near = F.col("seen").between(F.col("ts") - F.expr("INTERVAL 20 SECONDS"), F.col("ts"))
    plain = results(clicks.join(right, "user").where(near), "append", tmp_path / "plain")
    found = skewed_join(clicks, right, "user", widths=["hot"]).where(near)
    assert sorted(row for batch in results(found, "append", tmp_path / "found") for row in batch) == sorted(
        row for batch in plain for row in batch
    )


@pytest.mark.parametrize("starts", [({}, ["hot"]), (["hot"], {})], ids=["becomes hot", "is hot no more"])
def test_in_partials_a_key_may_become_hot_with_a_new_start(
    spark: SparkSession, tmp_path: Path, starts: tuple[Any, Any]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    stream = spark.readStream.schema(SCHEMA).json(str(source)).withWatermark("ts", "1 minute")
    plain: list[list[Any]] = []
    found: list[list[Any]] = []
    for start, widths in enumerate(starts):
        rows = [{"user": "hot" if n % 3 else f"k{n}", "ts": f"2026-01-01T0{start}:00:{n:02}Z"} for n in range(30)]
        (source / f"{start}.json").write_text("\n".join(map(json.dumps, rows)))
        plain += results(stream.groupBy(*keys()).count(), "append", tmp_path / "plain")
        parts = skewed(stream, "user", widths=widths, spread="partials").groupBy(*keys())
        found += results(parts.count(), "append", tmp_path / "found")
    assert found == plain and any(found)
