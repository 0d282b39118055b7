"""One replica among others: routes, follows the control document, takes part in the rounds, and tells what it knows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from keygrouping.grouping import Grouping
from keygrouping_kafka.calls import given_up_calls
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.errors import Fatal
from keygrouping_service.store import Store, Unavailable

from keygrouping_router import metrics
from keygrouping_router.control.checks import ticks_of
from keygrouping_router.control.document import ControlDocument, Edit
from keygrouping_router.control.feed import Feed, FeedEvent
from keygrouping_router.control.groupings import prepared, try_compared
from keygrouping_router.control.history import Change, What
from keygrouping_router.control.orders import WorkersChange
from keygrouping_router.control.overrides import show_overrides
from keygrouping_router.control.state import Control
from keygrouping_router.control.watched_store import WatchedStore
from keygrouping_router.data.accounting import Traffic, warm_up
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.errors import Degraded, Refused
from keygrouping_router.knowledge.balance import capacities_of
from keygrouping_router.knowledge.keyspace import Interval, KeyQuery
from keygrouping_router.knowledge.shadow import candidates
from keygrouping_router.limits import TOP
from keygrouping_router.overview import Overview
from keygrouping_router.planning.exchange import Exchange
from keygrouping_router.planning.peers import Peers
from keygrouping_router.planning.plan import PlanRecord
from keygrouping_router.planning.plan_log import PlanLog
from keygrouping_router.planning.rounds import Rounds
from keygrouping_router.scaling.stabilization import Stabilization
from keygrouping_router.scaling.worker_stage import LooksAtWorkers
from keygrouping_router.settings import RouterSettings
from keygrouping_router.times import Times

log = logging.getLogger(__name__)

_FOLLOW_SECONDS = 1.0
_LONGEST_SECONDS = 5.0
_WATCH_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
_MOST_MISSED = 20

BY_END = "end time"
"""Who takes out the overrides of keys that have come to their end."""

BY_AUTO = "auto"
"""Who changes W where it follows the running workers."""


class Replica:
    """All that goes on beside the routing, between its batches."""

    def __init__(  # noqa: PLR0913 -- independent settings, by name only
        self,
        environment: Control,
        store: Store,
        *,
        name: str,
        interval: float,
        tracked_keys: int,
        most_workers: int,
        auto_grace: float,
        stage: LooksAtWorkers | None = None,
        times: Times | None = None,
    ) -> None:
        self.name = name
        """Among the replicas."""
        self.default_interval = interval
        """Of the environment; see `interval`."""
        self.times = times or Times()
        self.store = WatchedStore(store, self.times.wall)
        self.peers = Peers(self.store, name)
        self.document = ControlDocument(
            self.store, environment, most_workers, self.times.wall, replica=name, try_out=self._try_out
        )
        self.active = ActiveGrouping(self.document.control)
        self.traffic = Traffic(self.active, tracked_keys, self.times)
        self.overview = Overview(name, self.active, self.traffic, self.peers, self.times)
        self.exchange = Exchange(self.store, name, lambda: self.interval, self.active, self.peers)
        self.rounds = Rounds(self.store, name, lambda: self.interval, self.active, self.peers, self.times)
        self.feed = Feed()
        self.plans = PlanLog(name, self.active, self.rounds, self.times.wall, self.publish)
        self.lags: dict[int, int] | None = None
        self.number = math.floor(self.times.wall() / interval)
        self._counted = self.number
        """The interval that the grouping counts: for some turns of the loop after a boundary still the one before."""
        self._stage = stage
        self._stabilization = Stabilization(auto_grace)
        self._version = -1
        self._fresh: tuple[Control, Grouping] | None = None
        """A grouping that was made ready when its control document was tried."""
        self._taking_over = asyncio.Lock()
        self._planning = asyncio.Lock()

    @property
    def interval(self) -> float:
        """Seconds between two plans, and two reports of loads."""
        return self.active.control.interval or self.default_interval

    @property
    def control(self) -> Control:
        """What is in force."""
        return self.document.control

    @property
    def most_workers(self) -> int:
        """Partitions of the routed topic, as far as is known."""
        return self.document.most_workers

    @property
    def epoch(self) -> int:
        """Number of the plan in force."""
        return self.active.epoch

    def not_below(self, epoch: int) -> None:
        """A partition comes whose last owner was in this epoch."""
        if epoch > self.epoch:
            self.plans.not_below(epoch)
            metrics.EPOCH.set(self.epoch)

    # orders

    async def change(self, what: What, edit: Edit, *, expected: int | None, by: str) -> Change | None:
        """Changes the control document and follows it at once; None if nothing changed.

        Raises as `ControlDocument.change`.
        """
        entry = await self.document.change(what, edit, expected=expected, by=by, highest_epoch=self._highest_epoch)
        await self._take_over()
        self.overview.forget()
        return entry

    # what goes on by itself

    async def start(self) -> None:
        """Follows the control document for the first time; without the store the environment counts.

        What has to be compiled is compiled here: later it would block the heartbeats for seconds.
        """
        await asyncio.to_thread(warm_up)
        try:
            with contextlib.suppress(Unavailable):
                await self.peers.look()
                await self.follow()
            await self._take_over()
        except Refused as error:
            raise Fatal(f"KEYGROUPING_ROUTER_GROUPING, KEYGROUPING_ROUTER_GROUPING_SETTINGS: {error}") from error

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps everything up while it lasts, and says goodbye at the end."""
        loops = [
            self._repeat(self.follow, self._until_next_look),
            self._repeat(self.end_overrides, lambda: _FOLLOW_SECONDS),
            self._repeat(self._end, self._until_boundary),
            self._repeat(self._check, self._until_tick),
            self._repeat(self._tell, self._until_tick),
        ]
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
        behind = self.active.fresh or self._highest_epoch() > self.active.planned
        if self.active.planned_in_rounds and behind:
            await self.rounds.adopt()
            self.plans.note()

    async def end_overrides(self) -> None:
        """Overrides of keys that have come to their end play no part any more, whether the store is there or not."""
        if not self.document.has_ended:
            return
        await self._take_over()
        with contextlib.suppress(Unavailable, Degraded, Refused):
            if await self.store.lease("overrides", self.name, 3 * _FOLLOW_SECONDS):
                await self.change("overrides", self.document.without_ended, expected=None, by=BY_END)

    async def end_interval(self, number: int) -> None:
        """The interval before this number is over: counts start from zero, and a plan is made of what all have seen.

        Raises `Unavailable`; everybody then goes on with what was in force.
        """
        self.number = number
        for _ in self.traffic.end_interval():
            await asyncio.sleep(0)
        control, statistics = self.active.control, self.active.statistics(self.times.steady())
        self._counted = number
        self.plans.note()
        try:
            together = len(self.peers.alive()) > 1
            if together:
                await self.peers.publish(self.overview.knowledge(), 3 * self.interval)
            if statistics is not None:
                await asyncio.sleep(0)  # Routing has its turns in between: each of these steps takes milliseconds.
                async with self._planning:
                    await self.rounds.hold(number, control, statistics)
                await asyncio.sleep(0)
                self.traffic.observe_widths()
                self.plans.note()
            if together:
                await asyncio.sleep(min(_PAUSE_SECONDS, self.interval / 10))
                await self.peers.listen()
        finally:
            metrics.EPOCH.set(self.epoch)
            await self._publish_interval()

    async def check(self, part: float) -> None:
        """This part of the interval has passed: a plan is made if this replica finds that urgent, or another does.

        Raises `Unavailable`; everybody then goes on with what was in force.
        """
        number = self.number
        if not self._counts(number):
            return
        self.traffic.shadow.check(self.times.steady(), self.interval)
        if self._planning.locked() or not self.active.urgently_planned:
            return
        wanted = self.active.wants_plan(self.times.steady(), self.interval)
        async with self._planning:
            if await self.rounds.hold_inside(number, part, wanted, lambda: self._counts(number)):
                self.traffic.observe_widths()
                self.plans.note()
                metrics.EPOCH.set(self.epoch)

    async def tell_loads(self) -> bool:
        """Replicas tell each other what they have brought in this interval; whether this one did.

        Raises `Unavailable`.
        """
        number = self.number
        return await self.exchange.take_part(number, lambda: self._counts(number))

    def _counts(self, number: int) -> bool:
        """Whether this interval lasts, and what the grouping has counted is all of it."""
        return self._counted == self.number == number

    async def watch_workers(self) -> None:
        """Looks what the workers have yet to do, and with `auto` lets W follow how many there are."""
        if self._stage is None:
            return
        try:
            with given_up_calls():
                stage = await self._stage.look()
        except Exception as error:
            if not can_be_retried(error):
                raise
            self.lags = None
            return
        self.lags = dict(stage.lags)
        await self._follow_partitions(len(stage.lags))
        for worker, lag in stage.lags.items():
            metrics.WORKER_LAG.labels(str(worker)).set(lag)
        await self._follow_members(stage.members)

    async def _follow_partitions(self, partitions: int) -> None:
        """W may be larger once there are more partitions."""
        if partitions > self.most_workers:
            log.info("the routed topic has %d partitions now: W may be as large", partitions)
            self.document.most_workers = partitions
            await self._take_over()

    async def _follow_members(self, members: int) -> None:
        """With `auto`, W becomes the number of members, if there are any."""
        control = self.document.control
        running = min(members, self.most_workers)
        wanted = self._stabilization.wanted(control.workers, running, self.times.steady())
        if not control.auto or wanted == control.workers:
            return
        change = WorkersChange(workers=wanted)

        def edit(control: Control) -> Control:
            if not control.auto:
                return control
            return replace(control.with_workers(change, self.most_workers), auto=True)

        with contextlib.suppress(Unavailable, Degraded, Refused):
            if await self.store.lease("auto", self.name, 3 * _WATCH_SECONDS):
                await self.change("workers", edit, expected=None, by=BY_AUTO)

    # taking over

    async def _try_out(self, control: Control) -> None:
        """Makes ready what routes by it, which shows whether it can be routed and planned by; raises `Refused`."""
        before, control = self.active.control, self.document.limited(control)
        if self._version < 0 or not control.routes_like(before):
            self._fresh = (control, await asyncio.to_thread(prepared, control))
        if control.compared != before.compared:
            await asyncio.to_thread(try_compared, control)

    async def _fresh_for(self, control: Control) -> Grouping:
        """A new grouping that is ready: the one of the trial, if it is for this document."""
        tried, self._fresh = self._fresh, None
        if tried is not None and control.routes_like(tried[0]):
            return tried[1]
        return await asyncio.to_thread(prepared, control)

    async def _take_over(self) -> None:
        """Routes as the control document says; what takes long is made ready in a thread before."""
        async with self._taking_over:
            before, control, version = self.active.control, self.document.control, self.document.version
            if version == self._version and control == before:
                return
            reroutes = self._version < 0 or not control.routes_like(before)
            compares = reroutes or not control.compares_like(before)
            fresh = await self._fresh_for(control) if reroutes else None
            made = await asyncio.to_thread(candidates, control, self.traffic.shadow.candidates) if compares else []
            self.active.follow(control, fresh)
            if compares:
                self.traffic.follow(made)
            await asyncio.sleep(0)
            was, self._version = self._version, version
            self._note_control(control)
        await self._tell_changes(was, version)

    def _note_control(self, control: Control) -> None:
        metrics.CONTROL_VERSION.set(self._version)
        metrics.CONTROL_CHANGES.inc()
        metrics.WORKERS.set(control.workers)
        metrics.WORKER_CAPACITY.clear()
        for worker, capacity in enumerate(capacities_of(control.capacity_by_worker, control.workers).tolist()):
            metrics.WORKER_CAPACITY.labels(str(worker)).set(capacity)
            metrics.ROUTED.labels(str(worker))
            metrics.OVERRIDDEN.labels(str(worker))
        show_overrides(control.overrides, control.layout)
        metrics.SPLITTING.set(control.routed_by != "key")
        metrics.SHARING.set(control.sharing == "shared")
        metrics.EPOCH.set(self.epoch)
        self.plans.note()

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
        planned = self.rounds.newest.epoch if self.rounds.newest else 0
        return max(self.epoch, planned, self.peers.highest_epoch())

    def publish(self, data: PlanRecord | Change) -> None:
        """Tells those who listen."""
        self.feed.publish(FeedEvent("plan" if isinstance(data, PlanRecord) else "control", data))

    async def _publish_interval(self) -> None:
        await asyncio.sleep(0)
        self.overview.forget()
        view = self.overview.view(None)
        hot, _ = await view.page(KeyQuery(limit=TOP))
        summary = self.overview.summary(view, self.interval)
        self.feed.publish(FeedEvent("interval", Interval(summary, hot), self.number))

    # loops

    async def _repeat(self, action: Callable[[], Awaitable[None]], pause: Callable[[], float]) -> None:
        """Repeats it for ever; the store or broker may be away, and a defect in here must not stop the routing."""
        while True:
            await asyncio.sleep(pause())
            try:
                await action()
            except Unavailable as error:
                log.debug("the store can't be used: %s", error)
            except Exception:
                log.exception("unexpected error in the control plane; routing continues")

    def _until_next_look(self) -> float:
        """The longer the store is away, the less often it is asked."""
        state = self.store.state
        away = 0.0 if state.ok else self.times.wall() - state.since
        return min(_LONGEST_SECONDS, _FOLLOW_SECONDS + away / 5)

    def _until_boundary(self) -> float:
        """Seconds until the clock on the wall, wherever it was set to meanwhile, is in another interval."""
        wall = self.times.wall()
        return self.interval - wall % self.interval if math.floor(wall / self.interval) == self.number else 0.0

    def _until_tick(self) -> float:
        """Seconds until routers may call for a plan again."""
        tick = self.interval / ticks_of(self.interval)
        return tick - self.times.wall() % tick

    async def _check(self) -> None:
        if part := self._part():
            await self.check(part)

    async def _tell(self) -> None:
        if self._part():
            await self.tell_loads()

    def _part(self) -> float:
        """The part of the interval that has passed, to a tick; 0 if that is none, or if the interval is over."""
        ticks = ticks_of(self.interval)
        number, tick = divmod(round(ticks * self.times.wall() / self.interval), ticks)
        return tick / ticks if number == self.number else 0.0

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


def new_replica(
    settings: RouterSettings,
    store: Store,
    most_workers: int,
    *,
    stage: LooksAtWorkers | None = None,
    times: Times | None = None,
    seed: int | None = None,
) -> Replica:
    """The replica that these settings ask for; the routed topic has `most_workers` partitions.

    `seed` is that of the deployment, unless the store knows one already; None: as the store says.
    """
    return Replica(
        replace(settings.control(), seed=seed),
        store,
        name=settings.replica,
        interval=settings.interval,
        tracked_keys=settings.tracked_keys,
        most_workers=most_workers,
        auto_grace=settings.auto_grace,
        stage=stage,
        times=times,
    )
