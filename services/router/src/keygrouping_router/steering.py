"""What the routing path asks: the grouping in force, changed between two batches as the control document says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
from keygrouping.grouping import Explanation, Filled, Filling, Grouping, Overrides, Planned, UrgentlyPlanned, create
from keygrouping.hashing import hash_key, hash_keys
from keygrouping_service import metrics
from numpy.typing import NDArray

from keygrouping_router.checks import Checks
from keygrouping_router.control import Control
from keygrouping_router.errors import Refused
from keygrouping_router.overriding import diverted, key_of_override, orders_of
from keygrouping_router.routing import Routed, Usable, route

_HOTTEST = 1000
_ENOUGH = 64
"""Events by which a key is hot for every grouping, so that plans with hot keys are compiled, too."""
_RANKS = 10
_TRIAL_TIMES = (0.0, 100.0, 1e9)
"""Seconds on the clock of a trial: a time in the settings that is too short for it shows in the last one."""


class Steering:
    """Routes by one grouping at a time; nothing in here waits for anything.

    The epoch that it shows is the grouping's own, moved so that it never goes back: not by another grouping, nor by
    another number of workers, nor by a restart.
    """

    def __init__(self, control: Control) -> None:
        self.control = control
        self.grouping: Grouping = new_grouping(control)
        self._override(control)
        self._shift = control.base - self.grouping.epoch
        self.planned = control.base - 1
        """Epoch of the plan that was applied last; below that of every plan for this control document if none was."""
        self.anew = True
        """Whether it has begun without a plan, and nobody has looked yet whether there is one to go on from."""
        self._checks = Checks()
        self.now: float | None = None
        """The latest time (seconds of the clock) that the grouping was told, from which its ages count."""

    @property
    def epoch(self) -> int:
        """Number of the plan in force."""
        return self.grouping.epoch + self._shift

    @property
    def planned_in_rounds(self) -> bool:
        """Whether it waits for plans that are made in rounds."""
        return isinstance(self.grouping, Planned) and self.grouping.shared

    def route(self, usable: Usable, now: float) -> Routed:
        """The worker of each usable event; `now` in seconds of the clock."""
        self._checks.saw(now)
        self.now = now
        began, before = time.perf_counter(), self.overrides.carried.copy()
        routed = route(self.grouping, self.overrides, usable, now)
        metrics.KERNEL_SECONDS.observe(time.perf_counter() - began)
        carried = self.overrides.carried - before
        for worker in np.flatnonzero(carried).tolist():
            metrics.OVERRIDDEN.labels(str(worker)).inc(int(carried[worker]))
        return routed

    def follow(self, control: Control, prepared: Grouping | None = None) -> None:
        """Routes as this control document says from the next batch on; `prepared` is a new grouping made for it.

        What the grouping has learned is kept as far as the new one is of the same kind.
        """
        before, epoch = self.control, self.epoch
        self.control = control
        if control.overrides != before.overrides or control.workers != before.workers:
            self._override(control)
        if control.routes_like(before):
            self._begin_at(max(control.base, epoch))
            return
        self.grouping, kept = successor(self.grouping, before, control, prepared)
        self.anew = self.anew or not kept
        self._begin_at(max(control.base, epoch + 1))
        self.planned = control.base - 1
        self._checks.begin()

    def twin(self) -> Grouping:
        """A grouping that goes on by itself from what the one in force has learned."""
        twin = new_grouping(self.control)
        twin.adopt(self.grouping)
        return twin

    def not_below(self, epoch: int) -> None:
        """The epoch of a partition that comes from another router may be ahead: go on from there."""
        if epoch > self.epoch:
            self._begin_at(epoch)

    def statistics(self, now: float) -> dict[str, Any] | None:
        """What this replica adds to the next plan, and a new interval begins; None if plans are not made in rounds."""
        self._checks.begin()
        if not isinstance(self.grouping, Planned) or not self.grouping.shared:
            return None
        self.now = now
        return {**self.grouping.statistics(now), "epoch": self.epoch}

    @property
    def urgently_planned(self) -> bool:
        """Whether it may want plans inside of intervals, in rounds."""
        return isinstance(self.grouping, UrgentlyPlanned) and self.grouping.shared

    def wants_plan(self, now: float, interval: float) -> bool:
        """Whether it is time to ask in this interval of so many seconds, and a plan is urgent."""
        due = self._checks.due(now, interval)
        return due and isinstance(self.grouping, UrgentlyPlanned) and self.grouping.shared and self.grouping.urgent

    def glimpse(self) -> dict[str, Any] | None:
        """What this replica adds to a plan inside of the interval; None if there are none."""
        if not isinstance(self.grouping, UrgentlyPlanned) or not self.grouping.shared:
            return None
        return {**self.grouping.glimpse(), "epoch": self.epoch}

    def apply(self, plan: Mapping[str, Any]) -> bool:
        """Routes by a plan; False, and no change, if it is not above the one applied last.

        The epoch may be there before its plan, brought by a partition of another router: it takes the plan all the
        same. Raises ValueError if it is no plan for this grouping and number of workers.
        """
        epoch, before = int(plan["epoch"]), self.epoch
        if not isinstance(self.grouping, Planned) or epoch <= self.planned:
            return False
        self.grouping.apply({**plan, "epoch": self.grouping.epoch + 1})
        self.planned = epoch
        self._begin_at(max(epoch, before))
        return True

    def go_on_with(self, grouping: Grouping, planned: int) -> None:
        """Routes by this grouping, which knows the plan of that epoch, in place of one that knows none."""
        epoch = max(self.epoch, planned) + 1
        self.grouping = grouping
        self.planned = max(self.planned, planned)
        self._begin_at(epoch)
        self._checks.begin()

    def filling(self, limit: int) -> Filling | None:
        """How the plan in force fills the workers, if it fills them to a level; with at most so many keys.

        The workers are the grouping's own, which `overrides.layout.shared` numbers.
        """
        return self.grouping.filling(limit) if isinstance(self.grouping, Filled) else None

    def diverted(self, keys: Sequence[bytes]) -> NDArray[np.bool_] | None:
        """Which events have keys whose events go to the quarantine topic; None if none has."""
        if not self.to_topic:
            return None
        found = np.fromiter((key in self.to_topic for key in keys), np.bool_, len(keys))
        return found if found.any() else None

    def explain(self, key: bytes) -> Explanation:
        """Why a key goes where it goes."""
        explained = self.grouping.explain(key)
        layout = self.overrides.layout
        if layout.shared != tuple(range(layout.workers)):
            home = None if explained.home is None else layout.shared[explained.home]
            candidates = tuple(layout.shared[worker] for worker in explained.candidates)
            explained = replace(explained, home=home, candidates=candidates)
        return self._overridden(key, explained)

    def _overridden(self, key: bytes, explained: Explanation) -> Explanation:
        entry = self._by_key.get(key)
        if entry is None:
            return explained
        until = f"until {entry.until:%Y-%m-%d %H:%M:%S} UTC"
        if resting := self.overrides.layout.resting.get(key):
            return replace(explained, why=f"{explained.why} (its override {entry.action} rests: {resting})")
        places = self.overrides.layout.places.get(key, ())
        where = f"to worker {', '.join(map(str, places))}" if places else "to the quarantine topic, not to a worker"
        why = f"by its override {entry.action} {until}: {where}"
        return Explanation(explained.home, places, len(places), None, None, why)

    @property
    def cold_width(self) -> int:
        """The most workers of a key that isn't hot."""
        return min(self.grouping.cold_width, self.grouping.workers)

    def widths(self) -> dict[int, int]:
        """The width of each hot key, by its hash; the widest and heaviest of them if they are very many."""
        return widths_with(self.overrides, self.grouping)

    def _override(self, control: Control) -> None:
        self.overrides = Overrides(orders_of(control.overrides), control.workers)
        self.to_topic = diverted(control.overrides)
        self._by_key = {key_of_override(entry): entry for entry in control.overrides}

    def _begin_at(self, epoch: int) -> None:
        self._shift = epoch - self.grouping.epoch


