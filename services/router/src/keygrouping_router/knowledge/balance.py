"""How evenly some routing spreads the traffic: interval by interval."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from keygrouping.measure import MOST_PAIRS, KeySample, lambda_, least_share, std_dev
from numpy.typing import NDArray

Loads = NDArray[np.float64]


def capacities_of(given: Mapping[int, float], workers: int) -> Loads:
    """The capacity of each worker, 1 where none is given."""
    return np.array([given.get(worker, 1.0) for worker in range(workers)])


class Spread:
    """Weight per worker, number of events, and a sample of who got which keys; one worker for each capacity."""

    def __init__(self, capacities: Loads) -> None:
        workers = len(capacities)
        self.capacities = capacities
        self._most = max(MOST_PAIRS, 4 * workers)
        self.loads: Loads = np.zeros(workers)
        self.events = 0
        self.sample = KeySample(self._most)

    def add(self, hashes: NDArray[np.int64], workers: NDArray[np.int32], weights: Loads | None) -> None:
        """Events of these keys and weights (None: ones) went to these workers, all of shape (n,)."""
        self.loads += np.bincount(workers, weights, len(self.loads))
        self.events += len(workers)
        self.sample.add(hashes, workers)

    def merge(self, other: Spread) -> None:
        """Takes in all of another one for the same workers."""
        self.loads += other.loads
        self.events += other.events
        self.sample.merge(other.sample)

    def copy(self) -> Spread:
        """A spread that goes on by itself."""
        twin = Spread(self.capacities)
        twin.loads, twin.events, twin.sample = self.loads.copy(), self.events, self.sample.copy()
        return twin

    @property
    def lambda_(self) -> float:
        """Largest over average load, by capacity."""
        return lambda_(self.loads, self.capacities)

    @property
    def least_share(self) -> float:
        """Least over average load, by capacity."""
        return least_share(self.loads, self.capacities)

    @property
    def std_dev(self) -> float:
        """Standard deviation of the loads' shares by capacity, in percentage points."""
        return std_dev(self.loads, self.capacities)

    @property
    def dist_cost(self) -> float:
        """Distinct workers per key."""
        return self.sample.dist_cost


class Balance:
    """The spread of the current interval, of the last whole one, and since the begin."""

    def __init__(self, capacities: Loads) -> None:
        self._capacities = capacities
        self._whole: Spread | None = None
        self._past = Spread(capacities)
        self.current = Spread(capacities)

    @property
    def recent(self) -> Spread:
        """The last whole interval; what there is of the current one until one has ended."""
        return self._whole or self.current

    def run(self) -> Spread:
        """Since the begin."""
        run = self._past.copy()
        run.merge(self.current)
        return run

    def end_interval(self) -> None:
        """Begins a new interval."""
        self._past.merge(self.current)
        self._whole, self.current = self.current, Spread(self._capacities)
