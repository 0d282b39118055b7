"""Rows of events by key and window in one pass over their columns; needs numba."""

import numpy as np
from numpy.typing import NDArray

from keygrouping._murmur import murmur
from keygrouping.compiled import kernel

SPREAD = np.uint64(0x9E3779B97F4A7C15)
S32 = np.uint64(32)


@kernel
def same(data: NDArray[np.uint8], one: int, other: int, size: int) -> bool:
    """Whether two strings of this size are equal."""
    at = 0
    while at < size and data[one + at] == data[other + at]:
        at += 1
    return at == size


@kernel
def number_groups(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    windows: NDArray[np.int64],
    groups: NDArray[np.int64],
    firsts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> int:
    """Says for each row which group it belongs to: rows of the same key and window are one. Gives the number of groups.

    They are numbered in the order of their first rows, which come into `firsts`; `counts` gets their numbers of rows.
    """
    slots = 16
    while slots < 2 * len(starts):
        slots *= 2
    mask = np.uint64(slots - 1)
    table = np.full(slots, -1, np.int64)
    found = 0
    # Not by `_probing.probe`: two keys are the same if their bytes are, and the table has the groups' numbers alone.
    for row in range(len(starts)):
        mixed = (murmur(data, starts[row], sizes[row], 13) ^ np.uint64(windows[row])) * SPREAD
        slot = (mixed >> S32) & mask
        while True:
            group = table[slot]
            if group < 0:
                table[slot] = group = found
                firsts[found], counts[found] = row, 0
                found += 1
                break
            first = firsts[group]
            if (
                windows[first] == windows[row]
                and sizes[first] == sizes[row]
                and same(data, starts[first], starts[row], sizes[row])
            ):
                break
            slot = (slot + np.uint64(1)) & mask
        groups[row] = group
        counts[group] += 1
    return found


@kernel
def order_by_group(groups: NDArray[np.int64], counts: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Into `rows`: the rows of the first group in their order, then those of the next."""
    at = np.zeros(len(counts), np.int64)
    for group in range(1, len(counts)):
        at[group] = at[group - 1] + counts[group - 1]
    for row in range(len(groups)):
        rows[at[groups[row]]] = row
        at[groups[row]] += 1
