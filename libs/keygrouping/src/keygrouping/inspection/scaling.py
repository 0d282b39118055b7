"""How far a topic scales as it is: what its partitions let so many consumers do."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keygrouping.measure import lambda_

USEFUL = 0.95
"""Consumers that do this part of what the best number of them does are enough: any more is next to useless."""


def works_like(loads: ArrayLike) -> float:
    """How many workers' work is done before the busiest one has no time left: their number over λ."""
    return np.size(loads) / lambda_(loads)


def work_of(loads: Sequence[float], consumers: int) -> float:
    """How many consumers' work so many of them do, 1 or more, each with whole partitions of these loads.

    It is the least of what Kafka's assignors give that look at no load: ranges of neighbours, and one partition each in
    turn. Consumers beyond the partitions have nothing to do.
    """
    owners = min(consumers, len(loads))
    partitions = np.arange(len(loads))
    every, rest = divmod(len(loads), owners)
    longer = rest * (every + 1)
    ranges = np.where(partitions < longer, partitions // (every + 1), rest + (partitions - longer) // every)
    return min(works_like(_together(loads, owner, owners)) for owner in (ranges, partitions % owners))


def useful_consumers(loads: Sequence[float]) -> int:
    """The least number of consumers that do nearly all that any number of them does (see `USEFUL`)."""
    done = [work_of(loads, consumers) for consumers in range(1, len(loads) + 1)]
    return next(number for number, work in enumerate(done, 1) if work >= USEFUL * max(done))


def _together(loads: Sequence[float], owner: NDArray[np.int64], owners: int) -> NDArray[np.float64]:
    return np.bincount(owner, loads, owners).astype(np.float64)
