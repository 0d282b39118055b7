"""What the groupings by a routing table share: statistics of an interval, plans that migrate keys, routing.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), sections 2 and 4.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.base import BaseGrouping, kernel_arrays, loads_from
from keygrouping.grouping.protocol import Explanation, Hashes, HotKey, Space, Weights, Workers
from keygrouping.grouping.table.compact import MAX_EXPONENT
from keygrouping.grouping.table.interval import Interval, Numbers, Outcome, limited
from keygrouping.grouping.table.slot import ROUTED
from keygrouping.grouping.table.tracked_keys import TrackedKeys, fitted_window, homes
from keygrouping.hashing import SEED, hash_key, worker_of
from keygrouping.settings import Settings, setting


@dataclass(frozen=True)
class RoutingTableSettings(Settings):
    """Settings of all groupings by a routing table."""

    theta_max: float = setting(
        0.08, "tolerance: a worker is overloaded above (1 + theta_max) times the mean load", least=0
    )
    interval: float | None = setting(
        10.0, "time between two plans; null: the owner plans and applies", unit="s", least=0.001
    )
    window: int = setting(
        5, "the state of a key is the weight of its events in this many of the last intervals", least=1, most=100
    )
    tracked_keys: int = setting(
        100_000,
        "with exact statistics for this many keys; others stay at home. Also the most entries of the table",
        least=2,
        most=10_000_000,
    )


@dataclass(frozen=True)
class CompactSettings(RoutingTableSettings):
    """Settings of those that can plan by compact statistics."""

    compact: int | None = setting(
        None,
        "plan by statistics in which keys that are alike, with costs and states rounded to degree 2**compact (in units "
        "of cost), are one; null: by exact ones",
        least=0,
        most=MAX_EXPONENT,
    )


TableSettings = TypeVar("TableSettings", bound=RoutingTableSettings)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What was seen of the keys (distinct, by hash) and of all others."""

    hashes: NDArray[np.int64]
    cost: Weights
    state: Weights
    background: Weights

    @classmethod
    def parsed(cls, data: Mapping[str, Any], workers: int) -> "Statistics":
        """Out of JSON data; a ValueError if they are none, or for another number of workers."""
        try:
            hashes = np.array(data["keys"], np.int64).reshape(-1)
            cost, state = (np.array(data[name], np.float64).reshape(len(hashes)) for name in ("cost", "state"))
            background = loads_from(data["background"], workers)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not statistics for {workers} workers: {error}") from error
        weights = np.concatenate([cost, state])
        if not np.all(np.isfinite(weights)) or np.any(weights < 0):
            raise ValueError("statistics have a cost or state that is no weight")
        return cls(hashes, cost, state, background)

    @classmethod
    def merged(cls, parts: Sequence["Statistics"], workers: int) -> "Statistics":
        """The sums of all parts; equal to the last bit whatever their order."""
        hashes = np.concatenate([part.hashes for part in parts] or [np.empty(0, np.int64)])
        cost = np.concatenate([part.cost for part in parts] or [np.empty(0)])
        state = np.concatenate([part.state for part in parts] or [np.empty(0)])
        background = np.sort(np.array([part.background for part in parts]).reshape(-1, workers), axis=0).sum(axis=0)
        order = np.lexsort((state, cost, hashes))
        distinct, first = np.unique(hashes[order], return_index=True)
        if not len(distinct):
            return cls(distinct, cost, state, background)
        return cls(distinct, np.add.reduceat(cost[order], first), np.add.reduceat(state[order], first), background)


