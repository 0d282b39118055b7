"""Compiled search for the best moves and swaps of Readj; needs numba."""

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping.protocol import Weights

LEAST_GAIN = 1e-9
"""Steps that lower the sum of squared loads by a smaller part of the squared limit are not worth a migration."""
NONE = -1


@kernel
def best_step(
    cost: Weights, state: Weights, at: NDArray[np.int64], loads: Weights, least: float
) -> tuple[int, int, int]:
    """The key to move, its new worker, and the key that goes the other way (or NONE); all NONE if none is worth it.

    What counts is the fall of the sum of squared loads, then the state to be migrated.
    """
    best = (NONE, NONE, NONE)
    gain = least
    moved = np.inf
    for key in range(len(cost)):
        source = at[key]
        for other in range(-len(loads), len(cost)):
            target = other + len(loads) if other < 0 else at[other]
            difference = cost[key] - (0.0 if other < 0 else cost[other])
            lowered = 2 * difference * (loads[source] - loads[target] - difference)
            if source == target or difference <= 0 or lowered < gain:
                continue
            migrated = state[key] + (0.0 if other < 0 else state[other])
            if lowered > gain or migrated < moved:
                gain = lowered
                moved = migrated
                best = (key, target, NONE if other < 0 else other)
    return best


@kernel
def readjust(cost: Weights, state: Weights, at: NDArray[np.int64], loads: Weights, limit: float) -> NDArray[np.int64]:
    """Take the best step until no load exceeds the limit or nothing gets better; the new workers (`loads` change).

    Every step lowers the sum of squared loads, so none is repeated; there are at most four per key.
    """
    at = at.copy()
    for _ in range(4 * len(cost)):
        if loads.max() <= limit:
            break
        key, target, other = best_step(cost, state, at, loads, LEAST_GAIN * limit * limit)
        if key == NONE:
            break
        source = at[key]
        at[key] = target
        loads[source] -= cost[key]
        loads[target] += cost[key]
        if other != NONE:
            at[other] = source
            loads[source] += cost[other]
            loads[target] -= cost[other]
    return at
