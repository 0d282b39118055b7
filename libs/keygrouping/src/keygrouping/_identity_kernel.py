"""Sums of events' hashes modulo 2^128 (see `keygrouping.identity`), a pass over the events each; needs numba.

A sum is two numbers, upper and lower half. Seeds come with what XXH64 adds to them first, as `starts`.
"""

from typing import NamedTuple

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


class Written(NamedTuple):
    """Events of an input partition that were written to another topic."""

    offsets: NDArray[np.int64]
    """In the input."""
    times: NDArray[np.int64]
    """Their event times in ms, row by row as `offsets`."""
    rows: NDArray[np.int64]
    """Which of these rows were written, in the order of writing."""
    runs: NDArray[np.int64]
    """A row for each run of them: its partition, the first offset there, and how many."""


class Starts(NamedTuple):
    """What XXH64 adds to the seeds: for the input partition, and a row for each partition of the other topic."""

    read: NDArray[np.uint64]
    written: NDArray[np.uint64]


class Sums(NamedTuple):
    """What is found: the sum by the input's places; and by window its start, number of events and sum by the others."""

    total: NDArray[np.uint64]
    counts: NDArray[np.int64]
    sums: NDArray[np.uint64]


@kernel
def half(value: np.uint64, start: np.uint64) -> np.uint64:
    """XXH64 of a number, behind its first round."""
    value ^= start
    value = ((value << S27) | (value >> S37)) * Q1 + Q4
    value = (value ^ (value >> S33)) * Q2
    value = (value ^ (value >> S29)) * Q3
    return value ^ (value >> S32)


@kernel
def add(offset: int, starts: NDArray[np.uint64], total: NDArray[np.uint64]) -> None:
    """Adds the hash of an offset to a sum."""
    value = np.uint64(offset) * Q2
    value = ((value << S31) | (value >> S33)) * Q1
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
    at = 0
    for run in range(len(sizes)):
        for _ in range(sizes[run]):
            add(offsets[at], starts, sums[places[run]])
            at += 1


@kernel
def sum_routed(events: Written, starts: Starts, window: NDArray[np.int64], into: Sums) -> int:
    """Sums of routed events, by their place in the input and by that in the routed topic; gives the number of windows.

    `window` is length and offset in ms. `into` has room for as many windows as events, and zeros as sums.
    """
    size = 16
    while size < 2 * len(events.rows):
        size *= 2
    keys, used = np.empty(size, np.int64), np.zeros(size, np.int32)
    counts = into.counts
    found, here, at = 0, -1, 0
    for run in range(len(events.runs)):
        partition, first = events.runs[run, 0], events.runs[run, 1]
        for k in range(events.runs[run, 2]):
            row = events.rows[at]
            at += 1
            begin = events.times[row] - (events.times[row] - window[1]) % window[0]
            # Neighbours are mostly of one window: the table is asked only where it changes.
            if here < 0 or counts[here, 0] != begin:
                slot = probe(keys, used, begin, np.int64((np.uint64(begin) * Q1) >> S33))
                if not used[slot]:
                    counts[found, 0], counts[found, 1] = begin, 0
                    found += 1
                    keys[slot], used[slot] = begin, found
                here = used[slot] - 1
            counts[here, 1] += 1
            add(first + k, starts.written[partition], into.sums[here])
            add(events.offsets[row], starts.read, into.total)
    return found
