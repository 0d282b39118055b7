"""How the stages unpack what they fetch: in bounded memory, and so that no bytes can stop them.

aiokafka decompresses each batch whole and hands on all records that fit a poll, so a record of 0.1 MB on the wire may
take gigabytes; and a batch that can't be read fails again at each attempt. A reader that was made with `Unpacking`:

- decompresses no batch before its size is known, and reads larger ones record by record;
- leaves out records above its bound, and batches that can't be read, as `DeadLetter`s with what of them is small;
- hands on no more bytes at a time than it was told.

This module replaces classes in aiokafka's fetcher; consumers that were made without `Unpacking` behave as ever.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeAlias

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBase, DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.memory_records import _MemoryRecordsPy

from keygrouping_service.records.inflating import CorruptDataError, chunks, inflate
from keygrouping_service.records.surrogateescape import read_batch_leniently

Record: TypeAlias = "ConsumerRecord[bytes, bytes]"

_Part: TypeAlias = "tuple[Any, int]"
"""Bytes of an uncompressed batch, None if there is nothing to read, and how many they are without the header."""

DEFAULT_LARGEST = 16 << 20
"""Largest record (bytes of key, value and headers) where nothing else is asked for."""

TOO_LARGE, UNDECODABLE = "record-too-large", "undecodable-batch"
"""Reasons of dead letters."""

_WHOLE = 8 << 20
"""Batches up to this size are unpacked at once (bytes)."""

_SLICE = 1 << 20
"""Larger ones in slices of about this size, or of one record."""

_AT_ONCE = 16 << 20
"""Unpacked bytes after which a poll ends: more would hold up heartbeats."""

_KEPT_BYTES = 100_000
"""Most bytes of a key or a value that a dead letter keeps."""

_HEADER = DefaultRecordBase.HEADER_STRUCT
_CODEC_MASK = 0x07
_MAGIC_AT = 16
_READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What goes to `dead-letters` instead of a record: the record, maybe truncated, and why.

    `last` is the last offset that it stands for, if that is more than the record's.
    """

    record: Record
    reason: str
    detail: str
    last: int | None = None


class UndecodableError(KafkaError):  # type: ignore[misc]
    """A batch can't be read. `letter` is what to put aside, to go on at offset `after`."""

    def __init__(self, letter: DeadLetter, after: int) -> None:
        super().__init__(letter.detail)
        self.letter = letter
        self.after = after


def truncated(record: Record) -> Record:
    """The record with what of it is small: the beginnings of key and value, and the headers if they aren't large."""
    key, value, headers = record.key, record.value, record.headers
    if sum(len(name) + len(text or b"") for name, text in headers) > _KEPT_BYTES:
        headers = ()
    return replace(record, key=key and key[:_KEPT_BYTES], value=value and value[:_KEPT_BYTES], headers=headers)


@dataclass
class Unpacking:
    """How one consumer unpacks, and what it left out; to be given to it as its value deserializer.

    That is the one argument of a consumer which reaches the place where batches are unpacked.
    """

    largest: int = DEFAULT_LARGEST
    letters: list[DeadLetter] = field(default_factory=list)
    """Records left out since this was emptied last, all of them before the consumer's position."""


class _FetchResult(FetchResult):  # type: ignore[misc]
    _partition_records: Any

    def getall(self, max_records: int | None = None) -> list[Record]:
        if not isinstance(self._partition_records, _Unpacked):
            found: list[Record] = super().getall(max_records)
            return found
        if not self.check_assignment(self._topic_partition):
            return []
        try:
            return self._partition_records.take(max_records)
        finally:
            self._update_position()
            if self._partition_records.exhausted:
                self._partition_records = None


def _partition_records(*given: Any) -> Any:
    unpacking = given[5]
    return (_Unpacked if isinstance(unpacking, Unpacking) else PartitionRecords)(*given)


