"""Unpacks fetched batches in bounded memory, whatever their bytes say.

A record of 0.1 MB on the wire may take gigabytes, and a batch that can't be read fails again at each attempt. So no
batch is decompressed before its size is known, larger ones are read record by record, and records above a bound are
left out as `DeadLetter`s with what of them is small. Nothing here knows who fetches.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from keygrouping.job import Headers

from keygrouping_service.records.inflating import CorruptDataError, chunks, inflate
from keygrouping_service.records.record import (
    KEPT_BYTES,
    TOO_LARGE,
    UNDECODABLE,
    DeadLetter,
    Record,
    UndecodableError,
    truncated,
)

Part: TypeAlias = "tuple[bytes | bytearray | memoryview | None, int]"
"""Bytes of an uncompressed batch, None if there is nothing to read, and how many they are without the header."""

DEFAULT_LARGEST = 16 << 20
"""Largest record (bytes of key, value and headers) where nothing else is asked for."""

LARGEST_OF_ANY = 1 << 28
"""Bytes of a record: no router lets through more."""

AT_ONCE = 16 << 20
"""Unpacked bytes after which a poll ends: more would hold up heartbeats."""

_WHOLE = 8 << 20
"""Batches up to this size are unpacked at once (bytes)."""

_SLICE = 1 << 20
"""Larger ones in slices of about this size, or of one record."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Of a batch of format 2: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and
largest timestamp, producer id and epoch, base sequence, number of records.
"""

_CODEC_MASK = 0x07

_BY_APPEND_TIME = 0x08
"""Of the attributes of a batch, or of a message of format 1: its timestamp is the time at which the broker wrote it."""

_STAMPED = 14
"""Bytes of a message of format 1, without offset and size, until its timestamp ends."""

_MESSAGE_OVERHEAD = 26
"""Bytes of the least message of format 0: its offset and size, header, and the sizes of its key and value."""


@dataclass
class Unpacking:
    """How one source unpacks, and what it left out."""

    largest: int = DEFAULT_LARGEST
    letters: list[DeadLetter] = field(default_factory=list)
    """Records left out since this was emptied last, all of them before the source's position."""
    unpacked: int = 0
    """Bytes that all partitions have unpacked since this was set to 0, as it is for each poll."""

    def take_letters(self) -> list[DeadLetter]:
        """Those of now; there are none afterwards."""
        letters, self.letters = self.letters, []
        return letters


