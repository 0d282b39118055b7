"""Layouts with named fields: CSV, JSON lines, trades."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from keygrouping.settings import setting
from keygrouping.workload.format import (
    NO_SOURCE,
    BadLine,
    Format,
    LineFormat,
    ParsedEvent,
    Report,
    json_object,
    some_key,
    weight_of,
)
from keygrouping.workload.stream import WorkloadError

_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "space": " ", "bar": "|"}
_LONGEST_FIELD = 1 << 20
"""As much as an event may have; more is taken for a quote that nobody has closed."""


@dataclass(frozen=True)
class JsonLines(LineFormat):
    """Objects as JSON, one per line; a number as key is its text."""

    key: str = setting("key", "field with the key, such as user, or user.id of an object in it")
    weight: str | None = setting(None, "field with the weight; null: all weigh 1")

    @property
    def weighted(self) -> bool:
        return self.weight is not None

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        row = json_object(line)
        weight = 1.0 if self.weight is None else weight_of(_field(row, self.weight))
        return ((some_key(_key_bytes(_field(row, self.key))), weight, NO_SOURCE),)


@dataclass(frozen=True)
class Csv(Format):
    """CSV with a column for the key; quoted fields may hold separators, quotes ("") and line ends."""

    key: str = setting("key", "column with the key")
    weight: str | None = setting(None, "column with the weight; null: all weigh 1")
    separator: Literal["comma", "semicolon", "tab", "space", "bar"] = setting("comma", "what is between fields")
    header: bool = setting(True, "whether the first line names the columns; else their names are 1, 2, ...")

    @property
    def weighted(self) -> bool:
        return self.weight is not None

    def events(self, lines: Iterator[bytes], report: Report) -> Iterator[ParsedEvent]:
        rows = _rows(lines, _SEPARATORS[self.separator], report)
        first = next(rows, None)
        if first is None:
            return
        names = first[1] if self.header else [str(number) for number in range(1, len(first[1]) + 1)]
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise WorkloadError(f"the header has {', '.join(map(repr, twice))} twice: rename one of each")
        key = _column(names, (self.key,))
        weight = None if self.weight is None else _column(names, (self.weight,))
        if not self.header:
            yield from _events([first], len(names), key, weight, report)
        yield from _events(rows, len(names), key, weight, report)


@dataclass(frozen=True)
class Trades(Format):
    """Trades as CSV, whose first line names the columns: one for the symbol, and perhaps one for the volume.

    The symbol's is symbol, ticker, sym or stock, the volume's volume, size, shares or quantity, in any case.
    """

    volume: bool = setting(False, "whether a trade weighs its volume instead of 1")

    @property
    def weighted(self) -> bool:
        return self.volume

    def events(self, lines: Iterator[bytes], report: Report) -> Iterator[ParsedEvent]:
        rows = _rows(lines, ",", report)
        first = next(rows, None)
        if first is None:
            return
        names = [name.strip().lower() for name in first[1]]
        symbol = _column(names, ("symbol", "ticker", "sym", "stock"))
        volume = _column(names, ("volume", "size", "shares", "quantity")) if self.volume else None
        yield from _events(rows, len(names), symbol, volume, report)


def _rows(lines: Iterator[bytes], separator: str, report: Report) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line and fields of every row that is not blank."""
    csv.field_size_limit(_LONGEST_FIELD)
    texts = (line.decode("utf-8", "surrogateescape") for line in lines)
    reader = csv.reader(texts, delimiter=separator, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            report(number, f"not CSV: {error}")
            continue
        if row:
            yield number, row


def _events(
    rows: Iterable[tuple[int, list[str]]], columns: int, key: int, weight: int | None, report: Report
) -> Iterator[ParsedEvent]:
    for number, row in rows:
        try:
            if len(row) != columns:
                raise BadLine(f"{columns} fields are wanted, not {len(row)}")
            name = some_key(row[key].encode("utf-8", "surrogateescape"))
            yield name, 1.0 if weight is None else weight_of(row[weight]), NO_SOURCE
        except BadLine as bad:
            report(number, str(bad))


def _column(names: list[str], wanted: tuple[str, ...]) -> int:
    for name in wanted:
        if name in names:
            return names.index(name)
    raise WorkloadError(f"there is no column {' or '.join(wanted)}; choose from {', '.join(names)}")


def _field(row: dict[str, Any], path: str) -> Any:
    """A field of an object, or of an object in it: a.b is the field b of a, unless there is a field a.b."""
    if path in row:
        return row[path]
    first, _, rest = path.partition(".")
    inner = row.get(first)
    if not rest or not isinstance(inner, dict):
        raise BadLine(f"there is no field {path}")
    return _field(inner, rest)


def _key_bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return orjson.dumps(value)
    raise BadLine("the key is neither text nor a number")
