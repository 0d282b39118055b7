"""Partial Key Grouping: two workers per key, the less loaded one gets the event.

Source: Nasir, De Francisci Morales, García-Soriano, Kourtellis, Serafini, "The Power of Both Choices: Practical Load
Balancing for Distributed Stream Processing Engines" (ICDE 2015), and its code (gdfm/partial-key-grouping).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from keygrouping.grouping.base import BaseGrouping, kernel_arrays, loads_from
from keygrouping.grouping.protocol import Explanation, Hashes, Weights, Workers
from keygrouping.grouping.settings import Settings, setting
from keygrouping.hashing import SECOND_SEED, SEED, hash_key, worker_of


@dataclass(frozen=True)
class PkgSettings(Settings):
    """Settings of `pkg`."""

    distinct_choices: bool = setting(
        True,
        "a second hash that meets the first moves on to the next worker, as in Storm; false: one choice, as in the "
        "authors' code",
    )


class Pkg(BaseGrouping[PkgSettings]):
    """Each key has two candidates by two hashes; the one with less weight from this instance wins, a tie the first.

    Loads count from the start or the last change of W (everybody starts from nothing then, or newcomers would
    get every key that may go there). Memory: one number per worker.
    """

    name: ClassVar[str] = "pkg"
    settings = PkgSettings
    seeds = (SEED, SECOND_SEED)

    def __init__(self, workers: int, settings: PkgSettings | None = None) -> None:
        super().__init__(workers, settings)
        self._distinct = self._settings.distinct_choices
        self._set_loads(np.zeros(workers))

    def _set_loads(self, loads: Weights) -> None:
        self._loads = loads
        self._view: Any = memoryview(loads.data)  # single items are read and written several times as fast as by numpy

    def _choices(self, key: bytes | str) -> tuple[int, int]:
        first = worker_of(hash_key(key, SEED), self._workers)
        second = worker_of(hash_key(key, SECOND_SEED), self._workers)
        if first == second and self._distinct:
            second = (second + 1) % self._workers
        return first, second

    def route(self, key: bytes | str, weight: float = 1.0, now: float | None = None) -> int:  # noqa: ARG002
        first, second = self._choices(key)
        worker = second if self._view[first] > self._view[second] else first
        self._view[worker] += weight
        return worker

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:  # noqa: ARG002
        from keygrouping.grouping._kernels import route_pkg

        hashes, weights = kernel_arrays(hashes, weights, 2)
        return route_pkg(hashes, weights, self._loads, self._distinct)

    def explain(self, key: bytes | str) -> Explanation:
        first, second = self._choices(key)
        candidates = (first,) if first == second else (first, second)
        loads = ", ".join(f"{worker}: {self._loads[worker]:g}" for worker in candidates)
        why = f"the less loaded of its two choices (load of worker {loads})"
        return Explanation(first, candidates, len(candidates), None, None, why)

    def _resized(self) -> None:
        self._set_loads(np.zeros(self._workers))

    def _state(self) -> Any:
        return {"loads": self._loads.tolist()}

    def _restore_state(self, state: Any, shift: float) -> None:  # noqa: ARG002
        self._set_loads(loads_from(state["loads"], self._workers))