class Unpacker:
    """Unpacks the batches of one fetched buffer of a partition, part by part.

    `next_fetch_offset` is the offset of the next record wanted; `unpacked` counts bytes, and may be set back.
    """

    def __init__(self, unpacking: Unpacking, topic: str, partition: int, offset: int) -> None:
        self.next_fetch_offset = offset
        self.unpacked = 0
        self._unpacking = unpacking
        self._place = (topic, partition)

    @property
    def whole(self) -> int:
        """Batches up to this size (bytes) needn't be unpacked in parts."""
        return _WHOLE

    def parts(self, data: memoryview, codec: int) -> Iterator[Part]:
        """The parts of a batch of format 2."""
        head, body = data[: _HEADER.size], data[_HEADER.size :]
        whole = inflate(codec, body, _WHOLE) if codec else body if len(body) <= _WHOLE else None
        if whole is None:
            yield from self._streamed(_Header(head), chunks(codec, body) if codec else _cut(body))
            return
        self.unpacked += len(whole)
        yield b"".join((_Header(head).plain(), whole)) if codec else data, len(whole)

    def _streamed(self, header: _Header, source: Iterable[bytes]) -> Iterator[Part]:
        """The records of a large batch, read one at a time; those that are too large are skipped in the stream."""
        stream = _Stream(source)
        gathered = bytearray()
        count = 0
        for _ in range(header.records):
            size, place = stream.varint()
            if size > self._unpacking.largest:
                if count:
                    yield header.plain(count) + gathered, len(gathered)
                    gathered, count = bytearray(), 0
                yield from self._left_out(header, stream, size)
            else:
                gathered += place
                gathered += stream.read(size)
                count += 1
            self.unpacked += stream.more()
            if len(gathered) >= _SLICE or self.unpacked >= AT_ONCE:
                yield header.plain(count) + gathered, len(gathered)
                gathered, count = bytearray(), 0
        if stream.rest(1) is not None:
            raise CorruptDataError("something follows the batch's last record")
        yield header.plain(count) + gathered, len(gathered)

    def _left_out(self, header: _Header, stream: _Stream, size: int) -> Iterator[Part]:
        """Skips a record that is too large, and keeps what a dead letter needs of it. Yields while that takes long."""
        end = stream.used + size
        stream.read(1)  # attributes
        time_ms = header.time_of(stream.varint()[0])
        offset = header.base + stream.varint()[0]
        kept: list[bytes | None] = []
        while len(kept) < 2:
            length = stream.varint()[0]
            if length > end - stream.used:
                raise CorruptDataError("a record is shorter than its parts")
            kept.append(None if length < 0 else stream.read(min(length, KEPT_BYTES)))
            yield from self._skip(stream, max(0, length - KEPT_BYTES))
        yield from self._skip(stream, end - stream.used)
        if offset >= self.next_fetch_offset:
            key, value = kept
            self.leave_out(self.record(offset, time_ms, key, value), size)

    def _skip(self, stream: _Stream, size: int) -> Iterator[Part]:
        while size > 0:
            step = min(size, AT_ONCE)
            stream.skip(step)
            self.unpacked += stream.more()
            size -= step
            yield None, 0

    def leave_out(self, record: Record, size: int) -> None:
        """Goes on behind a record that is too large, `size` bytes unpacked, and keeps what a dead letter needs."""
        largest = self._unpacking.largest
        detail = (
            f"the record has {size} bytes unpacked; at most {largest} are taken: see max_record_bytes of the router, "
            "where there is one"
        )
        self._unpacking.letters.append(DeadLetter(truncated(record), TOO_LARGE, detail))
        self.next_fetch_offset = record.offset + 1

    def undecodable(self, data: memoryview, base: int, after: int, error: BaseException) -> UndecodableError:
        """What is raised for a batch that can't be read; as it says, it begins at `base`, and `after` is behind it."""
        first = max(self.next_fetch_offset, base)
        after = max(after, first + 1)
        what = str(error) if isinstance(error, CorruptDataError) else f"{type(error).__name__}: {error}"
        detail = (
            f"the batch that holds offsets {first} to {after - 1} can't be read: {what}; its raw bytes are the value"
        )
        record = self.record(first, None, None, bytes(data[:KEPT_BYTES]))
        return UndecodableError(DeadLetter(record, UNDECODABLE, detail, after - 1), after)

    def record(
        self, offset: int, time_ms: int | None, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Record:
        """A record of the partition."""
        return Record(*self._place, offset, -1 if time_ms is None else time_ms, key, value, headers)

    def legacy_parts(self, data: memoryview) -> Iterator[Part]:
        """The parts of a buffer of message formats 0 and 1: a message that wraps others, or one message."""
        message = _Message(data)
        codec = message.attributes & _CODEC_MASK
        if not codec:
            self.unpacked += len(data)
            yield data, len(data)
            return
        body = message.value(data)
        whole = inflate(codec, body, _WHOLE)
        if whole is not None:
            _check_sizes(whole)
            self.unpacked += _WHOLE
            yield data, _WHOLE
            return
        # Inner offsets count from 0 in format 1; only the last one says where that is.
        base = message.offset - deque(_inner(codec, body), 1)[0][0] if message.magic else 0
        for offset, size, stream in _inner(codec, body):
            self.unpacked += size
            if size > self._unpacking.largest:
                if base + offset >= self.next_fetch_offset:
                    kept = stream.read(min(size, KEPT_BYTES))
                    self.leave_out(self.record(base + offset, message.time_ms, None, kept), size)
                yield None, 0
            else:
                yield struct.pack(">qi", base + offset, size) + message.stamped(stream.read(size)), size


class _Header:
    """The header of a batch of format 2."""

    def __init__(self, data: memoryview) -> None:
        self._fields = list(_HEADER.unpack_from(data))
        self.base: int = self._fields[0]
        self.records: int = self._fields[12]
        self._by_append_time = bool(self._fields[5] & _BY_APPEND_TIME)

    def time_of(self, delta: int) -> int:
        """The timestamp of a record in ms, of its difference to the first."""
        time_ms: int = self._fields[8] if self._by_append_time else self._fields[7] + delta
        return time_ms

    def plain(self, records: int | None = None) -> bytes:
        """The header of the same batch uncompressed, or of one with fewer records."""
        fields = self._fields.copy()
        fields[5] &= ~_CODEC_MASK
        fields[12] = self.records if records is None else records
        packed: bytes = _HEADER.pack(*fields)
        return packed


class _Stream:
    """Bytes that come in chunks, read in order; `used` counts them."""

    def __init__(self, source: Iterable[bytes]) -> None:
        self._source = iter(source)
        self._held = b""
        self._place = 0
        self._told = 0
        self.used = 0

    def more(self) -> int:
        """How many bytes were used since the last call."""
        before, self._told = self._told, self.used
        return self.used - before

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes; raises `CorruptDataError` where there are fewer."""
        parts = list(self._parts(size))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, size: int) -> None:
        """Like `read`, without keeping anything."""
        deque(self._parts(size), 0)

    def rest(self, size: int) -> bytes | None:
        """Like `read`, None at the end."""
        while self._place >= len(self._held):
            following = next(self._source, None)
            if following is None:
                return None
            self._held, self._place = following, 0
        return self.read(size)

    def _parts(self, size: int) -> Iterator[bytes]:
        self.used += size
        while size > 0:
            part = self._held[self._place : self._place + size]
            if part:
                self._place += len(part)
                size -= len(part)
                yield part
                continue
            following = next(self._source, None)
            if following is None:
                raise CorruptDataError("the batch ends too early")
            self._held, self._place = following, 0

    def varint(self) -> tuple[int, bytes]:
        """A signed varint, and its bytes."""
        value, raw = 0, b""
        while True:
            byte = self.read(1)
            value |= (byte[0] & 0x7F) << 7 * len(raw)
            raw += byte
            if byte[0] < 0x80:
                return value >> 1 ^ -(value & 1), raw
            if len(raw) == 10:
                raise CorruptDataError("a number has more than ten bytes")


class _Message:
    """The fields of a message of format 0 or 1."""

    def __init__(self, data: memoryview) -> None:
        self.offset, _, _, self.magic, self.attributes = struct.unpack_from(">qiIbb", data)
        self._key = 26 if self.magic else 18
        self.time_ms: int = struct.unpack_from(">q", data, 18)[0] if self.magic else -1

    def stamped(self, inner: bytes) -> bytes:
        """A message that this one wraps, without offset and size, as one that stands alone.

        By append time the broker has set the wrapper's timestamp only.
        """
        if not (self.magic and self.attributes & _BY_APPEND_TIME) or len(inner) < _STAMPED:
            return inner
        checked = inner[4:5] + struct.pack(">Bq", inner[5] | _BY_APPEND_TIME, self.time_ms) + inner[_STAMPED:]
        return struct.pack(">I", zlib.crc32(checked)) + checked

    def value(self, data: memoryview) -> memoryview:
        """The bytes of its value."""
        (key_size,) = struct.unpack_from(">i", data, self._key)
        place = self._key + 4 + max(0, key_size)
        (size,) = struct.unpack_from(">i", data, place)
        return data[place + 4 : place + 4 + max(0, size)]


def _check_sizes(messages: bytes) -> None:
    """Raises `CorruptDataError` unless these are messages one behind the other: aiokafka goes by their sizes alone."""
    at = 0
    while at < len(messages):
        size = struct.unpack_from(">i", messages, at + 8)[0] if len(messages) - at >= _MESSAGE_OVERHEAD else -1
        if not _MESSAGE_OVERHEAD <= size + 12 <= len(messages) - at:
            raise CorruptDataError("the messages within don't have the sizes that they say")
        at += 12 + size


def _inner(codec: int, body: memoryview) -> Iterator[tuple[int, int, _Stream]]:
    """Offset and size of each wrapped message, with the stream to read it from; what is not read is skipped."""
    stream = _Stream(chunks(codec, body))
    while (head := stream.rest(12)) is not None:
        offset, size = struct.unpack(">qi", head)
        end = stream.used + size
        yield offset, size, stream
        stream.skip(end - stream.used)


def _cut(body: memoryview) -> Iterator[bytes]:
    step = 1 << 18
    return (bytes(body[place : place + step]) for place in range(0, len(body), step))
