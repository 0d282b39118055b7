"""Compiled membership of the counting Bloom filter, to be called from the kernels of groupings; needs numba."""

import numpy as np
from numpy.typing import NDArray

from keygrouping._splitmix import mix
from keygrouping.compiled import kernel

_HALF = np.uint64(32)
_ONE = np.uint64(1)


@kernel
def contains(counters: NDArray[np.int32], hashes: int, hashed: np.int64) -> bool:
    """Whether a key was added, or looks like it."""
    bits = mix(np.uint64(hashed))
    mask = np.uint64(len(counters) - 1)
    step = (bits >> _HALF) | _ONE
    for _ in range(hashes):
        if counters[bits & mask] == 0:
            return False
        bits += step
    return True


@kernel
def change(counters: NDArray[np.int32], hashes: int, hashed: np.int64, by: int) -> None:
    """Add a key (by = 1), or remove one that was added (by = -1)."""
    bits = mix(np.uint64(hashed))
    mask = np.uint64(len(counters) - 1)
    step = (bits >> _HALF) | _ONE
    for _ in range(hashes):
        counters[bits & mask] += by
        bits += step
