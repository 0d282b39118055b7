"""Partial Key Grouping: two workers per key, or a few more, the least loaded one gets the event.

Source: Nasir, De Francisci Morales, García-Soriano, Kourtellis, Serafini, "The Power of Both Choices: Practical Load
Balancing for Distributed Stream Processing Engines" (ICDE 2015), its longer form "Partial Key Grouping:
Load-Balanced Partitioning of Distributed Streams" (sections 3, 5 and 6.2 Q4 for more than two choices), and its
code (gdfm/partial-key-grouping).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from keygrouping.grouping.base import BaseGrouping, kernel_arrays, loads_from
from keygrouping.grouping.protocol import Explanation, Hashes, Weights, Workers
from keygrouping.hashing import SECOND_SEED, SEED, choice_seeds, hash_key, worker_of
from keygrouping.settings import Settings, setting
from keygrouping.weights import check_weight


@dataclass(frozen=True)
class PkgSettings(Settings):
    """Settings of `pkg`."""

    choices: int = setting(
        2, "number of hashes, so of candidates per key; balance is possible up to W = choices / share of the top key",
        least=2, most=256,
    )  # fmt: skip
    distinct_choices: bool = setting(
        True,
        "a later hash that meets an earlier one moves on to the next free worker, as in Storm; false: one choice less, "
        "as in the authors' code",
    )


class Pkg(BaseGrouping[PkgSettings]):
    """Each key has d candidates by d hashes; the one with least weight from this instance wins, a tie the first.

    Loads count from the start or the last change of W (everybody starts from nothing then, or newcomers would
    get every key that may go there). Where there are no more workers than choices all are candidates.
    Memory: one number per worker.
    """

    name: ClassVar[str] = "pkg"
    settings = PkgSettings

    def __init__(self, workers: int, settings: PkgSettings | None = None) -> None:
        super().__init__(workers, settings)
        self.seeds = choice_seeds(self._settings.choices)
        self._distinct = self._settings.distinct_choices
        self._set_loads(np.zeros(workers))

    def _set_loads(self, loads: Weights) -> None:
        self._loads = loads
        self._view: Any = memoryview(loads.data)  # single items are read and written several times as fast as by numpy

    def _choices(self, key: bytes | str) -> tuple[int, ...]:
        """The candidates in order; the same one twice only if choices may collide or there is no other."""
        first = worker_of(hash_key(key, SEED), self._workers)
        second = worker_of(hash_key(key, SECOND_SEED), self._workers)
        if first == second and self._distinct:
            second = (second + 1) % self._workers
        if len(self.seeds) == 2:
            return first, second
        return (first, second, *self._further_choices(key, first, second))

    def _further_choices(self, key: bytes | str, first: int, second: int) -> list[int]:
        chosen = [first, second]
        for seed in self.seeds[2 : self._workers if self._distinct else None]:
            worker = worker_of(hash_key(key, seed), self._workers)
            while worker in chosen and self._distinct:
                worker = (worker + 1) % self._workers
            chosen.append(worker)
        return chosen[2:]

    @property
    def cold_width(self) -> int:
        return min(self._settings.choices, self._workers)

    def route(self, key: bytes | str, weight: float = 1.0, now: float | None = None) -> int:  # noqa: ARG002
        check_weight(weight)
        loads = self._view
        choices = self._choices(key)
        if len(choices) == 2:
            first, second = choices
            worker = second if loads[first] > loads[second] else first
        else:
            worker = min(choices, key=loads.__getitem__)
        loads[worker] += weight
        return worker

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:  # noqa: ARG002
        from keygrouping.grouping._kernels import route_choices

        hashes, weights = kernel_arrays(hashes, weights, len(self.seeds))
        return route_choices(hashes, weights, self._loads, self._distinct)

    def explain(self, key: bytes | str) -> Explanation:
        candidates = tuple(dict.fromkeys(self._choices(key)))
        loads = ", ".join(f"{worker}: {self._loads[worker]:g}" for worker in candidates)
        why = f"the least loaded of its {len(candidates)} choices (load of worker {loads})"
        return Explanation(candidates[0], candidates, len(candidates), None, None, why)

    def _resized(self) -> None:
        self._set_loads(np.zeros(self._workers))

    def _state(self) -> Any:
        return {"loads": self._loads.tolist()}

    def _restore_state(self, state: Any, shift: float) -> None:  # noqa: ARG002
        self._set_loads(loads_from(state["loads"], self._workers))
