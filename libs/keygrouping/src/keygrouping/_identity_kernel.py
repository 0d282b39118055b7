"""Sums of events' hashes modulo 2^128 (see `keygrouping.identity`), a pass over the events each; needs numba.

A sum is two numbers, upper and lower half. Seeds come with what XXH64 adds to them first, as `starts`.
"""

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import probe
from keygrouping.compiled import kernel

Q1 = np.uint64(0x9E3779B185EBCA87)
Q2 = np.uint64(0xC2B2AE3D27D4EB4F)
Q3 = np.uint64(0x165667B19E3779F9)
Q4 = np.uint64(0x85EBCA77C2B2AE63)
S27, S29, S31, S32, S33, S37 = (np.uint64(shift) for shift in (27, 29, 31, 32, 33, 37))
ONE = np.uint64(1)


@kernel
def half(value: np.uint64, start: np.uint64) -> np.uint64:
    """XXH64 of a number, behind its first round."""
    value ^= start
    value = ((value << S27) | (value >> S37)) * Q1 + Q4
    value = (value ^ (value >> S33)) * Q2
    value = (value ^ (value >> S29)) * Q3
    return value ^ (value >> S32)


@kernel
def mixed(offset: int) -> np.uint64:
    """The first round of XXH64, which is the same for both halves."""
    value = np.uint64(offset) * Q2
    return ((value << S31) | (value >> S33)) * Q1


@kernel
def add(offset: int, starts: NDArray[np.uint64], total: NDArray[np.uint64]) -> None:
    """Adds the hash of an offset to a sum."""
    value = mixed(offset)
    low = half(value, starts[1])
    total[0] += half(value, starts[0])
    total[1] += low
    if total[1] < low:
        total[0] += ONE


@kernel
def sum_runs(
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int64],
    places: NDArray[np.int64],
    starts: NDArray[np.uint64],
    sums: NDArray[np.uint64],
) -> None:
    """Adds each run of offsets to the row of `sums` that `places` says; `sizes` are the runs' lengths."""
    at, first, second = 0, starts[0], starts[1]
    for run in range(len(sizes)):
        high, low = sums[places[run], 0], sums[places[run], 1]
        for i in range(at, at + sizes[run]):
            value = mixed(offsets[i])
            lower = half(value, second)
            low += lower
            high += half(value, first) + (ONE if low < lower else np.uint64(0))
        sums[places[run], 0], sums[places[run], 1] = high, low
        at += sizes[run]


@kernel
def sum_routed(  # noqa: PLR0913 -- columns of three tables
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    times: NDArray[np.int64],
    starts: NDArray[np.uint64],
    runs: NDArray[np.int64],
    routed_starts: NDArray[np.uint64],
    window: NDArray[np.int64],
    total: NDArray[np.uint64],
    counts: NDArray[np.int64],
    sums: NDArray[np.uint64],
) -> int:
    """Sums of routed events, by their place in the input and by that in the routed topic; gives the number of windows.

    `rows` are the events' rows in `offsets` and `times`, which are those of the input, in the order in which they were
    written. A row of `runs` is a worker, the first of its offsets there, and their number. `window` is length and
    offset in ms. `total` gets the sum by the input; each window a row of `counts` (start, number) and of `sums`.
    """
    size = 16
    while size < 2 * len(rows):
        size *= 2
    keys, used = np.empty(size, np.int64), np.zeros(size, np.int32)
    found, here, at = 0, -1, 0
    for run in range(len(runs)):
        worker, first = runs[run, 0], runs[run, 1]
        for k in range(runs[run, 2]):
            row = rows[at]
            at += 1
            begin = times[row] - (times[row] - window[1]) % window[0]
            if here < 0 or counts[here, 0] != begin:
                slot = probe(keys, used, begin, np.int64((np.uint64(begin) * Q1) >> S33))
                if not used[slot]:
                    counts[found, 0], counts[found, 1] = begin, 0
                    found += 1
                    keys[slot], used[slot] = begin, found
                here = used[slot] - 1
            counts[here, 1] += 1
            add(first + k, routed_starts[worker], sums[here])
            add(offsets[row], starts, total)
    return found
