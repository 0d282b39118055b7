"""The phases that all planners but Readj go through, and what the trials of one interval share."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.protocol import Weights
from keygrouping.grouping.table.compact import Groups
from keygrouping.grouping.table.interval import Interval, Numbers, Outcome

Rows = NDArray[np.void]

ROW = np.dtype(
    [
        ("cost", np.float64),
        ("state", np.float64),
        ("home", np.int64),
        ("worker", np.int64),
        ("origin", np.int64),
        ("group", np.int64),
    ],
    align=True,
)
"""Keys of a group: cost and state of each, home, present worker, and `origin`, the worker where phase I puts them."""

BIN = np.dtype(
    [
        ("load", np.float64),
        ("fixed", np.float64),
        ("lighter", np.float64),
        ("first", np.int64),
        ("end", np.int64),
        ("preferred_at", np.int64),
        ("heaviest_at", np.int64),
    ],
    align=True,
)
"""A worker: its load, the parts of it that later candidates can't and can displace, its rows, and cursors in them."""

Preference = Callable[[Weights, Weights], Weights]
"""Ranks keys by cost and state: those with the largest values are moved first."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan for groups of keys: what one run through the phases has come to."""

    staying: Numbers
    """How many keys of each row stay at its origin."""
    placed_row: Numbers
    placed_worker: Numbers
    """The row of each candidate, and its new worker."""
    refused: int
    """How many keys have gone to a worker that they overload."""
    largest_load: float
    table_size: int
    moved_state: float


class Workspace:
    """All orders of an interval's keys that the phases need; trials differ only in what phase I moves back."""

    def __init__(self, interval: Interval, preference: Preference, theta_max: float, compact: int | None) -> None:
        keys = (interval.cost, interval.state, interval.home, interval.worker)
        groups = Groups.single(*keys) if compact is None else Groups.compact(*keys, compact)
        in_table = np.flatnonzero(groups.worker != groups.home)
        self._groups = groups
        self._in_table = in_table[np.argsort(groups.state[in_table], kind="stable")]
        self._background = interval.background
        self._mean = float(groups.cost @ groups.number + interval.background.sum()) / len(interval.background)
        self._limit = interval.limit(theta_max, self._mean)
        self._rows = _rows(groups, self._in_table)
        self._bins = _bins(self._rows["origin"], len(interval.background))
        self._key_preference = preference(interval.cost, interval.state)
        by_preference = -preference(self._rows["cost"], self._rows["state"])
        by_cost = -self._rows["cost"]
        self._preferred = np.lexsort((self._rows["group"], by_preference, self._rows["origin"]))
        self._heaviest = np.lexsort((self._rows["group"], by_cost, self._rows["origin"]))
        self._all_heaviest = np.lexsort((self._rows["group"], by_cost))

    @property
    def table_size(self) -> int:
        """Number of keys in the present routing table."""
        return int(self._groups.number[self._in_table].sum())

    def trial(self, moved_back: int) -> Trial:
        """Go through the phases after moving back that many keys of the table, those with the least state first."""
        from keygrouping.grouping.table.planning_kernel import Orders, Work, balance

        rows, bins, staying = self._rows, self._bins.copy(), self._cleaned(moved_back)
        orders = Orders(self._preferred, self._heaviest, self._all_heaviest)
        work = Work(rows, staying, np.zeros(len(rows), np.int64), bins, orders)
        row, worker, refused = balance(work, self._background, self._mean, self._limit)
        placed = rows[row]
        away = int(staying[rows["origin"] != rows["home"]].sum()) + int(np.count_nonzero(worker != placed["home"]))
        staying_state = rows["state"] * staying
        moved = (
            staying_state[rows["origin"] != rows["worker"]].sum() + placed["state"][worker != placed["worker"]].sum()
        )
        return Trial(staying, row, worker, refused, float(bins["load"].max()), away, float(moved))

    def balanced(self, trial: Trial) -> bool:
        """Whether no worker is overloaded, by rounded costs if they are."""
        return trial.largest_load <= self._limit

    def outcome(self, trial: Trial) -> Outcome:
        """The trial's worker for each key; of keys that are alike, the preferred ones are those that move."""
        rows, groups = self._rows, self._groups
        group = np.concatenate([np.repeat(rows["group"], trial.staying), rows["group"][trial.placed_row]])
        worker = np.concatenate([np.repeat(rows["origin"], trial.staying), trial.placed_worker])
        movers_first = np.lexsort((worker, worker == groups.worker[group], group))
        group_of_member = np.repeat(np.arange(len(groups.number)), groups.number)
        preferred_first = np.lexsort((groups.members, -self._key_preference[groups.members], group_of_member))
        chosen = np.empty(len(worker), np.int64)
        chosen[groups.members[preferred_first]] = worker[movers_first]
        return Outcome(chosen, trial.refused)

    def _cleaned(self, moved_back: int) -> Numbers:
        """Phase I: the number of keys of each row, those at home after it in rows of their own."""
        numbers = self._groups.number[self._in_table]
        back = np.clip(moved_back - (np.cumsum(numbers) - numbers), 0, numbers)
        staying = np.concatenate([self._groups.number, back])
        staying[self._in_table] -= back
        return staying


def _rows(groups: Groups, in_table: Numbers) -> Rows:
    """One row per group where it is, and one more at home for those of the routing table."""
    group = np.concatenate([np.arange(len(groups.number)), in_table])
    rows = np.zeros(len(group), ROW)
    rows["group"] = group
    for name in ("cost", "state", "home", "worker"):
        rows[name] = getattr(groups, name)[group]
    rows["origin"] = np.concatenate([groups.worker, groups.home[in_table]])
    return rows


def _bins(origin: Numbers, workers: int) -> Rows:
    """The workers, each with its part of the rows in order of their origins."""
    bins = np.zeros(workers, BIN)
    bins["end"] = np.cumsum(np.bincount(origin, minlength=workers))
    bins["first"][1:] = bins["end"][:-1]
    return bins
