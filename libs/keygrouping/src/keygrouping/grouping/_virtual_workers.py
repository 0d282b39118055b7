"""Virtual workers of equal size, and how many of them a worker of some capacity has."""

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.protocol import Weights, Workers


def capacities_of(given: tuple[float, ...], workers: int) -> Weights:
    """The capacity of each worker: 1 where none is given."""
    capacities = np.ones(workers)
    capacities[: len(given)] = given[:workers]
    return capacities


def quotas(capacities: Weights, virtual: int) -> NDArray[np.int64]:
    """Shares of virtual workers in proportion to capacities, by largest remainders (a tie: the lowest worker)."""
    exact = capacities * (virtual / capacities.sum())
    counts: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    missing = virtual - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def allotted(owners: Workers, counts: NDArray[np.int64]) -> Workers:
    """Owners of the virtual workers such that worker w has counts[w], with as few changes as possible.

    Owners from len(counts) on are workers that aren't there. The others keep their first virtual workers.
    """
    workers = len(counts)
    present = np.minimum(owners, workers)
    order = np.argsort(present, kind="stable")
    held = np.bincount(present, minlength=workers + 1)
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(held) - held, held)
    surplus = np.sort(order[rank >= np.append(counts, 0)[present[order]]])
    fresh = present.astype(np.int32)
    fresh[surplus] = np.repeat(np.arange(workers), np.maximum(counts - held[:workers], 0))
    return fresh
