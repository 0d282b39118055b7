"""The body of a request with events, taken slice by slice as it comes, so that it is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from keygrouping_service.http.problems import Problem, describe

from keygrouping_producer.ingest import EncodedEvent, parse

SLICE_BYTES = 32 << 10
"""Taken at one stretch in a thread: some milliseconds, between which others have their turns."""

_TEXT_FACTOR = 8
"""How many times as long as an event its JSON may be: escapes take six bytes for one."""


class Takes(Protocol):
    """What events are given to."""

    def add(self, record: EncodedEvent) -> None:
        """One event more."""


class Slices:
    """Makes events of a body: one of JSON, or one of each line.

    All methods raise a `Problem` that names the line that is no event, or too large.
    """

    def __init__(self, takes: Takes, most_bytes: int, *, lines: bool) -> None:
        self._takes = takes
        self._most = most_bytes
        self._lines = lines
        self._line = 0
        self._rest = b""

    def feed(self, body: bytes) -> None:
        """The next part of the body."""
        if self._lines:
            *whole, self._rest = (self._rest + body).split(b"\n")
            for line in whole:
                self._take(line)
        else:
            self._rest += body
        if len(self._rest) > _TEXT_FACTOR * self._most + _TEXT_FACTOR:
            self._line += 1
            raise self._problem(413, f"the event has more than {_TEXT_FACTOR} times {self._most} bytes")

    def end(self) -> None:
        """There is no more."""
        if self._rest or not self._lines:
            self._take(self._rest)

    def _take(self, text: bytes) -> None:
        self._line += 1
        if self._lines and not text.strip():
            return
        try:
            record = parse(text)
        except ValueError as error:
            raise self._problem(422, describe(error)) from None
        if record.size > self._most:
            raise self._problem(413, f"the event has {record.size} bytes, more than {self._most}")
        self._takes.add(record)

    def _problem(self, status: int, detail: str) -> Problem:
        return (
            Problem(status, f"line {self._line}: {detail}", line=self._line) if self._lines else Problem(status, detail)
        )


def cut(body: bytes) -> Iterator[bytes]:
    """The parts of what has come, none of which takes long."""
    return (body[start : start + SLICE_BYTES] for start in range(0, len(body), SLICE_BYTES))
