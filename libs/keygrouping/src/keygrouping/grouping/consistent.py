"""Consistent Grouping: small virtual workers of equal size that move between workers of unequal capacity.

Source: Nasir, Horii, Serafini, Kourtellis, Raymond, Girdzijauskas, Osogami, "Load Balancing for Skewed Streams on
Heterogeneous Cluster" (arXiv 1705.09073): the power of random choices, virtual workers and their migration.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from keygrouping.grouping._ticks import Ticks
from keygrouping.grouping._virtual_workers import allotted, capacities_of, quotas
from keygrouping.grouping.base import NO_WEIGHTS, BaseGrouping, kernel_arrays, loads_from
from keygrouping.grouping.protocol import LEAST_CAPACITY, MOST_CAPACITY, Explanation, Hashes, Weights, Workers
from keygrouping.hashing import SEED, hash_key
from keygrouping.settings import Settings, setting


@dataclass(frozen=True)
class ConsistentSettings(Settings):
    """Settings of `consistent`."""

    capacities: tuple[float, ...] = setting(
        (),
        "relative speed of each worker, worker 0 first; those that are missing are 1",
        least=LEAST_CAPACITY,
        most=MOST_CAPACITY,
    )
    virtual_workers: int = setting(
        16,
        "virtual workers per worker; in all they are rounded up to a power of two. More of them fit capacities more "
        "exactly and spread keys more widely",
        least=1,
        most=4096,
    )
    tolerance: float = setting(
        0.1, "a virtual worker takes more events up to (1 + tolerance) times the average load of all", above=0
    )
    half_life: float | None = setting(
        30.0,
        "all loads are halved at every passing of this time, so that a hot key of today finds no room that was left by "
        "the past; null: they are counted over the lifetime, as in the paper",
        unit="s",
        above=0,
    )


class Consistent(BaseGrouping[ConsistentSettings]):
    """A key's events go to the first virtual worker on its way that isn't full; a worker owns as many as it can serve.

    The key's hash gives its way through all virtual workers: a first one and a step. One is full above
    (1 + tolerance) times the average, so all have nearly equal load, a hot key is split over as many as it needs,
    and most other keys stay at their first. Virtual workers are owned in proportion to `capacities`; `resize` moves
    only as many as the new proportions ask for, and `move` moves single ones from workers that can't keep up to
    workers that have nothing to do, which is how capacities are found that nobody knows.

    Memory: 12 bytes per virtual worker; there are up to twice as many as set, for the most workers there ever were.
    """

    name: ClassVar[str] = "consistent"
    settings = ConsistentSettings
    seeds = (SEED,)

    def __init__(self, workers: int, settings: ConsistentSettings | None = None) -> None:
        super().__init__(workers, settings)
        half_life = self._settings.half_life
        self._halvings = None if half_life is None else Ticks(half_life)
        self._capacities = capacities_of(self._settings.capacities, workers)
        self._total = np.zeros(1)
        self._loads = np.zeros(self._wanted())
        self._owners = allotted(np.full(self._wanted(), workers), quotas(self._capacities, self._wanted()))

    @property
    def owners(self) -> Workers:
        """The worker of each virtual worker."""
        return self._owners.copy()

    def move(self, overloaded: Iterable[int], idle: Iterable[int]) -> int:
        """Move a virtual worker from the first overloaded worker to the first idle one, and so on for the next ones.

        A worker keeps its last virtual worker. Answers how many moved; if any did, it is a new epoch.
        Raises ValueError, and moves nothing, for a worker that isn't there.
        """
        pairs = list(zip(overloaded, idle, strict=False))
        if any(not 0 <= worker < self._workers for pair in pairs for worker in pair):
            raise ValueError(f"workers must be from 0 to {self._workers - 1}")
        moved = sum(self._move(giver, taker) for giver, taker in pairs)
        self._epoch += moved > 0
        return moved

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        from keygrouping.grouping._consistent_kernel import route_consistent

        hashes, weights = kernel_arrays(hashes, weights, 1)
        if not len(hashes):
            return np.empty(0, np.int32)
        return route_consistent(hashes, weights, *self._state_at(now))

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        from keygrouping.grouping._consistent_kernel import each_by_consistent

        return each_by_consistent(event, NO_WEIGHTS, *self._state_at(now))

    def _state_at(self, now: float) -> tuple[Any, ...]:
        self._advance(now)
        return self._loads, self._total, self._owners, 1 + self._settings.tolerance

    def _bear(self, loads: Weights) -> None:
        owned = np.bincount(self._owners, minlength=self._workers)
        self._loads += (loads / owned)[self._owners]
        self._total += loads.sum()

    def explain(self, key: bytes | str) -> Explanation:
        limit = (1 + self._settings.tolerance) * float(self._total[0]) / len(self._loads)
        passed = []
        for virtual in self._way(key):
            passed.append(virtual)
            if self._loads[virtual] <= limit:
                break
        candidates = tuple(dict.fromkeys(int(self._owners[virtual]) for virtual in passed))
        why = (
            f"virtual worker {passed[-1]} is the first of the key's way that isn't full "
            f"({len(passed) - 1} before it are); worker {self._owners[passed[-1]]} owns it"
        )
        return Explanation(candidates[0], candidates, len(candidates), None, None, why)

    def _way(self, key: bytes | str) -> Iterator[int]:
        """All virtual workers in the order in which the key tries them."""
        hashed = hash_key(key) & (2**64 - 1)
        step = (hashed >> 32) | 1
        return ((hashed + i * step) & (len(self._loads) - 1) for i in range(len(self._loads)))

    def _wanted(self) -> int:
        """The number of virtual workers that this many workers need."""
        return 1 << (self._settings.virtual_workers * self._workers - 1).bit_length()

    def _move(self, giver: int, taker: int) -> bool:
        owned = np.flatnonzero(self._owners == giver)
        if len(owned) < 2 or giver == taker:
            return False
        self._owners[owned[-1]] = taker
        worth = self._capacities[giver] / len(owned)
        self._capacities[giver] -= worth
        self._capacities[taker] += worth
        return True

    def _advance(self, now: float) -> None:
        self._now = max(now, self._now)
        if self._halvings is not None and (passed := self._halvings.passed(self._now)):
            self._loads *= 0.5**passed
            self._total *= 0.5**passed

    def _resized(self) -> None:
        """Workers that stay keep the capacity that moves have given them; each virtual worker splits if need be."""
        capacities = capacities_of(self._settings.capacities, self._workers)
        staying = min(len(self._capacities), self._workers)
        capacities[:staying] = self._capacities[:staying]
        self._capacities = capacities
        parts = max(1, self._wanted() // len(self._loads))
        self._loads = np.tile(self._loads / parts, parts)
        self._owners = allotted(np.tile(self._owners, parts), quotas(capacities, len(self._loads)))

    def _fitted(self, state: Any, other: Self) -> Any:
        """Other capacities are in force at once and moves forgotten; each virtual worker splits if need be."""
        parts = max(1, self._wanted() // len(state["owners"]))
        owners, capacities = np.tile(np.array(state["owners"]), parts), np.array(state["capacities"])
        if self._settings.capacities != other._settings.capacities:
            capacities = capacities_of(self._settings.capacities, self._workers)
            owners = allotted(owners, quotas(capacities, len(owners)))
        loads = np.tile(np.array(state["loads"]) / parts, parts)
        fitted = {"loads": loads, "owners": owners, "capacities": capacities}
        return {**state, **{name: column.tolist() for name, column in fitted.items()}}

    def _state(self) -> Any:
        return {
            "loads": self._loads.tolist(),
            "total": float(self._total[0]),
            "owners": self._owners.tolist(),
            "capacities": self._capacities.tolist(),
            "began": None if self._halvings is None else self._halvings.began,
        }

    def _restore_state(self, state: Any, shift: float) -> None:
        owners = np.array(state["owners"], np.int32)
        if owners.ndim != 1 or len(owners) < self._wanted() or len(owners) & (len(owners) - 1):
            raise ValueError("not as many virtual workers as there must be")
        if np.any((owners < 0) | (owners >= self._workers)):
            raise ValueError("a virtual worker is owned by nobody")
        loads = loads_from(state["loads"], len(owners))
        total = loads_from([state["total"]], 1)
        capacities = loads_from(state["capacities"], self._workers)
        began = Ticks.checked(state["began"], shift)
        if not np.all(capacities > 0):
            raise ValueError("capacities must be above 0")
        self._loads, self._total, self._owners, self._capacities = loads, total, owners, capacities
        if self._halvings is not None:
            self._halvings.began = began
