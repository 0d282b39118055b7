"""Compiled phases II and III of the routing-table planners: preparing and Least-Load Fit Decreasing; needs numba.

`rows` is the array of `workspace.ROW`: keys that are alike and stand at the same worker. `staying` and `waiting`
count, per row, the keys that are still there and those that are candidates for another worker. `bins` is the array
of `workspace.BIN`, one per worker.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping.protocol import Weights

Numbers = NDArray[np.int64]


@kernel
def take(rows: NDArray[Any], staying: Numbers, waiting: Numbers, row: int, wanted: float, bin: Any) -> float:
    """Make candidates of as few keys of this row as bring `wanted` load (or of all); the load they take with them."""
    count = staying[row]
    if wanted < count * rows[row].cost:
        count = max(1, math.ceil(wanted / rows[row].cost))
    staying[row] -= count
    waiting[row] += count
    taken = count * rows[row].cost
    bin.load -= taken
    bin.lighter -= taken
    return float(taken)


@kernel
def fill_bins(rows: NDArray[Any], staying: Numbers, bins: NDArray[Any], background: Weights) -> None:
    """The loads before anything is taken away."""
    for worker in range(len(bins)):
        bins[worker].fixed = background[worker]
        bins[worker].load = background[worker]
        bins[worker].lighter = 0.0
        bins[worker].preferred_at = bins[worker].first
        bins[worker].heaviest_at = bins[worker].first
    for row in range(len(rows)):
        bin = bins[rows[row].origin]
        bin.load += staying[row] * rows[row].cost
        bin.lighter += staying[row] * rows[row].cost


@kernel
def prepare(
    rows: NDArray[Any], staying: Numbers, waiting: Numbers, bins: NDArray[Any], preferred: Numbers, limit: float
) -> None:
    """Phase II: overloaded workers give up keys in the order of preference until they are not."""
    for worker in range(len(bins)):
        bin = bins[worker]
        at = bin.first
        while bin.load > limit and at < bin.end:
            row = preferred[at]
            if staying[row] > 0 and rows[row].cost > 0:
                take(rows, staying, waiting, row, bin.load - limit, bin)
            at += 1


@kernel
def fix_heavier(rows: NDArray[Any], staying: Numbers, bin: Any, heaviest: Numbers, cost: float) -> None:
    """Count the bin's keys that are not lighter than `cost` as fixed: nothing placed from now on displaces them."""
    while bin.heaviest_at < bin.end and rows[heaviest[bin.heaviest_at]].cost >= cost:
        row = heaviest[bin.heaviest_at]
        bin.fixed += staying[row] * rows[row].cost
        bin.lighter -= staying[row] * rows[row].cost
        bin.heaviest_at += 1


@kernel
def displace(
    rows: NDArray[Any],
    staying: Numbers,
    waiting: Numbers,
    bin: Any,
    preferred: Numbers,
    cost: float,
    wanted: float,
) -> None:
    """Make candidates of the bin's keys lighter than `cost`, in the order of preference, until they are `wanted` load.

    Costs are placed in falling order, so a key passed over as too heavy stays so: the cursor never goes back.
    """
    while wanted > 0 and bin.preferred_at < bin.end:
        row = preferred[bin.preferred_at]
        if staying[row] > 0 and 0 < rows[row].cost < cost:
            wanted -= take(rows, staying, waiting, row, wanted, bin)
        if wanted > 0:
            bin.preferred_at += 1


@kernel
def least_loaded(bins: NDArray[Any]) -> int:
    """The worker with the least load, the first of equal ones."""
    best = 0
    for worker in range(1, len(bins)):
        if bins[worker].load < bins[best].load:
            best = worker
    return best


@kernel
def least_bad(bins: NDArray[Any], own: int, cost: float, mean: float, limit: float) -> int:
    """The worker for a key that fits nowhere: where the keys that it can't displace weigh least, then the load.

    A key that is too heavy for any worker stays where it is unless another is better by more than the tolerance.
    """
    best = 0
    for worker in range(1, len(bins)):
        lighter = bins[worker].fixed < bins[best].fixed
        equal = bins[worker].fixed == bins[best].fixed
        if lighter or (equal and bins[worker].load < bins[best].load):
            best = worker
    stays = cost > limit and bins[own].fixed - bins[best].fixed <= limit - mean
    return own if stays else best


@kernel
def place(
    rows: NDArray[Any],
    staying: Numbers,
    waiting: Numbers,
    bins: NDArray[Any],
    preferred: Numbers,
    heaviest: Numbers,
    row: int,
    mean: float,
    limit: float,
) -> tuple[int, bool]:
    """Place one candidate of this row; its worker, and whether that one is within the limit.

    The workers are tried from the least loaded on. One takes the key if it fits, if need be after giving up
    lighter ones (the exchangeable set).
    """
    cost = rows[row].cost
    found = least_loaded(bins)
    fits = bins[found].load + cost <= limit
    if not fits:
        for worker in np.argsort(bins["load"].copy(), kind="mergesort"):
            fix_heavier(rows, staying, bins[worker], heaviest, cost)
            wanted = bins[worker].load + cost - limit
            if bins[worker].lighter >= wanted:
                fits = True
                found = worker
                displace(rows, staying, waiting, bins[found], preferred, cost, wanted)
                break
        if not fits:
            found = least_bad(bins, rows[row].worker, cost, mean, limit)
            displace(rows, staying, waiting, bins[found], preferred, cost, np.inf)
    waiting[row] -= 1
    bins[found].load += cost
    bins[found].fixed += cost
    return found, fits


@kernel
def balance(
    rows: NDArray[Any],
    staying: Numbers,
    bins: NDArray[Any],
    preferred: Numbers,
    heaviest: Numbers,
    by_cost: Numbers,
    background: Weights,
    mean: float,
    limit: float,
) -> tuple[Numbers, Numbers, int]:
    """Phases II and III; `staying` and `bins` change.

    `preferred` and `heaviest` hold the rows of worker d at bins[d].first to bins[d].end, in the order of preference
    and with falling cost; `by_cost` holds all rows with falling cost. The rows and workers of all keys that have been
    placed, and the number of those that no worker could take within the limit.
    """
    waiting = np.zeros(len(rows), np.int64)
    keys = staying.sum()
    placed_row = np.empty(keys, np.int64)
    placed_worker = np.empty(keys, np.int64)
    placed = 0
    refused = 0
    fill_bins(rows, staying, bins, background)
    prepare(rows, staying, waiting, bins, preferred, limit)
    for row in by_cost:
        while waiting[row] > 0:
            worker, fits = place(rows, staying, waiting, bins, preferred, heaviest, row, mean, limit)
            placed_row[placed] = row
            placed_worker[placed] = worker
            placed += 1
            refused += 0 if fits else 1
    return placed_row[:placed], placed_worker[:placed], refused
