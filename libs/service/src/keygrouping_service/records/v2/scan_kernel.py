"""Finds the parts of records in the bytes of batches, and nothing beyond them; needs numba."""

from typing import Any, NamedTuple

import numpy as np
from keygrouping.compiled import kernel
from keygrouping.raw_bytes import View, byte, view_of
from numpy.typing import NDArray

from keygrouping_service.records.v2.crc_kernel import crc_of
from keygrouping_service.records.v2.layout import (
    ATTRIBUTES_AT,
    BEFORE_LENGTH,
    BODY,
    BY_APPEND_TIME,
    CODEC_MASK,
    CONTENT,
    CONTROL,
    CRC_AT,
    END,
    FIRST_TIME_AT,
    HEADER_BYTES,
    HEADERS,
    HEADERS_AT,
    KEY,
    KEY_SIZE,
    LAST_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    NEWEST_TIME_AT,
    OFFSET,
    RECORDS_AT,
    TIME,
    TRANSACTIONAL,
    VALUE,
    VALUE_SIZE,
)


class Plain(NamedTuple):
    """Which batches are plain: of at most so many bytes, no record larger than that; whether all are to be seen."""

    most: int
    largest: int
    all_seen: bool


class Span(NamedTuple):
    """The records of a batch: data[start:stop], with offsets from `base_offset` on to `last_delta` behind it.

    `append_time` is -1 if each has a time of its own.
    """

    start: int
    stop: int
    records: int
    base_offset: int
    last_delta: int
    first_time: int
    append_time: int


class Parts(NamedTuple):
    """What the columns of the table (see `layout`) say of a record, its time and offset as they stand in it."""

    time: int
    offset: int
    body: int
    key: int
    key_size: int
    value: int
    value_size: int
    headers: int
    headers_at: int
    content: int


NO_PARTS = Parts(*[0] * len(Parts._fields))


@kernel
def scan_batches(data: NDArray[np.uint8], at: int, wanted: int, plain: Plain, table: NDArray[np.int64]) -> Any:
    """Fills a table (see `layout`) with the records, from offset `wanted` on, of the plain batches that begin at `at`.

    These are whole, not compressed, without damage, no control batches unless all are to be seen (then they are passed
    over), and their records fit into the table. Gives where the first begins that is none, how many records there are,
    the offset behind them, and whether all names of headers are ASCII.
    """
    view = view_of(data)
    row = 0
    all_ascii = True
    not_plain = CODEC_MASK if plain.all_seen else CODEC_MASK | CONTROL | TRANSACTIONAL
    while len(data) - at >= HEADER_BYTES:
        size = BEFORE_LENGTH + number(view, at + LENGTH_AT, 4)
        # What of a header is read before the checksum only decides whether there is enough of the batch to check it.
        if size < HEADER_BYTES or size > min(len(data) - at, plain.most) or byte(view, at + MAGIC_AT) != 2:
            break
        attributes, records = number(view, at + ATTRIBUTES_AT, 2), number(view, at + RECORDS_AT, 4)
        if attributes & not_plain or not 0 <= records <= table.shape[1] - row:
            break
        if np.int64(crc_of(view, at + ATTRIBUTES_AT, at + size)) != number(view, at + CRC_AT, 4) & 0xFFFFFFFF:
            break
        base, last_delta = number(view, at, 8), number(view, at + LAST_DELTA_AT, 4)
        if last_delta < 0:
            break
        after = base + last_delta + 1
        if after > wanted and not attributes & CONTROL:
            newest: int = number(view, at + NEWEST_TIME_AT, 8) if attributes & BY_APPEND_TIME else -1
            first_time = number(view, at + FIRST_TIME_AT, 8)
            span = Span(at + HEADER_BYTES, at + size, records, base, last_delta, first_time, newest)
            rows, end, _, ascii_names, largest = scan_into(view, span, wanted, table, row)
            # Rows of such a batch stand in the table already, but behind `row`, where the next ones are written.
            if end != span.stop or largest > plain.largest:
                break
            row += rows
            wanted = max(wanted, table[OFFSET, row - 1] + 1) if rows else wanted
            all_ascii = all_ascii and ascii_names
        wanted = max(wanted, after)
        at += size
    return at, row, wanted, all_ascii


@kernel
def number(view: View, at: int, size: int) -> Any:
    """The signed big-endian number of `size` bytes."""
    value = np.int64(np.int8(byte(view, at)))
    for i in range(1, size):
        value = value << 8 | np.int64(byte(view, at + i))
    return value


