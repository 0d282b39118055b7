"""CRC-32C (Castagnoli); needs numba.

By the processor's instruction where that is sure to be there, else by tables, sixteen bytes at a time.
"""

from typing import Any

import numpy as np
from keygrouping.compiled import kernel
from keygrouping.crc_step import HAS_CRC_STEP, crc_step
from keygrouping.raw_bytes import View, byte, eight, view_of
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_ALL = np.uint32(0xFFFFFFFF)
_BYTE = np.uint32(0xFF)
_HALF = np.uint64(32)


def _tables() -> NDArray[np.uint32]:
    """Row n advances a byte over n bytes of zeros more."""
    tables = np.zeros((16, 256), np.uint32)
    for index in range(256):
        value = index
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, index] = value
    for row in range(1, 16):
        tables[row] = tables[0, tables[row - 1] & _BYTE] ^ tables[row - 1] >> np.uint32(8)
    return tables


_T = _tables()


@kernel
def crc32c(data: NDArray[np.uint8], start: int, stop: int) -> Any:
    """The checksum of data[start:stop]."""
    return crc_of(view_of(data), start, stop)


@kernel
def crc_of(view: View, start: int, stop: int) -> Any:
    """The checksum of the bytes from `start` to `stop`."""
    at = start
    if HAS_CRC_STEP:
        wide = np.uint64(_ALL)
        while stop - at >= 8:
            wide = crc_step(wide, eight(view, at))
            at += 8
        crc = np.uint32(wide)
    else:
        crc = _ALL
        while stop - at >= 16:
            head, tail = eight(view, at), eight(view, at + 8)
            near = folded(np.uint32(tail), 4) ^ folded(np.uint32(tail >> _HALF), 0)
            crc = folded(crc ^ np.uint32(head), 12) ^ folded(np.uint32(head >> _HALF), 8) ^ near
            at += 16
    while at < stop:
        crc = _T[0, (crc ^ np.uint32(byte(view, at))) & _BYTE] ^ (crc >> np.uint32(8))
        at += 1
    return crc ^ _ALL


@kernel
def folded(value: np.uint32, behind: int) -> Any:
    """What four bytes add to a checksum with so many bytes behind them."""
    one = _T[behind + 3, value & _BYTE] ^ _T[behind + 2, (value >> np.uint32(8)) & _BYTE]
    return one ^ _T[behind + 1, (value >> np.uint32(16)) & _BYTE] ^ _T[behind, value >> np.uint32(24)]
