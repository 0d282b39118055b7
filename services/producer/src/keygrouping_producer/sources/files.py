"""Events from a file of JSON lines or CSV, plain or gzipped; a bad line is reported and never stops the reading."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from keygrouping.instants import ms_of, ms_of_number, ms_of_rfc3339

from keygrouping_producer.sources.base import Block, Fault, SourceError

TIME_FORMATS = ("iso", "epoch_ms", "epoch_s")
"""Names of time formats; any other format is one of `datetime.strptime`, in UTC unless it says otherwise."""

_UNITS = {"epoch_ms": 1, "epoch_s": 1000}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_LARGEST_TIME = 253_402_300_799_999


class _Item(NamedTuple):
    key: bytes | None
    time: int | None
    value: bytes
    fault: Fault | None = None


class _BadLine(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class File:
    """The lines of a file as events.

    key_field: a field of the JSON object or a column of the CSV; missing, null or (CSV) empty means no key.
    time_field: event time, read as `time_format`; without it events bear the time at which they are written.
    Values: a JSON line as it stands; a CSV row as a compact JSON object, whose numbers are numbers and whose empty
    fields are null. The file is CSV if its name ends in .csv or .csv.gz, else JSON lines; blank lines are skipped.
    """

    def __init__(self, path: Path, key_field: str, time_field: str | None = None, time_format: str = "iso") -> None:
        self._path = path
        self._key_field = key_field
        self._time_field = time_field
        self._read_time = _time_reader(time_format)
        names = [suffix.lower() for suffix in path.suffixes]
        self._zipped = names[-1:] == [".gz"]
        self._is_csv = ".csv" in names[-2:]
        self._items: Iterator[_Item] = iter(())
        self._next = -1
        self._length: int | None = None
        self._earliest: int | None = None
        self._latest: int | None = None
        self._open()

    @property
    def length(self) -> int | None:
        """Number of lines with content, known once the end was met."""
        return self._length

    @property
    def span_ms(self) -> int:
        """From the earliest to the latest event time; 0 without times."""
        return 0 if self._earliest is None or self._latest is None else self._latest - self._earliest

    def read(self, start: int, count: int) -> Block:
        """Items `start` to `start + count`; going back reads the file anew from its beginning."""
        if start < self._next or self._next < 0:
            self._open()
        for _ in islice(self._items, start - self._next):
            self._next += 1
        items = list(islice(self._items, count if self._next == start else 0))
        self._next += len(items)
        if len(items) < count and self._length is None:
            self._length = self._next
        faults = {i: item.fault for i, item in enumerate(items) if item.fault}
        return Block([i.key for i in items], [i.time for i in items], lambda i: items[i].value, faults)

    def _open(self) -> None:
        try:
            file: Any = gzip.open(self._path) if self._zipped else self._path.open("rb")  # noqa: SIM115
            self._items = self._guarded(self._rows(file) if self._is_csv else self._lines(file))
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"can't read {self._path}: {error}") from None
        self._next = 0

    def _guarded(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """The items; where the file can't be read any further (a cut gzip), a fault is the last of them."""
        met = 0
        try:
            for item in items:
                met += 1
                yield item
        except (OSError, EOFError, zlib.error) as error:
            yield self._fault(met + 1, "unreadable-file", f"the file can't be read from about here on: {error}", b"")

    def _lines(self, file: Any) -> Iterator[_Item]:
        with file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield self._item(number, line.rstrip(b"\r\n"), self._from_json)

    def _rows(self, file: Any) -> Iterator[_Item]:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(text)
        header = next(reader, [])
        if header and self._key_field not in header:
            text.close()
            raise SourceError(f"{self._path} has no column {self._key_field!r}; it has {', '.join(header)}")
        return self._csv_items(text, reader, header)

    def _csv_items(self, text: Any, reader: Any, header: list[str]) -> Iterator[_Item]:
        with text:
            while True:
                try:
                    row = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield self._fault(reader.line_num, "invalid-csv", str(error), b"")
                    continue
                if row:
                    raw = ",".join(row).encode(errors="surrogateescape")
                    yield self._item(reader.line_num, raw, partial(self._from_csv, header, row))

    def _item(self, number: int, raw: bytes, parse: Callable[[bytes], _Item]) -> _Item:
        try:
            item = parse(raw)
        except _BadLine as bad:
            return self._fault(number, bad.reason, bad.detail, raw)
        if item.time is not None and self._length is None:
            self._earliest = item.time if self._earliest is None else min(self._earliest, item.time)
            self._latest = item.time if self._latest is None else max(self._latest, item.time)
        return item

    def _fault(self, number: int, reason: str, detail: str, raw: bytes) -> _Item:
        return _Item(None, None, b"", Fault(reason, detail, f"{self._path.name}:{number}", raw))

    def _from_json(self, line: bytes) -> _Item:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise _BadLine("invalid-json", f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise _BadLine("not-an-object", "the line is JSON but no object")
        return _Item(_key_bytes(row.get(self._key_field)), self._time_of(row, line), line)

    def _from_csv(self, header: list[str], row: list[str], _: bytes) -> _Item:
        if len(row) != len(header):
            raise _BadLine("wrong-number-of-fields", f"the row has {len(row)} fields, the header {len(header)}")
        named = dict(zip(header, row, strict=True))
        try:
            value = orjson.dumps({name: _csv_value(text) for name, text in named.items()})
        except (orjson.JSONEncodeError, UnicodeEncodeError):
            raise _BadLine("invalid-utf8", "the row is not UTF-8") from None
        return _Item(named[self._key_field].encode() or None, self._time_of(named), value)

    def _time_of(self, row: dict[str, Any], line: bytes = b"") -> int | None:
        if self._time_field is None:
            return None
        found = row.get(self._time_field)
        try:
            if isinstance(found, float):
                found = _as_written(line, self._time_field)
            time = self._read_time(found)
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise _BadLine("invalid-time", f"field {self._time_field!r} holds no time: {found!r}") from None
        if not 0 <= time <= _LARGEST_TIME:
            raise _BadLine("invalid-time", f"field {self._time_field!r} is outside of 1970 to 9999: {found!r}")
        return time


def _as_written(line: bytes, name: str) -> Any:
    """A fractional number of a JSON object by its digits: a float of seconds may be rounded up into the next one."""
    return json.loads(line, parse_float=Decimal, parse_int=Decimal).get(name)


def _time_reader(time_format: str) -> Callable[[Any], int]:
    if time_format in _UNITS:
        return lambda value: ms_of_number(_decimal(value), _UNITS[time_format])
    if time_format == "iso":
        return _iso_ms
    return lambda value: ms_of(datetime.strptime(value, time_format))


def _decimal(value: Any) -> int | str | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise TypeError("neither a number nor the text of one")
    return value


def _iso_ms(value: str) -> int:
    """RFC 3339 first; what Python takes beyond that loses its digits after the sixth, which changes no millisecond."""
    time = ms_of_rfc3339(value)
    return ms_of(datetime.fromisoformat(value)) if time is None else time


def _key_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return orjson.dumps(value)
    raise _BadLine("invalid-key", f"the key is neither text nor a number: {value!r:.80}")


def _csv_value(text: str) -> Any:
    if not text:
        return None
    return orjson.Fragment(text) if _NUMBER.fullmatch(text) else text