@kernel
def scan(data: NDArray[np.uint8], span: Span, wanted: int, table: NDArray[np.int64]) -> Any:
    """Fills a table (see `layout`) with the records from offset `wanted` on, as many as it takes.

    Gives how many these are, where the next record begins (-1: there is damage; these are what comes before it), how
    many records were passed, and whether all names of headers are ASCII.
    """
    rows, at, passed, ascii_names, _ = scan_into(view_of(data), span, wanted, table, 0)
    return rows, at, passed, ascii_names


@kernel
def scan_into(view: View, span: Span, wanted: int, table: NDArray[np.int64], first: int) -> Any:
    """Like `scan`, into the table from row `first` on; gives beside that the most bytes that a record holds."""
    at = span.start
    row = first
    ascii_names = True
    largest = 0
    for passed in range(span.records):
        if row == table.shape[1]:
            return row - first, at, passed, ascii_names, largest
        # The checksum says what was written, not that it was written well: no length is believed.
        at, size = varint(view, at, span.stop)
        if at < 0 or size < 1 or size > span.stop - at:
            return row - first, -1, passed, ascii_names, largest
        end = at + size
        plain, record = scan_record(view, at + 1, end)
        if plain < 0 or not 0 <= record.offset <= span.last_delta:
            return row - first, -1, passed, ascii_names, largest
        at = end
        offset = record.offset + span.base_offset
        # A fetch begins with a whole batch, so with records before the wanted offset; and offsets only grow.
        if offset >= wanted:
            table[OFFSET, row] = offset
            table[TIME, row] = span.append_time if span.append_time >= 0 else record.time + span.first_time
            table[BODY, row] = record.body
            table[END, row] = end
            table[KEY, row] = record.key
            table[KEY_SIZE, row] = record.key_size
            table[VALUE, row] = record.value
            table[VALUE_SIZE, row] = record.value_size
            table[HEADERS, row] = record.headers
            table[HEADERS_AT, row] = record.headers_at
            table[CONTENT, row] = record.content
            largest = max(largest, record.content)
            ascii_names = ascii_names and plain > 0
            wanted = offset + 1
            row += 1
    return row - first, at, max(0, span.records), ascii_names, largest


@kernel
def scan_record(view: View, at: int, end: int) -> Any:
    """1, and the parts of the record in view[at:end]; 0 if a name is not ASCII; -1 if it is none."""
    at, time = varint(view, at, end)
    if at < 0:
        return -1, NO_PARTS
    at, offset = varint(view, at, end)
    if at < 0:
        return -1, NO_PARTS
    body = at
    key, key_size = part(view, at, end)
    if key < 0:
        return -1, NO_PARTS
    value, value_size = part(view, key + max(0, key_size), end)
    if value < 0:
        return -1, NO_PARTS
    headers_at, headers = varint(view, value + max(0, value_size), end)
    if headers_at < 0 or headers < 0:
        return -1, NO_PARTS
    at, held, ascii_names = scan_headers(view, headers_at, end, headers)
    content = max(0, key_size) + max(0, value_size) + held
    found = Parts(time, offset, body, key, key_size, value, value_size, headers, headers_at, content)
    return (-1 if at != end else 1 if ascii_names else 0), found


@kernel
def scan_headers(view: View, at: int, end: int, headers: int) -> Any:
    """Where the headers end (-1: these are none), how many bytes they hold, and whether their names are ASCII."""
    held = 0
    bits = np.uint8(0)
    for _ in range(headers):
        at, name_size = part(view, at, end)
        if at < 0 or name_size < 0:
            return -1, 0, False
        for i in range(name_size):
            bits |= byte(view, at + i)
        at, text_size = part(view, at + name_size, end)
        if at < 0:
            return -1, 0, False
        at += max(0, text_size)
        held += name_size + max(0, text_size)
    return at, held, bits < 128


@kernel
def part(view: View, at: int, end: int) -> Any:
    """Where some bytes begin whose size stands at `at`, and how many they are; -1: none. -1 if they don't fit."""
    at, size = varint(view, at, end)
    if at < 0 or size > end - at:
        return -1, np.int64(-1)
    return at, max(np.int64(-1), size)


@kernel
def varint(view: View, at: int, end: int) -> Any:
    """Where a signed varint at `at` ends, and what it is; -1 if it doesn't end, or has more than 64 bits."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(64):
        seven = np.uint64(byte(view, at))
        at += 1
        value |= (seven & np.uint64(0x7F)) << shift
        if seven < np.uint64(128):
            if shift == np.uint64(63) and seven > np.uint64(1):
                break
            return at, np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
        shift += np.uint64(7)
    return -1, np.int64(0)
