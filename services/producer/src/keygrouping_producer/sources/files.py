"""Events from a file: JSON lines or CSV, plain or gzipped, or Parquet.

A bad line is reported and never stops the reading.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from keygrouping_producer.sources.base import Block, Fault, SourceError
from keygrouping_producer.sources.parquet import parquet_lines
from keygrouping_producer.sources.times import AUTO, ISO, TIME_FORMATS, time_reader, told_by

MOST_BYTES = 900_000
"""Most bytes of an event unless told otherwise: a field of CSV may be as long."""

TAB = "tab"
"""Stands for the character, which is hard to write in a shell."""

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_LARGEST_TIME = 253_402_300_799_999
_LINES_TRIED = 1000
_LINE_END = 5
"""Bytes of a line that are not the event's: its end, and a byte order mark."""

_BLOCK_BYTES = 16 << 20
_CSV_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_DELIMITERS = ";\t|,"
_FIELDS_NAMED = 20


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
    time_format: `auto` takes the format that most of the first 1,000 lines have; `self.time_format` names it.
    delimiter: what is between the fields of CSV, a character or `tab`. most_bytes: longest field of CSV.
    Values: a JSON line as it stands; a CSV row as a compact JSON object, whose numbers are numbers and whose empty
    fields are null; a row of Parquet as JSON. The file's name tells which it is: .csv and .tsv (with tabs), also with
    .gz, .parquet, or else JSON lines; blank lines are skipped.
    """

    def __init__(
        self,
        path: Path,
        key_field: str,
        time_field: str | None = None,
        time_format: str = AUTO,
        *,
        delimiter: str | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._path = path
        self._key_field = key_field
        self._time_field = time_field
        self._most_bytes = most_bytes
        names = [suffix.lower() for suffix in path.suffixes]
        self._zipped = names[-1:] == [".gz"]
        kind = (names[:-1] if self._zipped else names)[-1:]
        self._is_parquet = bool(kind) and kind[0] in _PARQUET
        self._delimiter = next((_CSV_DELIMITERS[name] for name in kind if name in _CSV_DELIMITERS), None)
        if delimiter is not None:
            if self._delimiter is None:
                raise SourceError(f"{path} is no CSV by its name, so it has no delimiter: name it .csv, or give none")
            self._delimiter = "\t" if delimiter == TAB else delimiter
        self._items: Iterator[_Item] = iter(())
        self._fields_met: dict[str, None] | None = None
        self._next = -1
        self._length: int | None = None
        self._earliest: int | None = None
        self._latest: int | None = None
        self.time_format = self._told_time_format() if time_field is not None and time_format == AUTO else time_format
        self._read_time = time_reader(self.time_format)
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
        """Items `start` to `start + count`; going back reads the file again from its beginning."""
        if start < self._next or self._next < 0:
            self._open()
        for _ in islice(self._items, start - self._next):
            self._next += 1
        items: list[_Item] = []
        size = 0
        for item in islice(self._items, count if self._next == start else 0):
            items.append(item)
            size += len(item.value)
            if size >= _BLOCK_BYTES:
                break
        self._next += len(items)
        if len(items) < count and size < _BLOCK_BYTES and self._length is None:
            self._length = self._next
        faults = {i: item.fault for i, item in enumerate(items) if item.fault}
        return Block([i.key for i in items], [i.time for i in items], lambda i: items[i].value, faults)

    def _told_time_format(self) -> str:
        """The format of the times, by the first lines; a file without lines has none, and needs none."""
        found: list[Any] = []
        fields: dict[str, None] = {}

        def note(value: Any) -> int:
            found.append(value)
            return 0

        self._read_time, self._fields_met = note, fields
        self._open()
        lines = sum(1 for _ in islice(self._items, _LINES_TRIED))
        self._fields_met = self._earliest = self._latest = None
        if not found:
            return ISO
        try:
            return told_by(found)
        except ValueError as error:
            if any(value is not None for value in found):
                raise SourceError(
                    f"{self._path}: how field {self._time_field!r} tells times can't be told from {error} in its first "
                    f"{lines:,} lines: name the format, one of {', '.join(TIME_FORMATS[1:])}, or one of strptime such "
                    "as '%d.%m.%Y %H:%M'"
                ) from None
            names = ", ".join(islice(fields, _FIELDS_NAMED))
            raise SourceError(
                f"{self._path} has no field {self._time_field!r} in its first {lines:,} lines to take times from; it "
                f"has {names}"
            ) from None

    def _open(self) -> None:
        try:
            if self._is_parquet:
                items = self._parquet_items()
            else:
                file: Any = gzip.open(self._path) if self._zipped else self._path.open("rb")  # noqa: SIM115
                self._check_encoding(file)
                items = self._lines(file) if self._delimiter is None else self._rows(file, self._delimiter)
            self._items = self._guarded(items)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"can't read {self._path}: {error}") from None
        self._next = 0

    def _check_encoding(self, file: Any) -> None:
        start = file.read(2)
        file.seek(0)
        if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            file.close()
            raise SourceError(f"{self._path} is UTF-16: write it as UTF-8 (iconv -f UTF-16 -t UTF-8)")

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
            for number, (line, length) in enumerate(_bounded_lines(file, self._most_bytes + _LINE_END), 1):
                content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if length > len(line):
                    detail = f"the line has {length:,} bytes, at most {self._most_bytes:,} are allowed"
                    yield self._fault(number, "too-large", detail, content)
                elif content.strip():
                    yield self._item(number, content.rstrip(b"\r\n"), self._from_json)

    def _parquet_items(self) -> Iterator[_Item]:
        names, lines = parquet_lines(self._path)
        self._check_columns(names)
        return (self._item(number, line, self._from_json) for number, line in enumerate(lines, 1))

    def _rows(self, file: Any, delimiter: str) -> Iterator[_Item]:
        # A longer field could not be sent; without a limit, one stray quote would take in all of the file.
        csv.field_size_limit(self._most_bytes)
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(text, delimiter=delimiter)
        try:
            header = next(reader, [])
            if header:
                self._check_columns(header)
        except (SourceError, csv.Error) as error:
            text.close()
            raise SourceError(str(error) if isinstance(error, SourceError) else f"{self._path}: {error}") from None
        return self._csv_items(text, reader, header)

    def _check_columns(self, names: list[str]) -> None:
        """SourceError for columns that are missing, or there twice: a JSON object has each name once."""
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise SourceError(f"{self._path} has {_quoted(twice)} twice in its header: rename one of each")
        for name in (self._key_field, self._time_field):
            if name is not None and name not in names:
                others = [each for each in _DELIMITERS if len(names) == 1 and each in names[0]]
                hint = f": if its fields are separated by {others[0]!r}, say so by a delimiter" if others else ""
                raise SourceError(f"{self._path} has no column {name!r}; it has {', '.join(names)}{hint}")

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
        if self._fields_met is not None:
            self._fields_met |= dict.fromkeys(row)
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


def _bounded_lines(file: Any, most: int) -> Iterator[tuple[bytes, int]]:
    """The lines of a file with their lengths; of a longer one than `most` bytes only its beginning."""
    while line := file.readline(most):
        length = len(line)
        if length == most and not line.endswith(b"\n"):
            while rest := file.readline(most):
                length += len(rest)
                if rest.endswith(b"\n"):
                    break
        yield line, length


def _as_written(line: bytes, name: str) -> Any:
    """A fractional number of a JSON object by its digits: a float of seconds may be rounded up into the next one."""
    return json.loads(line, parse_float=Decimal, parse_int=Decimal).get(name)


def _key_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int) and not isinstance(value, bool):
        return orjson.dumps(value)
    raise _BadLine("invalid-key", f"the key is neither text nor an integer: {value!r:.80}; send it as text")


def _quoted(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def _csv_value(text: str) -> Any:
    if not text:
        return None
    return orjson.Fragment(text) if _NUMBER.fullmatch(text) else text
