"""Aggregates without a form in Spark expressions give in Spark what they give natively, and what fails is told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from by_task import partials_of, results_of
from keygrouping.job import JobSpec
from keygrouping.partial import Partial, Result
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_local.picky import GeometricMean
from keygrouping_service.kafka.progress import MIN_TIME
from keygrouping_service.records.columns import Columns
from keygrouping_spark import aggregator
from keygrouping_spark.aggregator import merge
from keygrouping_spark.in_python import _finished
from keygrouping_spark.native import Native
from keygrouping_spark.reading import Letters, read_partials
from keygrouping_spark.refused import Refused
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

TOPIC = "x" * 22
HEADERS = "array<struct<key:string,value:binary>>"
MEAN = {"name": "mean", "op": "keygrouping_local.picky:GeometricMean", "field": "x"}
IN_PYTHON: list[dict[str, Any]] = [
    MEAN,
    {"name": "top", "op": "top-k", "field": "p", "k": 3, "capacity": 8},
    {"name": "shape", "op": "histogram", "field": "x", "bins": 8},
    {"name": "classes", "op": "naive-bayes", "field": "p", "features": ["x", "q"]},
]
NATIVE = [{"name": "n", "op": "count"}, {"name": "total", "op": "sum", "field": "x"}]
EXACT = [
    *NATIVE,
    *(each for each in IN_PYTHON[1:] if each["op"] != "histogram"),
    {"name": "shape", "op": "histogram", "field": "x"},
    {"name": "least", "op": "min", "field": "x"},
    {"name": "most", "op": "max", "field": "x"},
    {"name": "average", "op": "mean", "field": "x"},
    {"name": "whole", "op": "sum", "field": "q"},
    {"name": "places", "op": "distinct", "field": "p"},
    {"name": "range", "op": "users_span:Range", "field": "x"},
]
"""What the docs call exact of these events: nothing is cut or joined, and the fractions have few bits."""
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
JOBS = {
    "both": JobSpec.from_json({"window": "1m", "aggregates": [*NATIVE, *IN_PYTHON]}),
    "alone": JobSpec.from_json({"window": "1m", "aggregates": IN_PYTHON}),
}
EVENTS = [
    (b"k%d" % (n % 3), {"x": None if n % 7 == 0 else (n % 13 + 1) / (1 if n % 2 else 4), "p": "abc"[n % 3], "q": n % 2})
    for n in range(120)
]


def written(job: JobSpec, cut: int) -> list[tuple[bytes, bytes]]:
    """The partials of two batches of `routed`, of two workers."""
    rows = [(key, orjson.dumps(value), offset % 2, offset, 1000, ()) for offset, (key, value) in enumerate(EVENTS)]
    return [made for part in (rows[:cut], rows[cut:]) for made in partials_of(part, job, 3, TOPIC)]


def records(spark: SparkSession, rows: Sequence[tuple[bytes, bytes]]) -> DataFrame:
    data = [("partials", 0, offset, key, value) for offset, (key, value) in enumerate(rows)]
    found = spark.createDataFrame(data, "topic string, partition int, offset bigint, key binary, value binary")
    return found.selectExpr(
        "*", "timestamp_millis(1000) as timestamp", "cast(null as array<struct<key:string,value:binary>>) as headers"
    )


def results(spark: SparkSession, job: JobSpec, rows: Sequence[tuple[bytes, bytes]]) -> tuple[list[Result], list[str]]:
    letters = Letters(spark.sparkContext)
    found = results_of(merge(read_partials(records(spark, rows), job, -1, letters), job), job)
    return [result for result, _ in found], [fault for _, fault in found]


def refused(spark: SparkSession, job: JobSpec, rows: Sequence[tuple[bytes, bytes]]) -> list[Refused]:
    letters = Letters(spark.sparkContext)
    read_partials(records(spark, rows), job, -1, letters).collect()
    return letters.take()


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_a_stream_of_two_workers_and_two_batches_gives_what_the_oracle_says(spark: SparkSession, job: JobSpec) -> None:
    rows = written(job, 50)
    assert refused(spark, job, rows) == []
    for key, value in rows:
        partial = Partial.decode(value)
        assert [a.decode(partial.aggregates[a.name]) for a in job.aggregates], key
    found, failures = results(spark, job, rows)
    assert sorted(result.key for result in found) == [b"k0", b"k1", b"k2"]
    assert not any(failures)
    for result in found:
        mine = [job.extract(key, orjson.dumps(value), (), 1000, 2000) for key, value in EVENTS if key == result.key]
        for aggregate, positions in zip(job.aggregates, job.fields_of, strict=True):
            fields = [each.fields for each in mine]  # type: ignore[union-attr]
            picked = [tuple(row[p] for p in positions) for row in fields]
            values = [row[0] for row in picked] if len(positions) == 1 else picked
            answer = aggregate.expected(values)
            assert answer.accept(Result.decode(result.encode()).aggregates[aggregate.name]), aggregate.name


def test_results_are_to_the_byte_those_of_a_native_aggregator(spark: SparkSession, tmp_path: Path) -> None:
    users = tmp_path / "users_span.py"
    users.write_text(RANGE)
    spark.sparkContext.addPyFile(str(users))
    job = JobSpec.from_json({"window": "1m", "aggregates": EXACT})
    rows = written(job, 50)
    windows = OpenWindows(job, MIN_TIME)
    # In another order than Spark's, as partials of several workers come in any.
    partials = Columns.of("partials", 0, [(offset, 0, *row, ()) for offset, row in enumerate(reversed(rows))])
    assert windows.add_all(partials).merged == len(rows)
    native = {Result.decode(one.encode()).key: one.encode() for one in windows.close(1 << 40)}
    found, failures = results(spark, job, rows)
    assert not any(failures)
    assert {result.key: result.encode() for result in found} == native
    assert len(native) == 3


def test_a_state_that_no_worker_writes_is_refused_and_an_error_at_a_result_is_told(spark: SparkSession) -> None:
    job = JobSpec.from_json({"window": "1m", "aggregates": [NATIVE[0], MEAN]})
    good = Partial(0, 0, 60_000, 1, 1, 0, 0, 0, {"n": 1, "mean": {"n": 1, "logs": 0.5}}, TOPIC)
    states: list[Any] = [{"n": 1, "logs": 0.5}, {"n": "1", "logs": 0.5}, None, 7, {"n": 1, "logs": 1e6}]
    rows = []
    for offset, state in enumerate(states):
        data = json.loads(good.encode()) | {"first": offset, "last": offset, "aggregates": {"n": 1, "mean": state}}
        rows.append((b"huge" if offset == 4 else b"k", orjson.dumps(data)))
    letters = refused(spark, job, rows)
    assert [each.record.offset for each in letters] == [1, 2, 3]
    assert all(each.detail.startswith(f"aggregate 'mean' ({MEAN['op']})") for each in letters)
    found, failures = results(spark, job, rows)
    by_key = {result.key: (dict(result.aggregates), told) for result, told in zip(found, failures, strict=True)}
    assert by_key[b"k"] == ({"n": 1, "mean": pytest.approx(1.6487212707001282)}, "")
    assert by_key[b"huge"] == (
        {"n": 1, "mean": None},
        f"aggregate 'mean' ({MEAN['op']}) raises OverflowError: math range error",
    )


def test_the_functions_of_python_tell_errors_and_end_nothing() -> None:
    mean = GeometricMean(name="mean", field="x")
    assert json.loads(_finished(mean)(['{"n": 1, "logs": 0.0}', '{"n": 1, "logs": 0.0}'])) == {
        "value": 1.0,
        "fault": "",
    }
    assert "not a state: 5" in json.loads(_finished(mean)(["5", "null"]))["fault"]


class Shown(Native):
    """Publishes what it gets, as Python writes it."""

    def merged(self, state: Column) -> dict[str, Column]:
        return {"all": F.collect_list(state)}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.struct(F.create_map(F.lit("n"), F.size(merged["all"])).alias("sizes"))

    def published(self, value: Any) -> Any:
        return repr(value)


def test_a_spark_half_gets_structs_and_maps_as_dicts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobSpec.from_json({"window": "1m", "aggregates": [{"name": "n", "op": "count"}]})
    frame = merge(read_partials(records(spark, written(job, 50)), job, -1, Letters(spark.sparkContext)), job)
    shown = frame.withColumn(
        "aggregates", F.struct(F.struct(F.create_map(F.lit("n"), F.lit(2)).alias("sizes")).alias("n"))
    )
    monkeypatch.setattr(aggregator, "native", lambda aggregates: [Shown(each) for each in aggregates])
    batches = shown.toArrow().to_batches()
    made = [row for batch in aggregator._Writing(job)(batches) for row in batch.to_pylist()]
    assert [Result.decode(row["value"]).aggregates["n"] for row in made] == ["{'sizes': {'n': 2}}"] * 3
