"""Compiled sampling of (key, worker) pairs by the keys' hashes; needs numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import probe
from keygrouping.compiled import kernel

HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
WORKER_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
HALF = np.uint64(32)
TOP = np.uint64(63)
ONE = np.uint64(1)


@kernel
def sampled(hashed: np.int64, level: np.int64) -> bool:
    """Whether a key is of the sample: at each level half of the keys of the level before."""
    return bool((np.uint64(hashed) >> ONE) >> (TOP - np.uint64(level)) == 0)


@kernel
def slot_of(pairs: NDArray[Any], hashed: np.int64, worker: int) -> int:
    """The slot of a pair, or the free one where it belongs."""
    mixed = np.uint64(hashed) * HASH_FACTOR + np.uint64(worker) * WORKER_FACTOR
    slot = probe(pairs["hash"], pairs["used"], hashed, np.int64(mixed >> HALF))
    while pairs[slot].used and pairs[slot].worker != worker:  # The key, but with another worker.
        slot = probe(pairs["hash"], pairs["used"], hashed, slot + 1)
    return slot


@kernel
def thin_out(pairs: NDArray[Any], state: Any) -> None:
    """Go to the next level: about half of the keys leave, with all their pairs."""
    state.level += 1
    kept = np.empty(state.size, pairs.dtype)
    state.size = 0
    for slot in range(len(pairs)):
        if pairs[slot].used:
            if sampled(pairs[slot].hash, state.level):
                kept[state.size] = pairs[slot]
                state.size += 1
            pairs[slot].used = 0
    for i in range(state.size):
        pairs[slot_of(pairs, kept[i].hash, kept[i].worker)] = kept[i]


@kernel
def add_pairs(
    pairs: NDArray[Any], states: NDArray[Any], hashes: NDArray[np.int64], workers: NDArray[np.int32], most: int
) -> None:
    """Take note of the workers of the sampled keys; the sample is thinned out so that it holds at most `most` pairs."""
    state = states[0]
    for i in range(len(hashes)):
        if not sampled(hashes[i], state.level):
            continue
        slot = slot_of(pairs, hashes[i], workers[i])
        if not pairs[slot].used:
            pair = pairs[slot]
            pair.hash = hashes[i]
            pair.worker = workers[i]
            pair.used = 1
            state.size += 1
            while state.size > most:
                thin_out(pairs, state)
