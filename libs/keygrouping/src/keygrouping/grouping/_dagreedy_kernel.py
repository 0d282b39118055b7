"""Compiled routing of DAGreedy; needs numba."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import find
from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.keyspace._space_saving_kernel import update


class Arrays(NamedTuple):
    """All that routing reads and changes; for the shapes and records see `dagreedy`."""

    loads: NDArray[np.float64]
    counters: NDArray[Any]
    sketch: NDArray[Any]
    table: NDArray[Any]
    visits: NDArray[np.int32]
    hot_until: NDArray[np.int64]
    totals: NDArray[Any]


@kernel
def best_worker(loads: NDArray[np.float64], visits: NDArray[np.int32], slide: int) -> int:
    """The worker with most of 1/2 [it has the key] - 1/2 (its load - average) / average; a tie: the lowest worker.

    Compared as [it has the key] x average - load, which is in the same order.
    """
    average = loads.sum() / loads.shape[1]
    best = 0
    most = -np.inf
    for worker in range(loads.shape[1]):
        score = -(loads[0, worker] + loads[1, worker])
        if slide - visits[worker] <= 1:
            score += average
        if score > most:
            most = score
            best = worker
    return best


@kernel
def add_row(table: NDArray[Any], visits: NDArray[np.int32], state: Any, hashed: np.int64, home: int) -> int:
    """The row of a key that becomes hot; until now it was at home."""
    row = state.rows
    item = table[find(table, hashed)]
    item.hash = hashed
    item.row = row
    item.used = 1
    visits[row, :] = 0
    visits[row, home] = state.slide
    state.rows += 1
    state.changes += 1
    return int(row)


@kernel
def route_dagreedy(hashes: Hashes, weights: Weights, arrays: Arrays) -> Workers:
    """Hot keys to the best worker for them, others to their home; all state goes along."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    loads, counters, table, visits = arrays.loads, arrays.counters, arrays.table, arrays.visits
    state, sketch = arrays.totals[0], arrays.sketch[0]
    for i in range(len(hashes)):
        hashed = hashes[i, 0]
        weight = weights[i] if weighted else 1.0
        counter = counters[update(counters, sketch, hashed, weight)]
        worker = home_of(hashed, loads.shape[1])
        item = table[find(table, hashed)]
        row = int(item.row) if item.used else -1
        if state.previous > 0 and counter.count - counter.error > state.share * max(state.previous, sketch.total):
            if row < 0 and state.rows < len(visits):
                row = add_row(table, visits, state, hashed, worker)
            if row >= 0:
                arrays.hot_until[row] = state.slide + 1
        if row >= 0:
            worker = best_worker(loads, visits[row], state.slide)
            if state.slide - visits[row, worker] > 1:
                state.changes += 1
            visits[row, worker] = state.slide
        loads[1, worker] += weight
        routed[i] = worker
    return routed


@kernel
def each_by_dagreedy(event: Hashes, weights: Weights, arrays: Arrays) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_dagreedy(event, weights, arrays)[0]
