"""What a format of dumps is: how lines become events."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from keygrouping.settings import Settings

ParsedEvent = tuple[bytes, float, bytes]
"""Key, weight and source."""

Report = Callable[[int, str], None]
"""Is told the number of a bad line, and what is wrong with it."""

NO_SOURCE = b""
"""Stands for the source in formats that have none."""


class BadLine(ValueError):
    """A line that is not as its format says; the message is for people."""


@dataclass(frozen=True)
class Format(Settings, ABC):
    """How to read a kind of file. Its fields are its settings."""

    @property
    def weighted(self) -> bool:
        """Whether its events have weights of their own."""
        return False

    @property
    def sourced(self) -> bool:
        """Whether its events have sources."""
        return False

    @abstractmethod
    def events(self, lines: Iterator[bytes], report: Report) -> Iterator[ParsedEvent]:
        """The events of these lines; a bad one is reported and passed over, a blank one passed over.

        Raises WorkloadError where the first line says that the file has not what is wanted.
        """


@dataclass(frozen=True)
class LineFormat(Format):
    """A format whose lines are independent of each other."""

    @abstractmethod
    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        """The events of a line that is not blank and has no line end. Raises BadLine."""

    def events(self, lines: Iterator[bytes], report: Report) -> Iterator[ParsedEvent]:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            try:
                yield from self.parse(line.rstrip(b"\r\n"))
            except BadLine as bad:
                report(number, str(bad))


def some_key(key: bytes) -> bytes:
    """The key, which must not be empty."""
    if not key:
        raise BadLine("the key is empty")
    return key


def whole_number(text: bytes) -> float:
    """A count."""
    if not text.isdigit():
        raise BadLine(f"the count is no whole number: {text[:40]!r}")
    return float(text)


def weight_of(value: object) -> float:
    """A weight that stands as a text or a number."""
    weight = -1.0
    try:
        # Python's own way to write 1000 as 1_000 is no CSV's.
        if isinstance(value, str | int | float) and not isinstance(value, bool) and "_" not in str(value):
            weight = float(value)
    except ValueError:
        pass
    if not 0 <= weight < float("inf"):
        raise BadLine(f"the weight is no number from 0 on: {str(value)[:40]!r}")
    return weight


def json_object(line: bytes) -> dict[str, Any]:
    """The object that a line is."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise BadLine("the line is JSON but no object")
    return row
