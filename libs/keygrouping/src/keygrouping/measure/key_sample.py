"""How many distinct keys there are and over how many workers they are spread, in memory that doesn't grow with them.

Source: Gibbons, "Distinct Sampling for Highly-Accurate Answers to Distinct Values Queries and Event Reports" (VLDB
2001): keys are sampled by their hash, at a rate that halves whenever the sample has become too large.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from keygrouping.measure.formulas import dist_cost

_PAIR = np.dtype([("hash", np.int64), ("worker", np.int32), ("used", np.int32)], align=True)
_STATE = np.dtype([("level", np.int64), ("size", np.int64)])

MOST_PAIRS = 4096
_DEEPEST = 62


class KeySample:
    """The (key, worker) pairs of all keys, or of every 2nd, 4th, 8th ... of them by hash: at most `most` pairs.

    Exact as long as all pairs fit; else the number of keys has a standard error of about 2 to 3 %, and DIST_COST is
    that of some thousand keys chosen without regard to their weight. Samples of the same traffic seen by several
    processes merge to what one process would have. Memory: 32 bytes x `most`.
    """

    def __init__(self, most: int = MOST_PAIRS) -> None:
        self._most = most
        self._pairs: NDArray[Any] = np.zeros(1 << (2 * most).bit_length(), _PAIR)
        self._state: NDArray[Any] = np.zeros(1, _STATE)

    def add(self, hashes: NDArray[np.int64], workers: NDArray[np.int32]) -> None:
        """Events of keys with these hashes went to these workers, both of shape (n,)."""
        from keygrouping.measure._key_sample_kernel import add_pairs

        hashes, workers = np.require(hashes, np.int64, ["C", "W"]), np.require(workers, np.int32, ["C", "W"])
        add_pairs(self._pairs, self._state, hashes, workers, self._most)

    @property
    def keys(self) -> int:
        """Distinct keys, an estimate unless the sample holds all."""
        return len(np.unique(self._used()["hash"])) << int(self._state["level"][0])

    @property
    def dist_cost(self) -> float:
        """Distinct workers per key; 1 without keys."""
        used = self._used()
        return dist_cost(len(used), len(np.unique(used["hash"])))

    def merge(self, other: "KeySample") -> None:
        """Take in what another process has seen."""
        from keygrouping.measure._key_sample_kernel import thin_out

        while self._state["level"][0] < other._state["level"][0]:
            thin_out(self._pairs, self._state[0])
        used = other._used()
        self.add(used["hash"], used["worker"])

    def copy(self) -> "KeySample":
        """A sample that goes on by itself."""
        twin = KeySample(self._most)
        twin._pairs, twin._state = self._pairs.copy(), self._state.copy()
        return twin

    def to_data(self) -> dict[str, Any]:
        """All state as plain JSON data."""
        used = self._used()
        return {"level": int(self._state["level"][0]), **{name: used[name].tolist() for name in ("hash", "worker")}}

    @classmethod
    def from_data(cls, data: Mapping[str, Any], most: int = MOST_PAIRS) -> Self:
        """The sample that gave `to_data`; a KeyError, TypeError or ValueError if there is none."""
        sample = cls(most)
        level = int(data["level"])
        if not 0 <= level <= _DEEPEST:
            raise ValueError(f"level must be from 0 to {_DEEPEST}, not {level}")
        sample._state["level"] = level
        try:
            hashes, workers = np.array(data["hash"], np.int64), np.array(data["worker"], np.int32)
        except OverflowError as error:
            raise ValueError(f"no hashes and workers: {error}") from None
        if hashes.ndim != 1 or hashes.shape != workers.shape or np.any(workers < 0):
            raise ValueError("a sample needs a worker for each key")
        sample.add(hashes, workers)
        return sample

    def _used(self) -> NDArray[Any]:
        used: NDArray[Any] = self._pairs[self._pairs["used"] != 0]
        return used
