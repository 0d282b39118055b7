"""What every source of events has in common: a numbered, repeatable sequence that is read in blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Fault:
    """A piece of a source that is no event: why (kebab-case code), in words, where, and what stood there."""

    reason: str
    detail: str
    place: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive events of a source.

    keys: None for an event without key. times: ms since the epoch, None where the source knows none.
    value: encodes the i-th event of the block, called only for events that are written.
    faults: positions in the block that hold no event (key, time and value there mean nothing).
    """

    keys: Sequence[bytes | None]
    times: Sequence[int | None]
    value: Callable[[int], bytes]
    faults: Mapping[int, Fault] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def later(self, shift_ms: int) -> Block:
        """The same events with their times moved on by `shift_ms`."""
        if not shift_ms:
            return self
        return replace(self, times=[None if time is None else time + shift_ms for time in self.times])


class Source(Protocol):
    """A sequence of events, the same at every reading; item i is an event or a fault."""

    @property
    def length(self) -> int | None:
        """Number of items; None while it is not known."""

    @property
    def span_ms(self) -> int:
        """From the earliest to the latest event time in ms; asked for only when `length` is known."""

    def read(self, start: int, count: int) -> Block:
        """Up to `count` items from number `start` on; an empty block at and past the end.

        Having met the end, a source knows its length. Blocking; raises SourceError.
        """


class SourceError(Exception):
    """A source can't be read at all; the message is one line that says what to do."""


class Rounds:
    """A source as one endless sequence of positions: after its last event the next round begins.

    Every round's event times lie later than the round's before: they are moved on by the source's span, rounded up
    to whole days, so that daily windows keep their shape.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def length(self) -> int | None:
        """Items of one round, None while not known."""
        return self._source.length

    def read(self, position: int, count: int, loop: bool) -> Block:
        """Up to `count` items from `position` on; empty if the round is at its end and there is to be no other."""
        if self._source.length is None:
            block = self._source.read(position, count)
            if len(block) or self._source.length is None:
                return block
        length = self._source.length
        if length == 0:
            return self._source.read(0, count)
        number, index = divmod(position, length)
        if index == 0 and number > 0 and not loop:
            return self._source.read(length, count)
        return self._source.read(index, count).later(number * self._period())

    def _period(self) -> int:
        return (self._source.span_ms // DAY_MS + 1) * DAY_MS