class _Unpacked(PartitionRecords):  # type: ignore[misc]
    """The records of one fetched buffer, slice by slice."""

    _value_deserializer: Unpacking
    _tp: TopicPartition
    next_fetch_offset: int

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.exhausted = False
        self._unpacked = 0
        self._slice: Iterator[Record] = iter(())
        self._slices: Iterator[Iterator[Record]] = self._all_slices()
        self._failure: UndecodableError | None = None

    def take(self, most: int | None) -> list[Record]:
        """The next records; ends early where bytes have become many. Raises `UndecodableError` before a bad batch."""
        if self._failure is not None:
            failure, self._failure, self._slices = self._failure, None, iter(())
            raise failure
        taken: list[Record] = []
        self._unpacked = 0
        try:
            while most is None or len(taken) < most:
                before = len(taken)
                taken += islice(self._slice, None if most is None else most - before)
                if len(taken) > before:
                    continue
                if self._unpacked >= _AT_ONCE:
                    break
                following = next(self._slices, None)
                if following is None:
                    self.exhausted = True
                    break
                self._slice = following
        except UndecodableError as error:
            self._failure = error
            if not taken:
                return self.take(most)
        return taken

    def _all_slices(self) -> Iterator[Iterator[Record]]:
        """The records of all batches to be read, in parts of bounded size."""
        while self._records.has_next():
            data = self._records._next_slice
            batch = self._records.next_batch()
            if self._check_crcs and not batch.validate_crc():
                raise self._undecodable(data, batch, "its checksum is wrong")
            if not self._to_be_skipped(batch):
                try:
                    for plain, size in self._parts_of(data, batch):
                        yield self._records_of(plain, size, data, batch)
                except Exception as error:  # whatever bytes can do to a parser
                    raise self._undecodable(data, batch, _text(error)) from error
            self.next_fetch_offset = batch.next_offset

    def _to_be_skipped(self, batch: Any) -> bool:
        """Whether it is a transaction's marker or belongs to an aborted one; as aiokafka does it."""
        if self._isolation_level == _READ_COMMITTED and batch.producer_id is not None:
            self._consume_aborted_up_to(batch.base_offset)
            if batch.is_control_batch and self._contains_abort_marker(batch):
                self._aborted_producers.discard(batch.producer_id)
            if batch.is_transactional and batch.producer_id in self._aborted_producers:
                return True
        return bool(batch.is_control_batch)

    def _parts_of(self, data: memoryview, batch: Any) -> Iterator[_Part]:
        if isinstance(batch, LegacyRecordBatch):
            yield from self._legacy_parts(data)
            return
        head, body = data[: _HEADER.size], data[_HEADER.size :]
        codec = batch.compression_type
        whole = inflate(codec, body, _WHOLE) if codec else body if len(body) <= _WHOLE else None
        if whole is None:
            yield from self._streamed(_Header(head), chunks(codec, body) if codec else _cut(body))
            return
        self._unpacked += len(whole)
        yield b"".join((_Header(head).plain(), whole)) if codec else data, len(whole)

    def _streamed(self, header: _Header, source: Iterable[bytes]) -> Iterator[_Part]:
        """The records of a large batch, read one at a time; those that are too large are skipped in the stream."""
        stream = _Stream(source)
        gathered = bytearray()
        count = 0
        for _ in range(header.records):
            used, size, place = stream.used, *stream.varint()
            if size > self._value_deserializer.largest:
                if count:
                    yield header.plain(count) + gathered, len(gathered)
                    gathered, count = bytearray(), 0
                yield from self._left_out(header, stream, size)
            else:
                gathered += place
                gathered += stream.read(size)
                count += 1
            self._unpacked += stream.used - used
            if len(gathered) >= _SLICE or self._unpacked >= _AT_ONCE:
                yield header.plain(count) + gathered, len(gathered)
                gathered, count = bytearray(), 0
        yield header.plain(count) + gathered, len(gathered)

    def _left_out(self, header: _Header, stream: _Stream, size: int) -> Iterator[_Part]:
        """Skips a record that is too large, and keeps what a dead letter needs of it. Yields while that takes long."""
        end = stream.used + size
        stream.read(1)  # attributes
        time_ms = header.time_of(stream.varint()[0])
        offset = header.base + stream.varint()[0]
        kept: list[bytes | None] = []  # of key and value
        while len(kept) < 2:
            length = stream.varint()[0]
            if length > end - stream.used:
                raise CorruptDataError("a record is shorter than its parts")
            kept.append(None if length < 0 else stream.read(min(length, _KEPT_BYTES)))
            yield from self._skip(stream, max(0, length - _KEPT_BYTES))
        yield from self._skip(stream, end - stream.used)
        if offset >= self.next_fetch_offset:
            self._leave_out(offset, time_ms, header.timestamp_type, kept[0], kept[1], (), size)
            self.next_fetch_offset = offset + 1

    def _skip(self, stream: _Stream, size: int) -> Iterator[_Part]:
        while size > 0:
            step = min(size, _AT_ONCE)
            stream.skip(step)
            self._unpacked += step
            size -= step
            yield None, 0

    def _leave_out(
        self,
        offset: int,
        time_ms: int,
        timestamp_type: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...],
        size: int,
    ) -> None:
        largest = self._value_deserializer.largest
        detail = f"the record has {size} bytes unpacked; at most {largest} are taken: see max_record_bytes"
        record = truncated(self._record(offset, time_ms, timestamp_type, key, value, headers))
        self._value_deserializer.letters.append(DeadLetter(record, TOO_LARGE, detail))

    def _records_of(self, plain: Any, size: int, data: memoryview, batch: Any) -> Iterator[Record]:
        """The records of a part of a batch, `size` bytes unpacked."""
        if plain is None:
            return
        try:
            try:
                yield from self._checked(_reader(plain), size)
            except UnicodeDecodeError:
                yield from self._checked(read_batch_leniently(plain), size)
        except Exception as error:  # whatever bytes can do to a parser
            raise self._undecodable(data, batch, _text(error)) from error

    def _checked(self, batch: Any, size: int) -> Iterator[Record]:
        topic, partition = self._tp
        largest = self._value_deserializer.largest
        large_ones = size > largest
        for record in batch:
            offset = record.offset
            if offset < self.next_fetch_offset:
                continue
            key, value, headers = record.key, record.value, tuple(record.headers)
            key_size = -1 if key is None else len(key)
            value_size = -1 if value is None else len(value)
            if large_ones:
                whole = key_size + value_size + sum(len(name) + len(text or b"") for name, text in headers)
                if whole > largest:
                    self._leave_out(offset, record.timestamp, record.timestamp_type, key, value, headers, whole)
                    self.next_fetch_offset = offset + 1
                    continue
            self.next_fetch_offset = offset + 1
            yield ConsumerRecord(
                topic,
                partition,
                offset,
                -1 if record.timestamp is None else record.timestamp,  # format 0 has none
                record.timestamp_type,
                key,
                value,
                record.checksum,
                key_size,
                value_size,
                headers,
            )

    def _undecodable(self, data: memoryview, batch: Any, what: str) -> UndecodableError:
        first = self.next_fetch_offset
        if not isinstance(batch, LegacyRecordBatch):
            first = max(first, batch.base_offset)
        after = max(batch.next_offset, first + 1)
        detail = (
            f"the batch that holds offsets {first} to {after - 1} can't be read: {what}; its raw bytes are the value"
        )
        record = self._record(first, -1, 0, None, bytes(data[:_KEPT_BYTES]), ())
        return UndecodableError(DeadLetter(record, UNDECODABLE, detail, after - 1), after)

    def _record(
        self,
        offset: int,
        time_ms: int | None,
        timestamp_type: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...],
    ) -> Record:
        sizes = (-1 if key is None else len(key), -1 if value is None else len(value))
        stamp = -1 if time_ms is None else time_ms
        kind = 0 if timestamp_type is None else timestamp_type
        return ConsumerRecord(*self._tp, offset, stamp, kind, key, value, None, *sizes, headers)

    def _legacy_parts(self, data: memoryview) -> Iterator[_Part]:
        """Message formats 0 and 1: a message that wraps others, or one message."""
        message = _Message(data)
        codec = message.attributes & _CODEC_MASK
        if not codec:
            self._unpacked += len(data)
            yield data, len(data)
            return
        body = message.value(data)
        if inflate(codec, body, _WHOLE) is not None:
            self._unpacked += _WHOLE
            yield data, _WHOLE
            return
        # Inner offsets count from 0 in format 1; only the last one says where that is.
        base = message.offset - deque(_inner(codec, body), 1)[0][0] if message.magic else 0
        for offset, size, stream in _inner(codec, body):
            self._unpacked += size
            if size > self._value_deserializer.largest:
                if base + offset >= self.next_fetch_offset:
                    kept = stream.read(min(size, _KEPT_BYTES))
                    self._leave_out(base + offset, message.time_ms, 0, None, kept, (), size)
                    self.next_fetch_offset = base + offset + 1
                yield None, 0
            else:
                yield struct.pack(">qi", base + offset, size) + stream.read(size), size


