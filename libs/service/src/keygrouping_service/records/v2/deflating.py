"""Compression as Kafka's clients understand it; none of these holds the interpreter for long."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame

from keygrouping_service.records.inflating import GZIP, LZ4, SNAPPY, ZSTD

_SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK = 1 << 15
_ZSTD_LEVEL = 3
"""That of Kafka's own producers."""


def deflate(codec: int, data: memoryview) -> bytes:
    """The data compressed; `codec` is one of `inflating`."""
    return _CODECS[codec](data)


def _gzip(data: memoryview) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def _snappy(data: memoryview) -> bytes:
    """Blocks as Java's library frames them."""
    parts = [_SNAPPY_HEADER]
    for at in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _SNAPPY_BLOCK]))
        parts += struct.pack(">i", len(block)), block
    return b"".join(parts)


def _lz4(data: memoryview) -> bytes:
    """At the quickest level, in blocks of their own: Java reads no others."""
    packed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    return packed


def _zstd(data: memoryview) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


_CODECS: dict[int, Callable[[memoryview], bytes]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
