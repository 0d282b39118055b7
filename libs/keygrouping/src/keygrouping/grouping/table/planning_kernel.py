"""Compiled phases II and III of the routing-table planners: preparing and Least-Load Fit Decreasing; needs numba.

A `bin` is one of `Work.bins`: a worker. Functions of one of them change it, and what is counted of the rows.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping.protocol import Weights

Numbers = NDArray[np.int64]


class Orders(NamedTuple):
    """Rows in the orders in which the phases look at them."""

    preferred: Numbers
    """Those of worker d at bins[d].first to bins[d].end, in the order of preference."""
    heaviest: Numbers
    """Likewise, with falling cost."""
    by_cost: Numbers
    """All of them, with falling cost."""


class Work(NamedTuple):
    """What the phases of a trial work on."""

    rows: NDArray[Any]
    """Keys that are alike and stand at the same worker, `workspace.ROW`."""
    staying: Numbers
    """How many keys of each row are still there."""
    waiting: Numbers
    """How many are candidates for another worker."""
    bins: NDArray[Any]
    """The workers, `workspace.BIN`."""
    orders: Orders


@kernel
def take(work: Work, row: int, wanted: float, bin: Any) -> float:
    """Make candidates of as few keys of this row as bring `wanted` load (or of all); the load they take with them."""
    cost, count = work.rows[row].cost, work.staying[row]
    if wanted < count * cost:
        count = max(1, math.ceil(wanted / cost))
    work.staying[row] -= count
    work.waiting[row] += count
    taken = count * cost
    bin.load -= taken
    bin.lighter -= taken
    return float(taken)


@kernel
def fill_bins(work: Work, background: Weights) -> None:
    """The loads before anything is taken away."""
    bins, rows, staying = work.bins, work.rows, work.staying
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
def prepare(work: Work, limit: float) -> None:
    """Phase II: overloaded workers give up keys in the order of preference until they are not."""
    for worker in range(len(work.bins)):
        bin = work.bins[worker]
        at = bin.first
        while bin.load > limit and at < bin.end:
            row = work.orders.preferred[at]
            if work.staying[row] > 0 and work.rows[row].cost > 0:
                take(work, row, bin.load - limit, bin)
            at += 1


@kernel
def fix_heavier(work: Work, bin: Any, cost: float) -> None:
    """Count the bin's keys that are not lighter than `cost` as fixed: nothing placed from now on displaces them."""
    rows, heaviest = work.rows, work.orders.heaviest
    while bin.heaviest_at < bin.end and rows[heaviest[bin.heaviest_at]].cost >= cost:
        row = heaviest[bin.heaviest_at]
        bin.fixed += work.staying[row] * rows[row].cost
        bin.lighter -= work.staying[row] * rows[row].cost
        bin.heaviest_at += 1


@kernel
def displace(work: Work, bin: Any, cost: float, wanted: float) -> None:
    """Make candidates of the bin's keys lighter than `cost`, in the order of preference, until they are `wanted` load.

    Costs are placed in falling order, so a key passed over as too heavy stays so: the cursor never goes back.
    """
    while wanted > 0 and bin.preferred_at < bin.end:
        row = work.orders.preferred[bin.preferred_at]
        if work.staying[row] > 0 and 0 < work.rows[row].cost < cost:
            wanted -= take(work, row, wanted, bin)
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
def place(work: Work, row: int, mean: float, limit: float) -> tuple[int, bool]:
    """Place one candidate of this row; its worker, and whether that one is within the limit.

    The workers are tried from the least loaded on. One takes the key if it fits, if need be after giving up
    lighter ones (the exchangeable set).
    """
    bins, cost = work.bins, work.rows[row].cost
    found = least_loaded(bins)
    fits = bins[found].load + cost <= limit
    if not fits:
        for worker in np.argsort(bins["load"].copy(), kind="mergesort"):
            fix_heavier(work, bins[worker], cost)
            wanted = bins[worker].load + cost - limit
            if bins[worker].lighter >= wanted:
                fits = True
                found = worker
                displace(work, bins[found], cost, wanted)
                break
        if not fits:
            found = least_bad(bins, work.rows[row].worker, cost, mean, limit)
            displace(work, bins[found], cost, np.inf)
    work.waiting[row] -= 1
    bins[found].load += cost
    bins[found].fixed += cost
    return found, fits


@kernel
def balance(work: Work, background: Weights, mean: float, limit: float) -> tuple[Numbers, Numbers, int]:
    """Phases II and III; what stays, waits and fills the bins changes.

    The rows and workers of all keys that have been placed, and the number of those that no worker could take within
    the limit.
    """
    keys = work.staying.sum()
    placed_row = np.empty(keys, np.int64)
    placed_worker = np.empty(keys, np.int64)
    placed = 0
    refused = 0
    fill_bins(work, background)
    prepare(work, limit)
    for row in work.orders.by_cost:
        while work.waiting[row] > 0:
            worker, fits = place(work, row, mean, limit)
            placed_row[placed] = row
            placed_worker[placed] = worker
            placed += 1
            refused += 0 if fits else 1
    return placed_row[:placed], placed_worker[:placed], refused
