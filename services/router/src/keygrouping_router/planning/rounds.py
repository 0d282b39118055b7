"""Plans that all replicas make together: one for each interval, from what all of them have seen.

At the end of an interval every replica announces its statistics on the board of that round. One of them, which holds
the round's lease, waits until all that are alive have spoken (or a third of the interval has passed), makes
the plan and puts it into the store, and all route by it. Without the store a router that was alone goes on planning by
itself, and several go on by the last plan.

Inside of an interval, at fixed parts of it, a replica whose grouping finds a plan urgent opens a board in the same way;
the others look whether there is one, and add what they have seen so far.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from keygrouping.grouping import Planned, create
from keygrouping_service.observability import metrics
from keygrouping_service.store import Conflict, Record, Unavailable
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from keygrouping_router.api.shapes import MAX_WORKERS, Number, PlanReport
from keygrouping_router.control.state import Control
from keygrouping_router.control.watched_store import Shape, WatchedStore
from keygrouping_router.data.active_grouping import Steering
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
_PLAIN = (str, int, float, bool, type(None))
_TOLD = ("epoch", "hot_keys", "moved_keys", "moved_state", "feasible")
_NAMED = ("hashes", "keys", "table")
"""Under one of these a plan has a row, or an entry of a column, for each key that it knows by itself."""
_MOST_DETAILS = 20
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
    board: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as it stands in the store: for which control document, what to route by, and the report of it.

    `workers` are those of the grouping, which may be fewer than W.
    """

    generation: int
    base: int
    workers: int
    content: Mapping[str, Any]
    report: PlanReport

    def fits(self, control: Control) -> bool:
        """Whether it was made under this control document."""
        return (self.generation, self.workers) == (control.generation, control.grouped)

    def is_of(self, this: _Round) -> bool:
        """Whether it is of this round or a later one; if it is far ahead, the clock was set back since it was made."""
        ahead = (self.report.round or 0) - this.number
        return self.fits(this.control) and ahead <= _AHEAD and (ahead, self.report.part) >= (0, this.part)

    @property
    def made(self) -> float:
        """When, in seconds since 1970."""
        return self.report.at.timestamp() if self.report.at else 0.0

    @property
    def reshuffles(self) -> bool:
        """Whether it gives at least half of the keys that it names to other workers: noise moves fewer."""
        moved = self.report.moved_keys or 0
        return moved > 0 and 2 * moved >= max(len(self.content.get(name, ())) for name in _NAMED)

    def to_data(self) -> dict[str, Any]:
        """All of it as JSON data."""
        return {
            "generation": self.generation,
            "base": self.base,
            "workers": self.workers,
            "content": dict(self.content),
            "report": self.report.model_dump(mode="json"),
        }

    @classmethod
    def from_data(cls, data: Any) -> Plan:
        """The plan that gave `to_data`, but for its content, which only its grouping knows; raises if it is none."""
        stored = _StoredPlan.model_validate(data)
        if stored.content.get("epoch") != stored.report.epoch:
            raise ValueError("the epochs of the plan and of its report are not the same")
        return cls(stored.generation, stored.base, stored.workers, stored.content, stored.report)


class _StoredPlan(BaseModel):
    """A plan as JSON data."""

    model_config = ConfigDict(frozen=True)

    generation: Number
    base: Number
    workers: int = Field(ge=1, le=MAX_WORKERS)
    content: dict[str, Any]
    report: PlanReport


def _statistics_of(data: Any) -> Mapping[str, Any]:
    """Statistics, of which only their grouping knows more."""
    if not isinstance(data, dict):
        raise TypeError(f"an object is wanted, not {type(data).__name__}")
    _EPOCH.validate_python(data.get("epoch"))
    return data


