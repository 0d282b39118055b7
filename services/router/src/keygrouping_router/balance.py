"""How evenly some routing spreads the traffic: interval by interval."""

from __future__ import annotations

import numpy as np
from keygrouping.measure import MOST_PAIRS, KeySample, lambda_, std_dev
from numpy.typing import NDArray

Loads = NDArray[np.float64]


class Spread:
    """Weight per worker, number of events, and a sample of who got which keys."""

    def __init__(self, workers: int) -> None:
        self._most = max(MOST_PAIRS, 4 * workers)
        self.loads: Loads = np.zeros(workers)
        self.events = 0
        self.sample = KeySample(self._most)

    def add(self, hashes: NDArray[np.int64], workers: NDArray[np.int32], weights: Loads | None) -> None:
        """Events of these keys and weights (None: ones) went to these workers, all of shape (n,)."""
        self.loads += np.bincount(workers, weights, len(self.loads))
        self.events += len(workers)
        self.sample.add(hashes, workers)

    @property
    def lambda_(self) -> float:
        """Largest over average load."""
        return lambda_(self.loads)

    @property
    def std_dev(self) -> float:
        """Standard deviation of the loads' shares in percentage points."""
        return std_dev(self.loads)

    @property
    def dist_cost(self) -> float:
        """Distinct workers per key."""
        return self.sample.dist_cost


class Balance:
    """The spread of the current interval, and of the last whole one."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._whole: Spread | None = None
        self.current = Spread(workers)

    @property
    def recent(self) -> Spread:
        """The last whole interval; what there is of the current one until one has ended."""
        return self._whole or self.current

    def end_interval(self) -> None:
        """Begins a new interval."""
        self._whole, self.current = self.current, Spread(self._workers)
