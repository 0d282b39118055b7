"""The active grouping: who gets an event, changed between two batches as the control document says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from keygrouping.grouping import Exchanging, Explanation, Filled, Filling, Grouping, Overrides, Planned, UrgentlyPlanned
from keygrouping.hashing import hash_key, hash_keys
from numpy.typing import NDArray

from keygrouping_router import metrics
from keygrouping_router.control.checks import Checks
from keygrouping_router.control.groupings import new_grouping, successor, widths_with
from keygrouping_router.control.overrides import diverted, orders_of
from keygrouping_router.control.state import Control
from keygrouping_router.data.usable import Routed, Usable


class ActiveGrouping:
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
        self.fresh = True
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
        hashes = hash_keys(usable.keys, self.grouping.seeds)
        workers = self.overrides.route_batch(self.grouping, usable.keys, hashes, usable.weights, now)
        metrics.KERNEL_SECONDS.observe(time.perf_counter() - began)
        carried = self.overrides.carried - before
        for worker in np.flatnonzero(carried).tolist():
            metrics.OVERRIDDEN.labels(str(worker)).inc(int(carried[worker]))
        return Routed(workers, hashes)

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
        self.fresh = self.fresh or not kept
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
        return self.grouping.statistics(now)

    @property
    def urgently_planned(self) -> bool:
        """Whether it may want plans inside of intervals, in rounds."""
        return isinstance(self.grouping, UrgentlyPlanned) and self.grouping.shared

    def wants_plan(self, now: float, interval: float) -> bool:
        """Whether it is time to ask in this interval of so many seconds, and a plan is urgent."""
        due = self._checks.due(now, interval)
        return due and isinstance(self.grouping, UrgentlyPlanned) and self.grouping.shared and self.grouping.urgent

    def interim_statistics(self) -> dict[str, Any] | None:
        """What this replica adds to a plan inside of the interval; None if there are none."""
        if not isinstance(self.grouping, UrgentlyPlanned) or not self.grouping.shared:
            return None
        return self.grouping.interim_statistics()

    def report(self) -> dict[str, Any] | None:
        """What this replica tells the others of the loads that it has brought; None if its grouping doesn't ask."""
        if not isinstance(self.grouping, Exchanging) or not self.grouping.shared:
            return None
        return self.grouping.report()

    def hear(self, reports: Sequence[Mapping[str, Any]]) -> list[int]:
        """What all others have told; the positions of what is no report for here, which is left out."""
        if not isinstance(self.grouping, Exchanging) or not self.grouping.shared:
            return []
        return self.grouping.hear(reports)

    def apply(self, epoch: int, plan: Mapping[str, Any]) -> bool:
        """Routes by the plan of this number; False, and no change, if that is not above the one applied last.

        The epoch may be there before its plan, brought by a partition of another router: it takes the plan all the
        same. Raises ValueError if it is no plan for this grouping and number of workers.
        """
        before = self.epoch
        if not isinstance(self.grouping, Planned) or epoch <= self.planned:
            return False
        self.grouping.apply(plan)
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

    def quarantined(self, keys: Sequence[bytes]) -> NDArray[np.bool_] | None:
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

    @property
    def overridden(self) -> set[int]:
        """The hashes of the keys that the grouping does not decide on, as an override does."""
        return {hash_key(key) for key in self._by_key if key not in self.overrides.layout.resting}

    def _overridden(self, key: bytes, explained: Explanation) -> Explanation:
        entry = self._by_key.get(key)
        if entry is None:
            return explained
        until = f"until {datetime.fromtimestamp(entry.until, UTC):%Y-%m-%d %H:%M:%S} UTC"
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
        self._by_key = {entry.key: entry for entry in control.overrides}

    def _begin_at(self, epoch: int) -> None:
        self._shift = epoch - self.grouping.epoch
