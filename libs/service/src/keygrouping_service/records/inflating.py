"""Decompression of Kafka's codecs in bounded memory.

A few bytes may stand for gigabytes. So nothing is decompressed before it is known how much that is at most: `inflate`
gives up beyond a bound, `chunks` streams what is larger.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import zstandard

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
"""Codecs by their numbers in the attributes of a record batch."""

CHUNK = 1 << 18
"""About how many bytes `chunks` gives at a time; at most twice as many are held."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_SNAPPY_WINDOW = 1 << 16
_ZSTD_WINDOW = 1 << 27
"""Most memory that a zstd frame may ask for (128 MiB): what its levels up to 22 use."""

_ERRORS = (
    *(zlib.error, zstandard.ZstdError, cramjam.DecompressionError),
    *(RuntimeError, OSError, EOFError, struct.error, IndexError),
)
"""What the libraries raise for data that is none of theirs."""


class CorruptDataError(ValueError):
    """The bytes are not what their codec says."""


def inflate(codec: int, data: memoryview, most: int) -> bytes | None:
    """All of the data, or None if that is more than `most` bytes; raises `CorruptDataError`."""
    parts: list[bytes] = []
    size = 0
    for chunk in _stream(codec, data, most + 1):
        size += len(chunk)
        if size > most:
            return None
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def chunks(codec: int, data: memoryview) -> Iterator[bytes]:
    """The data in parts of bounded size; raises `CorruptDataError`, maybe after good parts."""
    return _stream(codec, data, CHUNK)


def _stream(codec: int, data: memoryview, step: int) -> Iterator[bytes]:
    if codec not in _STREAMS:
        raise CorruptDataError(f"unknown compression codec {codec}")
    try:
        yield from _STREAMS[codec](data, step)
    except _ERRORS as error:
        raise CorruptDataError(str(error) or type(error).__name__) from error


def _gzip(data: memoryview, step: int) -> Iterator[bytes]:
    rest = bytes(data)
    while rest:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            part = member.decompress(rest, step)
            rest = member.unconsumed_tail
            if part:
                yield part
            elif not member.eof and not rest:
                raise CorruptDataError("the gzip data ends too early")
        rest = member.unused_data


def _lz4(data: memoryview, step: int) -> Iterator[bytes]:
    rest = bytes(data)
    while rest:
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            part = frame.decompress(rest, step)
            rest = b""
            if part:
                yield part
            elif frame.needs_input and not frame.eof:
                raise CorruptDataError("the lz4 frame ends too early")
        rest = frame.unused_data or b""


def _zstd(data: memoryview, step: int) -> Iterator[bytes]:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    size = zstandard.frame_content_size(data)
    if 0 <= size < step:
        yield unpacker.decompress(data, max_output_size=step)
        return
    with unpacker.stream_reader(data, read_across_frames=True) as reader:
        while part := reader.read(step):
            yield part


def _snappy(data: memoryview, step: int) -> Iterator[bytes]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield from _snappy_block(data, step)
        return
    place = _XERIAL_HEADER_BYTES
    while place < len(data):
        (size,) = struct.unpack_from(">i", data, place)
        block = data[place + 4 : place + 4 + size]
        if size < 0 or len(block) != size:
            raise CorruptDataError("a snappy block ends too early")
        yield from _snappy_block(block, step)
        place += 4 + size


def _snappy_block(block: memoryview, step: int) -> Iterator[bytes]:
    if cramjam.snappy.decompress_raw_len(block) <= step:
        yield bytes(cramjam.snappy.decompress_raw(block))
    else:
        yield from _snappy_elements(block)


def _snappy_elements(block: memoryview) -> Iterator[bytes]:
    """A large block, element by element: no library streams what has no frame around it.

    Compressors look back no further than 64 kB, so that is kept of what has gone out.
    """
    size, place = _varint(block)
    out = bytearray()
    while place < len(block):
        tag, place = block[place], place + 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                width = length - 59
                length, place = int.from_bytes(block[place : place + width], "little"), place + width
            out += block[place : place + length + 1]
            place += length + 1
        else:
            length = (tag >> 2 & 7) + 4 if kind == 1 else (tag >> 2) + 1
            width = kind if kind < 3 else 4
            back = int.from_bytes(block[place : place + width], "little") + (tag >> 5 << 8 if kind == 1 else 0)
            place += width
            if not 0 < back <= len(out):
                raise CorruptDataError("a snappy block refers to bytes before its window")
            start = len(out) - back
            seen = out[start : start + length]
            out += (seen * (length // len(seen) + 1))[:length]
        while len(out) >= CHUNK + _SNAPPY_WINDOW:
            yield bytes(out[:CHUNK])
            del out[:CHUNK]
            size -= CHUNK
    if size != len(out):
        raise CorruptDataError("a snappy block is not as long as it says")
    yield bytes(out)


def _varint(data: memoryview) -> tuple[int, int]:
    """An unsigned varint at the beginning, and where it ends."""
    value = 0
    for place in range(5):
        value |= (data[place] & 0x7F) << 7 * place
        if data[place] < 0x80:
            return value, place + 1
    raise CorruptDataError("a length has more than five bytes")


_STREAMS: dict[int, Callable[[memoryview, int], Iterator[bytes]]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
