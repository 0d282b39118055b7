"""Laws of unpacking what was fetched: bounded, complete, and stopped by no bytes."""

import gc
import struct
import weakref
from typing import Any, Literal

import pytest
from aiokafka import TopicPartition
from aiokafka.codec import gzip_encode
from aiokafka.record.default_records import DefaultRecordBase, _DefaultRecordBatchBuilderPy
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from keygrouping_service.records.aiokafka_adapter import _partition_records
from keygrouping_service.records.record import UndecodableError
from keygrouping_service.records.unpacking import Unpacking

TP = TopicPartition("events", 3)
CODECS = range(5)
Row = tuple[bytes | None, bytes | None]


def batch(rows: list[Row], codec: int = 0, base: int = 0) -> bytearray:
    """A batch of format 2 as it comes from a broker."""
    builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, 0, 1 << 40)
    for number, (key, value) in enumerate(rows):
        builder.append(number, 1000 + number, key, value, [("h", b"%d" % number)])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    return data


def sealed(data: bytearray) -> bytearray:
    """With a checksum that fits."""
    struct.pack_into(">I", data, DefaultRecordBase.CRC_OFFSET, calc_crc32c(bytes(data[21:])))
    return data


class Reading:
    """A fetched buffer on its way through a reader."""

    def __init__(self, buffer: bytes | bytearray, largest: int = 1 << 20, offset: int = 0) -> None:
        self.unpacking = Unpacking(largest)
        records = _MemoryRecordsPy(bytes(buffer))
        self.records = _partition_records(TP, records, [], offset, None, self.unpacking, True, 0)

    def all(self, most: int | None = None) -> list[Any]:
        found = []
        while not self.records.exhausted:
            taken = self.records.take(most)
            assert sum(len(r.key or b"") + len(r.value or b"") for r in taken) <= 30 << 20, "one poll stays small"
            found += taken
        return found


def read(buffer: bytes | bytearray, **options: Any) -> list[Any]:
    return Reading(buffer, **options).all()


@pytest.mark.parametrize("codec", CODECS)
def test_a_buffer_that_was_read_is_freed_at_once(codec: int) -> None:
    """Without the collector of cycles, which services call rarely."""
    reading = Reading(batch([(b"key", b"value")] * 5, codec))
    buffer = weakref.ref(reading.records)
    gc.disable()
    try:
        assert len(reading.all()) == 5
        del reading
        assert buffer() is None
    finally:
        gc.enable()


def test_what_was_left_out_is_told_once_the_position_is_behind_it() -> None:
    reading = Reading(batch([(b"a", b""), (b"b", b""), (b"large", bytes(5000)), (b"d", b"")]), largest=2000)
    told = []
    while not reading.records.exhausted:
        reading.records.take(1)
        told.append((reading.records.next_fetch_offset, [each.record.offset for each in reading.unpacking.letters]))
    assert told == [(1, []), (2, []), (4, [2]), (4, [2])]


rows_of_any_size = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=9)),
        st.one_of(st.none(), st.binary(max_size=300), st.builds(bytes, st.integers(0, 200_000))),
    ),
    min_size=1,
    max_size=20,
)


@hypothesis_settings(deadline=None, max_examples=60)
@given(rows_of_any_size, st.sampled_from(CODECS), st.booleans(), st.integers(1024, 100_000), st.data())
def test_every_record_is_read_or_left_out_wherever_reading_begins(
    rows: list[Row], codec: int, streamed: bool, largest: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(rows)))
    with pytest.MonkeyPatch.context() as patch:
        if streamed:
            patch.setattr("keygrouping_service.records.unpacking._WHOLE", 10)
            patch.setattr("keygrouping_service.records.unpacking._SLICE", 500)
        reading = Reading(batch(rows, codec, 70) + batch([(b"next", b"")], 0, 99), largest=largest, offset=70 + start)
        found = reading.all(most=data.draw(st.sampled_from([1, 3, None])))
    *here, last = found
    assert (last.offset, last.key) == (99, b"next")
    assert reading.records.next_fetch_offset == 100
    for record in here:
        assert (record.key, record.value) == rows[record.offset - 70]
        assert (record.timestamp, record.headers) == (1000 + record.offset - 70, (("h", b"%d" % (record.offset - 70)),))
        assert (record.topic, record.partition) == TP
    left_out = [letter.record.offset for letter in reading.unpacking.letters]
    assert sorted([record.offset for record in here] + left_out) == list(range(70 + start, 70 + len(rows)))
    for letter in reading.unpacking.letters:
        key, value = rows[letter.record.offset - 70]
        assert letter.reason == "record-too-large" and f"at most {largest}" in letter.detail
        assert len(key or b"") + len(value or b"") > largest - 100
        assert (letter.record.key, letter.record.value) == (key, value and value[:100_000])


@pytest.mark.parametrize("codec", CODECS)
def test_small_records_of_a_huge_batch_are_all_read(codec: int) -> None:
    rows: list[Row] = [(b"%d" % number, bytes(200_000)) for number in range(500)]
    found = read(batch(rows, codec))
    assert [record.offset for record in found] == list(range(500))
    assert all(len(record.value) == 200_000 for record in found)


