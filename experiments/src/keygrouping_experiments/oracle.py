"""Judges where events went by the events and their workers alone, in plain terms: shares nothing with any grouping."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_QUEUE = 1000
"""Events that a worker holds before all sources wait for it."""


@dataclass(frozen=True)
class Verdict:
    """An interval."""

    lambda_: float
    """Largest over average load."""
    least: float
    """Least over average load."""
    cost: float
    """Distinct pairs of key and worker over distinct keys."""


class Oracle:
    """Takes the intervals of a run one by one; `verdicts` has what it found."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self._weight = 0.0
        self._could = 0.0
        """What the workers could have done until the last change of their number."""
        self._pairs: list[NDArray[np.int64]] = []
        self._fit(0)

    def take(
        self, keys: NDArray[np.int64], weights: NDArray[np.float64] | None, chosen: NDArray[np.int32], workers: int
    ) -> None:
        """An interval: the key, weight (None: all 1) and worker of each event; ValueError unless each has a worker."""
        if len(chosen) != len(keys) or chosen.min() < 0 or chosen.max() >= workers:
            raise ValueError(f"every event needs one of {workers} workers")
        work = np.ones(len(keys)) if weights is None else weights
        loads = np.bincount(chosen, work, workers)
        pairs = np.unique(keys * workers + chosen)
        average = work.sum() / workers
        self.verdicts.append(
            Verdict(float(loads.max() / average), float(loads.min() / average), len(pairs) / len(np.unique(keys)))
        )
        self._pairs.append(np.unique(keys * 1_000_000 + chosen))
        if workers != self._workers:
            self._could += self._possible()
            self._fit(workers)
        _saturate(chosen, work, self._free, self._places, self._following, self._released)
        self._weight += float(work.sum())

    @property
    def run_cost(self) -> float:
        """Distinct pairs of key and worker of the whole run over its distinct keys."""
        pairs = np.unique(np.concatenate(self._pairs))
        return len(pairs) / len(np.unique(pairs // 1_000_000))

    @property
    def efficiency(self) -> float:
        """What was done over what the workers could have done by the time the last one was ready."""
        return self._weight / (self._could + self._possible())

    def _possible(self) -> float:
        """What the workers could have done since their number changed."""
        return self._workers * float(self._free.max(initial=0.0))

    def _fit(self, workers: int) -> None:
        """Queues for so many workers, all empty."""
        self._workers = workers
        self._free = np.zeros(workers)
        self._places = np.zeros((workers, _QUEUE))
        self._following = np.zeros(workers, np.int64)
        self._released = np.zeros(1)


@njit(cache=True)
def _saturate(
    chosen: NDArray[np.int32],
    work: NDArray[np.float64],
    free: NDArray[np.float64],
    places: Any,
    following: NDArray[np.int64],
    released: NDArray[np.float64],
) -> None:
    """Workers take events in their order, as soon as there is a place in the queue of the event's worker."""
    for i in range(len(chosen)):
        worker = chosen[i]
        place = following[worker]
        released[0] = max(released[0], places[worker, place])
        free[worker] = max(free[worker], released[0]) + work[i]
        places[worker, place] = free[worker]
        following[worker] = (place + 1) % _QUEUE
