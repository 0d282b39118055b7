"""Plans that all replicas make together: one for each interval, from what all of them have seen.

At the end of an interval every replica announces its statistics on the board of that round. One of them, which holds
the round's lease, waits until all that are alive have spoken (or a third of the interval has passed), makes
the plan and puts it into the store, and all route by it. Without the store everybody goes on by the last plan.
"""

from __future__ import annotations

import asyncio
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

DOCUMENT = "plan"
HISTORY = "plan-history"
KEPT = 1000
"""Entries of the history."""

_LOOK_SECONDS = 0.05
_PLAIN = (str, int, float, bool, type(None))
_TOLD = ("epoch", "hot_keys", "moved_keys", "moved_state", "feasible")
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


class Rounds:
    """This replica's part in the rounds."""

    def __init__(
        self,
        store: Store,
        replica: str,
        interval: float,
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
        board = f"round-{control.generation}-{control.workers}-{number}"
        deadline = time.monotonic() + self._interval / 2
        await self._store.announce(board, self._replica, dict(statistics), 2 * self._interval)
        if await self._store.claim(f"{board}-lead", self._replica, self._interval):
            await self._lead(number, control, board)
        while time.monotonic() < deadline:
            if await self.adopt(number):
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def adopt(self, number: int = 0) -> bool:
        """Routes by the plan in the store; whether that is of this round or a later one."""
        plan = Plan.from_entry(await self._store.get(DOCUMENT))
        if plan is None:
            return False
        self.newest = plan
        control = self._steering.control
        if (plan.generation, plan.workers) == (control.generation, control.workers):
            self._steering.apply(plan.content)
        return (plan.report.round or 0) >= number

    async def _lead(self, number: int, control: Control, board: str) -> None:
        statistics = await self._gather(board)
        entry = await self._store.get(DOCUMENT)
        before = Plan.from_entry(entry)
        if before is not None and before.generation != control.generation:
            before = None
        plan = await asyncio.to_thread(self._make, number, control, before, statistics)
        changes = plan.report.epoch > max((int(source["epoch"]) for source in statistics), default=0)
        record = Record(HISTORY, plan.report.model_dump(mode="json"), KEPT) if changes else None
        version = entry.version if entry else 0
        try:
            await self._store.put(DOCUMENT, plan.to_data(), expected=version, record=record)
        except Conflict:
            return

    async def _gather(self, board: str) -> list[Mapping[str, Any]]:
        deadline = time.monotonic() + self._interval / 3
        while True:
            spoken = await self._store.announced(board)
            if time.monotonic() >= deadline or not set(self._replicas.alive()) - spoken.keys():
                return list(spoken.values())
            await asyncio.sleep(_LOOK_SECONDS)

    def _make(
        self, number: int, control: Control, before: Plan | None, statistics: Sequence[Mapping[str, Any]]
    ) -> Plan:
        """The next plan. Runs in a thread of its own, on a grouping of its own that knows the last plan only."""
        began = time.perf_counter()
        content = planner(control, before, self._wall()).plan(statistics)
        seconds = time.perf_counter() - began
        metrics.PLAN_SECONDS.observe(seconds)
        report = PlanReport.model_validate(
            {
                "at": self._wall(),
                "round": number,
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
