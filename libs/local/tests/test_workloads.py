"""Laws of the workloads by name."""

from pathlib import Path

import pytest
from keygrouping_local.errors import LocalError
from keygrouping_local.workloads import COUNT_JOB, FLIGHT_KEYS, workload


@pytest.mark.parametrize("key", FLIGHT_KEYS)
def test_flights_by_any_key_in_either_spelling(key: str) -> None:
    assert workload(f"flights-{key}") == workload("flights", key)


def test_flights_are_keyed_by_carrier_in_daily_windows() -> None:
    flights = workload("flights")
    assert flights.producer == {"workload": "flights", "key": "carrier"}
    assert flights.spec.window_ms == 86_400_000
    assert [aggregate.op for aggregate in flights.spec.aggregates] == ["count", "mean", "variance", "sum", "distinct"]


@pytest.mark.parametrize("name", ["country-skew-0", "country-skew-80", "country-skew-100", "country-half-skew"])
def test_country_workloads_count_by_the_minute(name: str) -> None:
    assert workload(name).job == COUNT_JOB
    assert workload(name).producer["workload"] == name


def test_a_file_needs_its_key_field(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("customer,price\n")
    with pytest.raises(LocalError, match="needs --key FIELD"):
        workload(str(file))
    assert workload(str(file), "customer", "at").producer == {
        "workload": "file",
        "file": str(file),
        "key": "customer",
        "time_field": "at",
    }


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("nothing", None, "choose from flights"),
        ("country-skew-101", None, "unknown workload"),
        ("flights-pilot", None, "no key 'pilot'"),
        ("country-skew-5", "city", "leave out --key"),
    ],
)
def test_what_does_not_exist_is_told_in_one_line(name: str, key: str | None, message: str) -> None:
    with pytest.raises(LocalError, match=message) as error:
        workload(name, key)
    assert "\n" not in str(error.value)


def test_whatever_changes_events_or_job_changes_the_identity() -> None:
    different = [
        workload("flights"),
        workload("flights-origin"),
        workload("flights", job=COUNT_JOB),
        workload("country-skew-8"),
        workload("country-skew-80"),
    ]
    assert len({each.identity for each in different}) == len(different)
    assert workload("flights").identity == workload("flights-carrier").identity
