"""DAGreedy: hot keys go where they already are, unless another worker has too much less load.

Source: Pacaci and Özsu, "Distribution-Aware Stream Partitioning for Distributed Stream Processing Systems" (BeyondMR
2018), as implemented for comparison with Dalton (ezapridou/Dalton, DAGreedy.java).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._ticks import Ticks
from keygrouping.grouping.base import NO_WEIGHTS, BaseGrouping, kernel_arrays, loads_from
from keygrouping.grouping.protocol import Explanation, Hashes, HotKey, Space, Weights, Workers
from keygrouping.hashing import SEED, hash_key, worker_of
from keygrouping.keyspace import SpaceSaving
from keygrouping.settings import Settings, setting

_ROW = np.dtype([("hash", np.int64), ("row", np.int32), ("used", np.int32)], align=True)
_STATE = np.dtype(
    [
        ("previous", np.float64),
        ("share", np.float64),
        ("slide", np.int64),
        ("rows", np.int64),
        ("changes", np.int64),
    ],
    align=True,
)
_FIRST_SLIDE = 2
"""So that zero, the slide in which a key was last on a worker that it never was on, is out of the window."""


@dataclass(frozen=True)
class DaGreedySettings(Settings):
    """Settings of `dagreedy`."""

    slide: float = setting(
        10.0, "loads and workers of keys count for the present slide and the one before", unit="s", above=0
    )
    threshold: float = setting(
        0.01, "a key is hot above this part of a worker's fair share (1 / W) of the load of a slide", above=0
    )
    hot_keys: int = setting(
        1000,
        "most keys that are hot at a time; one below one part in so many of all load may not be found to be hot",
        least=1,
        most=1_000_000,
    )


class DaGreedy(BaseGrouping[DaGreedySettings]):
    """Hot: the worker with most of 1/2 [it has the key] - 1/2 (load - average) / average; all other keys: home.

    So a hot key stays with the workers that have it until one has a whole average less load than they. A key is
    hot from the moment that its guaranteed weight in this slide exceeds the threshold until the end of the next
    slide; in the first slide none is. Differences from the public code: a bounded sketch instead of a count of
    every key, the threshold goes by the heavier of this slide and the last (a quiet slide would make everything
    hot in the next), and a worker that a key has left does lose it.

    Memory: SpaceSaving of `hot_keys` counters, 4 bytes per hot key and worker, 40 to 72 per hot key, 16 per worker.
    """

    name: ClassVar[str] = "dagreedy"
    settings = DaGreedySettings
    seeds = (SEED,)

    def __init__(self, workers: int, settings: DaGreedySettings | None = None) -> None:
        super().__init__(workers, settings)
        limit = self._settings.hot_keys
        self._slides = Ticks(self._settings.slide)
        self._sketch = SpaceSaving(limit)
        self._table: NDArray[Any] = np.zeros(1 << (2 * limit).bit_length(), _ROW)
        self._hot_until = np.zeros(limit, np.int64)
        self._visits = np.zeros((limit, workers), np.int32)
        self._totals: NDArray[Any] = np.zeros(1, _STATE)
        self._totals["slide"] = _FIRST_SLIDE
        self._resized()

    @property
    def epoch(self) -> int:
        """Changes of the number of workers, new workers of hot keys, and slides that have ended with hot keys."""
        return self._epoch + int(self._totals["changes"][0])

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        from keygrouping.grouping._dagreedy_kernel import route_dagreedy

        hashes, weights = kernel_arrays(hashes, weights, 1)
        if not len(hashes):
            return np.empty(0, np.int32)
        return route_dagreedy(hashes, weights, self._arrays_at(now))

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        from keygrouping.grouping._dagreedy_kernel import each_by_dagreedy

        return each_by_dagreedy(event, NO_WEIGHTS, self._arrays_at(now))

    def _arrays_at(self, now: float) -> Any:
        from keygrouping.grouping._dagreedy_kernel import Arrays

        self._advance(now)
        counted = self._sketch
        return Arrays(
            self._loads,
            counted.counters,
            counted.sketch,
            self._table,
            self._visits,
            self._hot_until,
            self._totals,
        )

    def explain(self, key: bytes | str) -> Explanation:
        from keygrouping._probing import find
        from keygrouping.grouping._dagreedy_kernel import best_worker

        hashed = hash_key(key)
        home = worker_of(hashed, self._workers)
        share = self._share(hashed)
        item = self._table[find(self._table, np.int64(hashed))]
        if not item["used"]:
            return self._explain_cold(home, share)
        visits, slide = self._visits[item["row"]], int(self._totals["slide"][0])
        best = best_worker(self._loads, visits, slide)
        held = np.flatnonzero(slide - visits <= 1).tolist()
        candidates = sorted({best, *held}, key=lambda worker: (worker != home, worker))
        why = (
            f"hot, so that it goes where it was lately ({', '.join(map(str, sorted(held)))}) unless another worker has "
            f"an average load less; now worker {best}"
        )
        home_in_use = home if home in candidates else None
        return Explanation(home_in_use, tuple(candidates), len(candidates), share, None, why, "hot")

    def spaces(self) -> tuple[Space, ...]:
        hot, sketch = int(self._totals["rows"][0]), self._sketch
        return (
            Space("sketch", len(sketch), 2 * sketch.capacity, "keys counted in this slide", sketch.hashes),
            Space(
                *("hot", hot, self._settings.hot_keys, "hot keys, with the workers where they were lately"),
                self._hashes_by_row(),
            ),
        )

    def hot(self, limit: int) -> list[HotKey]:
        used = self._table[self._table["used"] != 0]
        slide = int(self._totals["slide"][0])
        known = [
            HotKey(
                int(item["hash"]),
                int(np.count_nonzero(slide - self._visits[item["row"]] <= 1)),
                self._share(int(item["hash"])) or 0.0,
            )
            for item in used
        ]
        return sorted(known, key=lambda key: (-key.width, -key.share, key.hash))[: max(0, limit)]

    def _explain_cold(self, home: int, share: float | None) -> Explanation:
        if share is None:
            return Explanation(home, (home,), 1, None, None, "not hot: its home")
        limit = 100 * float(self._totals["share"][0])
        why = f"not hot, with less than {limit:.3g} % of the load: its home"
        return Explanation(home, (home,), 1, share, None, why, "sketch")

    def _share(self, hashed: int) -> float | None:
        """The guaranteed part of the load of this slide; None without a counter."""
        counter = self._sketch.find(hashed)
        if counter is None or not self._sketch.total:
            return None
        return float(counter["count"] - counter["error"]) / self._sketch.total

    def _advance(self, now: float) -> None:
        self._now = max(now, self._now)
        passed = self._slides.passed(self._now)
        if not passed:
            return
        self._loads[0] = self._loads[1] if passed == 1 else 0.0
        self._loads[1] = 0.0
        self._totals["previous"] = self._sketch.total if passed == 1 else 0.0
        self._totals["slide"] += passed
        self._totals["changes"] += self._totals["rows"] > 0
        self._sketch = SpaceSaving(self._settings.hot_keys)
        self._keep(self._hashes_by_row(), self._hot_until >= self._totals["slide"][0])

    def _hashes_by_row(self) -> Hashes:
        used = self._table[self._table["used"] != 0]
        return np.asarray(used["hash"][np.argsort(used["row"])])

    def _keep(self, hashes: Hashes, chosen: NDArray[np.bool_]) -> None:
        """Of the hot keys keep only the rows that are chosen."""
        from keygrouping._probing import lay_out

        rows = np.flatnonzero(chosen[: len(hashes)])
        self._hot_until[: len(rows)] = self._hot_until[rows]
        self._visits[: len(rows)] = self._visits[rows]
        items = np.zeros(len(rows), _ROW)
        items["hash"], items["row"], items["used"] = hashes[rows], np.arange(len(rows)), 1
        self._table["used"] = 0
        self._totals["rows"] = len(rows)
        lay_out(self._table, items)

    def _resized(self) -> None:
        """Workers that stay keep their hot keys; everybody's load starts from nothing."""
        visits = np.zeros((len(self._visits), self._workers), np.int32)
        staying = min(self._visits.shape[1], self._workers)
        rows = int(self._totals["rows"][0])
        visits[:rows, :staying] = self._visits[:rows, :staying]
        self._visits = visits
        self._loads = np.zeros((2, self._workers))
        self._totals["share"] = self._settings.threshold / self._workers

    def _fitted(self, state: Any, other: Self) -> Any:  # noqa: ARG002
        """With less room the keys that are hot for longest are kept."""
        most, hot = self._settings.hot_keys, state["hot"]
        rows = sorted(range(len(hot["hash"])), key=lambda row: (-hot["until"][row], hot["hash"][row]))[:most]
        kept = {name: [column[row] for row in rows] for name, column in hot.items()}
        return {**state, "hot": kept, "sketch": SpaceSaving.fitted(most, state["sketch"])}

    def _state(self) -> Any:
        rows = int(self._totals["rows"][0])
        hot = {
            "hash": self._hashes_by_row().tolist(),
            "until": self._hot_until[:rows].tolist(),
            "visits": self._visits[:rows].tolist(),
        }
        totals = {name: self._totals[name][0].item() for name in ("previous", "slide", "changes")}
        return {
            **totals,
            "loads": self._loads.tolist(),
            "sketch": self._sketch.to_data(),
            "hot": hot,
            "began": self._slides.began,
        }

    def _restore_state(self, state: Any, shift: float) -> None:
        loads = np.stack([loads_from(slide, self._workers) for slide in state["loads"]])
        sketch = SpaceSaving.from_data(self._settings.hot_keys, state["sketch"])
        hashes, until, visits = self._checked(state["hot"])
        totals = {"previous": float(state["previous"]), "slide": int(state["slide"]), "changes": int(state["changes"])}
        began = Ticks.checked(state["began"], shift)
        if len(loads) != 2:
            raise ValueError("needs the loads of two slides")
        self._visits = np.zeros((self._settings.hot_keys, self._workers), np.int32)
        self._resized()
        for name, total in totals.items():
            self._totals[name] = total
        self._loads, self._sketch, self._slides.began = loads, sketch, began
        self._hot_until[: len(until)] = until
        self._visits[: len(visits)] = visits
        self._keep(hashes, np.ones(len(hashes), np.bool_))

    def _checked(self, hot: Any) -> tuple[Hashes, NDArray[np.int64], NDArray[np.int32]]:
        """The hot keys of a snapshot, or a ValueError."""
        try:
            hashes, until = np.array(hot["hash"], np.int64), np.array(hot["until"], np.int64)
            visits = np.array(hot["visits"], np.int32).reshape(len(hashes), self._workers)
        except OverflowError as error:
            raise ValueError("number of a hot key is out of range") from error
        if len(np.unique(hashes)) != len(hashes) or len(hashes) > self._settings.hot_keys:
            raise ValueError("too many hot keys, or one twice")
        if until.shape != hashes.shape:
            raise ValueError("needs a slide for every hot key")
        return hashes, until, visits