def successor(
    grouping: Grouping, before: Control, after: Control, prepared: Grouping | None = None
) -> tuple[Grouping, bool]:
    """The grouping that follows one when the control document changes, and whether it keeps what that has learned.

    `prepared` is a new grouping made for the document after; the one before is used up.
    """
    if before.routed_by == after.routed_by:
        for workers in after.sizes_after(before.base):
            grouping.resize(workers)
    if after.groups_like(before):
        return grouping, True
    fresh = prepared or new_grouping(after)
    return fresh, fresh.name == grouping.name and fresh.adopt(grouping)


def hot_widths(grouping: Grouping) -> dict[int, int]:
    """The width of each hot key, by its hash; the widest and heaviest of them if they are very many."""
    cold = grouping.cold_width
    return {key.hash: key.width for key in grouping.hot(_HOTTEST) if key.width > cold}


def widths_with(overrides: Overrides, grouping: Grouping) -> dict[int, int]:
    """The same, where keys with an override are as wide as that says."""
    widths = hot_widths(grouping)
    for key, places in overrides.layout.places.items():
        widths.pop(hash_key(key), None)
        if len(places) > grouping.cold_width:
            widths[hash_key(key)] = len(places)
    return widths


def new_grouping(control: Control) -> Grouping:
    """The grouping that routes under this control document."""
    return create(control.routed_by, control.grouped, control.routing_settings)


