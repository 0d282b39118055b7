"""Rows of events by key and window in one pass over their columns; needs numba."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping._murmur import murmur
from keygrouping.byte_copy import copy
from keygrouping.compiled import kernel

SPREAD = np.uint64(0x9E3779B97F4A7C15)
S32 = np.uint64(32)
ONE = np.uint64(1)
START, KEY, SIZE, HASH, RUN = range(5)


class Table(NamedTuple):
    """Keys in windows, which are numbered.

    A row of `places` is one of them: the window's start, where in `keys` the key begins, its size, the hash of both,
    and its run in the last batch that had it. `slots` finds them by their hash, -1 is none.
    """

    slots: NDArray[np.int32]
    places: NDArray[np.int64]
    keys: NDArray[np.uint8]


@kernel
def same(data: NDArray[np.uint8], at: int, keys: NDArray[np.uint8], place: int, size: int) -> bool:
    """Whether two strings of this size are equal."""
    equal = 0
    while equal < size and data[at + equal] == keys[place + equal]:
        equal += 1
    return equal == size


@kernel
def free_slot(slots: NDArray[np.int32], hashed: np.uint64) -> Any:
    """The slot for a group of this hash, which is not there yet."""
    mask = np.uint64(len(slots) - 1)
    slot = (hashed >> S32) & mask
    while slots[slot] >= 0:
        slot = (slot + ONE) & mask
    return slot


@kernel
def with_room(table: Table, groups: int, held: int, size: int) -> Table:
    """The table with room for another group and its key of this size; it has so many groups and bytes of keys."""
    slots, places, keys = table
    if 2 * (groups + 1) > len(slots):
        slots = np.full(2 * len(slots), -1, np.int32)
        for group in range(groups):
            slots[free_slot(slots, np.uint64(places[group, HASH]))] = group
    if groups == len(places):
        more = np.empty((2 * groups, 5), np.int64)
        more[:groups] = places
        places = more
    if held + size > len(keys):
        longer = np.empty(2 * (held + size), np.uint8)
        copy(longer, 0, keys, 0, held)
        keys = longer
    return Table(slots, places, keys)


@kernel
def group_rows(  # noqa: PLR0913 -- columns of three tables
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    windows: NDArray[np.int64],
    table: Table,
    filled: NDArray[np.int64],
    runs: NDArray[np.int64],
    groups: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> Any:
    """Says for each row which run it belongs to: rows of the same key and window are one.

    Runs are numbered in the order of their first rows; `groups` gets their groups, `counts` their numbers of rows.
    Gives the number of runs, and the table with the groups that are new; `filled` are its groups and bytes of keys.
    """
    slots, places, keys = table
    mask = np.uint64(len(slots) - 1)
    found = 0
    # Not by `_probing.probe`: two keys are the same if their bytes are, and the table has the groups' numbers alone.
    for row in range(len(starts)):
        start, size, window = starts[row], sizes[row], windows[row]
        hashed = (murmur(data, start, size, 13) ^ np.uint64(window)) * SPREAD
        slot = (hashed >> S32) & mask
        group = np.int64(slots[slot])
        while group >= 0 and not (
            places[group, HASH] == np.int64(hashed)
            and places[group, START] == window
            and places[group, SIZE] == size
            and same(data, start, keys, places[group, KEY], size)
        ):
            slot = (slot + ONE) & mask
            group = np.int64(slots[slot])
        if group < 0:
            group, held = filled[0], filled[1]
            slots, places, keys = with_room(Table(slots, places, keys), group, held, size)
            mask = np.uint64(len(slots) - 1)
            slots[free_slot(slots, hashed)] = group
            copy(keys, held, data, start, size)
            places[group, START], places[group, KEY], places[group, SIZE] = window, held, size
            places[group, HASH], places[group, RUN] = np.int64(hashed), 0
            filled[0], filled[1] = group + 1, held + size
        run = places[group, RUN]
        if run >= found or groups[run] != group:
            run = found
            found += 1
            places[group, RUN], groups[run], counts[run] = run, group, 0
        runs[row] = run
        counts[run] += 1
    return found, Table(slots, places, keys)


@kernel
def order_by_run(runs: NDArray[np.int64], counts: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Into `rows`: the rows of the first run in their order, then those of the next."""
    at = np.zeros(len(counts), np.int64)
    for run in range(1, len(counts)):
        at[run] = at[run - 1] + counts[run - 1]
    for row in range(len(runs)):
        rows[at[runs[row]]] = row
        at[runs[row]] += 1