class RoutingTableGrouping(BaseGrouping[TableSettings]):
    """A key goes to its worker in the routing table if it is there, else to its home.

    At the end of an interval, if a worker is overloaded, a planner makes a new table out of what each key has cost in
    this interval and of its state; keys change their worker only by that. Entries of keys that have no state
    any more are dropped by a new table. Keys that come when `tracked_keys` are known stay at home, and their
    weight counts as load that can't be moved; every interval has room for half as many new ones.
    `resize` moves homes; entries for workers that are gone are dropped.

    Memory: at most 2 x tracked_keys keys in up to four slots each, of 32 + 8 x (window - 1) bytes, and three numbers
    per worker or interval.
    """

    seeds = (SEED,)
    shared_settings: ClassVar[Mapping[str, object] | None] = {"interval": None}

    def __init__(self, workers: int, settings: TableSettings | None = None) -> None:
        super().__init__(workers, settings)
        self._keys = TrackedKeys(self._settings.tracked_keys, self._settings.window)
        self._background = np.zeros(workers)
        self._totals = np.zeros(self._settings.window - 1)
        self._started: float | None = None
        self._intervals = 0

    @abstractmethod
    def _planned(self, interval: Interval) -> Outcome:
        """A new worker for every key, as a worker is overloaded."""

    @property
    def shared(self) -> bool:
        """Whether it leaves planning to its owner."""
        return self._settings.interval is None

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        hashes, weights = kernel_arrays(hashes, weights, 1)
        if not len(hashes):
            return np.empty(0, np.int32)
        self._advance(now)
        return self._keys.route(hashes, weights, self._background, self._now)

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        self._advance(now)
        return self._keys.each(event, self._background, self._now)

    def _bear(self, loads: Weights) -> None:
        self._background += loads

    def statistics(self, now: float | None = None) -> dict[str, Any]:
        """`keys`: hashes of all keys with state, `cost` and `state` of each; `background`: the workers' other load."""
        self._now = max(self._now, self._now if now is None else now)
        statistics = self._end_interval()
        return {
            "keys": statistics.hashes.tolist(),
            "cost": statistics.cost.tolist(),
            "state": statistics.state.tolist(),
            "background": statistics.background.tolist(),
        }

    def plan(self, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The next routing table; raises ValueError if these are not statistics for the present number of workers.

        `table` holds [hash, worker] of every entry, `moves` [hash, old worker, new worker] of every key with state
        that moves, `moved_keys` and `moved_state` their number and state (migration cost M), `max_overload`
        the largest load over the mean less 1, `feasible` whether that is within the tolerance, `refused` how many
        keys had to go to a worker that they overload.
        """
        parts = [Statistics.parsed(source, self._workers) for source in statistics]
        return self._plan(parts)

    def apply(self, plan: Mapping[str, Any]) -> None:
        """Route by this plan; raises ValueError, and changes nothing, if it is none for the present workers."""
        try:
            changed, planned_for = bool(plan["changed"]), plan["workers"]
            entries = np.array(plan["table"], np.int64).reshape(-1, 2)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a plan: {error}") from error
        hashes, workers = entries[:, 0], entries[:, 1]
        if planned_for != self._workers or np.any((workers < 0) | (workers >= self._workers)):
            raise ValueError(f"not a plan for {self._workers} workers")
        if len(np.unique(hashes)) != len(hashes):
            raise ValueError("a plan with two workers for one key")
        self._keys.route_to(hashes, workers, self._workers, self._now)
        self._epoch += changed

    def explain(self, key: bytes | str) -> Explanation:
        hashed = hash_key(key)
        home = worker_of(hashed, self._workers)
        found = self._keys.find(hashed)
        if found is None:
            return Explanation(home, (home,), 1, None, None, "not known, so not in the routing table: its home")
        item, weight = found
        worker = int(item["worker"])
        total = self._total()
        routed = item["kind"] == ROUTED
        why = f"the routing table says worker {worker}, not its home {home}" if routed else "not in the table: its home"
        share, age = weight / total if total else 0.0, self._now - float(item["since"])
        space = "table" if routed else "tracked"
        return Explanation(None if routed else home, (worker,), 1, share, age, why, space)

    def spaces(self) -> tuple[Space, ...]:
        entries, _ = self._keys.entries()
        home, tracked, most = self._keys.at_home(), self._settings.tracked_keys, self._table_capacity()
        return (
            Space("tracked", len(home), tracked, "keys with statistics, each at home", home),
            Space("table", len(entries), most, "keys in the routing table, each away from home", entries),
        )

    def _table_capacity(self) -> int:
        return self._settings.tracked_keys

    def hot(self, limit: int) -> list[HotKey]:
        hashes, cost, state = self._keys.counted()
        heaviest = np.argsort(-state, kind="stable")[: max(0, limit)]
        total = float(cost.sum() + self._background.sum() + self._totals.sum())
        return [HotKey(int(hashes[i]), 1, float(state[i]) / total) for i in heaviest]

    def _total(self) -> float:
        """All weight of the window."""
        return self._keys.cost + float(self._background.sum() + self._totals.sum())

    def _advance(self, now: float) -> None:
        """Plan if the interval has passed; several that have passed since the last event end at once."""
        self._now = max(now, self._now)
        if self._started is None:
            self._started = self._now
        if self._settings.interval is None:
            return
        intervals = int((self._now - self._started) / self._settings.interval)
        passed, self._intervals = intervals - self._intervals, intervals
        if passed > 0:
            plan = self._plan([self._end_interval()])
            for _ in range(min(passed, self._settings.window) - 1):
                self._end_interval()
            if plan["changed"]:
                self.apply(plan)

    def _end_interval(self) -> Statistics:
        statistics = Statistics(*self._keys.counted(), self._background)
        total = statistics.cost.sum() + statistics.background.sum()
        self._totals = np.append(total, self._totals)[: len(self._totals)]
        self._background = np.zeros(self._workers)
        self._keys.roll()
        return statistics

    def _plan(self, parts: Sequence[Statistics]) -> dict[str, Any]:
        merged = Statistics.merged(parts, self._workers)
        home = homes(merged.hashes, self._workers)
        worker = home.copy()
        entry_hashes, entry_workers = self._keys.entries()
        _, known, entries = np.intersect1d(merged.hashes, entry_hashes, assume_unique=True, return_indices=True)
        worker[known] = entry_workers[entries]
        interval = Interval(merged.cost, merged.state, home, worker, merged.background)
        if interval.balanced(worker, self._settings.theta_max):
            return self._report(interval, merged.hashes, Outcome(worker, 0), self._table())
        outcome = limited(interval, self._planned(interval), self._settings.tracked_keys)
        away = outcome.worker != home
        table = _pairs(merged.hashes[away], outcome.worker[away])
        return self._report(interval, merged.hashes, outcome, table)

    def _report(
        self, interval: Interval, hashes: NDArray[np.int64], outcome: Outcome, table: list[list[int]]
    ) -> dict[str, Any]:
        moved = outcome.worker != interval.worker
        return {
            "changed": table != self._table(),
            "workers": self._workers,
            "table": table,
            "moves": _pairs(hashes[moved], interval.worker[moved], outcome.worker[moved]),
            "moved_keys": int(np.count_nonzero(moved)),
            "moved_state": interval.moved_state(outcome.worker),
            "max_overload": interval.overload(outcome.worker),
            "feasible": interval.balanced(outcome.worker, self._settings.theta_max),
            "refused": outcome.refused,
            "hot_keys": 0,
        }

    def _table(self) -> list[list[int]]:
        return _pairs(*self._keys.entries())

    def _resized(self) -> None:
        """Nobody knows where the keys that aren't tracked have their homes now: their load is spread evenly."""
        self._keys.resize(self._workers)
        self._background = np.full(self._workers, self._background.sum() / self._workers)

    def _take_over(self, other: Self) -> bool:
        """Keys with most state are kept; of a longer window the intervals before that are unknown, so nothing."""
        passed = 0.0 if other._started is None else other._now - other._started
        self._background = other._background.copy()
        self._keys.take_over(other._keys, self._background)
        self._totals = fitted_window(other._totals[None], len(self._totals))[0]
        self._now, self._started = other._now, other._started
        self._intervals = int(passed / (self._settings.interval or math.inf))
        return True

    def _state(self) -> Any:
        return {
            "keys": self._keys.to_data(),
            "background": self._background.tolist(),
            "totals": self._totals.tolist(),
            "started": self._started,
            "intervals": self._intervals,
        }

    def _restore_state(self, state: Any, shift: float) -> None:
        keys = self._keys.checked(state["keys"], self._workers, shift)
        background = loads_from(state["background"], self._workers)
        totals = loads_from(state["totals"], self._settings.window - 1)
        started = None if state["started"] is None else float(state["started"]) + shift
        intervals = int(state["intervals"])
        self._keys.replace(*keys)
        self._background, self._totals = background, totals
        self._started, self._intervals = started, intervals


def _pairs(*columns: Numbers) -> list[list[int]]:
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
