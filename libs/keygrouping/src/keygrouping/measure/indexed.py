"""Measures of a stream of numbered keys: compiled, for many events per second and many keys and workers."""

import numpy as np
from numpy.typing import NDArray

from keygrouping.measure.distribution import Collector, Counts

_LEAST = 1024

_KEY = np.dtype(
    [
        ("events", np.int64),
        ("run_events", np.int64),
        ("width", np.int32),
        ("run_width", np.int32),
        ("interval", np.int32),
    ],
    align=True,
)
"""A key; `events` and `width` are those in the interval of this number."""
_PAIR = np.dtype([("code", np.int64), ("interval", np.int32)], align=True)
"""A (key, worker) pair as one number, and the last interval in which it occurred, from 1 on; 0 marks a free slot of
the hash table."""
_COUNTS = np.dtype([(name, np.int64) for name in Counts._fields])


class IndexedDistribution(Collector):
    """Collects events whose keys are numbers from 0 on, such as positions in a table of keys.

    Memory: 32 bytes per key up to the largest number and 16 to 64 bytes per distinct (key, worker) pair of the run. The
    work per event doesn't depend on W, nor that per interval on the number of keys.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._keys = np.zeros(_LEAST, _KEY)
        self._pairs = np.zeros(_LEAST, _PAIR)
        self._counts = np.zeros(2, _COUNTS)  # of the interval and of the run
        self._number = 1

    def add_many(
        self, workers: NDArray[np.int32], keys: NDArray[np.int64], weights: NDArray[np.float64] | None = None
    ) -> None:
        """One event each: keys[i] of weights[i] (1 if not given) went to workers[i]; all of shape (n,).

        Keys are not negative, workers at most 2^20.
        """
        if not len(keys):
            return
        self._fit_keys(int(keys.max()) + 1)
        self._add_loads(np.bincount(workers, weights).astype(np.float64))
        self._count(np.require(workers, np.int32, ["C", "W"]), np.require(keys, np.int64, ["C", "W"]))

    def _count(self, workers: NDArray[np.int32], keys: NDArray[np.int64]) -> None:
        from keygrouping.measure._pair_kernel import count_pairs, move_pairs

        done = 0
        while (done := count_pairs(workers, keys, done, self._number, self._keys, self._pairs, self._counts)) < len(
            keys
        ):
            grown = np.zeros(2 * len(self._pairs), _PAIR)
            move_pairs(self._pairs, grown)
            self._pairs = grown

    def _fit_keys(self, size: int) -> None:
        if size > len(self._keys):
            grown = np.zeros(max(size, 2 * len(self._keys)), _KEY)
            grown[: len(self._keys)] = self._keys
            self._keys = grown

    def _interval_counts(self) -> Counts:
        return Counts(*self._counts[0].tolist())

    def _run_counts(self) -> Counts:
        return Counts(*self._counts[1].tolist())

    def _begin_interval(self) -> None:
        self._counts[0] = 0
        self._number += 1
