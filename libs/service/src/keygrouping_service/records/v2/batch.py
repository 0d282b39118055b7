"""A record batch whose records stay in the bytes that they came in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import overload

import numpy as np
from keygrouping.job import Headers
from keygrouping.slices import Slices, buffer_of
from numpy.typing import NDArray

from keygrouping_service.records.columns import Row
from keygrouping_service.records.record import Record
from keygrouping_service.records.v2.body_kernel import MOST_FRAMING, Strings, write_bodies
from keygrouping_service.records.v2.layout import (
    BODY,
    COLUMNS,
    CONTENT,
    END,
    HEADERS,
    HEADERS_AT,
    KEY,
    KEY_SIZE,
    OFFSET,
    TIME,
    VALUE,
    VALUE_SIZE,
)

_PLACES = [BODY, END, KEY, VALUE, HEADERS_AT]


@dataclass(frozen=True, slots=True)
class BufferBatch:
    """A `RecordBatch` over one buffer and the table of where each record's parts are (see `layout`)."""

    topic: str
    partition: int
    data: NDArray[np.uint8]
    table: NDArray[np.int64]
    undecoded_names: bool = False

    @classmethod
    def of(cls, topic: str, partition: int, rows: Iterable[Row]) -> BufferBatch:
        """The batch of these records."""
        data = bytearray()
        columns = [_written(data, row) for row in rows]
        table = np.array(columns, np.int64).reshape(len(columns), COLUMNS).T
        return cls(topic, partition, buffer_of(bytes(data)), np.ascontiguousarray(table), True)

    @classmethod
    def new(cls, timestamp: int, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> BufferBatch:
        """A batch of new records, which have no headers, one time (ms since the epoch, -1 for none) and no place yet.

        ValueError if there are not as many values as keys.
        """
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values")
        key, value = _strings(keys), _strings(values)
        table = np.zeros((COLUMNS, len(keys)), np.int64)
        table[TIME], table[KEY_SIZE], table[VALUE_SIZE] = timestamp, key.sizes, value.sizes
        table[CONTENT] = np.maximum(key.sizes, 0) + np.maximum(value.sizes, 0)
        data = np.empty(int(table[CONTENT].sum()) + MOST_FRAMING * len(keys), np.uint8)
        write_bodies(key, value, data, table)
        data.flags.writeable = False
        return cls("", -1, data, table)

    @property
    def offsets(self) -> NDArray[np.int64]:
        offsets: NDArray[np.int64] = self.table[OFFSET]
        return offsets

    @property
    def timestamps(self) -> NDArray[np.int64]:
        times: NDArray[np.int64] = self.table[TIME]
        return times

    @property
    def keys(self) -> Slices:
        return Slices(self.data, self.table[KEY], self.table[KEY_SIZE])

    @property
    def values(self) -> Slices:
        return Slices(self.data, self.table[VALUE], self.table[VALUE_SIZE])

    @property
    def headers(self) -> Sequence[Headers]:
        return _HeaderRows(self.data, self.table)

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def __iter__(self) -> Iterator[Record]:
        """Makes every record, one after the other."""
        numbers = (repeat(self.topic), repeat(self.partition), self.offsets.tolist(), self.timestamps.tolist())
        return map(Record, *numbers, self.keys, self.values, self.headers)

    def record(self, row: int) -> Record:
        """Makes one record."""
        place = (self.topic, self.partition, int(self.offsets[row]), int(self.timestamps[row]))
        return Record(*place, self.keys[row], self.values[row], self.headers[row])

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of key, value and headers of each record."""
        sizes: NDArray[np.int64] = self.table[CONTENT]
        return sizes

    def cut(self, start: int, stop: int) -> BufferBatch:
        """The records from row `start` up to `stop`, without it; they share the buffer."""
        return self._with(self.table[:, start:stop])

    def where(self, chosen: NDArray[np.bool_]) -> BufferBatch:
        """Only the chosen records; they share the buffer."""
        return self._with(self.table[:, chosen])

    def take(self, rows: NDArray[np.int64]) -> BufferBatch:
        """The records of these rows, in their order; they share the buffer."""
        return self._with(self.table[:, rows])

    def _with(self, table: NDArray[np.int64]) -> BufferBatch:
        return BufferBatch(self.topic, self.partition, self.data, table, self.undecoded_names)

    def followed_by(self, later: Sequence[BufferBatch]) -> BufferBatch:
        """One batch of this and later ones; what their records take of different buffers is put together."""
        parts = [part for part in (self, *later) if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else self
        table = np.concatenate([part.table for part in parts], axis=1)
        odd = any(part.undecoded_names for part in parts)
        if all(part.data is parts[0].data for part in parts):
            return BufferBatch(self.topic, self.partition, parts[0].data, table, odd)
        spans = [slice(int(part.table[BODY].min()), int(part.table[END].max())) for part in parts]
        ends = np.cumsum([span.stop - span.start for span in spans])
        shifts = [end - span.stop for end, span in zip(ends, spans, strict=True)]
        table[_PLACES] += np.repeat(shifts, [len(part) for part in parts])
        data = np.concatenate([part.data[span] for part, span in zip(parts, spans, strict=True)])
        data.flags.writeable = False
        return BufferBatch(self.topic, self.partition, data, table, odd)


class _HeaderRows(Sequence[Headers]):
    """The headers of each record, read when they are asked for."""

    def __init__(self, data: NDArray[np.uint8], table: NDArray[np.int64]) -> None:
        self._data = data
        self._table = table

    def __len__(self) -> int:
        return int(self._table.shape[1])

    @overload
    def __getitem__(self, row: int) -> Headers: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Headers]: ...
    def __getitem__(self, row: int | slice) -> Headers | Sequence[Headers]:
        if isinstance(row, slice):
            return _HeaderRows(self._data, self._table[:, row])
        count = int(self._table[HEADERS, row])
        if not count:
            return ()
        return _headers(self._data[self._table[HEADERS_AT, row] : self._table[END, row]].tobytes(), count)

    def __iter__(self) -> Iterator[Headers]:
        if not self._table[HEADERS].any():
            return repeat((), len(self))
        data = self._data.data
        places = zip(*self._table[[HEADERS, HEADERS_AT, END]].tolist(), strict=True)
        return (_headers(bytes(data[start:end]), count) if count else () for count, start, end in places)


def _strings(strings: Sequence[bytes | None]) -> Strings:
    lying = Slices.of(strings)
    return Strings(buffer_of(lying.data.data), *map(np.ascontiguousarray, (lying.starts, lying.sizes)))


def _headers(data: bytes, count: int) -> Headers:
    """Names and values, with the size of each before it; `scan` has seen to it that they are there."""
    found: list[bytes | None] = []
    at = 0
    for _ in range(2 * count):
        size, at = data[at], at + 1
        if size >= 0x80:  # as few are
            size, at = _rest_of_varint(data, at, size & 0x7F)
        if size & 1:  # negative
            found.append(None)
            continue
        end = at + (size >> 1)
        found.append(data[at:end])
        at = end
    names = [(name or b"").decode(errors="surrogateescape") for name in found[::2]]
    return tuple(zip(names, found[1::2], strict=True))


def _rest_of_varint(data: bytes, at: int, value: int) -> tuple[int, int]:
    """The value of which these were the lowest seven bits, and where it ends."""
    shift = 7
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _written(data: bytearray, row: Row) -> list[int]:
    """Adds a record's body; gives its column of the table."""
    offset, time_ms, key, value, headers = row
    body = len(data)
    key_at = _put(data, key)
    value_at = _put(data, value)
    data += _varint(len(headers))
    headers_at = len(data)
    content = len(key or b"") + len(value or b"")
    for name, text in headers:
        raw = name.encode(errors="surrogateescape")
        _put(data, raw)
        _put(data, text)
        content += len(raw) + len(text or b"")
    key_size, value_size = (-1 if part is None else len(part) for part in (key, value))
    column = [0] * COLUMNS
    column[BODY], column[END], column[KEY], column[KEY_SIZE] = body, len(data), key_at, key_size
    column[VALUE], column[VALUE_SIZE], column[TIME], column[OFFSET] = value_at, value_size, time_ms, offset
    column[HEADERS], column[HEADERS_AT], column[CONTENT] = len(headers), headers_at, content
    return column


def _put(data: bytearray, part: bytes | None) -> int:
    data += _varint(-1 if part is None else len(part))
    at = len(data)
    data += part or b""
    return at


def _varint(value: int) -> bytes:
    rest = value << 1 ^ value >> 63
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)
