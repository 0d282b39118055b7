"""Compiled access to tables of key items; needs numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import probe
from keygrouping.compiled import kernel


@kernel
def find(items: NDArray[Any], hashed: np.int64 | int) -> int:
    """The slot of a key, or the empty one where it belongs: what is in no space is in no slot."""
    return probe(items["hash"], items["space"], hashed, hashed)


@kernel
def lay_out(table: NDArray[Any], items: NDArray[Any]) -> None:
    """Put items of distinct keys into an empty table."""
    for item in items:
        table[find(table, item.hash)] = item
