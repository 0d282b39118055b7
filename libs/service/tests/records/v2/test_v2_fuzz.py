"""Whatever bytes come: no row lies outside of the buffer, no byte beyond it is looked at, nothing crashes."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from keygrouping.slices import buffer_of
from keygrouping_service.records.record import UndecodableError
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.crc_kernel import crc32c
from keygrouping_service.records.v2.fetched import Fetched
from keygrouping_service.records.v2.layout import (
    ATTRIBUTES_AT,
    BODY,
    COLUMNS,
    CONTENT,
    CRC_AT,
    END,
    HEADER_BYTES,
    HEADERS,
    HEADERS_AT,
    KEY,
    KEY_SIZE,
    VALUE,
    VALUE_SIZE,
)
from keygrouping_service.records.v2.scan_kernel import Plain, Span, scan, scan_batches
from keygrouping_service.records.v2.writing import Sender, compressed, pack, sealed


def good_batch(chance: random.Random) -> bytearray:
    def part() -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice([0, 1, 9, 63, 64, 70]))

    def headers() -> list[tuple[str, bytes | None]]:
        return [("h" * chance.randrange(3), part()) for _ in range(chance.randrange(3))]

    rows = [(n, chance.randrange(10**6), part(), part(), headers()) for n in range(chance.randrange(1, 9))]
    (packed,) = pack(BufferBatch.of("t", 0, rows), np.zeros(len(rows), np.int64), 1 << 20)
    return bytearray(sealed(packed, Sender())[HEADER_BYTES:])


def damage(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.choice([1, 1, 2, 5])):
        where = chance.randrange(len(data))
        kind = chance.randrange(4)
        if kind == 0:
            data[where] = chance.randrange(256)
        elif kind == 1:
            data[where] ^= 1 << chance.randrange(8)
        elif kind == 2:
            data[where] = chance.choice([0, 1, 2, 0x7E, 0x7F, 0x80, 0xFE, 0xFF])
        else:
            data[where : where + chance.randrange(6)] = chance.randbytes(chance.randrange(6))
            if not data:
                data.append(0)


def scan_damaged(batches: int, seed: int) -> int:
    """Scans so many damaged batches, each at the very end of a buffer; gives how many records there still were."""
    chance = random.Random(seed)
    originals = [good_batch(chance) for _ in range(200)]
    table = np.empty((COLUMNS, 64), np.int64)
    found = 0
    for number in range(batches):
        data = originals[number % 200].copy()
        damage(chance, data)
        before = chance.randrange(3)
        buffer = np.frombuffer(bytes(before) + bytes(data), np.uint8)
        records = min(64, len(data) // 7)
        rows, _, _, _ = scan(buffer, Span(before, len(buffer), records, 0, 1 << 30, 0, -1), 0, table)
        assert 0 <= rows <= records
        if rows:
            assert_inside(table[:, :rows], before, len(buffer))
            found += rows
            if number % 16 == 0:
                batch = BufferBatch("t", 0, buffer, table[:, :rows].copy())
                assert len(list(batch)) == rows
                (packed,) = pack(batch, np.zeros(rows, np.int64), 1 << 20)
                assert packed.records == rows
    return found


def read_damaged(batches: int, seed: int) -> int:
    """Reads so many damaged batches of all codecs, most with a right checksum; gives how many could be read."""
    chance = random.Random(seed)
    originals_rows = [(n, n, b"k%d" % n, b"value %d" % n * 9, (("h", b"%d" % n),)) for n in range(9)]
    table = np.empty((COLUMNS, 16), np.int64)
    (packed,) = pack(BufferBatch.of("t", 0, originals_rows), np.zeros(9, np.int64), 1 << 20)
    originals = [bytes(sealed(compressed(packed, codec) if codec else packed, Sender())) for codec in range(5)]
    read = 0
    for number in range(batches):
        data = bytearray(originals[number % 5])
        where = HEADER_BYTES if chance.random() < 0.8 else ATTRIBUTES_AT
        tail = data[where:]
        damage(chance, tail)
        data[where:] = tail
        if chance.random() < 0.9:
            struct.pack_into(">i", data, 8, len(data) - 12)
            checksum = int(crc32c(buffer_of(bytes(data)), ATTRIBUTES_AT, len(data)))
            data[CRC_AT:ATTRIBUTES_AT] = checksum.to_bytes(4, "big")
        after, rows, _, _ = scan_batches(buffer_of(bytes(data)), 0, 0, Plain(1 << 20, 1 << 16, True), table)
        assert 0 <= after <= len(data) and 0 <= rows <= table.shape[1]
        assert_inside(table[:, :rows], HEADER_BYTES, len(data))
        fetched = Fetched(Unpacking(1 << 16), "t", 0, 0, bytes(data), ())
        try:
            while not fetched.exhausted:
                assert all(record.offset < fetched.next_fetch_offset for record in fetched.take(4))
            read += 1
        except UndecodableError as error:
            assert error.after > fetched.next_fetch_offset or error.after > error.letter.record.offset
    return read


def assert_inside(table: np.ndarray, start: int, stop: int) -> None:
    body, end, key, value, headers_at = table[[BODY, END, KEY, VALUE, HEADERS_AT]]
    key_size, value_size = table[KEY_SIZE], table[VALUE_SIZE]
    assert (key_size >= -1).all() and (value_size >= -1).all() and (table[HEADERS] >= 0).all()
    assert (start < body).all() and (body < key).all() and (end <= stop).all()
    assert (key + np.maximum(key_size, 0) < value).all()
    assert (value + np.maximum(value_size, 0) < headers_at).all() and (headers_at <= end).all()
    assert (table[CONTENT] <= end - body).all() and (body[1:] > end[:-1]).all()


def test_damaged_batches_give_no_row_outside_the_buffer() -> None:
    assert scan_damaged(5_000, 1) > 1000


@pytest.mark.fuzz
def test_a_million_damaged_batches_give_no_row_outside_the_buffer() -> None:
    assert scan_damaged(1_000_000, 2) > 100_000


def test_damaged_batches_are_read_or_told() -> None:
    assert read_damaged(1000, 4) > 10


@pytest.mark.fuzz
def test_a_million_damaged_batches_are_read_or_told() -> None:
    assert read_damaged(1_000_000, 5) > 10_000


@pytest.mark.fuzz
def test_the_kernels_look_at_no_byte_beyond(tmp_path: Path) -> None:
    """With numba's check of each index, which the kernels are compiled without."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, __file__, "200000"], env=environment, check=True, timeout=3000)


if __name__ == "__main__":
    scan_damaged(int(sys.argv[1]), 3)
