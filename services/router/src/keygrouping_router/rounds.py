"""Plans that all replicas make together: one for each interval, from what all of them have seen.

At the end of an interval every replica announces its statistics on the board of that round. One of them, which holds
the round's lease, waits until all that are alive have spoken (or a third of the interval has passed), makes
the plan and puts it into the store, and all route by it. Without the store everybody goes on by the last plan.

Inside of an interval, at fixed parts of it, a replica whose grouping finds a plan urgent opens a board in the same way;
the others look whether there is one, and add what they have seen so far.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keygrouping.grouping import Planned
from keygrouping_service import metrics
from keygrouping_service.store import Conflict, Entry, Record, Store

from keygrouping_router.control import Control
from keygrouping_router.models import PlanReport
from keygrouping_router.steering import Steering, new_grouping

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
_PLAIN = (str, int, float, bool, type(None))
_TOLD = ("epoch", "hot_keys", "moved_keys", "moved_state", "feasible")
_NAMED = ("hashes", "keys", "table")
"""Under one of these a plan has a row, or an entry of a column, for each key that it knows by itself."""
_MOST_DETAILS = 20


class Replicas(Protocol):
    """Who is alive."""

    def alive(self) -> Collection[str]:
        """Names of the replicas that are alive, as far as is known."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as it stands in the store: for which control document, what to route by, and the report of it."""

    generation: int
    workers: int
    content: Mapping[str, Any]
    report: PlanReport

    @property
    def order(self) -> tuple[int, float]:
        """Plans of later rounds, or later in the same interval, have a larger one."""
        return self.report.round or 0, self.report.part

    @property
    def reshuffles(self) -> bool:
        """Whether it gives at least half of the keys that it names to other workers: noise moves fewer."""
        moved = self.report.moved_keys or 0
        return moved > 0 and 2 * moved >= max(len(self.content.get(name, ())) for name in _NAMED)

    def to_data(self) -> dict[str, Any]:
        """All of it as JSON data."""
        return {
            "generation": self.generation,
            "workers": self.workers,
            "content": dict(self.content),
            "report": self.report.model_dump(mode="json"),
        }

    @classmethod
    def from_entry(cls, entry: Entry | None) -> Plan | None:
        """The plan of a document, None if there is none."""
        if entry is None:
            return None
        value = entry.value
        report = PlanReport.model_validate(value["report"])
        return cls(int(value["generation"]), int(value["workers"]), value["content"], report)


@dataclass(frozen=True, slots=True)
class _Round:
    """Which plan is to be made: that of the interval before this number, or one inside of it after this part."""

    control: Control
    number: int
    part: float
    board: str


