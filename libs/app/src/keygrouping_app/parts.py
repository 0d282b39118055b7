"""Large states in parts: no record is larger than brokers take by default, nor keeps an event loop busy for long.

In a log the parts of a state stand before its record, which has the first bytes, under keys of their own, all of one
transaction. Compaction keeps the last record of each key, so it may leave parts of one write and the record of another:
each names its write, and a record that does not find its parts has been written again later in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from keygrouping_app.events import Headers, Outgoing, Raw, Record
from keygrouping_app.kept import part_bytes
from keygrouping_app.states import RESERVED

PART = "keygrouping-part"
"""Header of a part: its write."""
_PARTS = "keygrouping-parts"
"""Header of a record that has parts: how many, and its write."""


class Whole(NamedTuple):
    """A record with all bytes of its state, and the offsets of the parts it was made of."""

    raw: Raw
    parts: list[int]


class _Part(NamedTuple):
    write: bytes | None
    offset: int
    data: bytes


def in_parts(record: Outgoing, key: bytes, told: tuple[tuple[str, bytes], ...] = ()) -> list[Outgoing]:
    """A state's record, and its parts before it.

    `key`: the state's in that topic, whatever the record's is; `told`: headers of the parts, too.
    """
    value = record.value
    if value is None or len(value) <= (most := part_bytes(len(value))):
        return [record]
    write = os.urandom(8).hex().encode()
    pieces = [value[at : at + most] for at in range(most, len(value), most)]
    parts = [
        replace(record, key=_part_key(key, number), value=piece, headers=((PART, write), *told))
        for number, piece in enumerate(pieces, start=1)
    ]
    count = (_PARTS, b"%d:%s" % (len(pieces), write))
    return [*parts, replace(record, value=value[:most], headers=(count, *record.headers))]


def ended_parts(topic: str, partition: int, key: bytes, numbers: Iterable[int]) -> list[Outgoing]:
    """What says in a changelog that a state has these parts no more."""
    return [Outgoing(topic, partition, -1, _part_key(key, number), None) for number in numbers]


def key_of(key: bytes) -> bytes:
    """The key of the state of which a record of a changelog is, or is a part."""
    return key.removeprefix(RESERVED).partition(b":")[2] if key.startswith(RESERVED) else key


class Parts:
    """Those that were read from a log, until their records come."""

    def __init__(self) -> None:
        self._read: dict[bytes, _Part] = {}
        self.missing: set[bytes] = set()
        """Keys of states of which the last record that was read has not found its parts."""

    def __bool__(self) -> bool:
        return bool(self._read)

    def take(self, raw: Raw, key: bytes) -> Whole | None:
        """A record, whole; None if it is a part, or if its parts are not there.

        `key`: the record's own if it is a part, else see `in_parts`.
        """
        if key.startswith(RESERVED):
            self._read.pop(key, None)
            if raw.value is not None:
                self._read[key] = _Part(_header(raw.headers, PART), raw.offset, raw.value)
            return None
        self.missing.discard(key)
        if (told := _header(raw.headers, _PARTS)) is None or raw.value is None:
            return Whole(raw, [])
        count, _, write = told.partition(b":")
        keys = [_part_key(key, number) for number in range(1, int(count) + 1)]
        parts = [part for each in keys if (part := self._read.get(each)) is not None and part.write == write]
        if len(parts) < len(keys):
            self.missing.add(key)
            return None
        for each in keys:
            del self._read[each]
        data = b"".join([raw.value, *(part.data for part in parts)])
        whole = Record("", 0, raw.offset, raw.timestamp, raw.key, data, raw.headers)
        return Whole(whole, [part.offset for part in parts])


def _part_key(key: bytes, number: int) -> bytes:
    return RESERVED + b"%d:%s" % (number, key)


def _header(headers: Headers, wanted: str) -> bytes | None:
    for name, value in headers:
        if name == wanted:
            return value
    return None
