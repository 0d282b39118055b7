"""Compiled code reads and writes record batches as aiokafka does, byte by byte."""

from __future__ import annotations

import asyncio
import gzip
import random
import struct
import subprocess
import sys
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiokafka import TopicPartition
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchBuilderPy
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import calc_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.slices import Slices, buffer_of
from keygrouping_service.records.aiokafka_adapter import (  # type: ignore[attr-defined]
    PartitionRecords,
    PartitionSource,
    _FetchResult,
)
from keygrouping_service.records.columns import Columns, Row
from keygrouping_service.records.record import Record, UndecodableError
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.crc_kernel import crc32c
from keygrouping_service.records.v2.fetched import Fetched
from keygrouping_service.records.v2.layout import HEADER_BYTES, Header
from keygrouping_service.records.v2.reading import Reader
from keygrouping_service.records.v2.visibility import Visibility
from keygrouping_service.records.v2.writing import Sender, compressed, pack, sealed

TP = TopicPartition("events", 3)
CODECS = range(5)
few_examples = settings(deadline=None, max_examples=40)


@dataclass
class Seen:
    """What a reader makes of a fetch; `left_out` are the offsets of records that are too large."""

    records: list[Record] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    failed: bool = False
    position: int = 0


def as_aiokafka(data: bytes, offset: int, aborted: list[tuple[int, int]], largest: int) -> Seen:
    """What aiokafka's reader of committed records makes of it."""
    reader = PartitionRecords(TP, _MemoryRecordsPy(data), aborted, offset, None, None, True, 1)
    seen = Seen()
    try:
        for found in reader:
            if found.offset < offset:
                continue  # a broker's answer has no batch that is all before it, which aiokafka would give
            time_ms = -1 if found.timestamp is None else found.timestamp
            record = Record(TP.topic, TP.partition, found.offset, time_ms, found.key, found.value, found.headers)
            size = sum(len(name.encode()) + len(text or b"") for name, text in record.headers)
            if size + len(record.key or b"") + len(record.value or b"") > largest:
                seen.left_out.append(record.offset)
            else:
                seen.records.append(record)
    except Exception:
        seen.failed = True
    seen.position = max(offset, reader.next_fetch_offset)
    return seen


def by_columns(
    data: bytes, offset: int = 0, aborted: list[tuple[int, int]] | None = None, largest: int = 1 << 20
) -> Seen:
    unpacking = Unpacking(largest)
    reader = Reader(unpacking, TP.topic, TP.partition, offset)
    seen = Seen()
    try:
        for batch in reader.read(data, Visibility(aborted or ())):
            assert len(batch) == len(batch.offsets) == len(batch.keys) == len(batch.values) == len(batch.headers)
            seen.records += batch
    except UndecodableError as error:
        assert "can't be read" in str(error) and error.after > reader.position
        seen.failed = True
    seen.left_out, seen.position = [letter.record.offset for letter in unpacking.letters], reader.position
    return seen


def assert_the_same(
    data: bytes, offset: int = 0, aborted: list[tuple[int, int]] | None = None, largest: int = 1 << 20
) -> Seen:
    expected = as_aiokafka(data, offset, list(aborted or ()), largest)
    seen = by_columns(data, offset, aborted, largest)
    assert seen == expected
    return seen


# records, as a broker hands them out

part = st.none() | st.binary(max_size=9) | st.builds(bytes, st.sampled_from([63, 64, 200, 8191, 8192, 20_000]))
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=3)
times = st.integers(1_700_000_000_000, 1_700_000_100_000) | st.integers(0, 2**41)
rows = st.lists(st.tuples(times, part, part, headers), min_size=1, max_size=12)
producers = st.sampled_from([(0, -1), (0, 7), (1, 7)])