class Rounds:
    """This replica's part in the rounds.

    Where each replica is to plan on its own (`independent`), its rounds are its own, too: so a plan is made beside the
    routing all the same, and is there again after a restart under the same name.
    """

    def __init__(
        self,
        store: Store,
        replica: str,
        interval: Callable[[], float],
        steering: Steering,
        replicas: Replicas,
        wall: Callable[[], float],
    ) -> None:
        self._store = store
        self._replica = replica
        self._interval = interval
        self._steering = steering
        self._replicas = replicas
        self._wall = wall
        self.newest: Plan | None = None
        """The newest plan that was read from the store."""

    async def hold(self, number: int, statistics: Mapping[str, Any]) -> None:
        """Takes part in the round of this interval; returns once its plan is in force, or is no more to be expected.

        Raises `Unavailable`; what was in force stays.
        """
        control = self._steering.control
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

    async def adopt(self, number: int = 0, part: float = 0.0) -> bool:
        """Routes by the plan in the store; whether that is of this round or a later one."""
        control = self._steering.control
        plan = Plan.from_entry(await self._store.get(self._scoped(control, DOCUMENT)))
        await asyncio.sleep(0)  # To read a plan for many workers takes as long as to follow it.
        if plan is None or control != self._steering.control:
            return False
        self.newest = plan
        if (plan.generation, plan.workers) == (control.generation, control.workers):
            self._steering.apply(plan.content)
        return plan.order >= (number, part)

    async def history(self, limit: int) -> list[PlanReport]:
        """The last plans, newest first; raises `Unavailable`."""
        stored = await self._store.tail(self._scoped(self._steering.control, HISTORY), limit)
        return [PlanReport.model_validate(value) for value in stored]

    def _scoped(self, control: Control, name: str) -> str:
        own = control.sharing == "independent" and self._store.name == _OF_SEVERAL
        return f"{name}-{self._replica}" if own else name

    def _board(self, control: Control, number: int) -> str:
        return self._scoped(control, f"round-{control.generation}-{control.workers}-{number}")

    def _others(self, control: Control) -> set[str]:
        return set(self._replicas.alive()) - {self._replica} if control.sharing == "shared" else set()

    async def _is_called(self, control: Control, board: str) -> bool:
        if not self._others(control):
            return False
        await asyncio.sleep(min(_LISTEN_SECONDS, self._interval() / 64))
        return bool(await self._store.announced(board))

    async def _hold(self, this: _Round, statistics: Mapping[str, Any], seconds: float) -> None:
        held = False
        try:
            held = await self._take_part(this, statistics, seconds)
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
        while not await self.adopt(this.number, this.part):
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def _lead(self, this: _Round, patience: float) -> None:
        statistics = await self._gather(this, patience)
        highest = max((int(source["epoch"]) for source in statistics), default=0)
        for _ in range(_ATTEMPTS):
            await asyncio.sleep(0)
            entry = await self._store.get(self._scoped(this.control, DOCUMENT))
            before = Plan.from_entry(entry)
            if before is not None and before.generation != this.control.generation:
                before = None
            if before is not None and before.order >= (this.number, this.part):
                return
            plan = await asyncio.to_thread(self._make, this, before, statistics)
            record = None
            if plan.report.epoch > highest:
                record = Record(self._scoped(this.control, HISTORY), plan.report.model_dump(mode="json"), KEPT)
            try:
                document, version = self._scoped(this.control, DOCUMENT), entry.version if entry else 0
                await self._store.put(document, plan.to_data(), expected=version, record=record)
                return
            except Conflict:
                continue

    async def _gather(self, this: _Round, patience: float) -> list[Mapping[str, Any]]:
        deadline = time.monotonic() + patience
        while True:
            spoken = await self._store.announced(this.board)
            if time.monotonic() >= deadline or not self._others(this.control) - spoken.keys():
                return list(spoken.values())
            await asyncio.sleep(_LOOK_SECONDS)

    def _make(self, this: _Round, before: Plan | None, statistics: Sequence[Mapping[str, Any]]) -> Plan:
        """The next plan. Runs in a thread of its own, on a grouping of its own that knows the last plan only."""
        control = this.control
        began = time.perf_counter()
        content = planner(control, before, self._wall()).plan(statistics)
        seconds = time.perf_counter() - began
        metrics.PLAN_SECONDS.observe(seconds)
        report = PlanReport.model_validate(
            {
                "at": self._wall(),
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
        return Plan(control.generation, control.workers, content, report)


def planner(control: Control, before: Plan | None, now: float) -> Planned:
    """A grouping in the state in which all replicas are after this plan; its clock shows `now`."""
    workers = before.workers if before else control.workers
    grouping = new_grouping(control.model_copy(update={"workers": workers}))
    assert isinstance(grouping, Planned)
    if before is not None and before.report.at is not None:
        grouping.statistics(before.report.at.timestamp())
        grouping.apply(before.content)
        grouping.resize(control.workers)
    grouping.statistics(now)
    return grouping


def details_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """What else a plan says of itself in single values, and the sizes of its lists."""
    plain = {
        name: value for name, value in content.items() if isinstance(value, _PLAIN) and name not in (*_TOLD, "workers")
    }
    sizes = {f"{name}_size": len(value) for name, value in content.items() if isinstance(value, list | dict)}
    return dict(list({**plain, **sizes}.items())[:_MOST_DETAILS])