@pytest.mark.parametrize("codec", CODECS)
def test_a_huge_record_among_small_ones_is_left_out_truncated(codec: int) -> None:
    reading = Reading(batch([(b"a", b"1"), (b"bomb", bytes(40 << 20)), (b"c", b"3")], codec))
    assert [record.key for record in reading.all()] == [b"a", b"c"]
    (letter,) = reading.unpacking.letters
    assert (letter.record.offset, letter.record.key, letter.record.value) == (1, b"bomb", bytes(100_000))
    assert "41943" in letter.detail


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("checked", [False, True], ids=["checksum-wrong", "checksum-right"])
def test_a_batch_that_cant_be_read_is_told_after_what_came_before_it(codec: int, checked: bool) -> None:
    bad = batch([(b"x", bytes(range(256)) * 4)] * 5, codec, 10)
    bad[61:81] = b"\xff" * 20
    reading = Reading(batch([(b"a", b"")], codec, 9) + (sealed(bad) if checked else bad), offset=9)
    taken = reading.records.take(None)
    assert [record.offset for record in taken][:1] == [9]
    with pytest.raises(UndecodableError, match="can't be read") as caught:
        reading.records.take(None)
    assert caught.value.after == 15
    letter = caught.value.letter
    assert letter.reason == "undecodable-batch"
    assert letter.record.value == bytes(bad)[:100_000]
    assert letter.record.offset == reading.records.next_fetch_offset >= 10
    assert not reading.records.take(None) and reading.records.exhausted


@pytest.mark.parametrize("followed", [False, True], ids=["last", "followed"])
@pytest.mark.parametrize("last", [4, 3_000_000, 2**31 - 1])
def test_a_damaged_header_has_no_batch_behind_it_passed_over(last: int, followed: bool) -> None:
    bad = batch([(b"x", b"y")] * 5, 0, 10)
    struct.pack_into(">i", bad, 23, last)
    bad[-1] ^= 0xFF
    with pytest.raises(UndecodableError, match="offsets 10 to 14 can't be read") as caught:
        Reading(bad + (batch([(b"a", b"")], 0, 15) if followed else b""), offset=10).all()
    assert caught.value.after == caught.value.letter.after == 15


def test_a_damaged_batch_of_a_compacted_topic_ends_where_the_next_one_begins() -> None:
    bad = batch([(b"x", b"y")] * 5, 0, 10)
    struct.pack_into(">i", bad, 23, 89)
    bad[-1] ^= 0xFF
    with pytest.raises(UndecodableError) as caught:
        Reading(bad + batch([(b"a", b"")], 0, 120), offset=10).all()
    assert caught.value.after == 100


@hypothesis_settings(deadline=None, max_examples=150)
@given(st.sampled_from(CODECS), st.booleans(), st.data())
def test_no_bytes_raise_anything_else(codec: int, streamed: bool, data: st.DataObject) -> None:
    bad = batch([(b"key", b"value%d" % number) for number in range(20)], codec)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(23, len(bad) - 1))] = data.draw(st.integers(0, 255))
    with pytest.MonkeyPatch.context() as patch:
        if streamed:
            patch.setattr("keygrouping_service.records.unpacking._WHOLE", 10)
        reading = Reading(sealed(bad))
        try:
            reading.all()
            reading.all()
        except UndecodableError as error:
            assert error.after > error.letter.record.offset >= 0


def test_names_that_are_not_utf_8_are_read() -> None:
    data = batch([(b"k", b"v")] * 3)
    data = sealed(bytearray(bytes(data).replace(b"\x02h\x022", b"\x02\xe9\x022")))
    found = Reading(data).records.take(None)
    assert [headers[0][0] for headers in found.headers] == ["h", "h", "\udce9"]
    assert found.undecoded_names and not Reading(batch([(b"k", b"v")])).records.take(None).undecoded_names


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_with_more_records_than_it_says_is_undecodable(
    codec: int, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if streamed:
        monkeypatch.setattr("keygrouping_service.records.unpacking._WHOLE", 10)
    data = batch([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], codec)
    struct.pack_into(">i", data, 57, 2)
    with pytest.raises(UndecodableError, match="can't be read"):
        read(sealed(data))


@pytest.mark.parametrize(("magic", "appended"), [(0, False), (1, False), (1, True)])
@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("streamed", [False, True])
def test_old_formats_are_read_alike(
    magic: Literal[0, 1], appended: bool, codec: int, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the broker sets the time at which it `appended`, it sets that of the wrapper."""
    if streamed:
        monkeypatch.setattr("keygrouping_service.records.unpacking._WHOLE", 10)
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 30)
    rows = [(b"a", b"1"), (b"big", bytes(5000)), (b"c", b"3")]
    for number, (key, value) in enumerate(rows):
        # Inside of a wrapper, format 1 counts from 0 and format 0 does not.
        builder.append(number if magic and codec else 40 + number, 500 if appended and codec else 1000, key, value)
    inner = bytes(builder.build())
    buffer = inner
    if codec:
        wrapper = LegacyRecordBatchBuilder(magic, 0, 1 << 30)
        wrapper.append(42, 1000, None, gzip_encode(inner))
        wrapped = bytearray(wrapper.build())
        wrapped[17] |= 1 | 8 * appended
        from zlib import crc32

        struct.pack_into(">I", wrapped, 12, crc32(wrapped[16:]))
        buffer = bytes(wrapped)
    reading = Reading(buffer, largest=2000, offset=40)
    time_ms = 1000 if magic else -1
    assert [(r.offset, r.timestamp, r.key, r.value) for r in reading.all()] == [
        (40, time_ms, b"a", b"1"),
        (42, time_ms, b"c", b"3"),
    ]
    assert [letter.record.offset for letter in reading.unpacking.letters] == [41]
    assert {letter.record.timestamp for letter in reading.unpacking.letters} == {time_ms}
