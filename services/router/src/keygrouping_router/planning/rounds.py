"""Plans that all replicas make together: one for each interval, from what all of them have seen.

At the end of an interval every replica publishes its statistics under the name of that round. One of them, which holds
the round's lease, waits until all that are alive have spoken (or a third of the interval has passed), makes
the plan and puts it into the store, and all route by it. Without the store a router that was alone goes on planning by
itself, and several go on by the last plan.

Inside of an interval, at fixed parts of it, a replica whose grouping finds a plan urgent begins a round in the same
way; the others look whether there is one, and add what they have seen so far.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from keygrouping.grouping import Planned, create
from keygrouping_service.store import Conflict, LogRecord, Unavailable

from keygrouping_router import metrics
from keygrouping_router.control.state import Control
from keygrouping_router.control.watched_store import Shape, WatchedStore
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.planning.format import (
    contribution_from_data,
    contribution_to_data,
    plan_from_data,
    plan_to_data,
    record_from_data,
    record_to_data,
)
from keygrouping_router.planning.plan import TOLD, Contribution, Plan, PlanRecord, details_of
from keygrouping_router.times import Times

log = logging.getLogger(__name__)

DOCUMENT = "plan"
HISTORY = "plan-history"
KEPT = 1000
"""Entries of the history."""

_OF_SEVERAL = "redis"
"""The store that replicas can share; all others are one process's own."""

_LOOK_SECONDS = 0.05
_LISTEN_SECONDS = 0.2
_INSIDE = 1 / 8
"""Time for a plan inside of an interval, as a part of it."""
_ATTEMPTS = 3
_AHEAD = 1
"""By how many rounds the clocks of replicas may differ."""
_LONGEST_REASON = 200


class Replicas(Protocol):
    """Who is alive."""

    def alive(self) -> Collection[str]:
        """Names of the replicas that are alive, as far as is known."""


@dataclass(frozen=True, slots=True)
class _Round:
    """Which plan is to be made: that of the interval before this number, or one inside of it after this part."""

    control: Control
    number: int
    part: float
    name: str

    def is_made_by(self, plan: Plan) -> bool:
        """Whether a plan is of this round or a later one; if it is far ahead, the clock was set back since."""
        ahead = (plan.record.round or 0) - self.number
        return plan.fits(self.control) and ahead <= _AHEAD and (ahead, plan.record.part) >= (0, self.part)


_PLAN = Shape(DOCUMENT, plan_from_data)
_HISTORY = Shape(HISTORY, record_from_data, 1 << 20)
_CONTRIBUTION = Shape("round", contribution_from_data)


