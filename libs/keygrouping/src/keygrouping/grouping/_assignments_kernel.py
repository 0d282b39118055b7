"""Compiled memory of the workers of keys; needs numba. For the arrays see `_assignments`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import find
from keygrouping.compiled import kernel

UNKNOWN = -1


@kernel
def recall(tables: NDArray[Any], generations: Any, hashed: np.int64) -> int:
    """The worker of a key, which is a young one from now on, or UNKNOWN."""
    young = tables[generations.young]
    item = young[find(young, hashed)]
    if item.used:
        return int(item.worker)
    old = tables[1 - generations.young]
    item = old[find(old, hashed)]
    if not item.used:
        return UNKNOWN
    worker = int(item.worker)
    remember(tables, generations, hashed, worker)
    return worker


@kernel
def remember(tables: NDArray[Any], generations: Any, hashed: np.int64, worker: int) -> None:
    """Note the worker of a key that isn't young; where there is no more room the young ones become old first."""
    if generations.size == generations.limit:
        generations.young = 1 - generations.young
        generations.size = 0
        if forget_all(tables[generations.young]):
            generations.forgotten += 1
    young = tables[generations.young]
    item = young[find(young, hashed)]
    item.hash = hashed
    item.worker = worker
    item.used = 1
    generations.size += 1


@kernel
def forget_all(table: NDArray[Any]) -> bool:
    """Empty a table; whether there was anything in it."""
    any_used = False
    for slot in range(len(table)):
        if table[slot].used:
            table[slot].used = 0
            any_used = True
    return any_used
