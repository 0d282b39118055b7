"""What accounts for events: numbers with sums of hashes (see `keygrouping.identity`), and the routers' receipts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from keygrouping.partial import RecordError, decode_receipt, decode_topic, encode_receipt

VERSION = 1
MODULUS = 1 << 128
"""What sums of hashes are taken modulo of."""

MOST = 1 << 47
"""Largest offset, and number of events, that is believed: their sums stay within 64 bits, as JSON needs it."""

_LATEST_MS = 253_402_214_400_000
"""9999-12-31."""


class Tally(NamedTuple):
    """A number of events and the sum of their hashes, modulo 2^128."""

    events: int = 0
    hashes: int = 0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        return Tally(self.events + other.events, (self.hashes + other.hashes) % MODULUS)

    def minus(self, other: Tally) -> Tally:
        """What this has more than the other; its events may be negative."""
        return Tally(self.events - other.events, (self.hashes - other.hashes) % MODULUS)

    def as_json(self) -> list[Any]:
        """The number, and the sum in hexadecimal."""
        return [self.events, encode_receipt(self.hashes)]

    @classmethod
    def from_json(cls, data: Any) -> Tally:
        """Reads what `as_json` has written; `RecordError` if it is something else."""
        if not isinstance(data, list) or len(data) != 2:
            raise RecordError(f"a number and a sum of hashes are needed, got {data!r}"[:200])
        return cls(_number("events", data[0]), decode_receipt(data[1]))


NOTHING = Tally()


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of the offsets from `first` up to, not including, `after` of one partition of the input.

    A router writes it in the transaction that routes them. `consumed` counts the records there were (markers of
    transactions are none), `routed`, `late` and `dead` what became of them: all four by the events' identities in the
    input; a batch that nobody can read is one record, at its first offset. `windows` counts the routed ones again, by
    window (its start in ms) and by their identities in the routed topic, as the worker sees them. `more` says that
    further windows follow in a receipt of an empty range.
    """

    topic: str
    partition: int
    first: int
    after: int
    consumed: Tally
    routed: Tally
    late: Tally
    dead: Tally
    workers: Mapping[int, int] = field(default_factory=dict)
    windows: Mapping[int, Tally] = field(default_factory=dict)
    more: bool = False

    def encode(self) -> bytes:
        """JSON of the receipt."""
        return orjson.dumps(
            {
                "v": VERSION,
                "topic": self.topic,
                "partition": self.partition,
                "first": self.first,
                "after": self.after,
                **{name: getattr(self, name).as_json() for name in _TALLIES},
                "workers": {str(worker): events for worker, events in self.workers.items()},
                "windows": [[start, *tally.as_json()] for start, tally in self.windows.items()],
                "more": self.more,
            }
        )

    @classmethod
    def decode(cls, value: bytes | None) -> Receipt:
        """Reads a receipt; `RecordError` if it is none or of an unknown version."""
        try:
            data = orjson.loads(value or b"")
            if not isinstance(data, dict) or data.get("v") != VERSION:
                raise RecordError(f"no receipt of version {VERSION}")
            return cls(
                decode_topic(data.get("topic")),
                _number("partition", data["partition"]),
                _number("first", data["first"]),
                _number("after", data["after"]),
                consumed=Tally.from_json(data["consumed"]),
                routed=Tally.from_json(data["routed"]),
                late=Tally.from_json(data["late"]),
                dead=Tally.from_json(data["dead"]),
                workers={int(worker): _number("workers", events) for worker, events in data["workers"].items()},
                windows={time_of_window(start): Tally.from_json(rest) for start, *rest in data["windows"]},
                more=bool(data["more"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"no receipt: {error!r}") from None


_TALLIES = ("consumed", "routed", "late", "dead")


def time_of_window(start: object) -> int:
    """The start of a window in ms; `RecordError` if there is no such time."""
    if type(start) is not int or abs(start) > _LATEST_MS:
        raise RecordError(f"no window can start at {start!r} ms"[:200])
    return start


def _number(name: str, given: object) -> int:
    if type(given) is not int or not 0 <= given <= MOST:
        raise RecordError(f"member {name!r} must be a whole number from 0 to {MOST}, got {given!r}"[:200])
    return given