def batch_of(
    given_rows: list[Any],
    codec: int = 0,
    base: int = 0,
    attributes: int = 0,
    producer: int = -1,
    newest: int | None = None,
) -> bytearray:
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, producer, 0, -1, 1 << 40)
    for number, (time_ms, key, value, row_headers) in enumerate(given_rows):
        builder.append(number, time_ms, key, value, row_headers)
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    data[22] |= attributes
    if newest is not None:
        struct.pack_into(">q", data, 35, newest)
    return with_checksum(data)


def with_checksum(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
    return data


@few_examples
@given(st.lists(st.tuples(rows, st.sampled_from(CODECS), st.integers(0, 3), st.booleans()), max_size=3), st.data())
def test_a_fetch_is_read_as_by_aiokafka(batches: list[Any], data: st.DataObject) -> None:
    fetched, base = bytearray(), data.draw(st.sampled_from([0, 5, 2**40]))
    start = base
    for given_rows, codec, gap, by_append_time in batches:
        newest = 1_700_000_000_123 if by_append_time else None
        fetched += batch_of(given_rows, codec, base, 8 if by_append_time else 0, newest=newest)
        base += len(given_rows) + gap
    end = len(fetched) - data.draw(st.sampled_from([0, 0, 1, 50]))
    seen = assert_the_same(
        bytes(fetched[: max(0, end)]),
        data.draw(st.integers(start, base)),
        largest=data.draw(st.sampled_from([100, 1 << 20])),
    )
    assert not seen.failed


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_large_is_read_in_slices_or_left_out(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keygrouping_service.records.unpacking._WHOLE", 10_000)
    monkeypatch.setattr("keygrouping_service.records.unpacking._SLICE", 3000)
    monkeypatch.setattr("keygrouping_service.records.unpacking.KEPT_BYTES", 1000)
    given_rows = [(1000 + n, b"k%d" % n, bytes(400 * n), [("h", b"%d" % n)]) for n in range(40)]
    seen = assert_the_same(bytes(batch_of(given_rows, codec)), largest=9000)
    assert len(seen.records) == 23 and len(seen.left_out) == 17 and seen.position == 40


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)])
def test_old_formats_are_read_by_way_of_aiokafka(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number, (key, value) in enumerate([(b"a", b"1"), (None, b""), (b"", None), (b"large", bytes(5000))]):
        builder.append(number, 1000 + number, key, value, [])
    old = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", old, 0, 3)  # as brokers do: the offset of the last one
    fetched = bytes(old) + bytes(batch_of([(5, b"new", b"format", [])], base=4))
    seen = assert_the_same(fetched, largest=4000)
    assert [record.offset for record in seen.records] == [0, 1, 2, 4] and len(seen.left_out) == 1
    assert_the_same(fetched[:-1], offset=2 if codec else 0)
    for where in (13, 14, 16, 17, 20, len(old) - 1):
        damaged = bytearray(fetched)
        damaged[where] ^= 1
        assert assert_the_same(bytes(damaged)).failed


def old_wrapper(body: bytes) -> bytes:
    """A message of format 1, compressed by gzip, with a right checksum and any bytes within."""
    packed = gzip.compress(body)
    rest = struct.pack(">bbqii", 1, 1, 1000, -1, len(packed)) + packed
    return struct.pack(">qiI", 0, len(rest) + 4, zlib.crc32(rest)) + rest


@pytest.mark.parametrize("size", (-12, -(2**31), -1, 0, 13, 15, 2**31 - 1))
def test_sizes_within_an_old_message_are_not_believed(size: int) -> None:
    inner = struct.pack(">qiIbbii", 0, size, 0, 1, 0, -1, -1)
    with pytest.raises(UndecodableError, match="sizes that they say"):
        list(Reader(Unpacking(), "t", 0, 0).read(old_wrapper(inner), Visibility()))


GARBAGE = """
import gc, sys
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.records.v2.reading import Reader
from keygrouping_service.records.v2.visibility import Visibility
from keygrouping_service.records.aiokafka_adapter import PartitionRecords
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher

def by_columns(data):
    for batch in Reader(Unpacking(), "t", 0, 0).read(data, Visibility()):
        pass

def by_aiokafka(data):
    records = fetcher.MemoryRecords(data)
    for record in PartitionRecords(TopicPartition("t", 0), records, [], 0, None, None, True, 1):
        pass

def read(reader, data):
    try:
        reader(data)
    except Exception as error:
        kept = error  # which holds this frame, that holds it

gc.disable()
for reader in (by_columns, by_aiokafka):
    for _ in range(20):
        read(reader, bytes.fromhex(sys.argv[1]))
    gc.collect()
"""


@pytest.mark.parametrize("magic", (0, 1))
def test_an_error_that_becomes_garbage_with_its_traceback_does_not_end_the_process(magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, 1000, b"k", b"v", [])
    damaged = bytearray(builder.build())
    damaged[13] ^= 1
    subprocess.run([sys.executable, "-c", GARBAGE, damaged.hex()], check=True, timeout=300)


def test_headers_of_any_size_are_read() -> None:
    headers = [("n" * size, b"v" * size) for size in (0, 1, 63, 64, 8191, 8192, 1 << 19)] + [("none", None)]
    (batch,) = Reader(Unpacking(), "t", 0, 0).read(bytes(batch_of([(1, b"k", b"v", headers)] * 2)), Visibility())
    assert list(batch.headers) == [tuple(headers)] * 2 and batch.headers[1] == tuple(headers)


def test_header_names_that_are_not_utf8_are_lone_surrogates() -> None:
    data = batch_of([(1, b"k", b"v", [("caf\u00e9", b"1"), ("b", None)])])
    place = data.index("\u00e9".encode())
    data[place : place + 2] = b"\xff\xfe"
    seen = by_columns(bytes(with_checksum(data)))
    assert seen.records[0].headers == (("caf\udcff\udcfe", b"1"), ("b", None))
    (batch,) = Reader(Unpacking(), "t", 0, 0).read(bytes(data), Visibility())
    assert batch.undecoded_names
    (plain,) = Reader(Unpacking(), "t", 0, 0).read(bytes(batch_of([(1, b"k", b"v", [("a", b"1")])])), Visibility())
    assert not plain.undecoded_names


# transactions


def marker(base: int, producer: int, aborts: bool) -> bytearray:
    key = struct.pack(">hh", 0, 0 if aborts else 1)
    return batch_of([(1000, key, struct.pack(">hi", 0, 0), [])], 0, base, 0x30, producer)


@pytest.mark.parametrize("seed", range(100))
def test_transactions_are_hidden_as_by_aiokafka(seed: int) -> None:
    """Random mixes of committed, aborted and open transactions of some producers, and of records of none."""
    chance = random.Random(seed)
    fetched, base = bytearray(), 0
    began: dict[int, int] = {}
    aborted = []
    for _ in range(chance.randrange(2, 40)):
        producer = chance.randrange(4)
        if producer in began and chance.random() < 0.4:
            aborts = chance.random() < 0.5
            first = began.pop(producer)
            if aborts:
                aborted.append((producer, first))
            fetched += marker(base, producer, aborts)
            base += 1
            continue
        given_rows: list[Any] = [(1000, b"%d" % (base + n), b"v" * 50, []) for n in range(chance.randrange(1, 5))]
        transactional = producer > 0
        if transactional:
            began.setdefault(producer, base)
        attributes = 0x10 if transactional else 0
        fetched += batch_of(given_rows, chance.choice([0, 3]), base, attributes, producer if transactional else -1)
        base += len(given_rows)
    chance.shuffle(aborted)
    seen = assert_the_same(bytes(fetched), chance.choice([0, 0, base // 2]), aborted)
    assert seen.position == base and not seen.failed


def test_a_marker_that_compaction_has_emptied_is_passed_over() -> None:
    """Brokers keep a producer's last batch for its numbers, without the record."""
    emptied = bytearray(marker(1, 7, True)[:61])
    struct.pack_into(">i", emptied, 8, 61 - 12)
    struct.pack_into(">i", emptied, 57, 0)
    fetched = bytes(batch_of([(1, b"a", b"", [])]) + with_checksum(emptied) + batch_of([(1, b"b", b"", [])], base=2))
    for aborted in ([], [(8, 0)]):
        seen = by_columns(fetched, aborted=aborted)
        assert [record.offset for record in seen.records] == [0, 2] and not seen.failed


def test_the_type_of_a_marker_counts_whatever_its_version() -> None:
    later = marker(1, 7, True)
    key = later.index(struct.pack(">hh", 0, 0), 61)
    later[key : key + 2] = struct.pack(">h", 1)
    fetched = batch_of([(1, b"aborted", b"", [])], attributes=0x10, producer=7) + with_checksum(later)
    fetched += batch_of([(1, b"committed", b"", [])], base=2, attributes=0x10, producer=7) + marker(3, 7, False)
    seen = by_columns(bytes(fetched), aborted=[(7, 0)])
    assert [record.key for record in seen.records] == [b"committed"] and seen.position == 4


@pytest.mark.parametrize("attributes", (0, 0x10))
def test_small_batches_are_read_at_one_stretch(attributes: int) -> None:
    """A producer that doesn't wait makes a batch of each record: no call of compiled code for each, nor any object."""
    fetched = bytearray()
    for base in range(0, 1000, 2):
        fetched += batch_of([(base, b"%d" % base, b"v", [])], 0, base, attributes, 7 if attributes else -1)
        fetched += marker(base + 1, 7, False) if attributes else b""
    parts = list(Reader(Unpacking(), "events", 3, 0).read(bytes(fetched), Visibility()))
    assert [record.offset for record in parts[0]] == list(range(0, 1000, 2)) and len(parts) == 1
    assert_the_same(bytes(fetched), 500, [(7, 800)] if attributes else [])


@pytest.mark.parametrize("codec", (0, 3))
@pytest.mark.parametrize("last", (3, 1, 0, -1, -(2**31)))
def test_offsets_behind_what_a_header_says_of_the_last_are_damage(codec: int, last: int) -> None:
    data = batch_of([(n, b"k", b"v" * 50, []) for n in range(5)], codec, base=10)
    struct.pack_into(">i", data, 23, last)
    seen = by_columns(bytes(with_checksum(data)), 10)
    assert [record.offset for record in seen.records] == list(range(10, 11 + max(-1, last))) and seen.failed


def test_offsets_before_the_first_of_their_batch_are_damage() -> None:
    data = batch_of([(n, b"k", b"v" * 50, []) for n in range(5)], base=10)
    data[data.index(b"\x04\x02k")] = 0x01  # The third one's: a varint that says -1.
    seen = by_columns(bytes(with_checksum(data)), 5)
    assert [record.offset for record in seen.records] == [10, 11] and seen.failed


@pytest.mark.parametrize("tenth", [0, 1, 2, 0x7F])
def test_a_number_of_more_than_64_bits_is_damage(tenth: int) -> None:
    """The size of a header's name, in ten bytes."""
    name = b"\x82" + b"\x80" * 8 + bytes([tenth]) + b"h"
    body = b"\x00\x00\x00\x01\x01\x02" + name + b"\x01"
    data = batch_of([(0, b"k", b"v", [])])[:HEADER_BYTES] + bytes([2 * len(body)]) + body
    struct.pack_into(">i", data, 8, len(data) - 12)
    seen = by_columns(bytes(with_checksum(data)))
    assert seen.failed == (tenth > 0)
    assert [record.headers for record in seen.records] == ([] if tenth else [(("h", None),)])


def test_the_rows_of_a_stretch_are_no_more_than_the_table_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keygrouping_service.records.v2.reading._ROWS", 5)
    sizes = [2, 3, 1, 4, 5, 6, 0, 13, 2]
    fetched, base = b"", 0
    for size in sizes:
        given_rows: list[Any] = [(base + n, b"%d" % (base + n), b"v", []) for n in range(size)]
        fetched += bytes(batch_of(given_rows, base=base)) if size else b""
        base += size
    assert len(assert_the_same(fetched).records) == base
    assert len(assert_the_same(fetched, offset=22).records) == base - 22
    parts = list(Reader(Unpacking(), "t", 0, 0).read(fetched, Visibility()))
    assert [len(part) for part in parts] == [5, 5, 5, 5, 1, 5, 5, 3, 2]


# damage


@few_examples
@given(
    rows,
    st.sampled_from(CODECS),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=3),
    st.booleans(),
)
def test_damage_stops_at_the_batch_and_says_so(
    given_rows: list[Any], codec: int, damage: list[Any], right_sum: bool
) -> None:
    good = batch_of([(1, b"before", b"", [])])
    data = batch_of(given_rows, codec, 1)
    for where, byte in damage:
        data[int(where * (len(data) - 62)) + 61] = byte
    if right_sum:
        with_checksum(data)
    fetched = bytes(good + data + batch_of([(1, b"after", b"", [])], base=1 + len(given_rows)))
    seen, expected = by_columns(fetched), as_aiokafka(fetched, 0, [], 1 << 20)
    common = min(len(seen.records), len(expected.records))
    assert seen.records[:common] == expected.records[:common] and common >= 1
    if not right_sum:
        assert seen == expected


@pytest.mark.parametrize("where", range(8, 61))
def test_damage_to_a_header_stops_nothing_else(where: int) -> None:
    for byte in (0, 1, 0x7F, 0x80, 0xFF):
        data = batch_of([(1000, b"k", b"v" * 40, [])] * 3)
        data[where] = byte
        for fetched in (bytes(data), bytes(with_checksum(data) if not 17 <= where < 21 else data)):
            by_columns(fetched)


def test_a_number_of_records_takes_no_memory() -> None:
    data = batch_of([(1000, b"k", b"v", [])])
    struct.pack_into(">i", data, 57, 2**31 - 1)
    seen = by_columns(bytes(with_checksum(data)))
    assert len(seen.records) == 1 and seen.failed


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_few_bytes_that_unpack_to_many_take_little_memory(codec: int) -> None:
    import tracemalloc

    data = bytes(batch_of([(1000, b"k", bytes(100 << 20), [])], codec))
    tracemalloc.start()
    seen = by_columns(data)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(seen.left_out) == 1 and not seen.records and most < 64 << 20


@pytest.mark.parametrize("codec", (0, 4))
def test_many_records_without_content_take_little_memory(codec: int) -> None:
    import tracemalloc

    empty = bytes((12, 0, 0, 0, 1, 1, 0))
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, 0, -1, 1 << 40)
    for number in range(2):
        builder.append(number, 1000, b"k", b"v", [])
    data = builder.build()
    del data[61:], builder
    import zstandard

    body = empty * 1_000_000
    data += zstandard.compress(body) if codec else body
    data[22] = codec
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, 1_000_000)
    fetched = bytes(with_checksum(data))
    del data, body
    tracemalloc.start()
    list(Reader(Unpacking(), "t", 0, 0).read(fetched, Visibility()))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 << 20


@given(st.binary(max_size=100))
def test_the_checksum_is_crc32c(data: bytes) -> None:
    for start in range(min(3, len(data) + 1)):
        assert int(crc32c(buffer_of(data), start, len(data))) == calc_crc32c(data[start:])


# writing


def written(given_rows: list[Any]) -> BufferBatch:
    return BufferBatch.of("events", 3, [(n, *row) for n, row in enumerate(given_rows)])


@few_examples
@given(rows, producers)
def test_what_is_packed_is_what_aiokafka_builds(given_rows: list[Any], producer: tuple[int, int]) -> None:
    transactional, number = producer
    builder = _DefaultRecordBatchBuilderPy(2, 0, transactional, number, 2, 9, 1 << 40)
    for count, (time_ms, key, value, row_headers) in enumerate(given_rows):
        builder.append(count, time_ms, key, value, row_headers)
    (packed,) = pack(written(given_rows), np.zeros(len(given_rows), np.int64), 1 << 40)
    assert bytes(sealed(packed, Sender(number, 2, 9, bool(transactional)))) == bytes(builder.build())


@few_examples
@given(rows, st.sampled_from(CODECS[1:]))
def test_what_is_compressed_aiokafka_reads(given_rows: list[Any], codec: int) -> None:
    (packed,) = pack(written(given_rows), np.zeros(len(given_rows), np.int64), 1 << 40)
    small = compressed(packed, codec)
    assert len(small.data) <= len(packed.data) and small.codec in (0, codec)
    batch = DefaultRecordBatch(bytes(sealed(small, Sender(5, 1, 7, True))))
    assert batch.validate_crc() and batch.is_transactional and (batch.producer_id, batch.base_sequence) == (5, 7)
    found = [(r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    assert found == [(time_ms, key, value, list(some)) for time_ms, key, value, some in given_rows]
    large = pack(written([(1, b"k", b"v" * 1000, [])]), np.zeros(1, np.int64), 1)[0]
    assert compressed(large, codec).codec == codec


@few_examples
@given(rows, st.integers(1, 5), st.sampled_from([1, 150, 10_000, 1 << 30]), st.sampled_from(CODECS), st.data())
def test_records_reach_their_targets_in_their_order(
    given_rows: list[Any], parts: int, most: int, codec: int, data: st.DataObject
) -> None:
    targets = np.array([data.draw(st.integers(0, parts - 1)) for _ in given_rows], np.int64)
    found: dict[int, list[Any]] = defaultdict(list)
    (source,) = Reader(Unpacking(), "events", 3, 0).read(bytes(batch_of(given_rows, codec)), Visibility())
    for packed in pack(source, targets, most):
        assert len(packed.data) <= most or packed.records == 1
        whole = bytes(sealed(packed, Sender()))
        header = Header.read(whole)
        assert header.records == packed.records == header.last_delta + 1
        seen = by_columns(whole)
        assert [record.offset for record in seen.records] == list(range(packed.records))
        stamps = [record.timestamp for record in seen.records]
        assert (header.first_time, header.newest_time) == (stamps[0], max(stamps))
        found[packed.target] += [record[3:] for record in seen.records]
    for target in range(parts):
        assert found[target] == [record[3:] for record, to in zip(source, targets, strict=True) if to == target]


def test_times_before_the_first_and_none_at_all_are_kept() -> None:
    given_rows: list[Any] = [(time_ms, b"k", None, []) for time_ms in (-1, 1000, 5, 2**62, -1)]
    (packed,) = pack(written(given_rows), np.zeros(5, np.int64), 1 << 20)
    assert [record.timestamp for record in by_columns(bytes(sealed(packed, Sender()))).records] == [
        row[0] for row in given_rows
    ]


def test_a_record_needs_a_target() -> None:
    batch = written([(1, b"k", b"v", [])])
    for targets in ([], [-1], [0, 0]):
        with pytest.raises(ValueError, match="target"):
            pack(batch, np.array(targets, np.int64), 100)
    assert pack(written([]), np.empty(0, np.int64), 100) == []


# batches


@few_examples
@given(rows, st.data())
def test_a_batch_over_a_buffer_is_the_same_as_one_over_lists(given_rows: list[Any], data: st.DataObject) -> None:
    numbered: list[Row] = [
        (n, time_ms, key, value, tuple(some)) for n, (time_ms, key, value, some) in enumerate(given_rows)
    ]
    ours, theirs = BufferBatch.of("events", 3, numbered), Columns.of("events", 3, numbered)
    assert list(ours) == list(theirs) == [ours.record(row) for row in range(len(ours))]
    assert (ours.sizes() == theirs.sizes()).all()
    at = data.draw(st.integers(0, len(ours)))
    chosen = np.array([data.draw(st.booleans()) for _ in numbered], np.bool_)
    assert list(ours.cut(0, at)) == list(theirs.cut(0, at)) and list(ours.where(chosen)) == list(theirs.where(chosen))
    again = BufferBatch.of("events", 3, numbered)
    assert list(ours.cut(at, len(ours)).followed_by([again, ours.cut(0, at)])) == [
        *list(ours)[at:],
        *ours,
        *list(ours)[:at],
    ]
    assert list(ours.followed_by([])) == list(ours)
    (packed,) = pack(
        ours.followed_by([again.where(chosen)]), np.zeros(len(ours) + int(chosen.sum()), np.int64), 1 << 40
    )
    bodies = [record[3:] for record in by_columns(bytes(sealed(packed, Sender()))).records]
    assert bodies == [record[3:] for record in [*ours, *again.where(chosen)]]


def test_parts_of_large_buffers_that_are_put_together_take_only_their_own_bytes() -> None:
    (large,) = Reader(Unpacking(), "t", 0, 0).read(
        bytes(batch_of([(n, b"k", b"v" * 900, []) for n in range(1000)])), Visibility()
    )
    other = written([(1, b"other", None, [("h", b"x")])])
    joined = large.cut(10, 13).followed_by([large.cut(990, 994), other])
    assert [each[2:] for each in joined] == [each[2:] for each in (*list(large)[10:13], *list(large)[990:994], *other)]
    assert len(joined.data) < 8 * 950


strings = st.one_of(st.none(), st.binary(max_size=300))


@few_examples
@given(st.integers(-1, 2**62), st.lists(st.tuples(strings, strings), max_size=40), st.booleans())
def test_new_records_are_what_they_would_be_one_by_one(
    time_ms: int, given_rows: list[tuple[bytes | None, bytes | None]], scattered: bool
) -> None:
    keys, values = [key for key, _ in given_rows], [value for _, value in given_rows]
    chosen: list[Any] = [keys, values]
    if scattered:  # every other one of a buffer that may be written to, as the keys of an accumulator lie
        doubled = (Slices.of([each for one in column for each in (b"gap", one)]) for column in (keys, values))
        chosen = [Slices(each.data.copy(), each.starts[1::2], each.sizes[1::2]) for each in doubled]
    ours = BufferBatch.new(time_ms, *chosen)
    wanted = BufferBatch.of("", -1, [(0, time_ms, *row, ()) for row in given_rows])
    assert list(ours) == list(wanted)
    assert ours.table.tolist() == wanted.table.tolist() and not ours.data.flags.writeable
    some = (
        b"".join(packed.data for packed in pack(batch, np.zeros(len(batch), np.int64), 1 << 40))
        for batch in (ours, wanted)
    )
    assert len({each[HEADER_BYTES:] for each in some}) == 1


def test_new_records_have_a_key_and_a_value_each() -> None:
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        BufferBatch.new(1, [b"a", b"b"], [b"v"])


def test_there_is_no_record_beyond_the_end() -> None:
    batch = BufferBatch.of("t", 0, [(1, 2, None, b"", (("h", None),))])
    assert batch.record(-1) == Record("t", 0, 1, 2, None, b"", (("h", None),))
    with pytest.raises(IndexError):
        batch.record(1)


# heartbeats


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> int:
    """So few bytes are taken at once that tests have many times as many; gives how many."""
    for module in ("unpacking", "v2.reading", "v2.fetched"):
        monkeypatch.setattr(f"keygrouping_service.records.{module}.AT_ONCE", 20_000)
    monkeypatch.setattr("keygrouping_service.records.unpacking._WHOLE", 10_000)
    monkeypatch.setattr("keygrouping_service.records.unpacking._SLICE", 3000)
    monkeypatch.setattr("keygrouping_service.records.unpacking.KEPT_BYTES", 1000)
    monkeypatch.setattr("keygrouping_service.records.v2.reading._PASSED_OVER", 1)
    return 20_000


def one(size: int, codec: int = 0, base: int = 0, attributes: int = 0) -> bytes:
    return bytes(batch_of([(1000, b"k", bytes(size), [])], codec, base, attributes, 7 if attributes else -1))


SEEN = one(100, base=500)
UNSEEN: dict[str, tuple[bytes, int, list[tuple[int, int]]]] = {
    "a record that is too large": (one(400_000, 3, 499), 0, []),
    "records before the position": (
        bytes(batch_of([(1000, b"k", bytes(2000), []) for _ in range(200)], 3, 300)),
        499,
        [],
    ),
    "an aborted transaction": (b"".join(one(800, 0, base, 0x10) for base in range(500)), 0, [(7, 0)]),
    "markers": (b"".join(bytes(marker(base % 500, 9, False)) for base in range(8000)), 0, []),
}


@pytest.mark.parametrize("kind", UNSEEN)
def test_what_is_not_seen_is_passed_over_a_bounded_part_at_a_time(kind: str, often: int) -> None:
    unseen, offset, aborted = UNSEEN[kind]
    fetched = Fetched(Unpacking(5000), "events", 3, offset, unseen + SEEN, aborted)
    takes = 0
    found: list[Record] = []
    while not fetched.exhausted:
        taken = fetched.take(None)
        takes += 1
        found += taken
        assert fetched._reader.unpacked <= 2 * often + 10_000
    assert [record.offset for record in found][-1:] == [500] and fetched.next_fetch_offset == 501
    assert takes >= 10


def test_batches_that_are_seen_are_taken_a_bounded_part_at_a_time(often: int) -> None:
    fetched = Fetched(Unpacking(), "events", 3, 0, b"".join(one(900, 0, base) for base in range(500)), [])
    sizes = []
    while not fetched.exhausted:
        sizes.append(len(fetched.take(None)))
    assert sum(sizes) == 500 and max(sizes) * 900 <= 2 * often


class OneFetch:
    """A consumer with one fetch, as aiokafka has it: it waits for another where nothing comes of that."""

    def __init__(self, fetched: Fetched) -> None:
        self.fetched = fetched
        self.waited = 0.0
        assignment = SimpleNamespace(active=True, state_value=lambda _: self)
        self._result = _FetchResult(TP, assignment=assignment, partition_records=fetched, backoff=0)
        self.position, self.paused = fetched.next_fetch_offset, False

    def consumed_to(self, position: int) -> None:
        self.position = position

    async def getmany(self, tp: TopicPartition, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, Any]:
        records = self._result.getall(max_records) if self._result.has_more() else []
        if not records:
            self.waited += timeout_ms
            await asyncio.sleep(timeout_ms / 1000)
        return {tp: records} if records else {}


async def test_a_poll_goes_on_at_once_and_lets_others_have_their_turns(often: int) -> None:  # noqa: ARG001
    unseen, offset, aborted = UNSEEN["a record that is too large"]
    consumer = OneFetch(Fetched(Unpacking(5000), "events", 3, offset, unseen + SEEN, aborted))
    source: Any = PartitionSource(consumer, TP, consumer.fetched.unpacking)
    turns = 0

    async def heart() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(heart())
    try:
        assert not len(await source.poll(100, 0.0)) and consumer.position == 0
        assert [record.offset for record in await source.poll(100, 30.0)] == [500]
    finally:
        beating.cancel()
    assert turns >= 10 and not consumer.waited
    assert [letter.record.offset for letter in source.left_out()] == [499]
