"""The hash of Kafka's own partitioner (MurmurHash2, 32 bits) of many keys at once; needs numba."""

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel

SEED = np.uint32(0x9747B28C)
FACTOR = np.uint32(0x5BD1E995)
R24 = np.uint32(24)
R15 = np.uint32(15)
R13 = np.uint32(13)


@kernel
def word(data: NDArray[np.uint8], start: int, size: int) -> np.uint32:
    """Up to four bytes as a little-endian number."""
    value = np.uint32(0)
    for i in range(size):
        value |= np.uint32(data[start + i]) << np.uint32(8 * i)
    return value


@kernel
def murmur2(data: NDArray[np.uint8], start: int, size: int) -> np.uint32:
    """The hash of data[start : start + size]."""
    hashed = SEED ^ np.uint32(size)
    blocks = size // 4
    for block in range(blocks):
        mixed = np.uint32(word(data, start + 4 * block, 4) * FACTOR)
        mixed = np.uint32((mixed ^ (mixed >> R24)) * FACTOR)
        hashed = np.uint32(hashed * FACTOR) ^ mixed
    if size > 4 * blocks:
        hashed = np.uint32((hashed ^ word(data, start + 4 * blocks, size - 4 * blocks)) * FACTOR)
    hashed = np.uint32((hashed ^ (hashed >> R13)) * FACTOR)
    return hashed ^ (hashed >> R15)


@kernel
def hash_all(data: NDArray[np.uint8], sizes: NDArray[np.int64], hashes: NDArray[np.uint32]) -> None:
    """Hash keys that stand one after the other in `data` into hashes[key]."""
    start = 0
    for key in range(sizes.size):
        hashes[key] = murmur2(data, start, sizes[key])
        start += sizes[key]
