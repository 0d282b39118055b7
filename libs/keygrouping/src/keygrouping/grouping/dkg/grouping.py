"""Dynamic Key Grouping: keys that stay hot get more workers, one at a time.

Source: Dalabasmaz and Can, "Dynamic Key Grouping: A Load Balancing Algorithm for Distributed Stream Processing Engines"
(IEEE TPDS 2020), algorithms 1 to 6, and the README of odalabasmaz/DynamicKeyGrouping for scaling down.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._shared_widths import SharedSettings, SharedWidths
from keygrouping.grouping._wide_keys import WideKeys
from keygrouping.grouping.base import NO_WEIGHTS, kernel_arrays, loads_from
from keygrouping.grouping.dkg.generations import generations
from keygrouping.grouping.dkg.plan import Counted
from keygrouping.grouping.protocol import Explanation, Hashes, HotKey, Space, Weights, Workers
from keygrouping.hashing import SEED, hash_key, worker_of
from keygrouping.keyspace import MAX_DISTINCT_KEYS, OLD, SPACE_NAMES, TEENAGE, KeySpace
from keygrouping.settings import setting

INITIAL_WIDTH = 2

_RULES = np.dtype(
    [
        ("now", np.float64),
        ("warm", np.bool_),
        ("check_interval", np.float64),
        ("scale_up", np.float64),
        ("scale_down", np.float64),
        ("min_width", np.int64),
        ("max_width", np.int64),
        ("limit", np.int64),
    ],
    align=True,
)
_TOTALS = np.dtype([("load", np.float64), ("mass", np.float64), ("known", np.int64), ("width_changes", np.int64)])


@dataclass(frozen=True)
class DkgSettings(SharedSettings):
    """Settings of `dkg`."""

    distinct_keys: int = setting(
        100,
        "expected number of different keys: sizes the spaces (10 % old, 40 % teenage, 50 % baby)",
        least=10,
        most=MAX_DISTINCT_KEYS,
    )
    check_interval: float = setting(60.0, "least time between two changes of one key's width", unit="s", least=0)
    warm_up: float = setting(15.0, "no key is widened before loads were gathered for this long", unit="s", least=0)
    teenage_interval: float = setting(15.0, "time between promotions from baby to teenage space", unit="s", above=0)
    old_interval: float = setting(60.0, "time between promotions from teenage to old space", unit="s", above=0)
    forget_after: float = setting(3600.0, "a key without events for this long is forgotten", unit="s", above=0)
    half_life: float | None = setting(
        30.0,
        "all loads and counts are halved at every passing of this time, so that they tell of the last minute or so; "
        "null: they are counted over the lifetime, as in the paper (a new worker of a hot key then gets all its events "
        "until its lifetime load has caught up, and yesterday's hot keys keep out today's)",
        unit="s",
        above=0,
    )


@dataclass(frozen=True)
class Thresholds:
    """When a key is widened and narrowed, as shares of all load (0 to 1), and how wide at most."""

    scale_up: float
    scale_down: float
    max_width: int

    @classmethod
    def of(cls, workers: int) -> "Thresholds":
        """Ideal load +- its square root, both in per cent; widths as in the paper's table 1.

        From 57 workers on the lower threshold would come near zero, and from 100 on no load could be below it:
        it stays at a quarter of the ideal load.
        """
        ideal = 100.0 / workers
        up = ideal + math.sqrt(ideal)
        down = max(ideal - math.sqrt(ideal), ideal / 4)
        return cls(up / 100, down / 100, min(workers, max(INITIAL_WIDTH, int(100 / up) + 1)))


class Dkg(SharedWidths[DkgSettings]):
    """Each key may use `width` neighbouring workers from its home on, two at first; the least loaded gets the event.

    A key of the old space is widened by the next neighbour, if that one is less loaded, when even its least
    loaded worker has reached the upper threshold; it is narrowed by one when two of its workers are below the
    lower one. At most one change per key and check interval. What depends on time (promotions, forgetting, the
    fading of loads) happens between batches, by `now`. Differences from the public code: real-valued loads,
    explicit maxima, hysteresis, a check is used up only by a change, old keys are forgotten, nothing
    depends on the uptime (with a half-life).

    A shared instance counts, but widths come from `apply`. A plan is made by the same rules from the loads and counts
    of all sources: a key may be widened if it is old with one of them and among the heaviest of all; only keys that are
    teenage or old with one of them stay wide.

    Memory: one number per worker and the bounded KeySpace.
    """

    name: ClassVar[str] = "dkg"
    settings = DkgSettings
    seeds = (SEED,)

    def __init__(self, workers: int, settings: DkgSettings | None = None) -> None:
        super().__init__(workers, settings)
        self._keys = KeySpace(self._settings.distinct_keys)
        self._rules = np.zeros(1, _RULES)
        self._rules["check_interval"] = self._settings.check_interval
        self._rules["limit"] = self._keys.limit
        self._totals = np.zeros(1, _TOTALS)
        self._started: float | None = None
        self._warm_from = 0.0
        self._passes = {"half_life": 0, "teenage": 0, "old": 0}
        self._clear_loads()

    @property
    def epoch(self) -> int:
        """Changes of the number of workers and of the width of any key; if shared, that of the plan."""
        return self._epoch + int(self._totals["width_changes"][0])

    @property
    def cold_width(self) -> int:
        return min(INITIAL_WIDTH, self._workers)

    @property
    def keys(self) -> KeySpace:
        """What this grouping knows of its keys."""
        return self._keys

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        from keygrouping.grouping.dkg.route_kernel import route_dkg, route_planned_dkg

        hashes, weights = kernel_arrays(hashes, weights, 1)
        if not len(hashes):
            return np.empty(0, np.int32)
        state = self._state_at(now)
        if self.shared:
            return route_planned_dkg(hashes, weights, *state, self._wide.table)
        return route_dkg(hashes, weights, *state)

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        from keygrouping.grouping.dkg.route_kernel import each_by_dkg, each_by_planned_dkg

        state = self._state_at(now)
        if self.shared:
            return each_by_planned_dkg(event, NO_WEIGHTS, *state, self._wide.table)
        return each_by_dkg(event, NO_WEIGHTS, *state)

    def _state_at(self, now: float) -> tuple[Weights, NDArray[Any], NDArray[Any], NDArray[Any]]:
        self._advance(now)
        return self._loads, self._keys.items, self._totals, self._rules

    def _bear(self, loads: Weights) -> None:
        self._loads += loads
        self._totals["load"] += loads.sum()

    def explain(self, key: bytes | str) -> Explanation:
        hashed = hash_key(key)
        home = worker_of(hashed, self._workers)
        item = self._keys.find(hashed)
        width = self._width(hashed, item)
        candidates = tuple((home + i) % self._workers for i in range(width))
        since = self._hot_since(hashed, item) if width > self.cold_width else None
        if item is None:
            why = f"not among the known keys: the least loaded of {width} workers from home on"
            return Explanation(home, candidates, width, None, None, why, None, since)
        age, space = self._now - float(item["first_seen"]), SPACE_NAMES[item["space"]]
        return Explanation(home, candidates, width, self._share(item), age, self._why(item, candidates), space, since)

    def spaces(self) -> tuple[Space, ...]:
        return generations(self._keys)

    def hot(self, limit: int) -> list[HotKey]:
        if self.shared:
            return self._hot_by_plan(limit)
        known = self._keys.known()
        by_width = known[np.argsort(-known["width"], kind="stable")][: max(0, limit)]
        return [HotKey(int(item["hash"]), int(item["width"]), self._share(item)) for item in by_width]

    def _width(self, hashed: int, item: Any) -> int:
        found = self._wide.find(hashed) if self.shared else item
        return self.cold_width if found is None else int(found["width"])

    def _hot_since(self, hashed: int, item: Any) -> float | None:
        return self._hot_since_by_plan(hashed) if self.shared else self._now - float(item["widened"])

    def _share_of(self, hashed: int) -> float | None:
        item = self._keys.find(hashed)
        return None if item is None else self._share(item)

    def _share(self, item: Any) -> float:
        mass = float(self._totals["mass"][0])
        return float(item["count"]) / mass if mass else 0.0

    def _why(self, item: Any, candidates: tuple[int, ...]) -> str:
        total = float(self._totals["load"][0]) or 1.0
        least = 100 * float(self._loads[list(candidates)].min()) / total
        limits = Thresholds.of(self._workers)
        can = "can" if item["space"] == OLD else "can't"
        return (
            f"the least loaded of {len(candidates)} workers from home on; in {SPACE_NAMES[item['space']]} space, so it "
            f"{can} be widened (up to {limits.max_width}) when that one, at {least:.2f} % of the load, "
            f"reaches {100 * limits.scale_up:.2f} %"
        )

    def _advance(self, now: float) -> None:
        """Do what has become due since the last call."""
        self._now = max(now, self._now)
        if self._started is None:
            self._started = self._warm_from = self._now = now
        half_life = self._settings.half_life
        if half_life is not None and (halvings := self._due("half_life", half_life)):
            self._fade(0.5**halvings)
        if self._due("teenage", self._settings.teenage_interval):
            self._keys.forget_unseen(self._now - self._settings.forget_after)
            self._keys.promote_to_teenage()
            self._totals["known"] = len(self._keys)
        if self._due("old", self._settings.old_interval):
            self._keys.promote_to_old()
        self._rules["now"] = self._now
        self._rules["warm"] = self._now - self._warm_from > self._settings.warm_up

    def _due(self, name: str, interval: float) -> int:
        """How often something that is done every `interval` has become due; several times count as one later."""
        passes = int((self._now - (self._started or 0.0)) / interval)
        due = passes - self._passes[name]
        self._passes[name] = passes
        return due

    def _statistics(self) -> dict[str, Any]:
        """`gathered`: seconds of the loads; `loads`; `mass`: weight of all keys; `keys`: see Counted.rows."""
        faded = 1.0 if self._settings.half_life is None else 0.5 ** self._part(self._settings.half_life)
        items = self._keys.items[self._keys.items["space"] >= TEENAGE]
        items = items[np.argsort(items["hash"])]
        items["count"] *= faded
        return {
            "gathered": self._now - self._warm_from,
            "loads": (self._loads * faded).tolist(),
            "mass": float(self._totals["mass"][0]) * faded,
            "keys": Counted.rows(items, self._now),
        }

    def _part(self, half_life: float) -> float:
        """How much of the present half-life has passed, 0 to 1."""
        return (self._now - (self._started or 0.0)) / half_life - self._passes["half_life"]

    def _planned(self, statistics: Sequence[Mapping[str, Any]]) -> tuple[dict[int, int], dict[int, float]]:
        counted = Counted.parsed(statistics, self._workers)
        old, warm_up = self._keys.old_capacity, self._settings.warm_up
        return counted.widths(self._wide, self._rules, self._now, warm_up, old), counted.shares()

    def _widths_for(self, widths: NDArray[np.int32], before: int) -> NDArray[np.int32]:  # noqa: ARG002
        return np.clip(widths, self.cold_width, Thresholds.of(self._workers).max_width)

    def _fade(self, factor: float) -> None:
        self._loads *= factor
        self._totals["load"] *= factor
        self._totals["mass"] *= factor
        self._keys.fade(factor)

    def _clear_loads(self) -> None:
        limits = Thresholds.of(self._workers)
        self._loads = np.zeros(self._workers)
        self._totals["load"] = 0.0
        self._rules["scale_up"] = limits.scale_up
        self._rules["scale_down"] = limits.scale_down
        self._rules["max_width"] = limits.max_width
        self._rules["min_width"] = min(INITIAL_WIDTH, self._workers)

    def _resized(self) -> None:
        """All homes have moved: gather loads from zero, and let no key be wider than it may."""
        self._clear_loads()
        self._warm_from = self._now
        widths = self._keys.items["width"]
        np.clip(widths, int(self._rules["min_width"][0]), int(self._rules["max_width"][0]), out=widths)

    def _fitted(self, state: Any, other: Self) -> Any:
        """Intervals of other lengths go on counting from now; a shared instance has no widths but those of plans."""
        passed = 0.0 if other._started is None else other._now - other._started
        passes = {name: int(passed / interval) for name, interval in self._intervals().items()}
        keys, wide = state["keys"][: self._keys.limit], []
        if self.shared:
            keys, wide = [[*row[:-2], self.cold_width, row[-1]] for row in keys], state["wide"]
        return {**state, "keys": keys, "passes": passes, "wide": wide}

    def _intervals(self) -> dict[str, float]:
        chosen = self._settings
        half_life = math.inf if chosen.half_life is None else chosen.half_life
        return {"half_life": half_life, "teenage": chosen.teenage_interval, "old": chosen.old_interval}

    def _state(self) -> Any:
        return {
            "loads": self._loads.tolist(),
            "totals": list(self._totals[0].tolist()),
            "started": self._started,
            "warm_from": self._warm_from,
            "passes": dict(self._passes),
            "wide": self._wide.to_data(),
            "keys": self._keys.to_data(),
        }

    def _restore_state(self, state: Any, shift: float) -> None:
        loads = loads_from(state["loads"], self._workers)
        totals = np.array([tuple(state["totals"])], _TOTALS)
        items = self._keys.checked(state["keys"], shift)
        passes = {name: int(state["passes"][name]) for name in self._passes}
        wide = WideKeys.from_data(state["wide"], self._workers, shift)
        started = None if state["started"] is None else float(state["started"]) + shift
        warm_from = float(state["warm_from"]) + shift
        self._clear_loads()
        self._loads, self._totals, self._passes = loads, totals, passes
        self._started, self._warm_from, self._wide = started, warm_from, wide
        self._keys.replace(items)
