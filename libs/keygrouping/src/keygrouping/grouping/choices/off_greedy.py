"""Offline greedy: who knows all keys and their weights beforehand, and splits none.

Source: Nasir and others, "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", section 6.2 Q1
("Off-Greedy").
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from keygrouping.grouping._assignments import ASSIGNMENT, empty_table, find_worker
from keygrouping.grouping._greedy import heaviest_first
from keygrouping.grouping.base import BaseGrouping, kernel_arrays
from keygrouping.grouping.protocol import Explanation, Hashes, HotKey, Space, Weights, Workers
from keygrouping.hashing import SEED, hash_key, worker_of
from keygrouping.settings import Settings


class OffGreedy(BaseGrouping[Settings]):
    """The keys it was told of, heaviest first, each on the worker that has least weight by then; others to their home.

    What is learned again replaces what was learned before. A change of W assigns all keys again.
    Memory: 48 to 80 bytes per key that it was told of, nothing for any other.
    """

    name: ClassVar[str] = "off-greedy"
    seeds = (SEED,)

    def __init__(self, workers: int, settings: Settings | None = None) -> None:
        super().__init__(workers, settings)
        self._keys = np.empty(0, np.int64)
        self._weights: Weights = np.empty(0)
        self._assign()

    def learn(self, hashes: Hashes, weights: Weights) -> None:
        """Take the weight of every key of the stream; a new epoch.

        Raises ValueError for wrong shapes, a key given twice, and weights that are negative or not finite.
        """
        hashes, weights = kernel_arrays(hashes, weights, 1)
        keys = hashes[:, 0]
        _check(keys, weights)
        order = np.lexsort((keys, -weights))
        self._keys, self._weights = keys[order], weights[order]
        self._assign()
        self._epoch += 1

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:  # noqa: ARG002
        from keygrouping.grouping.choices.sticky_kernel import route_off_greedy

        return route_off_greedy(kernel_arrays(hashes, weights, 1)[0], self._table, self._workers)

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:  # noqa: ARG002
        from keygrouping.grouping.choices.sticky_kernel import each_by_off_greedy

        return each_by_off_greedy(event, self._table, self._workers)

    def explain(self, key: bytes | str) -> Explanation:
        hashed = hash_key(key)
        worker = find_worker(self._table, hashed)
        if worker is None:
            home = worker_of(hashed, self._workers)
            return Explanation(home, (home,), 1, None, None, "not among the keys learned beforehand: at home")
        weight = float(self._weights[np.flatnonzero(self._keys == hashed)[0]])
        why = "where it was put when the keys learned beforehand were assigned, the heaviest first"
        return Explanation(None, (worker,), 1, self._share(weight), None, why, "learned")

    def spaces(self) -> tuple[Space, ...]:
        return (Space("learned", len(self._keys), None, "keys that it was told of, each with its worker", self._keys),)

    def hot(self, limit: int) -> list[HotKey]:
        heaviest = zip(self._keys[: max(0, limit)].tolist(), self._weights.tolist(), strict=False)
        return [HotKey(key, 1, self._share(weight)) for key, weight in heaviest]

    def _share(self, weight: float) -> float:
        total = float(self._weights.sum())
        return weight / total if total else 0.0

    def _assign(self) -> None:
        """Lay out the table of the learned keys for the number of workers."""
        self._table = empty_table(len(self._keys))
        if len(self._keys):
            from keygrouping._probing import lay_out

            assignments = np.zeros(len(self._keys), ASSIGNMENT)
            assignments["hash"] = self._keys
            assignments["worker"] = heaviest_first(self._weights, self._workers)
            assignments["used"] = 1
            lay_out(self._table, assignments)

    def _resized(self) -> None:
        self._assign()

    def _state(self) -> Any:
        return {"keys": self._keys.tolist(), "weights": self._weights.tolist()}

    def _restore_state(self, state: Any, shift: float) -> None:  # noqa: ARG002
        try:
            keys, weights = np.array(state["keys"], np.int64), np.array(state["weights"], np.float64)
        except OverflowError as error:
            raise ValueError("key out of range") from error
        if keys.ndim != 1 or keys.shape != weights.shape or np.any(np.diff(weights) > 0):
            raise ValueError("needs as many keys as weights, the heaviest first")
        _check(keys, weights)
        self._keys, self._weights = keys, weights
        self._assign()


def _check(keys: Hashes, weights: Weights) -> None:
    if len(np.unique(keys)) != len(keys):
        raise ValueError("a key is given twice")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError("weights must be finite and not negative")
