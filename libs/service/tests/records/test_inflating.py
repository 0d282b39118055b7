"""Laws of decompression in bounded memory: whatever the codec, the same bytes come out, never more than asked for."""

import resource
import struct
from collections.abc import Callable

import cramjam
import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from keygrouping_service.records.inflating import CHUNK, GZIP, LZ4, SNAPPY, ZSTD, CorruptDataError, chunks, inflate

Encode = Callable[[bytes], bytes]


def snappy_raw(data: bytes) -> bytes:
    """As librdkafka writes it: one block, no frame."""
    return bytes(cramjam.snappy.compress_raw(data))


def zstd_streamed(data: bytes) -> bytes:
    """A frame that doesn't tell its size."""
    compressor = cramjam.zstd.Compressor()
    compressor.compress(data)
    return bytes(compressor.finish())


CODECS: dict[str, tuple[int, Encode]] = {
    "gzip": (GZIP, gzip_encode),
    "snappy": (SNAPPY, snappy_encode),
    "snappy-raw": (SNAPPY, snappy_raw),
    "lz4": (LZ4, lz4_encode),
    "zstd": (ZSTD, zstd_encode),
    "zstd-streamed": (ZSTD, zstd_streamed),
}
every_codec = pytest.mark.parametrize(("codec", "encode"), CODECS.values(), ids=list(CODECS))
texts = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=300), st.integers(1, 20_000)),
)


@every_codec
@hypothesis_settings(deadline=None, max_examples=25)
@given(data=texts, most=st.integers(0, 300_000))
def test_what_went_in_comes_out_if_it_is_not_too_much(codec: int, encode: Encode, data: bytes, most: int) -> None:
    packed = memoryview(encode(data))
    assert b"".join(chunks(codec, packed)) == data
    assert inflate(codec, packed, len(data)) == data
    assert inflate(codec, packed, most) == (data if len(data) <= most else None)


@every_codec
@hypothesis_settings(deadline=None, max_examples=30)
@given(data=texts, garbage=st.data())
def test_garbage_raises_one_kind_of_error(codec: int, encode: Encode, data: bytes, garbage: st.DataObject) -> None:
    packed = bytearray(encode(data))
    for _ in range(3):
        packed[garbage.draw(st.integers(0, len(packed) - 1))] = garbage.draw(st.integers(0, 255))
    for read in (lambda: inflate(codec, memoryview(packed), 1000), lambda: list(chunks(codec, memoryview(packed)))):
        try:
            read()
        except CorruptDataError as error:
            assert str(error)


@every_codec
def test_zeros_without_end_need_little_memory(codec: int, encode: Encode) -> None:
    packed = memoryview(encode(bytes(60 << 20)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert inflate(codec, packed, 1 << 20) is None
    sizes = [len(chunk) for chunk in chunks(codec, packed)]
    assert sum(sizes) == 60 << 20
    assert max(sizes) <= 2 * CHUNK
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 12_000


def test_an_unknown_codec_and_a_frame_cut_off_are_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="codec 7"):
        inflate(7, memoryview(b"x"), 10)
    for codec, encode in CODECS.values():
        if encode is zstd_streamed:
            continue  # Its reader stops without a word: what is missing is found when records are read.
        with pytest.raises(CorruptDataError):
            inflate(codec, memoryview(encode(bytes(range(256)) * 100)[:-9]), 1 << 20)
    with pytest.raises(CorruptDataError):
        inflate(SNAPPY, memoryview(snappy_encode(b"")[:16] + struct.pack(">i", -5)), 10)
