"""The search of all hash tables here, which use open addressing with linear probing; needs numba.

A table has a power of two of slots, of which at least one is free; a slot is free where its entry in `used` is 0. So a
fresh array of zeros is an empty table. Keys are never removed one by one: a table is laid out from scratch instead.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel


@kernel
def probe(keys: NDArray[np.int64], used: NDArray[np.int32], key: np.int64 | int, start: Any) -> int:
    """The slot of a key, or the free one where it belongs; the search begins at `start`, modulo the number of slots.

    `keys` and `used` are columns of the table, with one entry per slot.
    """
    mask = len(keys) - 1
    slot = int(start & mask)
    while used[slot] and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def find(table: NDArray[Any], hashed: np.int64 | int) -> int:
    """The slot of a key, or the free one where it belongs, in a table of records with `hash` and `used`."""
    return probe(table["hash"], table["used"], hashed, hashed)


@kernel
def lay_out(table: NDArray[Any], items: NDArray[Any]) -> None:
    """Put items of distinct keys into an empty table of records with `hash` and `used`."""
    for i in range(len(items)):
        table[find(table, items[i].hash)] = items[i]
