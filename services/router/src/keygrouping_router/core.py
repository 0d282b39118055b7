"""One replica among others: routes, follows the control document, takes part in the rounds, and tells what it knows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from keygrouping_service import kafka, metrics
from keygrouping_service.store import Store, Unavailable

from keygrouping_router.control import Control
from keygrouping_router.document import ControlDocument, Edit
from keygrouping_router.errors import Degraded, Refused
from keygrouping_router.feed import Feed
from keygrouping_router.keyspace import Knowledge, moment
from keygrouping_router.models import HistoryEntry, PlanReport, ServerEvent, WorkersChange
from keygrouping_router.peers import Peers
from keygrouping_router.rounds import Rounds
from keygrouping_router.routing import Routed, Usable
from keygrouping_router.shadow import candidates
from keygrouping_router.steering import Steering, prepared
from keygrouping_router.times import Times
from keygrouping_router.traffic import Traffic, warm_up
from keygrouping_router.watched_store import WatchedStore
from keygrouping_router.worker_stage import LooksAtWorkers

log = logging.getLogger(__name__)

_FOLLOW_SECONDS = 1.0
_LONGEST_SECONDS = 5.0
_WATCH_SECONDS = 2.0
_SETTLE_SECONDS = 0.2
_PLANS_KEPT = 200
_MOST_MISSED = 20

BY_AUTO = "auto"
"""Who changes W where it follows the running workers."""


class RouterCore:
    """What the routing path calls (`route`, `epoch`, `not_below`) never waits; all else happens between batches."""

    def __init__(
        self,
        environment: Control,
        store: Store,
        *,
        replica: str,
        interval: float,
        tracked_keys: int,
        most_workers: int,
        on_interval: Callable[[], Awaitable[None]],
        stage: LooksAtWorkers | None = None,
        times: Times | None = None,
    ) -> None:
        self.replica = replica
        self.interval = interval
        self.most_workers = most_workers
        self.times = times or Times()
        self.store = WatchedStore(store, self.times.wall)
        self.document = ControlDocument(self.store, environment, most_workers, self.times.wall)
        self.steering = Steering(self.document.control)
        self.traffic = Traffic(self.steering, tracked_keys, self.times)
        self.peers = Peers(self.store, replica)
        self.rounds = Rounds(self.store, replica, interval, self.steering, self.peers, self.times.wall)
        self.feed = Feed()
        self.plans: deque[PlanReport] = deque(maxlen=_PLANS_KEPT)
        """The last plans of this replica, newest last."""
        self.lags: dict[int, int] | None = None
        self.number = math.floor(self.times.wall() / interval)
        self._stage = stage
        self._on_interval = on_interval
        self._seen_members: int | None = None
        self._version = -1
        self._taking_over = asyncio.Lock()
        self._note_plan()

    # the routing path

    def route(self, usable: Usable, now: float) -> Routed:
        """The worker of each usable event; `now` in seconds of the steady clock."""
        return self.traffic.route(usable, now)

    @property
    def epoch(self) -> int:
        """Number of the plan in force."""
        return self.steering.epoch

    def not_below(self, epoch: int) -> None:
        """A partition comes whose last owner was in this epoch."""
        self.steering.not_below(epoch)

    # orders

    async def change(self, what: str, edit: Edit, *, expected: int | None, by: str) -> None:
        """Changes the control document and follows it at once; raises as `ControlDocument.change`."""
        await self.document.change(what, edit, expected=expected, by=by, highest_epoch=self._highest_epoch)
        await self._take_over()

    def knowledge(self) -> Knowledge:
        """What this replica knows."""
        return self.traffic.knowledge(self.replica)

    # what goes on by itself

    async def start(self) -> None:
        """Follows the control document for the first time; without the store the environment counts.

        What has to be compiled is compiled here: later it would block the heartbeats for seconds.
        """
        await asyncio.to_thread(warm_up)
        with contextlib.suppress(Unavailable):
            await self.follow()
        await self._take_over()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps everything up while it lasts, and says goodbye at the end."""
        loops = [self._repeat(self.follow, self._until_next_look), self._repeat(self._end, self._until_boundary)]
        if self._stage is not None:
            loops.append(self._repeat(self.watch_workers, lambda: _WATCH_SECONDS))
        tasks = {asyncio.create_task(loop) for loop in loops}
        try:
            yield
        finally:
            await _cancel(tasks)
            self.feed.close()
            if self._stage is not None:
                await self._stage.close()
            with contextlib.suppress(Unavailable):
                await self.peers.leave()

    async def follow(self) -> None:
        """Takes over what others have changed, and shows that this replica is alive; raises `Unavailable`."""
        await self.document.refresh(self._highest_epoch)
        await self._take_over()
        await self.peers.beat(self.epoch)
        if self.steering.planned_together and self._highest_epoch() > self.steering.planned:
            await self.rounds.adopt()
            self._note_plan()

    async def end_interval(self, number: int) -> None:
        """The interval before this number is over: counts begin anew, and a plan is made of what all have seen.

        Raises `Unavailable`; everybody then goes on with what was in force.
        """
        self.number = number
        statistics = self.steering.statistics(self.times.steady())
        self.traffic.end_interval()
        self._note_plan()
        try:
            together = len(self.peers.alive()) > 1
            if together:
                await self.peers.publish(self.knowledge(), 3 * self.interval)
            if statistics is not None:
                await self.rounds.hold(number, statistics)
                self.traffic.note_widths()
                self._note_plan()
            if together:
                await asyncio.sleep(min(_SETTLE_SECONDS, self.interval / 10))
                await self.peers.listen()
        finally:
            metrics.EPOCH.set(self.epoch)
            await self._on_interval()

    async def watch_workers(self) -> None:
        """Looks what the workers have yet to do, and with `auto` lets W follow how many there are."""
        if self._stage is None:
            return
        try:
            stage = await self._stage.look()
        except Exception as error:
            if not kafka.can_be_retried(error):
                raise
            self.lags = None
            return
        self.lags = dict(stage.lags)
        for worker, lag in stage.lags.items():
            metrics.WORKER_LAG.labels(str(worker)).set(lag)
        await self._follow_members(stage.members)

    async def _follow_members(self, members: int) -> None:
        """W becomes the number of members once it was the same in two looks, if there are any."""
        steady, self._seen_members = members == self._seen_members, members
        wanted = min(members, self.most_workers)
        if not (steady and self.document.control.auto and wanted) or wanted == self.document.control.workers:
            return
        change = WorkersChange(workers=wanted)

        def edit(control: Control) -> Control:
            if not control.auto:
                return control
            return control.with_workers(change, self.most_workers).model_copy(update={"auto": True})

        with contextlib.suppress(Unavailable, Degraded, Refused):
            if await self.store.claim("auto", self.replica, 3 * _WATCH_SECONDS):
                await self.change("workers", edit, expected=None, by=BY_AUTO)

    # taking over

    async def _take_over(self) -> None:
        """Routes as the control document says; what takes long is made ready in a thread before."""
        async with self._taking_over:
            before, control, version = self.steering.control, self.document.control, self.document.version
            if version == self._version and control == before:
                return
            reroutes = self._version < 0 or not control.routes_like(before)
            compares = reroutes or (control.shadow, control.sample) != (before.shadow, before.sample)
            fresh = await asyncio.to_thread(prepared, control) if reroutes else None
            made = await asyncio.to_thread(candidates, control) if compares else []
            self.steering.follow(control, fresh)
            if compares:
                self.traffic.follow(made)
            was, self._version = self._version, version
            self._note_control(control)
        await self._tell_changes(was, version)

    def _note_control(self, control: Control) -> None:
        metrics.CONTROL_VERSION.set(self._version)
        metrics.CONTROL_CHANGES.inc()
        metrics.WORKERS.set(control.workers)
        metrics.EPOCH.set(self.epoch)
        self._note_plan()

    async def _tell_changes(self, was: int, version: int) -> None:
        """Passes on the entries of the history that are new."""
        if was < 1:
            return
        with contextlib.suppress(Degraded):
            entries = await self.document.history(min(version - was, _MOST_MISSED))
            for entry in reversed(entries):
                if was < entry.version <= version:
                    self.publish(entry)

    def _highest_epoch(self) -> int:
        planned = self.rounds.newest.report.epoch if self.rounds.newest else 0
        return max(self.epoch, planned, self.peers.highest_epoch())

    # plans

    def plan(self) -> PlanReport:
        """The plan in force."""
        return self.plans[-1]

    def _note_plan(self) -> None:
        """Takes note of a new epoch, whatever it came by."""
        if self.plans and self.plans[-1].epoch == self.epoch:
            return
        newest = self.rounds.newest
        together = newest is not None and newest.report.epoch == self.epoch
        report = newest.report if newest is not None and together else self._own_plan()
        if self.plans:
            metrics.PLAN_CHANGES.inc()
            metrics.MOVED_KEYS.inc(report.moved_keys or 0)
            self.publish(report)
        self.plans.append(report)

    def _own_plan(self) -> PlanReport:
        control = self.steering.control
        return PlanReport(
            epoch=self.epoch,
            at=moment(self.times.wall()),
            round=None,
            by=self.replica,
            grouping=control.routed_by,
            workers=control.workers,
            hot_keys=len(self.steering.widths()),
            moved_keys=None,
            moved_state=None,
            feasible=None,
            plan_ms=None,
            details={},
        )

    def publish(self, data: PlanReport | HistoryEntry) -> None:
        """Tells those who listen."""
        self.feed.publish(ServerEvent("plan" if isinstance(data, PlanReport) else "control", data))

    # loops

    async def _repeat(self, action: Callable[[], Awaitable[None]], pause: Callable[[], float]) -> None:
        """Does it again and again; the store or broker may be away, and a defect in here must not stop the routing."""
        while True:
            await asyncio.sleep(pause())
            try:
                await action()
            except Unavailable as error:
                log.debug("the store can't be used: %s", error)
            except Exception:
                log.exception("a defect in the control plane; routing goes on")

    def _until_next_look(self) -> float:
        """The longer the store is away, the less often it is asked."""
        state = self.store.state
        away = 0.0 if state.ok else self.times.wall() - state.since
        return min(_LONGEST_SECONDS, _FOLLOW_SECONDS + away / 5)

    def _until_boundary(self) -> float:
        """Seconds until the clock on the wall, wherever it was set to meanwhile, is in another interval."""
        wall = self.times.wall()
        return self.interval - wall % self.interval if math.floor(wall / self.interval) == self.number else 0.0

    async def _end(self) -> None:
        number = math.floor(self.times.wall() / self.interval)
        if number != self.number:  # It may have been woken a moment too early.
            await self.end_interval(number)


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    """Cancels them, and again those in which some client took the first time for a timeout of its own."""
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=1)
