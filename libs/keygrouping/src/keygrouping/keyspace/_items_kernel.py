"""Compiled access to tables of key items; needs numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.keyspace.items import EMPTY


@kernel
def find(items: NDArray[Any], hashed: np.int64) -> int:
    """The slot of a key, or the empty one where it belongs."""
    mask = len(items) - 1
    slot = int(hashed & mask)
    while items[slot].space != EMPTY and items[slot].hash != hashed:
        slot = (slot + 1) & mask
    return slot


@kernel
def lay_out(items: NDArray[Any], table: NDArray[Any]) -> None:
    """Make the table hold these items and no others."""
    for slot in range(len(table)):
        table[slot].space = EMPTY
    for item in items:
        table[find(table, item.hash)] = item
