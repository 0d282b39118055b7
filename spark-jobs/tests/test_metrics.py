"""The metrics of the Spark job."""

import asyncio

import pytest
from keygrouping_service.errors import Fatal
from keygrouping_spark import cli, session
from keygrouping_spark.query_metrics import record
from keygrouping_spark.settings import SparkSettings
from prometheus_client import REGISTRY


async def test_a_query_that_has_ended_no_batch_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, float | None] = {}

    def create(settings: SparkSettings) -> None:
        for name in ("batch_seconds_count", "input_rows_total", "query_restarts_total"):
            seen[name] = REGISTRY.get_sample_value(f"keygrouping_spark_{name}", {"query": settings.stages})
        group = {"group": settings.group(settings.stages)}
        seen["expired_offsets_total"] = REGISTRY.get_sample_value("keygrouping_expired_offsets_total", group)
        raise Fatal("this far and no farther")

    monkeypatch.setattr(session, "create", create)
    settings = SparkSettings(
        bootstrap_servers="none:9", checkpoint="none", job='{"aggregates": []}', stages="worker", http_port=0
    )
    with pytest.raises(Fatal, match="this far"):
        await cli.serve(settings, asyncio.Event())
    assert seen == dict.fromkeys(seen, 0) and len(seen) == 4


def test_the_memory_of_the_state_is_what_its_stores_share() -> None:
    """Each store reports all that the shared cache of its executor has pinned, and Spark sums that up."""
    pinned = {"rocksdbPinnedBlocksMemoryUsage": 80}
    operator = {"memoryUsedBytes": 0, "numStateStoreInstances": 4, "customMetrics": pinned}
    record("memory", {"stateOperators": [operator]})
    assert REGISTRY.get_sample_value("keygrouping_spark_state_memory_bytes", {"query": "memory"}) == 20
    without_store = {"operatorName": "no store yet"}
    record("memory", {"stateOperators": [operator, without_store]})
    assert REGISTRY.get_sample_value("keygrouping_spark_state_memory_bytes", {"query": "memory"}) == 20
    record("memory", {"stateOperators": [without_store]})
    assert REGISTRY.get_sample_value("keygrouping_spark_state_memory_bytes", {"query": "memory"}) == 0


def test_a_batch_shows_the_time_of_its_phases_and_an_idle_trigger_none() -> None:
    """Spark reports triggers that found nothing to do, too: their phases would be taken for those of short batches."""

    def seconds(phase: str) -> float | None:
        labels = {"query": "phases", "phase": phase}
        return REGISTRY.get_sample_value("keygrouping_spark_phase_seconds_sum", labels)

    record("phases", {"durationMs": {"latestOffset": 7, "triggerExecution": 8}})
    assert seconds("latestOffset") is None
    record("phases", {"durationMs": {"latestOffset": 20, "addBatch": 1500, "triggerExecution": 1600}})
    record("phases", {"durationMs": {"latestOffset": 30, "addBatch": 500, "walCommit": 40, "triggerExecution": 600}})
    assert {phase: seconds(phase) for phase in ("latestOffset", "addBatch", "walCommit")} == pytest.approx(
        {"latestOffset": 0.05, "addBatch": 2.0, "walCommit": 0.04}
    )
    assert seconds("triggerExecution") is None, "the whole is no phase"
    assert REGISTRY.get_sample_value("keygrouping_spark_batch_seconds_sum", {"query": "phases"}) == pytest.approx(2.2)
