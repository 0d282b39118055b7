"""FISH: recently hot keys get more workers, and each event goes where it should have to wait least.

Source: Huang and others, "Efficient Time-Evolving Stream Processing at Scale" (arXiv 1806.00760, IEEE TPDS): counting
within an epoch, decay between epochs, classes of hot keys, waiting times that are computed instead of asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._virtual_workers import capacities_of
from keygrouping.grouping.base import NO_WEIGHTS, BaseGrouping, kernel_arrays, loads_from
from keygrouping.grouping.protocol import (
    LEAST_CAPACITY,
    MOST_CAPACITY,
    Explanation,
    Hashes,
    HotKey,
    Space,
    Weights,
    Workers,
)
from keygrouping.hashing import SECOND_SEED, SEED, hash_key, worker_of
from keygrouping.keyspace import SpaceSaving
from keygrouping.settings import Settings, setting

_STATE = np.dtype(
    [
        ("decay", np.float64),
        ("share", np.float64),
        ("events", np.int64),
        ("epoch_events", np.int64),
        ("changes", np.int64),
    ],
    align=True,
)


@dataclass(frozen=True)
class FishSettings(Settings):
    """Settings of `fish`."""

    epoch_events: int = setting(2000, "events in an epoch; widths change at its end", least=1)
    decay: float = setting(0.2, "at the end of an epoch all counts become this part of what they were", least=0, most=1)
    threshold: float = setting(
        1.0, "a key is hot above this part of a worker's fair share (1 / W) of the recent load", above=0
    )
    counted_keys: int = setting(
        1000, "counters: a key below one part in so many of the recent load may not be counted", least=1, most=1_000_000
    )
    service_time: float = setting(0.0001, "time in which a worker of capacity 1 does a weight of 1", unit="s", above=0)
    capacities: tuple[float, ...] = setting(
        (),
        "relative speed of each worker, worker 0 first; those that are missing are 1",
        least=LEAST_CAPACITY,
        most=MOST_CAPACITY,
    )


class Fish(BaseGrouping[FishSettings]):
    """The one of a key's candidates at which an event would wait least; hot keys have more than two.

    At the end of an epoch a key is hot if its guaranteed share of the recent load exceeds the threshold, and
    until that has fallen to half of it. It gets W workers if it is as frequent as the most frequent one, half
    of them if it is half as frequent, a quarter, ...; while it is hot it gets no narrower. The recent load fades by
    `decay` from epoch to epoch, so a key that was hot is soon as any other. How long an event would wait at a worker
    is computed: what this instance has sent there less what it must have done since, times its service time; where
    nobody lets it wait, it goes to who had less to do lately. Differences from the paper: epochs decide
    on widths, instead of every event; a key's workers are its two choices and those beside its home instead of a ring.

    Memory: SpaceSaving of `counted_keys` counters, 24 bytes per worker.
    """

    name: ClassVar[str] = "fish"
    settings = FishSettings
    seeds = (SEED, SECOND_SEED)

    def __init__(self, workers: int, settings: FishSettings | None = None) -> None:
        super().__init__(workers, settings)
        self._sketch = SpaceSaving(self._settings.counted_keys)
        self._totals: NDArray[Any] = np.zeros(1, _STATE)
        self._totals["decay"] = self._settings.decay
        self._totals["epoch_events"] = self._settings.epoch_events
        self._waiting = np.zeros(workers)
        self._resized()

    @property
    def epoch(self) -> int:
        """Changes of the number of workers, ends of FISH's epochs at which widths changed, and hot keys forgotten."""
        return self._epoch + int(self._totals["changes"][0]) + int(self._sketch.sketch["tags_dropped"][0])

    @property
    def cold_width(self) -> int:
        return min(2, self._workers)

    def waiting_times(self) -> Weights:
        """The seconds that an event would wait at each worker by now, as far as this instance's events go."""
        return self._waiting.copy()

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        from keygrouping.grouping._fish_kernel import route_fish

        hashes, weights = kernel_arrays(hashes, weights, 2)
        if not len(hashes):
            return np.empty(0, np.int32)
        return route_fish(hashes, weights, self._arrays_at(now))

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        from keygrouping.grouping._fish_kernel import each_by_fish

        return each_by_fish(event, NO_WEIGHTS, self._arrays_at(now))

    def _arrays_at(self, now: float) -> Any:
        from keygrouping.grouping._fish_kernel import Arrays

        self._advance(now)
        counted = self._sketch
        return Arrays(self._waiting, self._recent, self._service, counted.counters, counted.sketch, self._totals)

    def explain(self, key: bytes | str) -> Explanation:
        first = worker_of(hash_key(key, SEED), self._workers)
        second = worker_of(hash_key(key, SECOND_SEED), self._workers)
        second = (second + 1) % self._workers if first == second else second
        counter = self._sketch.find(hash_key(key, SEED))
        tag = 0 if counter is None else int(counter["tag"])
        width = min(max(tag, 2), self._workers)
        beside = ((first + step) % self._workers for step in range(self._workers))
        candidates = tuple(dict.fromkeys([first, second, *beside]))[:width]
        shortest = 1000 * float(self._waiting[list(candidates)].min())
        why = (
            f"{'recently hot' if tag else 'not hot lately'}: of {width} workers the one at which it should wait least "
            f"({shortest:.3g} ms)"
        )
        share = None if counter is None else self._share(counter)
        space = "hot" if tag else None if counter is None else "sketch"
        return Explanation(first, candidates, width, share, None, why, space)

    def spaces(self) -> tuple[Space, ...]:
        sketch, hot = self._sketch, self._sketch.tagged_hashes
        return (
            Space("sketch", len(sketch), 2 * sketch.capacity, "keys that have a counter", sketch.hashes),
            Space("hot", len(hot), 2 * sketch.capacity, "keys that were hot at the end of the last epoch", hot),
        )

    def hot(self, limit: int) -> list[HotKey]:
        known = self._sketch.known()
        widest = known[np.argsort(-known["tag"], kind="stable")][: max(0, limit)]
        least = min(2, self._workers)
        return [HotKey(int(item["hash"]), max(least, int(item["tag"])), self._share(item)) for item in widest]

    def _share(self, counter: Any) -> float:
        total = self._sketch.total
        return float(counter["count"] - counter["error"]) / total if total else 0.0

    def _advance(self, now: float) -> None:
        """Let the workers do what they must have done since the last event."""
        passed = max(0.0, now - self._now)
        self._now += passed
        if passed:
            np.maximum(self._waiting - passed, 0.0, out=self._waiting)

    def _resized(self) -> None:
        """Queues of workers that stay are as long as they were; no key is wider than it may."""
        waiting = np.zeros(self._workers)
        staying = min(len(self._waiting), self._workers)
        waiting[:staying] = self._waiting[:staying]
        self._waiting = waiting
        self._recent = np.zeros(self._workers)
        self._service = self._settings.service_time / capacities_of(self._settings.capacities, self._workers)
        self._totals["share"] = self._settings.threshold / self._workers
        np.minimum(self._sketch.counters["tag"], self._workers, out=self._sketch.counters["tag"])

    def _fitted(self, state: Any, other: Self) -> Any:  # noqa: ARG002
        sketch = SpaceSaving.fitted(self._settings.counted_keys, state["sketch"])
        return {**state, "sketch": sketch, "events": min(state["events"], self._settings.epoch_events)}

    def _state(self) -> Any:
        return {
            "sketch": self._sketch.to_data(),
            "waiting": self._waiting.tolist(),
            "recent": self._recent.tolist(),
            "events": int(self._totals["events"][0]),
            "changes": int(self._totals["changes"][0]),
        }

    def _restore_state(self, state: Any, shift: float) -> None:  # noqa: ARG002
        sketch = SpaceSaving.from_data(self._settings.counted_keys, state["sketch"])
        waiting, recent = (loads_from(state[name], self._workers) for name in ("waiting", "recent"))
        events, changes = int(state["events"]), int(state["changes"])
        if not 0 <= events <= self._settings.epoch_events:
            raise ValueError("an epoch doesn't have so many events")
        self._sketch, self._waiting = sketch, waiting
        self._resized()
        self._recent = recent
        self._totals["events"], self._totals["changes"] = events, changes