class _Header:
    """The header of a batch of format 2."""

    def __init__(self, data: memoryview) -> None:
        self._fields = list(_HEADER.unpack_from(data))
        self.base: int = self._fields[0]
        self.records: int = self._fields[12]
        self.timestamp_type = int(bool(self._fields[5] & 0x08))

    def time_of(self, delta: int) -> int:
        """The timestamp of a record in ms, of its difference to the first."""
        time_ms: int = self._fields[8] if self.timestamp_type else self._fields[7] + delta
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
        self.used = 0

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

    def value(self, data: memoryview) -> memoryview:
        """The bytes of its value."""
        (key_size,) = struct.unpack_from(">i", data, self._key)
        place = self._key + 4 + max(0, key_size)
        (size,) = struct.unpack_from(">i", data, place)
        return data[place + 4 : place + 4 + max(0, size)]


def _inner(codec: int, body: memoryview) -> Iterator[tuple[int, int, _Stream]]:
    """Offset and size of each wrapped message, with the stream to read it from; what is not read is skipped."""
    stream = _Stream(chunks(codec, body))
    while (head := stream.rest(12)) is not None:
        offset, size = struct.unpack(">qi", head)
        end = stream.used + size
        yield offset, size, stream
        stream.skip(end - stream.used)


def _reader(plain: Any) -> Any:
    magic = plain[_MAGIC_AT]
    return DefaultRecordBatch(plain) if magic >= 2 else LegacyRecordBatch(plain, magic)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, CorruptDataError) else f"{type(error).__name__}: {error}"


def _cut(body: memoryview) -> Iterator[bytes]:
    step = 1 << 18
    return (bytes(body[place : place + step]) for place in range(0, len(body), step))


# Consumers made with `Unpacking` unpack so, others don't notice. At the import, before there is any consumer: what one
# has fetched before would be of the old class, and aiokafka would take it for an error.
fetcher.PartitionRecords = _partition_records
fetcher.FetchResult = _FetchResult
if not issubclass(fetcher.MemoryRecords, _MemoryRecordsPy):
    fetcher.MemoryRecords = _MemoryRecordsPy  # the compiled one doesn't give its bytes away
