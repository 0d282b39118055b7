"""Compiled batch routing of the groupings that keep no statistics of keys; needs numba."""

from typing import Any

import numpy as np

from keygrouping.compiled import kernel
from keygrouping.grouping.protocol import Hashes, Weights, Workers


@kernel
def home_of(hashed: np.int64, workers: int) -> Any:
    """The absolute value modulo the number of workers; unsigned, so that the smallest integer has one."""
    size = np.uint64(-hashed) if hashed < 0 else np.uint64(hashed)
    return np.int64(size % np.uint64(workers))


@kernel
def route_key(hashes: Hashes, workers: int) -> Workers:
    """The home of every key."""
    routed = np.empty(len(hashes), np.int32)
    for i in range(len(hashes)):
        routed[i] = home_of(hashes[i, 0], workers)
    return routed


@kernel
def route_pkg(hashes: Hashes, weights: Weights, loads: Weights, distinct: bool) -> Workers:
    """The less loaded of two choices; `loads` goes up as it goes along."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    for i in range(len(hashes)):
        first = home_of(hashes[i, 0], len(loads))
        second = home_of(hashes[i, 1], len(loads))
        if distinct and first == second:
            second = second + 1 if second + 1 < len(loads) else 0
        worker = second if loads[first] > loads[second] else first
        loads[worker] += weights[i] if weighted else 1.0
        routed[i] = worker
    return routed
