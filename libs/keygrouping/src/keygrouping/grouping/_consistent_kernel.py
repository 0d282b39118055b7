"""Compiled routing of Consistent Grouping; needs numba."""

from collections.abc import Iterator

import numpy as np

from keygrouping.compiled import kernel
from keygrouping.grouping.protocol import Hashes, Weights, Workers


@kernel
def route_consistent(
    hashes: Hashes, weights: Weights, loads: Weights, totals: Weights, owners: Workers, most: float
) -> Workers:
    """Each event to the owner of the first virtual worker on its key's way with room; loads, totals go along.

    `most`: a virtual worker has room up to so many times the average; `totals` has the sum of all loads.
    """
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    mask = np.uint64(len(loads) - 1)
    shift = np.uint64(32)
    one = np.uint64(1)
    for i in range(len(hashes)):
        hashed = np.uint64(hashes[i, 0])
        virtual = hashed & mask
        step = (hashed >> shift) | one
        limit = most * totals[0] / len(loads)
        for _ in range(len(loads)):
            if loads[virtual] <= limit:
                break
            virtual = (virtual + step) & mask
        weight = weights[i] if weighted else 1.0
        loads[virtual] += weight
        totals[0] += weight
        routed[i] = owners[virtual]
    return routed


@kernel
def each_by_consistent(
    event: Hashes, weights: Weights, loads: Weights, totals: Weights, owners: Workers, most: float
) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_consistent(event, weights, loads, totals, owners, most)[0]
