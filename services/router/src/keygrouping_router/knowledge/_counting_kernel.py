"""Compiled counting of routed events: weights per key; needs numba."""

from typing import Any

import numpy as np
from keygrouping._probing import find
from keygrouping.compiled import kernel
from keygrouping.keyspace._space_saving_kernel import enter
from numpy.typing import NDArray


@kernel
def count_keys(
    counters: NDArray[Any],
    sketches: NDArray[Any],
    hashes: NDArray[np.int64],
    weights: NDArray[np.float64],
    tick: int,
    fresh: NDArray[np.int64],
) -> int:
    """Count events (weights of shape (0,) mean ones) and tag their keys with the tick, negative while unnamed.

    `fresh` (n) takes the positions of events whose keys are to be named, and gives how many: keys that are new, or,
    where there are more than can be counted, that are seen for the second time. Most others would not stay.
    """
    weighted = len(weights) > 0
    sketch = sketches[0]
    entered = 0
    for i in range(len(hashes)):
        slot = find(counters, hashes[i])
        unnamed = counters[slot].used and counters[slot].tag < 0
        sign = 1
        if not counters[slot].used:
            # Once counters are taken over from other keys, most new ones are soon gone: they are not named yet.
            slot = enter(counters, sketch, hashes[i])
            unnamed = sketch.offset == 0
            sign = 1 if unnamed else -1
        if unnamed:
            fresh[entered] = i
            entered += 1
        weight = weights[i] if weighted else 1.0
        counters[slot].count += weight
        counters[slot].tag = sign * tick
        sketch.total += weight
    # Later events of the batch may have taken a counter over.
    stayed = 0
    for i in range(entered):
        if counters[find(counters, hashes[fresh[i]])].used:
            fresh[stayed] = fresh[i]
            stayed += 1
    return stayed
