"""How batches of message format 2 are laid out."""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

HEADER_BYTES = 61
LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT = 8, 16, 17, 21, 23
FIRST_TIME_AT, NEWEST_TIME_AT, RECORDS_AT = 27, 35, 57
"""Where these begin in a header; the checksum is of all from the attributes on."""

BEFORE_LENGTH = 12
"""Bytes that the length in a header does not count: those up to its own end."""

CODEC_MASK, BY_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of the attributes."""

(BODY, END, KEY, KEY_SIZE, VALUE, VALUE_SIZE, TIME, OFFSET, HEADERS, HEADERS_AT, CONTENT) = range(11)
"""Rows of a table that has a column for each record: where its body (from the key's size on) begins and ends, the place
and size of key and value (-1: there is none), time, offset, how many headers it has and where they begin, and the bytes
of key, value and headers together.
"""

COLUMNS = 11

LEAST_RECORD_BYTES = 7

_LENGTH = struct.Struct(">qi")
_HEADER = struct.Struct(">qiibIhiqqqhii")


class Header(NamedTuple):
    """The header of a batch; `length` counts the bytes behind it."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_time: int
    newest_time: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @classmethod
    def read(cls, data: bytes | bytearray | memoryview, at: int = 0) -> Self:
        """The header that begins at `at`."""
        return cls(*_HEADER.unpack_from(data, at))

    def write(self, data: bytearray | memoryview, at: int = 0) -> None:
        """Puts it to where it begins."""
        _HEADER.pack_into(data, at, *self)

    @property
    def after(self) -> int:
        """The offset behind the batch."""
        return self.base_offset + self.last_delta + 1


def base_at(data: bytes | memoryview, at: int) -> int | None:
    """The base offset of the batch that begins at `at`, which may be cut off; None if there is none."""
    return int(_LENGTH.unpack_from(data, at)[0]) if len(data) - at >= _LENGTH.size else None


def size_at(data: bytes | memoryview, at: int) -> int | None:
    """Bytes of the batch or old message that begins at `at`; None if it is cut off, as the last of a fetch may be."""
    if len(data) - at < _LENGTH.size:
        return None
    size = _LENGTH.size + int(_LENGTH.unpack_from(data, at)[1])
    return size if size <= len(data) - at else None