class Rounds:
    """This replica's part in the rounds.

    Where each replica is to plan on its own (`independent`), its rounds are its own, too: so a plan is made beside the
    routing all the same, and is there again after a restart under the same name.
    """

    def __init__(
        self,
        store: WatchedStore,
        replica: str,
        interval: Callable[[], float],
        active: ActiveGrouping,
        replicas: Replicas,
        times: Times,
    ) -> None:
        self._store = store
        self._replica = replica
        self._interval = interval
        self._active = active
        self._replicas = replicas
        self._times = times
        self.newest: Plan | None = None
        """The newest plan that was read from the store, or made without it."""

    async def hold(self, number: int, control: Control, statistics: Mapping[str, Any]) -> None:
        """Takes part in the round of this interval; returns once its plan is in force, or is no more to be expected.

        `control` is what was in force when the statistics were taken: if the routing has changed since, they are of
        no use. Raises `Unavailable` unless this router is alone and plans by itself; what was in force stays.
        """
        if not control.routes_like(self._active.control):
            return
        this = _Round(control, number, 0.0, self._name(control, number))
        await self._hold(this, Contribution(self._active.epoch, statistics), self._interval())

    async def hold_inside(self, number: int, part: float, wanted: bool, still: Callable[[], bool]) -> bool:
        """Takes part in a round inside of this interval, after this part of it, if a replica wants one; whether it did.

        `still`: whether the interval lasts. Raises `Unavailable`; what was in force stays.
        """
        control = self._active.control
        name = f"{self._name(control, number)}-{part:g}"
        if not wanted and not await self._is_called(control, name):
            return False
        if not still():
            return False
        statistics = self._active.interim_statistics()
        if statistics is None or self._active.control != control:
            return False
        contribution = Contribution(self._active.epoch, statistics)
        await self._hold(_Round(control, number, part, name), contribution, self._interval() * _INSIDE)
        return True

    async def adopt(self) -> Plan | None:
        """Routes by the plan in the store, if it is one for here; None if there is none."""
        control = self._active.control
        document = self._scoped(control, DOCUMENT)
        entry = await self._store.get(document, _PLAN)
        plan = None if entry is None else entry.value
        if plan is None and control == self._active.control:
            self._active.fresh = False
        await asyncio.sleep(0)  # To read a plan for many workers takes as long as to follow it.
        if entry is None or plan is None or control != self._active.control:
            return None
        try:
            await self._follow(plan, control)
        except Exception as error:  # Whatever the grouping raises, it is no plan for it.
            self._store.reject(DOCUMENT, document, error, entry.version)
            return None
        self.newest = self._later(plan)
        return plan

    async def history(self, limit: int) -> list[PlanRecord]:
        """The last plans, newest first; raises `Unavailable`."""
        return await self._store.tail(self._scoped(self._active.control, HISTORY), limit, _HISTORY)

    async def _follow(self, plan: Plan, control: Control) -> None:
        """Routes by a plan for here, or goes on from one for before the start; raises if it can't."""
        active, fresh = self._active, self._active.fresh
        active.fresh = False
        if (plan.fits(control) and active.apply(plan.epoch, plan.content)) or not fresh:
            return
        if not active.planned_in_rounds or plan.record.grouping != control.grouping:
            return
        now, planned = self._times.steady(), active.planned
        then = now - max(0.0, self._times.wall() - plan.made)
        grouping, _ = await asyncio.to_thread(_following, control, plan, then, now)
        if control.routes_like(active.control) and planned == active.planned:
            active.go_on_with(grouping, plan.epoch)

    def _later(self, plan: Plan | None) -> Plan | None:
        """This plan, or a newer one that was made while the store was away."""
        newest = self.newest
        return newest if newest and (plan is None or plan.epoch < newest.epoch) else plan

    def _scoped(self, control: Control, name: str) -> str:
        own = control.sharing == "independent" and self._store.name == _OF_SEVERAL
        return f"{name}-{self._replica}" if own else name

    def _name(self, control: Control, number: int) -> str:
        return self._scoped(control, f"round-{control.generation}-{control.grouped}-{number}")

    def _others(self, control: Control) -> set[str]:
        return set(self._replicas.alive()) - {self._replica} if control.sharing == "shared" else set()

    async def _is_called(self, control: Control, name: str) -> bool:
        if not self._others(control):
            return False
        await asyncio.sleep(min(_LISTEN_SECONDS, self._interval() / 64))
        return bool(await self._store.published(name, _CONTRIBUTION))

    async def _hold(self, this: _Round, own: Contribution, seconds: float) -> None:
        held = False
        try:
            held = await self._take_part(this, own, seconds)
        except Unavailable:
            held = await self._plan_alone(this, own)
            if not held:
                raise
        finally:
            if not held:
                metrics.LOST_ROUNDS.inc()
        if not held:
            log.warning("no plan arrived in time for round %s; routing continues with the previous plan", this.name)

    async def _take_part(self, this: _Round, own: Contribution, seconds: float) -> bool:
        """Whether its plan, or a later one, came in time."""
        deadline = time.monotonic() + seconds / 2
        await self._store.publish(this.name, self._replica, contribution_to_data(own), 2 * self._interval())
        if await self._store.lease(f"{this.name}-lead", self._replica, self._interval()):
            await self._lead(this, seconds / 3)
            await asyncio.sleep(0)
        while (plan := await self.adopt()) is None or not this.is_made_by(plan):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def _lead(self, this: _Round, timeout: float) -> None:
        workers = this.control.grouped
        spoken = await self._gather(this, timeout)
        given = {name: one for name, one in spoken.items() if one.statistics.get("workers", workers) == workers}
        highest = max((one.epoch for one in given.values()), default=0)
        for _ in range(_ATTEMPTS):
            await asyncio.sleep(0)
            entry = await self._store.get(self._scoped(this.control, DOCUMENT), _PLAN)
            before = None if entry is None else entry.value
            if before is not None and this.is_made_by(before):
                return
            plan = await asyncio.to_thread(self._make, this, self._later(before), given)
            record = None
            if plan.epoch > highest:
                record = LogRecord(self._scoped(this.control, HISTORY), record_to_data(plan.record), KEPT)
            try:
                document, version = self._scoped(this.control, DOCUMENT), entry.version if entry else 0
                await self._store.put(document, plan_to_data(plan), expected=version, record=record)
                return
            except Conflict:
                continue

    async def _plan_alone(self, this: _Round, own: Contribution) -> bool:
        """Routes by a plan that no store holds, if no other router has to follow it; whether it does."""
        if this.part or self._active.fresh or self._others(this.control):
            return False
        plan = await asyncio.to_thread(self._make, this, self.newest, {self._replica: own})
        if not this.control.routes_like(self._active.control):
            return False
        self._active.apply(plan.epoch, plan.content)
        self.newest = plan
        return True

    async def _gather(self, this: _Round, timeout: float) -> dict[str, Contribution]:
        deadline = time.monotonic() + timeout
        while True:
            spoken = await self._store.published(this.name, _CONTRIBUTION)
            if time.monotonic() >= deadline or not self._others(this.control) - spoken.keys():
                return spoken
            await asyncio.sleep(_LOOK_SECONDS)

    def _make(self, this: _Round, before: Plan | None, given: Mapping[str, Contribution]) -> Plan:
        """The next plan. Runs in a thread of its own, on a grouping of its own that knows the last plan only."""
        control = this.control
        began = time.perf_counter()
        grouping, known = planner(control, before, self._times.wall())
        content, used = self._planned(this, grouping, given)
        seconds = time.perf_counter() - began
        metrics.PLAN_SECONDS.observe(seconds)
        grouping.apply(content)  # Raises before all others would.
        record = PlanRecord(
            epoch=next_epoch(known, used, changed=content["changed"]),
            made=self._times.wall(),
            round=this.number,
            part=this.part,
            by=self._replica,
            grouping=control.grouping,
            workers=control.workers,
            plan_ms=round(1000 * seconds, 3),
            details=details_of(content),
            **{name: content[name] for name in TOLD},
        )
        return Plan(control.generation, control.base, control.grouped, content, record)

    def _planned(
        self, this: _Round, grouping: Planned, given: Mapping[str, Contribution]
    ) -> tuple[dict[str, Any], Collection[Contribution]]:
        """A plan, and what it is made of: all contributions but those that no plan can be made of."""
        try:
            return grouping.plan([one.statistics for one in given.values()]), given.values()
        except Exception:
            usable = [one for name, one in given.items() if self._is_usable(this, grouping, name, one.statistics)]
            if len(usable) in (0, len(given)):
                raise
            return grouping.plan([one.statistics for one in usable]), usable

    def _is_usable(self, this: _Round, grouping: Planned, replica: str, source: Mapping[str, Any]) -> bool:
        try:
            grouping.plan([source])
        except Exception as error:  # Whatever the grouping raises, they are no statistics for it.
            self._store.reject("round", f"{this.name}/{replica}", error)
            return False
        return True


