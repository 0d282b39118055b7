"""A checkpoint that this code can't go on with is told in one line, before Spark fails at it."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from keygrouping.job import JobSpec
from keygrouping_service.errors import Fatal
from keygrouping_spark import reading
from keygrouping_spark.aggregator import IDENTITY
from keygrouping_spark.checkpoint import REPARTITIONS_SINCE, STATE, Checkpoint, Identity, aggregator_plan
from keygrouping_spark.receipts import sums_of_receipts
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.support import native
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

REPARTITIONS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= REPARTITIONS_SINCE

JOB: dict[str, Any] = {
    "window": "1m",
    "aggregates": [
        {"name": "n", "op": "count"},
        {"name": "total", "op": "sum", "field": "x"},
        {"name": "average", "op": "mean", "field": "x"},
        {"name": "least", "op": "min", "field": "x"},
        {"name": "most", "op": "max", "field": "x"},
        {"name": "spread", "op": "variance", "field": "x"},
        {"name": "kinds", "op": "distinct", "field": "x"},
        {"name": "price", "op": "vwap", "field": "x", "weight": "w"},
        {"name": "top", "op": "top-k", "field": "x"},
    ],
}
KEPT = (1, "849761e730df723e")
"""Version of the state, and the digest of what is kept then. Another digest needs another version."""


def digest_of_state(job: JobSpec) -> str:
    """Of the columns that the query keeps, and the expressions that merge them."""
    merged = [str(column) for a in native(job.aggregates) for column in a.merge_columns(F.col(a.name))]
    kept = [*IDENTITY, reading._schema(job).simpleString(), *merged, *map(str, sums_of_receipts())]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]


def test_what_the_query_keeps_has_the_version_of_its_state(spark: SparkSession) -> None:
    assert spark
    assert (STATE, digest_of_state(JobSpec.from_json(JOB))) == KEPT, "raise STATE, then note the digest here"


@pytest.mark.parametrize("version", [None, STATE + 1])
def test_a_state_of_another_version_is_told_with_what_to_do(
    spark: SparkSession, tmp_path: Any, version: int | None
) -> None:
    settings = SparkSettings(bootstrap_servers="none:9", checkpoint=str(tmp_path), job=JobSpec.from_json(JOB))
    plan = aggregator_plan(settings, "topic")
    checkpoint = Checkpoint(spark, str(tmp_path), "aggregator")
    made = {**plan, "version of the state": version, "window": [1, 0]}
    if version is None:
        del made["version of the state"]
    with pytest.raises(Fatal, match="another version of keygrouping") as told:
        checkpoint.require(Identity("x", made, 0), plan)
    assert "set KEYGROUPING_SPARK_CHECKPOINT to a new folder" in str(told.value)
    assert "\n" not in str(told.value)
    checkpoint.require(Identity("x", plan, 0), plan)


def test_a_checkpoint_has_begun_once_a_batch_is_planned(spark: SparkSession, tmp_path: Any) -> None:
    checkpoint = Checkpoint(spark, str(tmp_path), "worker")
    assert checkpoint.last_planned == -1
    (tmp_path / "worker" / "offsets").mkdir(parents=True)
    assert checkpoint.last_planned == -1
    for name in ("0", "9", "10", ".11.crc"):
        (tmp_path / "worker" / "offsets" / name).write_text("v1\n{}\n")
    assert checkpoint.last_planned == 10


def test_what_was_planned_is_no_less_after_a_broker_has_lost_records(spark: SparkSession, tmp_path: Any) -> None:
    checkpoint = Checkpoint(spark, str(tmp_path), "worker")
    assert checkpoint.last_ends("routed") == {}
    (tmp_path / "worker" / "offsets").mkdir(parents=True)
    for batch, ends in enumerate(({"0": 50}, {"0": 100, "1": 7}, {"0": 90, "1": 8})):
        text = json.dumps({"routed": ends})
        (tmp_path / "worker" / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{text}\n")
    assert checkpoint.last_ends("routed") == {0: 100, 1: 8}


def with_batches(folder: Path, planned: Mapping[int, int], ended: Iterable[int]) -> None:
    """A checkpoint of Spark's with these batches, planned with so many partitions."""
    for kind in ("offsets", "commits"):
        (folder / "aggregator" / kind).mkdir(parents=True)
    for batch, number in planned.items():
        conf = {"spark.sql.shuffle.partitions": str(number)}
        text = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf})
        (folder / "aggregator" / "offsets" / str(batch)).write_text(f"v1\n{text}\n{{}}")
    for batch in ended:
        (folder / "aggregator" / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_an_older_spark_refuses_another_number_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = Checkpoint(spark, str(tmp_path), "aggregator")
    checkpoint.repartition(5, "4.0.5")
    with_batches(tmp_path, {0: 2, 1: 2}, [0])
    checkpoint.repartition(2, "4.0.5")
    with pytest.raises(
        Fatal, match=r"has 2 shuffle partitions, not 5, which Spark 4\.0\.5 can't change: undo the change"
    ):
        checkpoint.repartition(5, "4.0.5")


@pytest.mark.skipif(not REPARTITIONS, reason="since Spark 4.2")
def test_a_batch_that_has_not_ended_is_not_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    """Its events would be planned again as another batch, which nobody would know for the same, maybe on its state."""
    checkpoint = Checkpoint(spark, str(tmp_path), "aggregator")
    with_batches(tmp_path, {0: 2, 1: 2}, [0])
    with pytest.raises(Fatal, match=r"can't get 5 partitions now: .*LAST_BATCH_FAILED.*PARTITIONS=2 until a batch"):
        checkpoint.repartition(5)
    assert checkpoint.last_planned == 1


@pytest.mark.skipif(not REPARTITIONS, reason="since Spark 4.2")
def test_another_number_than_that_of_a_broken_off_change_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = Checkpoint(spark, str(tmp_path), "aggregator")
    with_batches(tmp_path, {0: 2, 1: 5}, [0])
    with pytest.raises(Fatal, match=r"LAST_BATCH_ABANDONED_REPARTITION.* 5 shuffle partitions"):
        checkpoint.repartition(2)
