"""Dynamic Key Grouping as its public code does it, faithful to what that code decides, for comparisons.

Source: odalabasmaz/DynamicKeyGrouping, classes DynamicKeyGrouping, KeySpace, KeyItem and KeySpaceManager.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from keygrouping.grouping.base import BaseGrouping, kernel_arrays, loads_from
from keygrouping.grouping.dkg.generations import generations
from keygrouping.grouping.protocol import Explanation, Hashes, HotKey, Space, Weights, Workers
from keygrouping.hashing import SEED, hash_key, worker_of
from keygrouping.keyspace.items import MAX_DISTINCT_KEYS, OLD, SPACE_NAMES
from keygrouping.keyspace.legacy import INITIAL_WIDTH, LegacyKeySpace
from keygrouping.settings import Settings, setting

_RULES = np.dtype(
    [
        ("now", np.float64),
        ("warm", np.bool_),
        ("check_interval", np.float64),
        ("high", np.int64),
        ("room", np.int64),
        ("limit", np.int64),
    ],
    align=True,
)
_TOTALS = np.dtype([("events", np.int64), ("stored", np.int64), ("width_changes", np.int64)])


@dataclass(frozen=True)
class DkgLegacySettings(Settings):
    """Settings of `dkg-legacy`; the defaults are what the public code has hard-wired."""

    distinct_keys: int = setting(
        100,
        "expected number of different keys: sizes the spaces (10 % old, 40 % teenage, 50 % baby)",
        least=10,
        most=MAX_DISTINCT_KEYS,
    )
    check_interval: float = setting(
        60.0, "the least time between two looks at one key's width, exclusive", unit="s", least=0
    )
    warm_up: float = setting(15.0, "no key is widened until more than this has passed", unit="s", least=0)
    promotion_interval: float = setting(
        15.0,
        "time between passes of promotion, the first at the start; every fourth promotes to the old space too",
        unit="s",
        least=0.001,
    )


@dataclass(frozen=True)
class LegacyThresholds:
    """Loads in whole per cent; the public code computes the lower one but never uses it."""

    scale_up: int
    scale_down: int

    @classmethod
    def of(cls, workers: int) -> "LegacyThresholds":
        """Ideal load +- its square root, cut to integers."""
        ideal = 100.0 / workers
        return cls(int(ideal + math.sqrt(ideal)), int(ideal - math.sqrt(ideal)))


class DkgLegacy(BaseGrouping[DkgLegacySettings]):
    """Each key may use `width` neighbouring workers from its home on, two at first; the least loaded gets the event.

    What differs from the paper, and is kept because it decides: loads are whole per cent of all events since the
    start (so there are many ties, which the worker nearest to home wins), both thresholds are cut to integers, a
    key is narrowed when two of its workers are below the upper one, nothing bounds its width but W, it is looked
    at only once per check interval, from its second event on, whether or not anything comes of that; the first
    promotion to the old space is at 45 s; equal counts keep a key out of a space; nothing fades or is forgotten
    for its age. Weights play no part. Times count in whole milliseconds.

    What is not kept: the smallest 64-bit hash and counts beyond 2^31 stop nothing; keys of equal counts are in the
    order of their hashes instead of a Java hash map's; memory is bounded, see LegacyKeySpace. A change of the
    number of workers is a new start, as Storm's rebalance is: nothing is remembered.

    Memory: one number per worker and the bounded LegacyKeySpace.
    """

    name: ClassVar[str] = "dkg-legacy"
    settings = DkgLegacySettings
    seeds = (SEED,)

    def __init__(self, workers: int, settings: DkgLegacySettings | None = None) -> None:
        super().__init__(workers, settings)
        self._rules = np.zeros(1, _RULES)
        self._rules["check_interval"] = self._settings.check_interval
        self._totals = np.zeros(1, _TOTALS)
        self._prepare()

    def _prepare(self) -> None:
        """Forget everything but the number of changes of widths."""
        self._keys = LegacyKeySpace(self._settings.distinct_keys)
        self._loads = np.zeros(self._workers, np.int64)
        self._totals["events"] = self._totals["stored"] = 0
        self._started: float | None = None
        self._passes = 0
        self._rules["limit"] = self._keys.limit
        self._rules["high"] = LegacyThresholds.of(self._workers).scale_up

    @property
    def epoch(self) -> int:
        """Changes of the number of workers and of the width of any key."""
        return self._epoch + int(self._totals["width_changes"][0])

    @property
    def cold_width(self) -> int:
        return min(INITIAL_WIDTH, self._workers)

    @property
    def keys(self) -> LegacyKeySpace:
        """What this grouping knows of its keys."""
        return self._keys

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        from keygrouping.grouping.dkg.legacy_kernel import route_legacy

        hashes, weights = kernel_arrays(hashes, weights, 1)
        routed = np.empty(len(hashes), np.int32)
        if not len(hashes):
            return routed
        self._advance(now)
        done = 0
        while True:
            self._rules["room"] = self._keys.room
            done = route_legacy(hashes, routed, done, self._loads, self._keys.items, self._totals, self._rules)
            if done == len(hashes):
                return routed
            self._keys.grow()

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        from keygrouping.grouping.dkg.legacy_kernel import each_by_legacy

        self._advance(now)
        while True:
            self._rules["room"] = self._keys.room
            yield from each_by_legacy(event, self._loads, self._keys.items, self._totals, self._rules)
            self._keys.grow()

    def explain(self, key: bytes | str) -> Explanation:
        hashed = hash_key(key)
        home = worker_of(hashed, self._workers)
        item = self._keys.find(hashed)
        width = min(INITIAL_WIDTH if item is None else int(item["width"]), self._workers)
        candidates = tuple((home + i) % self._workers for i in range(width))
        if item is None or not item["count"]:
            why = f"not among the known keys: the least loaded of the {width} workers it was last spread over"
            return Explanation(home, candidates, width, None, None, why, None, self._hot_since(item))
        age, space, since = self._now - float(item["first_seen"]), SPACE_NAMES[item["space"]], self._hot_since(item)
        return Explanation(home, candidates, width, self._share(item), age, self._why(item, candidates), space, since)

    def spaces(self) -> tuple[Space, ...]:
        return generations(self._keys)

    def _hot_since(self, item: Any) -> float | None:
        hot = item is not None and min(item["width"], self._workers) > self.cold_width
        return self._now - float(item["widened"]) if hot else None

    def hot(self, limit: int) -> list[HotKey]:
        known = self._keys.known()
        known = known[known["count"] > 0]
        by_width = known[np.argsort(-known["width"], kind="stable")][: max(0, limit)]
        return [HotKey(int(item["hash"]), int(item["width"]), self._share(item)) for item in by_width]

    def _share(self, item: Any) -> float:
        return float(item["count"]) / float(self._totals["events"][0])

    def _why(self, item: Any, candidates: tuple[int, ...]) -> str:
        least = 100 * int(self._loads[list(candidates)].min()) // int(self._totals["events"][0])
        can = "can" if item["space"] == OLD else "can't"
        return (
            f"the least loaded of {len(candidates)} workers from home on; in {SPACE_NAMES[item['space']]} space, so it "
            f"{can} be widened when that one, at {least} % of all events, reaches {int(self._rules['high'][0])} %"
        )

    def _advance(self, now: float) -> None:
        """Make the passes that have become due since the last call."""
        self._now = max(now, self._now)
        if self._started is None:
            self._started = self._now = now
        elapsed = round(1000 * (self._now - self._started))
        due = 1 + elapsed // round(1000 * self._settings.promotion_interval)
        if due > self._passes:
            self._totals["width_changes"] += self._keys.catch_up(self._passes, due)
            self._totals["stored"] = len(self._keys)
            self._passes = due
        self._rules["now"] = self._now
        self._rules["warm"] = elapsed > round(1000 * self._settings.warm_up)

    def _resized(self) -> None:
        self._prepare()

    def _fitted(self, state: Any, other: Self) -> Any:
        """Passes of another interval go on counting from now."""
        passed = 0 if other._started is None else round(1000 * (other._now - other._started))
        passes = 1 + passed // round(1000 * self._settings.promotion_interval)
        return {**state, "passes": passes if state["passes"] else 0, "keys": state["keys"][: self._keys.limit]}

    def _state(self) -> Any:
        return {
            "loads": self._loads.tolist(),
            "totals": list(self._totals[0].tolist()),
            "started": self._started,
            "passes": self._passes,
            "keys": self._keys.to_data(),
        }

    def _restore_state(self, state: Any, shift: float) -> None:
        loads = loads_from(state["loads"], self._workers).astype(np.int64)
        totals = np.array([tuple(state["totals"])], _TOTALS)
        items = self._keys.checked(state["keys"], shift)
        started = None if state["started"] is None else float(state["started"]) + shift
        passes = int(state["passes"])
        self._prepare()
        self._loads, self._totals, self._started, self._passes = loads, totals, started, passes
        self._keys.replace(items)
