"""CRC-32C (Castagnoli), sixteen bytes at a time; needs numba.

By tables and not by the processor's instruction: kernels are compiled for the plainest processor in images.
"""

from typing import Any

import numpy as np
from keygrouping.compiled import kernel
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_ALL = np.uint32(0xFFFFFFFF)
_BYTE = np.uint32(0xFF)


def _tables() -> NDArray[np.uint32]:
    """Row n advances a byte over n bytes of zeros more."""
    tables = np.zeros((16, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for row in range(1, 16):
        tables[row] = tables[0, tables[row - 1] & _BYTE] ^ tables[row - 1] >> np.uint32(8)
    return tables


_T = _tables()


@kernel
def crc32c(data: NDArray[np.uint8], start: int, stop: int) -> Any:
    """The checksum of data[start:stop]."""
    crc = _ALL
    at = start
    while stop - at >= 16:
        head = crc ^ word(data, at)
        crc = folded(head, 12) ^ folded(word(data, at + 4), 8) ^ folded(word(data, at + 8), 4)
        crc ^= folded(word(data, at + 12), 0)
        at += 16
    while at < stop:
        crc = _T[0, (crc ^ np.uint32(data[at])) & _BYTE] ^ (crc >> np.uint32(8))
        at += 1
    return crc ^ _ALL


@kernel
def word(data: NDArray[np.uint8], at: int) -> Any:
    """Four bytes as a little-endian number."""
    low = np.uint32(data[at]) | np.uint32(data[at + 1]) << np.uint32(8)
    return low | np.uint32(data[at + 2]) << np.uint32(16) | np.uint32(data[at + 3]) << np.uint32(24)


@kernel
def folded(value: np.uint32, behind: int) -> Any:
    """What four bytes add to a checksum with so many bytes behind them."""
    one = _T[behind + 3, value & _BYTE] ^ _T[behind + 2, (value >> np.uint32(8)) & _BYTE]
    return one ^ _T[behind + 1, (value >> np.uint32(16)) & _BYTE] ^ _T[behind, value >> np.uint32(24)]
