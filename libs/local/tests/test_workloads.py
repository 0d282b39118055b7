"""Laws of the workloads by name."""

from pathlib import Path

import pytest
from keygrouping_local.errors import LocalError
from keygrouping_local.workloads import COUNT_JOB, FLIGHT_KEYS, FileOptions, workload


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
    file.write_text("customer;price;at\nAda;1;1704067200\n")
    with pytest.raises(LocalError, match="needs --key FIELD"):
        workload(str(file))
    read = workload(str(file), "customer", FileOptions("at", delimiter=";"))
    assert read.producer == {
        "workload": "file",
        "file": str(file),
        "key": "customer",
        "time_field": "at",
        "time_format": "epoch_s",
        "delimiter": ";",
    }
    assert read.note == "orders.csv: 'at' is read as seconds since 1970 (epoch_s); --time-format names another"
    assert workload(str(file), "customer", FileOptions("at", "epoch_ms", ";")).note is None


@pytest.mark.parametrize("content", ["", "customer,at\n"])
def test_a_file_without_events_is_told_before_anything_starts(tmp_path: Path, content: str) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(content)
    with pytest.raises(LocalError, match=r"orders\.csv holds no events: it is empty, or has nothing but a header"):
        workload(str(file), "customer", FileOptions("at"))


@pytest.mark.parametrize(
    ("key", "options", "message"),
    [
        ("customer", FileOptions("when"), "no column 'when'; it has customer, at"),
        ("customer", FileOptions("at"), "can't be told from 'soon' in its first 1 lines: name the format"),
        ("customer", FileOptions(None, "iso"), "--time-format needs --time-field"),
        ("customer", FileOptions("at", "iso", "||"), "--delimiter: String should match"),
        ("client", FileOptions("at", "iso"), "no column 'client'"),
    ],
)
def test_a_file_that_cannot_be_read_as_asked_is_told_before_anything_starts(
    tmp_path: Path, key: str, options: FileOptions, message: str
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("customer,at\nAda,soon\n")
    with pytest.raises(LocalError, match=message):
        workload(str(file), key, options)


@pytest.mark.parametrize("name", ["flights", "country-skew-80"])
def test_what_is_no_file_has_no_options_of_files(name: str) -> None:
    with pytest.raises(LocalError, match="is no file: leave out --time-field"):
        workload(name, None, FileOptions("at"))


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
