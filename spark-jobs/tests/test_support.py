"""A job that Spark can't compute is refused before anything starts."""

import pytest
from keygrouping.aggregate import OPS
from keygrouping.job import JobSpec
from keygrouping_spark.checkpoint import aggregator_plan
from keygrouping_spark.native import native
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.support import UnsupportedAggregate, require_native
from pydantic import ValidationError

NEEDED = {"vwap": {"weight": "w"}}


def job(*ops: str) -> dict[str, object]:
    return {"aggregates": [{"name": f"a{i}", "op": op, "field": "x", **NEEDED.get(op, {})} for i, op in enumerate(ops)]}


def settings(*ops: str) -> SparkSettings:
    return SparkSettings(bootstrap_servers="none:9", checkpoint="none", job=JobSpec.from_json(job(*ops)))


@pytest.mark.parametrize("op", OPS)
def test_what_is_said_to_be_native_is_and_the_rest_is_refused_with_a_way_out(op: str) -> None:
    aggregates = JobSpec.from_json(job("count", op)).aggregates
    if OPS[op].spark:
        require_native(aggregates)
        assert [a.name for a in native(aggregates)] == ["a0", "a1"]
    else:
        with pytest.raises(UnsupportedAggregate, match=rf"no native form of a1 \({op}\): use the native runner"):
            native(aggregates)


def test_settings_with_such_a_job_are_a_fault() -> None:
    assert settings("vwap").job.aggregates
    with pytest.raises(ValidationError, match=r"a1 \(histogram\), a2 \(top-k\): use the native runner"):
        settings("count", "histogram", "top-k")


def test_a_checkpoint_knows_every_field_of_an_aggregate() -> None:
    plan = aggregator_plan(settings("sum", "vwap"), "id")
    assert plan["aggregates"] == [["a0", "sum", "x"], ["a1", "vwap", "x", "w"]]
    counted = SparkSettings(
        bootstrap_servers="none:9", checkpoint="none", job='{"aggregates": [{"name": "n", "op": "count"}]}'
    )
    assert aggregator_plan(counted, "id")["aggregates"] == [["n", "count", None]]


def test_a_checkpoint_knows_the_settings_of_an_aggregate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS["top-k"], "spark", "keygrouping_spark.aggregates:NativeDistinct")
    plan = aggregator_plan(settings("top-k"), "id")
    assert plan["aggregates"] == [["a0", "top-k", "x", {"k": 10, "capacity": 256}]]
