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
def route_choices(hashes: Hashes, weights: Weights, loads: Weights, distinct: bool) -> Workers:
    """The least loaded of a key's choices, one per hash; a tie: the first; `loads` goes up as it goes along."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    choices = min(hashes.shape[1], len(loads)) if distinct else hashes.shape[1]
    chosen_by = np.full(len(loads), -1)
    for i in range(len(hashes)):
        best = -1
        for choice in range(choices):
            worker = home_of(hashes[i, choice], len(loads))
            if distinct:
                while chosen_by[worker] == i:
                    worker = worker + 1 if worker + 1 < len(loads) else 0
                chosen_by[worker] = i
            if best < 0 or loads[worker] < loads[best]:
                best = worker
        loads[best] += weights[i] if weighted else 1.0
        routed[i] = best
    return routed
