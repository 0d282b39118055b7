"""What is told of final results: when the last were written, and how late windows were."""

import time
from collections.abc import Sequence

import pytest
from keygrouping_service.observability.final_results import HISTORICAL_MS, FinalResults
from prometheus_client import REGISTRY

NOW = 1_700_000_000_000
LATENESS = 4000


def figure(name: str, group: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"keygrouping_{name}", {"group": group, **labels})


@pytest.mark.parametrize(
    ("ends", "count", "seconds"),
    [
        ([], 0, 0),
        ([NOW - 10_000], 1, 6),
        ([NOW - 10_000, NOW - 5000], 2, 7),
        ([NOW - LATENESS + 1, NOW + 60_000], 2, 0),
        ([NOW - LATENESS - HISTORICAL_MS + 1000], 1, HISTORICAL_MS / 1000 - 1),
        ([NOW - LATENESS - HISTORICAL_MS, 0], 0, 0),
    ],
    ids=["none", "one", "two", "never negative", "nearly a day", "history"],
)
def test_a_delay_counts_from_the_end_of_window_and_lateness(
    ends: Sequence[int], count: int, seconds: float, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW / 1000)
    group = request.node.name
    results = FinalResults(group, LATENESS)
    assert figure("result_delay_seconds_count", group) == 0
    assert figure("last_result_timestamp_seconds", group) is None
    results.written(ends)
    assert figure("result_delay_seconds_count", group) == count
    assert figure("result_delay_seconds_sum", group) == pytest.approx(seconds)
    assert figure("last_result_timestamp_seconds", group) == NOW / 1000
