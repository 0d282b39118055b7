"""Compiled routing of DStream; needs numba."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._splitmix import draw
from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Workers
from keygrouping.keyspace._counting_bloom_kernel import contains
from keygrouping.keyspace._predictor_kernel import update


@kernel
def route_dstream(
    hashes: Hashes,
    workers: int,
    synopsis: NDArray[Any],
    all_rules: NDArray[Any],
    random: NDArray[np.uint64],
    counters: NDArray[np.int32],
    turn: NDArray[np.int64],
) -> tuple[Workers, int]:
    """Route events one after the other, and tell how many keys became hot or ceased to be.

    `turn` holds the worker of the next event of a hot key.
    """
    routed = np.empty(len(hashes), np.int32)
    rules = all_rules[0]
    few, probes = rules.few, rules.hashes
    changes = 0
    for i in range(len(hashes)):
        hashed = hashes[i, 0]
        # One draw is all of the event's coin flips: where the first few are heads, it is sampled.
        flips = draw(random)
        if flips & few == few:
            changes += update(synopsis, rules, random, counters, hashed, flips)
        if contains(counters, probes, hashed):
            routed[i] = turn[0]
            turn[0] = turn[0] + 1 if turn[0] + 1 < workers else 0
        else:
            routed[i] = home_of(hashed, workers)
    return routed, changes


@kernel
def each_by_dstream(
    event: Hashes,
    workers: int,
    synopsis: NDArray[Any],
    all_rules: NDArray[Any],
    random: NDArray[np.uint64],
    counters: NDArray[np.int32],
    turn: NDArray[np.int64],
) -> Iterator[tuple[int, int]]:
    """What `route_dstream` says of the event that stands in `event`, for as long as somebody asks."""
    while True:
        routed, changes = route_dstream(event, workers, synopsis, all_rules, random, counters, turn)
        yield routed[0], changes