_EPOCH: TypeAdapter[int] = TypeAdapter(Number)
_PLAN = Shape(DOCUMENT, Plan.from_data)
_HISTORY = Shape(HISTORY, PlanReport.model_validate, 1 << 20)
_STATISTICS = Shape("round", _statistics_of)


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
        steering: Steering,
        replicas: Replicas,
        times: Times,
    ) -> None:
        self._store = store
        self._replica = replica
        self._interval = interval
        self._steering = steering
        self._replicas = replicas
        self._times = times
        self.newest: Plan | None = None
        """The newest plan that was read from the store, or made without it."""

    async def hold(self, number: int, control: Control, statistics: Mapping[str, Any]) -> None:
        """Takes part in the round of this interval; returns once its plan is in force, or is no more to be expected.

        `control` is what was in force when the statistics were taken: if the routing has changed since, they are of
        no use. Raises `Unavailable` unless this router is alone and plans by itself; what was in force stays.
        """
        if not control.routes_like(self._steering.control):
            return
        await self._hold(_Round(control, number, 0.0, self._board(control, number)), statistics, self._interval())

    async def hold_inside(self, number: int, part: float, wanted: bool) -> bool:
        """Takes part in a round inside of this interval, after this part of it, if a replica wants one; whether it did.

        Raises `Unavailable`; what was in force stays.
        """
        control = self._steering.control
        board = f"{self._board(control, number)}-{part:g}"
        if not wanted and not await self._is_called(control, board):
            return False
        glimpse = self._steering.glimpse()
        if glimpse is None or self._steering.control != control:
            return False
        await self._hold(_Round(control, number, part, board), glimpse, self._interval() * _INSIDE)
        return True

    async def adopt(self) -> Plan | None:
        """Routes by the plan in the store, if it is one for here; None if there is none."""
        control = self._steering.control
        document = self._scoped(control, DOCUMENT)
        entry = await self._store.get(document, _PLAN)
        plan = None if entry is None else entry.value
        if plan is None and control == self._steering.control:
            self._steering.anew = False
        await asyncio.sleep(0)  # To read a plan for many workers takes as long as to follow it.
        if entry is None or plan is None or control != self._steering.control:
            return None
        try:
            await self._follow(plan, control)
        except Exception as error:  # Whatever the grouping raises, it is no plan for it.
            self._store.reject(DOCUMENT, document, error, entry.version)
            return None
        self.newest = self._later(plan)
        return plan

    async def history(self, limit: int) -> list[PlanReport]:
        """The last plans, newest first; raises `Unavailable`."""
        return await self._store.tail(self._scoped(self._steering.control, HISTORY), limit, _HISTORY)

    async def _follow(self, plan: Plan, control: Control) -> None:
        """Routes by a plan for here, or goes on from one for before the start; raises if it can't."""
        steering, anew = self._steering, self._steering.anew
        steering.anew = False
        if (plan.fits(control) and steering.apply(plan.content)) or not anew:
            return
        if not steering.planned_in_rounds or plan.report.grouping != control.grouping:
            return
        now, planned = self._times.steady(), steering.planned
        then = now - max(0.0, self._times.wall() - plan.made)
        grouping = await asyncio.to_thread(_follower, control, plan, then, now)
        if control.routes_like(steering.control) and planned == steering.planned:
            steering.go_on_with(grouping, plan.report.epoch)

    def _later(self, plan: Plan | None) -> Plan | None:
        """This plan, or a newer one that was made while the store was away."""
        newest = self.newest
        return newest if newest and (plan is None or plan.report.epoch < newest.report.epoch) else plan

    def _scoped(self, control: Control, name: str) -> str:
        own = control.sharing == "independent" and self._store.name == _OF_SEVERAL
        return f"{name}-{self._replica}" if own else name

    def _board(self, control: Control, number: int) -> str:
        return self._scoped(control, f"round-{control.generation}-{control.grouped}-{number}")

    def _others(self, control: Control) -> set[str]:
        return set(self._replicas.alive()) - {self._replica} if control.sharing == "shared" else set()

    async def _is_called(self, control: Control, board: str) -> bool:
        if not self._others(control):
            return False
        await asyncio.sleep(min(_LISTEN_SECONDS, self._interval() / 64))
        return bool(await self._store.announced(board, _STATISTICS))

    async def _hold(self, this: _Round, statistics: Mapping[str, Any], seconds: float) -> None:
        held = False
        try:
            held = await self._take_part(this, statistics, seconds)
        except Unavailable:
            held = await self._plan_alone(this, statistics)
            if not held:
                raise
        finally:
            if not held:
                metrics.LOST_ROUNDS.inc()
        if not held:
            log.warning("no plan came in time of round %s; routing goes on by the plan before", this.board)

    async def _take_part(self, this: _Round, statistics: Mapping[str, Any], seconds: float) -> bool:
        """Whether its plan, or a later one, came in time."""
        deadline = time.monotonic() + seconds / 2
        await self._store.announce(this.board, self._replica, dict(statistics), 2 * self._interval())
        if await self._store.claim(f"{this.board}-lead", self._replica, self._interval()):
            await self._lead(this, seconds / 3)
            await asyncio.sleep(0)
        while (plan := await self.adopt()) is None or not plan.is_of(this):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def _lead(self, this: _Round, patience: float) -> None:
        workers = this.control.grouped
        spoken = await self._gather(this, patience)
        statistics = {name: source for name, source in spoken.items() if source.get("workers", workers) == workers}
        highest = max((source["epoch"] for source in statistics.values()), default=0)
        for _ in range(_ATTEMPTS):
            await asyncio.sleep(0)
            entry = await self._store.get(self._scoped(this.control, DOCUMENT), _PLAN)
            before = None if entry is None else entry.value
            if before is not None and before.is_of(this):
                return
            plan = await asyncio.to_thread(self._make, this, self._later(before), statistics)
            record = None
            if plan.report.epoch > highest:
                record = Record(self._scoped(this.control, HISTORY), plan.report.model_dump(mode="json"), KEPT)
            try:
                document, version = self._scoped(this.control, DOCUMENT), entry.version if entry else 0
                await self._store.put(document, plan.to_data(), expected=version, record=record)
                return
            except Conflict:
                continue

    async def _plan_alone(self, this: _Round, statistics: Mapping[str, Any]) -> bool:
        """Routes by a plan that no store holds, if no other router has to follow it; whether it does."""
        if this.part or self._steering.anew or self._others(this.control):
            return False
        plan = await asyncio.to_thread(self._make, this, self.newest, {self._replica: statistics})
        if not this.control.routes_like(self._steering.control):
            return False
        self._steering.apply(plan.content)
        self.newest = plan
        return True

    async def _gather(self, this: _Round, patience: float) -> dict[str, Mapping[str, Any]]:
        deadline = time.monotonic() + patience
        while True:
            spoken = await self._store.announced(this.board, _STATISTICS)
            if time.monotonic() >= deadline or not self._others(this.control) - spoken.keys():
                return spoken
            await asyncio.sleep(_LOOK_SECONDS)

    def _make(self, this: _Round, before: Plan | None, statistics: Mapping[str, Mapping[str, Any]]) -> Plan:
        """The next plan. Runs in a thread of its own, on a grouping of its own that knows the last plan only."""
        control = this.control
        began = time.perf_counter()
        grouping = planner(control, before, self._times.wall())
        content = self._planned(this, grouping, statistics)
        seconds = time.perf_counter() - began
        metrics.PLAN_SECONDS.observe(seconds)
        grouping.apply({**content, "epoch": grouping.epoch + 1})  # Raises before all others would.
        report = PlanReport.model_validate(
            {
                "at": self._times.wall(),
                "round": this.number,
                "part": this.part,
                "by": self._replica,
                "grouping": control.grouping,
                "workers": control.workers,
                "plan_ms": round(1000 * seconds, 3),
                "details": details_of(content),
                **{name: content[name] for name in _TOLD},
            }
        )
        return Plan(control.generation, control.base, control.grouped, content, report)

    def _planned(self, this: _Round, grouping: Planned, statistics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """A plan of these statistics, without those of replicas that no plan can be made of."""
        try:
            return grouping.plan(list(statistics.values()))
        except Exception:
            usable = [source for name, source in statistics.items() if self._is_usable(this, grouping, name, source)]
            if len(usable) in (0, len(statistics)):
                raise
            return grouping.plan(usable)

    def _is_usable(self, this: _Round, grouping: Planned, replica: str, source: Mapping[str, Any]) -> bool:
        try:
            grouping.plan([source])
        except Exception as error:  # Whatever the grouping raises, they are no statistics for it.
            self._store.reject("round", f"{this.board}/{replica}", error)
            return False
        return True


def planner(control: Control, before: Plan | None, now: float) -> Planned:
    """A grouping in the state in which all replicas are after this plan; its clock shows `now`.

    What they have learned they keep under other settings, too.
    """
    if before is not None and before.report.grouping == control.grouping:
        try:
            return _follower(control, before, before.made, now)
        except Exception as error:  # Whatever the grouping raises, it is no plan for it.
            log.warning("the next plan begins anew, as the one before it can't be applied: %s", _reason(error))
    grouping = _planned(control, control.grouped)
    grouping.statistics(now)
    return grouping


def _follower(control: Control, plan: Plan, then: float, now: float) -> Planned:
    """A grouping that has gone by this plan since `then`; raises if it can't."""
    grouping = _planned(control, plan.workers)
    grouping.statistics(then)
    grouping.apply(plan.content)
    for workers in control.sizes_after(plan.base):
        grouping.resize(workers)
    grouping.statistics(now)
    return grouping


def _reason(error: Exception) -> str:
    """In one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_REASON]}"


def _planned(control: Control, workers: int) -> Planned:
    grouping = create(control.routed_by, workers, control.routing_settings)
    assert isinstance(grouping, Planned)
    return grouping


def details_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """What else a plan says of itself in single values, and the sizes of its lists."""
    plain = {
        name: value for name, value in content.items() if isinstance(value, _PLAIN) and name not in (*_TOLD, "workers")
    }
    sizes = {f"{name}_size": len(value) for name, value in content.items() if isinstance(value, list | dict)}
    return dict(list({**plain, **sizes}.items())[:_MOST_DETAILS])
