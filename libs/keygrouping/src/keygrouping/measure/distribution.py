"""Measures of a stream as it goes by, per interval and over the whole run."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keygrouping.measure.formulas import lambda_, std_dev


@dataclass(frozen=True)
class Measures:
    """The balance of one interval or of the run."""

    events: int
    keys: int
    """Distinct keys."""
    loads: tuple[float, ...]
    """Weight of each worker's events."""
    lambda_: float
    std_dev: float
    """In percentage points."""
    dist_cost: float


class _Part:
    """Loads and key-worker pairs of an interval or the run."""

    def __init__(self, workers: int) -> None:
        self.events = 0
        self.loads: NDArray[np.float64] = np.zeros(workers)
        self.members: dict[Hashable, int] = {}

    def add(self, loads: NDArray[np.float64], pairs: Iterable[tuple[Hashable, int]], events: int) -> None:
        self.fit(loads.size)
        self.loads[: loads.size] += loads
        self.events += events
        for key, worker in pairs:
            self.members[key] = self.members.get(key, 0) | (1 << worker)

    def fit(self, workers: int) -> None:
        """Have a load for at least this many workers."""
        if workers > self.loads.size:
            self.loads = np.concatenate([self.loads, np.zeros(workers - self.loads.size)])

    def measures(self) -> Measures:
        pairs = sum(mask.bit_count() for mask in self.members.values())
        cost = pairs / len(self.members) if self.members else 1.0
        loads = tuple(self.loads.tolist())
        return Measures(self.events, len(self.members), loads, lambda_(loads), std_dev(loads), cost)


class Distribution:
    """Collects who got what and gives the measures.

    Workers without events count as loads of 0. Memory grows with the number of distinct keys (one integer of W bits
    each, twice), so feed it hashes or short keys where there are millions.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._interval = _Part(workers)
        self._run = _Part(workers)

    def add(self, worker: int, key: Hashable, weight: float = 1.0, events: int = 1) -> None:
        """`events` events of one key, together of this weight, went to this worker."""
        loads = np.zeros(worker + 1)
        loads[worker] = weight
        for part in (self._interval, self._run):
            part.add(loads, ((key, worker),), events)

    def add_many(
        self, workers: NDArray[np.integer], keys: Sequence[Hashable], weights: ArrayLike | None = None
    ) -> None:
        """One event each: keys[i] of weights[i] (1 if not given) went to workers[i]."""
        given = None if weights is None else np.asarray(weights, np.float64)
        loads = np.bincount(workers, given).astype(np.float64)
        pairs = set(zip(keys, workers.tolist(), strict=True))
        for part in (self._interval, self._run):
            part.add(loads, pairs, len(keys))

    def resize(self, workers: int) -> None:
        """There are this many workers from now on; those that have gone still count where they had events."""
        self._workers = workers
        for part in (self._interval, self._run):
            part.fit(workers)

    def interval(self) -> Measures:
        """The measures since the last call of this, and the start of a new interval."""
        measures = self._interval.measures()
        self._interval = _Part(self._workers)
        return measures

    def run(self) -> Measures:
        """The measures of everything so far."""
        return self._run.measures()