def prepared(control: Control) -> Grouping:
    """A new grouping, after another one like it has routed and planned; `Refused` if it couldn't.

    Takes seconds at worst, so not for the event loop: all kernels are compiled by it. Otherwise the first batch, or the
    first change, would block the heartbeats for that long.
    """
    try:
        trial = new_grouping(control)
        try_out(trial)
        if isinstance(trial, Planned) and trial.shared:
            statistics = _through_the_store(trial.statistics(_TRIAL_TIMES[-1]))
            trial.apply(_through_the_store(trial.plan([statistics])))
            try_out(trial)
        new_grouping(control).adopt(trial)
        trial.resize(trial.workers - 1 or 2)
        return new_grouping(control)
    except Exception as error:  # Whatever the grouping raises, it can't be used.
        raise _refused(control.routed_by, error) from error


def try_out(trial: Grouping) -> None:
    """Routes some events of one hot and several light keys; raises if it can't."""
    keys = [b"key"] * _ENOUGH + [b"%d" % number for number in range(_ENOUGH)]
    for now in _TRIAL_TIMES:
        routed = trial.route_batch(hash_keys(keys, trial.seeds), None, now)
        if len(routed) != len(keys) or routed.min() < 0 or routed.max() >= trial.workers:
            raise ValueError(f"it routes to workers that are none of {trial.workers}")


def _through_the_store(value: Mapping[str, Any]) -> dict[str, Any]:
    """As others would read it."""
    read: dict[str, Any] = orjson.loads(orjson.dumps(value))
    return read


def _refused(grouping: str, error: Exception) -> Refused:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return Refused(f"{grouping} can't route and plan with these settings: {reason}")


def try_compared(control: Control) -> None:
    """Lets each grouping that is to be compared route some events; `Refused` if one of them can't."""
    for compared in control.compared:
        try:
            try_out(create(compared.name, control.grouped, compared.used))
        except Exception as error:  # Whatever the grouping raises, it can't be used.
            raise _refused(compared.name, error) from error


def observe_widths(widths: Mapping[int, int]) -> None:
    """Shows the number of hot keys and the widths of the widest ones as metrics."""
    metrics.HOT_KEYS.set(len(widths))
    widest = sorted(widths.values(), reverse=True)[:_RANKS]
    for rank in range(_RANKS):
        metrics.WIDTH.labels(str(rank + 1)).set(widest[rank] if rank < len(widest) else 0)
