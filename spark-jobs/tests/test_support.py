"""Every aggregate has a half in Spark: in expressions, or in Python."""

import pytest
from keygrouping.aggregate import OPS
from keygrouping.job import JobSpec
from keygrouping_spark.checkpoint import aggregator_plan
from keygrouping_spark.cli import sources
from keygrouping_spark.in_python import InPython
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.support import native, spark_halves
from pydantic import ValidationError

NEEDED = {"vwap": {"weight": "w"}}


def job(*ops: str) -> dict[str, object]:
    return {"aggregates": [{"name": f"a{i}", "op": op, "field": "x", **NEEDED.get(op, {})} for i, op in enumerate(ops)]}


def settings(*ops: str) -> SparkSettings:
    return SparkSettings(bootstrap_servers="none:9", checkpoint="none", job=JobSpec.from_json(job(*ops)))


@pytest.mark.parametrize("op", OPS)
def test_an_aggregate_is_computed_by_expressions_if_it_has_them_and_else_in_python(op: str) -> None:
    aggregates = JobSpec.from_json(job("count", op)).aggregates
    assert [a.name for a in native(aggregates)] == ["a0", "a1"]
    assert issubclass(spark_halves(aggregates)[1], InPython) == (OPS[op].spark is None)


def test_a_checkpoint_knows_every_field_of_an_aggregate() -> None:
    plan = aggregator_plan(settings("sum", "vwap"), "id")
    assert plan["aggregates"] == [["a0", "sum", "x"], ["a1", "vwap", "x", "w"]]
    counted = SparkSettings(
        bootstrap_servers="none:9", checkpoint="none", job='{"aggregates": [{"name": "n", "op": "count"}]}'
    )
    assert aggregator_plan(counted, "id")["aggregates"] == [["n", "count", None]]


def test_a_checkpoint_knows_the_settings_of_an_aggregate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS["top-k"], "spark", "keygrouping_spark.aggregates:NativeDistinct")
    monkeypatch.setattr(OPS["top-k"], "shape", OPS["distinct"].shape)
    plan = aggregator_plan(settings("top-k"), "id")
    assert plan["aggregates"] == [["a0", "top-k", "x", {"k": 10, "capacity": 256}]]


def test_sparks_worker_is_refused_where_workers_read_the_events_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYGROUPING_STAGES", "combine")
    with pytest.raises(ValidationError, match="run native workers and set KEYGROUPING_SPARK_STAGES=aggregator"):
        settings("sum")
    monkeypatch.setenv("KEYGROUPING_SPARK_STAGES", "aggregator")
    assert settings("sum").combines
    assert sources(settings("sum")) == ("events",), "what nobody reads is not judged"
    monkeypatch.setenv("KEYGROUPING_STAGES", "route")
    assert not settings("sum").combines
    assert sources(settings("sum")) == ("events", "routed")


@pytest.mark.parametrize("stages", ["Combine", "both", " combine"])
def test_stages_that_there_are_not_are_refused_as_native_services_do(
    stages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYGROUPING_SPARK_STAGES", "aggregator")
    monkeypatch.setenv("KEYGROUPING_STAGES", stages)
    with pytest.raises(ValidationError, match=f"KEYGROUPING_STAGES={stages}: set it to route or combine"):
        settings("sum")
    monkeypatch.setenv("KEYGROUPING_STAGES", "")
    assert not settings("sum").combines
