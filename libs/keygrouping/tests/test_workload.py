"""Workloads have the published keys and skews, and are the same for the same seed."""

from collections import Counter

import pytest
from keygrouping.workload import COUNTRIES, HOT_COUNTRY, WorkloadError, names, workload


def shares(name: str, events: int = 100_000) -> list[Counter[bytes]]:
    """Counts of the first and the second half."""
    keys = [key for batch in workload(name, events).batches() for key in batch]
    assert len(keys) == events
    return [Counter(keys[: events // 2]), Counter(keys[events // 2 :])]


def test_there_are_204_different_names() -> None:
    assert len(COUNTRIES) == len(set(COUNTRIES)) == 204
    assert {HOT_COUNTRY, "Korea, North", "North Korea", "East Timor", "Timor-Leste"} <= set(COUNTRIES)


@pytest.mark.parametrize("skew", range(0, 101, 10))
def test_the_hot_country_has_its_share_and_the_others_the_rest(skew: int) -> None:
    first, second = shares(f"country-skew-{skew}")
    expected = skew / 100 + (1 - skew / 100) / 204
    for half in (first, second):
        assert half[b"Turkey"] / half.total() == pytest.approx(expected, abs=0.01)
    assert len(first + second) == (204 if skew < 100 else 1)


def test_half_skew_is_skewed_only_at_first() -> None:
    first, second = shares("country-half-skew")
    assert first[b"Turkey"] / first.total() == pytest.approx(0.801, abs=0.01)
    assert second[b"Turkey"] / second.total() == pytest.approx(1 / 204, abs=0.01)


@pytest.mark.parametrize("name", names())
def test_a_seed_is_a_stream(name: str) -> None:
    same = [list(workload(name, 25_000, seed=3).batches()) for _ in range(2)]
    assert same[0] == same[1] != list(workload(name, 25_000, seed=4).batches()) or name == "country-skew-100"


@pytest.mark.parametrize("events", [0, 1, 10_000, 10_001])
def test_a_stream_has_its_length(events: int) -> None:
    assert sum(map(len, workload("country-half-skew", events).batches())) == events


@pytest.mark.parametrize("name", ["country-skew-101", "country-skew-", "zip", "country-skew-08"])
def test_an_unknown_name_names_the_choices(name: str) -> None:
    with pytest.raises(WorkloadError, match=r"choose from country-skew-R \(R from 0 to 100\) and country-half-skew"):
        workload(name, 1)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(WorkloadError, match="not be negative"):
        workload("country-skew-0", -1)
