"""From the bytes of a fetch to batches of columns, in bounded memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from keygrouping.slices import buffer_of
from numpy.typing import NDArray

from keygrouping_service.records.aiokafka_legacy import LegacyMessage
from keygrouping_service.records.inflating import CorruptDataError
from keygrouping_service.records.unpacking import AT_ONCE, Unpacker, Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.crc_kernel import crc32c
from keygrouping_service.records.v2.layout import (
    ATTRIBUTES_AT,
    BY_APPEND_TIME,
    CODEC_MASK,
    COLUMNS,
    CONTENT,
    CONTROL,
    HEADER_BYTES,
    LEAST_RECORD_BYTES,
    MAGIC_AT,
    Header,
    base_at,
    size_at,
)
from keygrouping_service.records.v2.scan_kernel import Plain, Span, scan, scan_batches
from keygrouping_service.records.v2.visibility import Visibility

_MAGIC = 2

_ROWS = 1 << 14
"""Most records of which the parts are found at a time: their table takes 88 bytes for each."""

_PASSED_OVER = 1 << 12
"""Bytes that a batch counts for at least that holds nothing to be seen: to look at its header takes as long."""


class _UnreadableError(Exception):
    """A batch can't be read, by its cause.

    Its header says that it has the offsets from `base` on that are before `after`. Where that is damaged, it would have
    whole batches be passed over, so they end where the next one begins, or, if there is none yet, `most` counts: that
    is where they end if compaction has taken none of them away. If it has, reading goes on within the batch, and fails
    once more.
    """

    def __init__(self, base: int, after: int, most: int) -> None:
        self.base, self.after, self.most = base, after, most


class Reader:
    """Reads what is fetched of one partition, from an offset on; records that are too large go to `unpacking`."""

    def __init__(self, unpacking: Unpacking, topic: str, partition: int, offset: int) -> None:
        self._unpacker = Unpacker(unpacking, topic, partition, offset)
        self._largest = unpacking.largest
        self._place = (topic, partition)
        self._nothing = BufferBatch.of(topic, partition, ())

    @property
    def position(self) -> int:
        """The offset of the next record to come; markers and aborted records before it are passed over."""
        return self._unpacker.next_fetch_offset

    @property
    def unpacked(self) -> int:
        """Bytes that were unpacked since this was set to 0."""
        return self._unpacker.unpacked

    @unpacked.setter
    def unpacked(self, size: int) -> None:
        self._unpacker.unpacked = size

    def read(self, data: bytes, visibility: Visibility) -> Iterator[BufferBatch]:
        """The records of all whole batches in `data`, in parts of bounded size; they may share its buffer.

        A part is empty where much was passed over without a record to be seen, so that whoever reads can pause there.
        Raises `UndecodableError` before a batch that can't be read.
        """
        view, buffer = memoryview(data), buffer_of(data)
        at = 0
        while (size := size_at(view, at)) is not None:
            if size <= MAGIC_AT:
                error = CorruptDataError("it is shorter than a header")
                raise self._unpacker.undecodable(view[at:], self.position, self.position, error)
            if size >= HEADER_BYTES and view[at + MAGIC_AT] == _MAGIC and not view[at + ATTRIBUTES_AT + 1] & CODEC_MASK:
                found, after = self._plain_ones(buffer, at, visibility.shows_all)
                if len(found) or self.unpacked >= AT_ONCE:
                    yield found
                if after > at:
                    at = after
                    continue
            batch = view[at : at + size]
            try:
                if batch[MAGIC_AT] < _MAGIC:
                    yield from self._legacy(batch)
                else:
                    yield from self._batch(batch, buffer, at, visibility)
            except _UnreadableError as error:
                after = min(error.after, base_at(view, at + size) or error.most)
                cause = error.__cause__ or error
                raise self._unpacker.undecodable(batch, error.base, after, cause) from cause
            at += size
            if self.unpacked >= AT_ONCE:
                yield self._nothing

    def _plain_ones(self, buffer: NDArray[np.uint8], at: int, all_seen: bool) -> tuple[BufferBatch, int]:
        """The records of all batches from `at` on with which nothing is special, and where the first begins that is."""
        table = np.empty((COLUMNS, min(_ROWS, (len(buffer) - at) // LEAST_RECORD_BYTES)), np.int64)
        plain = Plain(self._unpacker.whole, self._largest, all_seen)
        after, rows, self._unpacker.next_fetch_offset, ascii_names = scan_batches(
            buffer[: at + AT_ONCE], at, self.position, plain, table
        )
        self._unpacker.unpacked += after - at
        return BufferBatch(*self._place, buffer, table[:, :rows], not ascii_names), after

    def _batch(
        self, batch: memoryview, buffer: NDArray[np.uint8], at: int, visibility: Visibility
    ) -> Iterator[BufferBatch]:
        header = _NO_HEADER
        try:
            if len(batch) < HEADER_BYTES:
                raise CorruptDataError("it is shorter than a header")
            header = Header.read(batch)
            if header.magic != _MAGIC:
                raise CorruptDataError(f"its format {header.magic} is unknown")
            if crc32c(buffer, at + ATTRIBUTES_AT, at + len(batch)) != header.crc:
                raise CorruptDataError("its checksum is wrong")
            if header.last_delta < 0:
                raise CorruptDataError("its last offset is before its first")
            marker = self._marker(header, buffer, at, at + len(batch)) if header.attributes & CONTROL else None
            if visibility.shows(header, marker) and header.after > self.position:
                for part, _ in self._unpacker.parts(batch, header.attributes & CODEC_MASK):
                    yield from self._part(part, batch, buffer, at)
            else:
                self._unpacker.unpacked += max(len(batch), _PASSED_OVER)
        except Exception as error:  # whatever bytes can do to a library
            most = header.base_offset + max(1, header.records)
            raise _UnreadableError(header.base_offset, header.after, most) from error
        self._unpacker.next_fetch_offset = max(self.position, header.after)

    def _part(
        self, part: bytes | bytearray | memoryview | None, batch: memoryview, buffer: NDArray[np.uint8], at: int
    ) -> Iterator[BufferBatch]:
        if part is not None:
            yield from self._records(part, batch, buffer, at)
        if self.unpacked >= AT_ONCE:
            yield self._nothing

    def _records(
        self, part: bytes | bytearray | memoryview, batch: memoryview, buffer: NDArray[np.uint8], at: int
    ) -> Iterator[BufferBatch]:
        data, start = (buffer, at) if part is batch else (buffer_of(part), 0)
        header = Header.read(part)
        here, stop, left = start + HEADER_BYTES, start + len(part), header.records
        while here >= 0 and left > 0:
            found, here, passed = self._scanned(header, data, (here, stop, left), self.position)
            left -= passed
            yield from self._small_ones(found)
        if here != stop:
            raise CorruptDataError("its records are damaged")

    def _scanned(
        self, header: Header, data: NDArray[np.uint8], place: tuple[int, int, int], wanted: int
    ) -> tuple[BufferBatch, int, int]:
        """Some of the records that lie at a place (from, to, how many) in the uncompressed batch; see `scan`."""
        start, stop, records = place
        append_time = header.newest_time if header.attributes & BY_APPEND_TIME else -1
        span = Span(start, stop, records, header.base_offset, header.last_delta, header.first_time, append_time)
        table = np.empty((COLUMNS, max(1, min(_ROWS, records, (stop - start) // LEAST_RECORD_BYTES))), np.int64)
        rows, at, passed, ascii_names = scan(data, span, wanted, table)
        return BufferBatch(*self._place, data, table[:, :rows], not ascii_names), at, passed

    def _small_ones(self, found: BufferBatch) -> Iterator[BufferBatch]:
        """The records that are not too large; the position moves behind them all."""
        if not len(found):
            return
        small = found.table[CONTENT] <= self._largest
        for row in np.flatnonzero(~small).tolist():
            self._unpacker.leave_out(found.record(row), int(found.table[CONTENT, row]))
        self._unpacker.next_fetch_offset = int(found.offsets[-1]) + 1
        yield found if small.all() else found.where(small)

    def _marker(self, header: Header, data: NDArray[np.uint8], at: int, stop: int) -> int | None:
        """The type of a control batch's marker; None if compaction has taken that away."""
        if not header.records:
            return None
        found, _, _ = self._scanned(header, data, (at + HEADER_BYTES, stop, 1), header.base_offset)
        _, kind = struct.unpack_from(">HH", found.keys[0] or b"")
        return int(kind)

    def _legacy(self, batch: memoryview) -> Iterator[BufferBatch]:
        """The records of old formats; brokers hold them where topics are older than Kafka 0.11."""
        after = self.position
        try:
            message = LegacyMessage(batch)
            after = message.after
            if not message.is_whole():
                raise CorruptDataError("its checksum is wrong")
            for part, _ in self._unpacker.legacy_parts(batch):
                rows = [] if part is None else [row for row in LegacyMessage(part) if row[0] >= self.position]
                yield from self._small_ones(BufferBatch.of(*self._place, rows))
                if self.unpacked >= AT_ONCE:
                    yield self._nothing
        except Exception as error:  # whatever bytes can do to a library
            raise _UnreadableError(self.position, after, after) from error
        self._unpacker.next_fetch_offset = max(self.position, after)


_NO_HEADER = Header(-1, 0, -1, 0, 0, 0, 0, 0, 0, -1, -1, -1, 0)
