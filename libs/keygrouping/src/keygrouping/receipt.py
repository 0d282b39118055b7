"""What accounts for events: numbers with sums of hashes (see `keygrouping.identity`), and the routers' receipts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from keygrouping.partial import RecordError, decode_receipt, decode_topic, encode_receipt

VERSION = 2
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

SHARES = np.dtype([("worker", "<i4"), ("events", "<i4")])
"""A row of `Receipt.shares`."""

WINDOWS = np.dtype([("start", "<i8"), ("events", "<i8"), ("high", "<u8"), ("low", "<u8")])
"""A row of `Receipt.windows`: start in ms, number of events, upper and lower half of the sum of their hashes."""


@dataclass(slots=True)
class Receipt:
    """What became of the offsets from `first` up to, not including, `after` of one partition of the input; not to be
    changed.

    A router writes it in the transaction that routes them. `consumed` counts the records there were (markers of
    transactions are none), `routed`, `late` and `dead` what became of them: all four by the events' identities in the
    input; a batch that nobody can read is one record, at its first offset. `windows` counts the routed ones again, by
    window and by their identities in the routed topic, as the worker sees them; `shares` by worker. Both are packed
    rows, as a transaction may have as many windows as events. `more` says that further windows follow in a receipt of
    an empty range.
    """

    topic: str
    partition: int
    first: int
    after: int
    consumed: Tally
    routed: Tally
    late: Tally
    dead: Tally
    shares: bytes = b""
    windows: bytes = b""
    more: bool = False

    def by_worker(self) -> dict[int, int]:
        """How many events were routed to each worker."""
        rows = np.frombuffer(self.shares, SHARES)
        return dict(zip(rows["worker"].tolist(), rows["events"].tolist(), strict=True))

    def by_window(self) -> dict[int, Tally]:
        """What was routed into each window, by its start."""
        rows = np.frombuffer(self.windows, WINDOWS).tolist()
        return {start: Tally(events, (high << 64) + low) for start, events, high, low in rows}

    def encode(self) -> bytes:
        """A line of JSON, and behind it the packed rows."""
        head = orjson.dumps(
            {
                "v": VERSION,
                "topic": self.topic,
                "partition": self.partition,
                "first": self.first,
                "after": self.after,
                "consumed": self.consumed.as_json(),
                "routed": self.routed.as_json(),
                "late": self.late.as_json(),
                "dead": self.dead.as_json(),
                "shares": len(self.shares) // SHARES.itemsize,
                "windows": len(self.windows) // WINDOWS.itemsize,
                "more": self.more,
            }
        )
        return b"".join((head, b"\n", self.shares, self.windows))

    @classmethod
    def decode(cls, value: bytes | None) -> Receipt:
        """Reads a receipt; `RecordError` if it is none or of an unknown version."""
        try:
            head, _, packed = (value or b"").partition(b"\n")
            data = orjson.loads(head)
            if not isinstance(data, dict) or data.get("v") != VERSION:
                raise RecordError(f"no receipt of version {VERSION}")
            shares, windows = _unpacked(packed, *(_number(name, data[name]) for name in ("shares", "windows")))
            return cls(
                decode_topic(data.get("topic")),
                _number("partition", data["partition"]),
                _number("first", data["first"]),
                _number("after", data["after"]),
                consumed=Tally.from_json(data["consumed"]),
                routed=Tally.from_json(data["routed"]),
                late=Tally.from_json(data["late"]),
                dead=Tally.from_json(data["dead"]),
                shares=shares,
                windows=windows,
                more=bool(data["more"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordError(f"no receipt: {error!r}") from None


def time_of_window(start: object) -> int:
    """The start of a window in ms; `RecordError` if there is no such time."""
    if type(start) is not int or abs(start) > _LATEST_MS:
        raise RecordError(f"no window can start at {start!r} ms"[:200])
    return start


def _unpacked(packed: bytes, shares: int, windows: int) -> tuple[bytes, bytes]:
    """The rows of both, if they can be believed."""
    middle = shares * SHARES.itemsize
    if len(packed) != middle + windows * WINDOWS.itemsize:
        raise RecordError(f"{shares} shares and {windows} windows don't take {len(packed)} bytes")
    sent, into = np.frombuffer(packed[:middle], SHARES), np.frombuffer(packed[middle:], WINDOWS)
    starts, events = into["start"], into["events"]
    if ((starts < -_LATEST_MS) | (starts > _LATEST_MS)).any():
        raise RecordError("a window starts at no time there is")
    if min(sent["worker"].min(initial=0), sent["events"].min(initial=0), events.min(initial=0)) < 0:
        raise RecordError("a worker or a number of events is negative")
    if events.max(initial=0) > MOST:
        raise RecordError(f"a window has more than {MOST} events")
    return packed[:middle], packed[middle:]


def _number(name: str, given: object) -> int:
    if type(given) is not int or not 0 <= given <= MOST:
        raise RecordError(f"member {name!r} must be a whole number from 0 to {MOST}, got {given!r}"[:200])
    return given
