"""Compiled routing of the groupings that leave a key where its first event went; needs numba."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import find
from keygrouping.compiled import kernel
from keygrouping.grouping._assignments_kernel import UNKNOWN, recall, remember
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Weights, Workers


@kernel
def route_potc(
    hashes: Hashes,
    weights: Weights,
    loads: Weights,
    tables: NDArray[Any],
    all_generations: NDArray[Any],
    distinct: bool,
) -> Workers:
    """A known key to its worker, a new one to the less loaded of two (a tie: the first); all state goes along."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    for i in range(len(hashes)):
        worker = recall(tables, all_generations[0], hashes[i, 0])
        if worker == UNKNOWN:
            worker = home_of(hashes[i, 0], len(loads))
            second = home_of(hashes[i, 1], len(loads))
            if distinct and worker == second:
                second = second + 1 if second + 1 < len(loads) else 0
            if loads[second] < loads[worker]:
                worker = second
            remember(tables, all_generations[0], hashes[i, 0], worker)
        loads[worker] += weights[i] if weighted else 1.0
        routed[i] = worker
    return routed


@kernel
def route_on_greedy(
    hashes: Hashes, weights: Weights, loads: Weights, tables: NDArray[Any], all_generations: NDArray[Any]
) -> Workers:
    """A known key to its worker, a new one to the least loaded of all (a tie: the first); all state goes along."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    for i in range(len(hashes)):
        worker = recall(tables, all_generations[0], hashes[i, 0])
        if worker == UNKNOWN:
            worker = int(np.argmin(loads))
            remember(tables, all_generations[0], hashes[i, 0], worker)
        loads[worker] += weights[i] if weighted else 1.0
        routed[i] = worker
    return routed


@kernel
def route_off_greedy(hashes: Hashes, table: NDArray[Any], workers: int) -> Workers:
    """A learned key to its worker, any other to its home."""
    routed = np.empty(len(hashes), np.int32)
    for i in range(len(hashes)):
        item = table[find(table, hashes[i, 0])]
        routed[i] = item.worker if item.used else home_of(hashes[i, 0], workers)
    return routed


@kernel
def each_by_potc(
    event: Hashes, weights: Weights, loads: Weights, tables: NDArray[Any], all_generations: NDArray[Any], distinct: bool
) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_potc(event, weights, loads, tables, all_generations, distinct)[0]


@kernel
def each_by_on_greedy(
    event: Hashes, weights: Weights, loads: Weights, tables: NDArray[Any], all_generations: NDArray[Any]
) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_on_greedy(event, weights, loads, tables, all_generations)[0]


@kernel
def each_by_off_greedy(event: Hashes, table: NDArray[Any], workers: int) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_off_greedy(event, table, workers)[0]