def next_epoch(known: int, contributions: Collection[Contribution], *, changed: bool) -> int:
    """The number of a plan, above that of all replicas if it changes the routing of one of them.

    It is made from the plan numbered `known`. What it changes for a replica that is ahead of that, nobody can know.
    """
    latest = max([known, *(one.epoch for one in contributions)])
    return latest + (changed or known < latest)


def planner(control: Control, before: Plan | None, now: float) -> tuple[Planned, int]:
    """A grouping in the state in which all replicas are after this plan, and its epoch; its clock shows `now`.

    What they have learned they keep under other settings, too.
    """
    if before is not None and before.record.grouping == control.grouping:
        try:
            grouping, resized = _following(control, before, before.made, now)
            return grouping, before.epoch + resized
        except Exception as error:  # Whatever the grouping raises, it is no plan for it.
            log.warning(
                "the next plan is computed from scratch, as the previous one cannot be applied: %s", _reason(error)
            )
    grouping = _planned(control, control.grouped)
    grouping.statistics(now)
    return grouping, 0


def _following(control: Control, plan: Plan, then: float, now: float) -> tuple[Planned, int]:
    """A grouping that has gone by this plan since `then`, and how often its workers changed; raises if it can't."""
    grouping = _planned(control, plan.workers)
    grouping.statistics(then)
    grouping.apply(plan.content)
    applied = grouping.epoch
    for workers in control.sizes_after(plan.base):
        grouping.resize(workers)
    resized = grouping.epoch - applied
    grouping.statistics(now)
    return grouping, resized


def _reason(error: Exception) -> str:
    """In one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_REASON]}"


def _planned(control: Control, workers: int) -> Planned:
    grouping = create(control.routed_by, workers, control.routing_settings)
    assert isinstance(grouping, Planned)
    return grouping
