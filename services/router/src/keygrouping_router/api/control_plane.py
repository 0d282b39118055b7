"""Answers the questions and carries out the orders of the HTTP interface, for one router among its replicas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from keygrouping.hashing import hash_key
from keygrouping_service.store import Unavailable

from keygrouping_router.api.changes import done_of, done_with
from keygrouping_router.api.shapes import (
    Done,
    DryRun,
    GroupingChange,
    GroupingReport,
    History,
    KeyReport,
    KeySpaceReport,
    OverrideChange,
    OverridesReport,
    PlanHistory,
    PlanInForce,
    Readiness,
    ServerEvent,
    ShadowChange,
    ShadowDryRun,
    ShadowReport,
    StoreReport,
    Thresholds,
    WorkersChange,
    WorkersReport,
)
from keygrouping_router.api.views import (
    changes_of,
    entry_of,
    event_of,
    filling_of,
    grouping_change_of,
    grouping_of,
    key_of,
    keyspace_of,
    moment,
    override_change_of,
    overrides_of,
    plan_in_force,
    plan_of,
    settings_of,
    shadow_change_of,
    shadows_of,
    thresholds_of,
    workers_change_of,
    workers_of,
)
from keygrouping_router.control.feed import FeedEvent
from keygrouping_router.control.history import What
from keygrouping_router.control.orders import KeyOverride
from keygrouping_router.control.overrides import override_of
from keygrouping_router.control.state import Control
from keygrouping_router.knowledge import trial
from keygrouping_router.knowledge.keyspace import KeyQuery
from keygrouping_router.limits import TOP
from keygrouping_router.replica import Replica


class Input(Protocol):
    """The input partitions that this router owns."""

    @property
    def ready(self) -> bool:
        """Whether work has begun on all partitions that the group gave."""

    @property
    def lags(self) -> Mapping[int, int | None]:
        """Events yet to be routed, by partition; None: not known yet."""


class ControlPlane:
    """A `Plane`; see there. It asks and orders one replica; `caught_up` routers have at most `backlog` events to do."""

    def __init__(self, replica: Replica, backlog: int) -> None:
        self.replica = replica
        """What it asks and orders."""
        self._backlog = backlog
        self._input: Input | None = None
        self._trying = asyncio.Lock()
        self._shown: WeakKeyDictionary[FeedEvent, ServerEvent] = WeakKeyDictionary()

    def watch(self, partitions: Input) -> None:
        """Readiness is about these partitions."""
        self._input = partitions

    # keys

    async def keyspace(self, query: KeyQuery) -> KeySpaceReport:
        """See `Plane`."""
        overview = self.replica.overview
        view = overview.view(query.replica)
        keys, total = await view.page(query)
        return keyspace_of(overview.summary(view, self.replica.interval), keys, total)

    async def key(self, key: bytes, replica: str | None) -> KeyReport:
        """See `Plane`."""
        return key_of(self.replica.overview.view(replica).state(key, hash_key(key)))

    # settings

    async def thresholds(self) -> Thresholds:
        """See `Plane`."""
        return thresholds_of(self._control, self._version, self.replica.default_interval)

    async def set_thresholds(
        self, values: Mapping[str, Any], *, partial: bool, expected: int | None, by: str
    ) -> Thresholds:
        """See `Plane`."""
        done = await self._change("thresholds", lambda now: now.with_thresholds(values, partial=partial), expected, by)
        return done_with(await self.thresholds(), done)

    async def try_thresholds(self, values: Mapping[str, Any], *, partial: bool) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.with_thresholds(values, partial=partial))

    async def history(self, limit: int) -> History:
        """See `Plane`."""
        return History(entries=list(map(entry_of, await self.replica.document.history(limit))))

    # workers

    async def workers(self) -> WorkersReport:
        """See `Plane`."""
        replica, loads = self.replica, self.replica.overview.view(None).loads
        return workers_of(self._control, self._version, replica.epoch, loads, replica.lags, replica.most_workers)

    async def set_workers(self, change: WorkersChange, *, expected: int | None, by: str) -> WorkersReport:
        """See `Plane`."""
        order, most = workers_change_of(change), self.replica.most_workers
        done = await self._change("workers", lambda now: now.with_workers(order, most), expected, by)
        return done_with(await self.workers(), done)

    async def try_workers(self, change: WorkersChange) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.with_workers(workers_change_of(change), self.replica.most_workers))

    # grouping and plans

    async def grouping(self) -> GroupingReport:
        """See `Plane`."""
        return grouping_of(self._control, self._version, self.replica.epoch)

    async def set_grouping(self, change: GroupingChange, *, expected: int | None, by: str) -> GroupingReport:
        """See `Plane`."""
        done = await self._change("grouping", lambda now: now.with_grouping(grouping_change_of(change)), expected, by)
        return done_with(await self.grouping(), done)

    async def try_grouping(self, change: GroupingChange) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.with_grouping(grouping_change_of(change)))

    # keys with an override

    async def overrides(self) -> OverridesReport:
        """See `Plane`."""
        return overrides_of(self._control, self._version, self.replica.epoch)

    async def set_override(
        self, key: bytes, change: OverrideChange, *, expected: int | None, by: str
    ) -> OverridesReport:
        """See `Plane`."""
        override, now = self._override(key, change), self.replica.times.wall()
        # Those that have ended are still in the document for a moment, and count no more.
        done = await self._change("overrides", lambda it: it.without_ended(now).with_override(override), expected, by)
        return done_with(await self.overrides(), done)

    async def try_override(self, key: bytes, change: OverrideChange) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.with_override(self._override(key, change)))

    async def end_override(self, key: bytes, *, expected: int | None, by: str) -> OverridesReport:
        """See `Plane`."""
        done = await self._change("overrides", lambda now: now.without_override(key), expected, by)
        return done_with(await self.overrides(), done)

    async def try_ending_override(self, key: bytes) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.without_override(key))

    def _override(self, key: bytes, change: OverrideChange) -> KeyOverride:
        return override_of(key, override_change_of(change), self.replica.times.wall())

    async def plan(self, keys: int = TOP) -> PlanInForce:
        """See `Plane`."""
        active = self.replica.active
        filling, layout = active.filling(keys), active.overrides.layout
        report = None if filling is None else filling_of(filling, self.replica.overview.view(None).name, layout.shared)
        return plan_in_force(self.replica.plans.newest(), report)

    async def plans(self, limit: int) -> PlanHistory:
        """The last plans: those that were made in rounds, else those of this router."""
        if self.replica.active.planned_in_rounds:
            with contextlib.suppress(Unavailable):
                return PlanHistory(entries=list(map(plan_of, await self.replica.rounds.history(limit))))
        return PlanHistory(entries=list(map(plan_of, self.replica.plans.newest_first()[:limit])))

    # shadow

    async def shadow(self) -> ShadowReport:
        """See `Plane`; what this router alone has sampled."""
        replica, shadow = self.replica, self.replica.traffic.shadow
        return ShadowReport(
            sample=self._control.sample,
            sampled_part=replica.traffic.sampled_part,
            sampled_events=shadow.events,
            interval_seconds=self.replica.interval,
            groupings=shadows_of(shadow.recent()),
            run=shadows_of(shadow.run()),
            version=self._version,
        )

    async def set_shadow(self, change: ShadowChange, *, expected: int | None, by: str) -> ShadowReport:
        """See `Plane`."""
        done = await self._change("shadow", lambda now: now.with_shadow(shadow_change_of(change)), expected, by)
        return done_with(await self.shadow(), done)

    async def try_shadow(self, change: ShadowChange) -> ShadowDryRun:
        """See `Plane`."""
        changed = self._control.with_shadow(shadow_change_of(change))
        slices = self.replica.traffic.sample()
        async with self._trying:
            results = await asyncio.to_thread(trial.side_by_side, self._in_force(), changed, slices)
        events = sum(len(taken.keys) for taken in slices)
        return ShadowDryRun(sample=changed.sample, sampled_events=events, groupings=shadows_of(results))

    # what happens

    async def events(self, last_id: int | None) -> AsyncIterator[ServerEvent]:
        """See `Plane`."""
        async with aclosing(self.replica.feed.listen(last_id)) as events:
            async for event in events:
                if event not in self._shown:
                    self._shown[event] = event_of(event)
                yield self._shown[event]

    def readiness(self) -> Readiness:
        """See `Plane`."""
        state, partitions = self.replica.store.state, self._input
        lags = [] if partitions is None else list(partitions.lags.values())
        known = [lag for lag in lags if lag is not None]
        lag = sum(known) if partitions is not None and len(known) == len(lags) else None
        ready = partitions is not None and partitions.ready
        return Readiness(
            status="ready" if ready else "starting",
            assigned=sorted(partitions.lags) if partitions is not None else [],
            caught_up=ready and lag is not None and lag < self._backlog,
            lag=lag,
            store=StoreReport(
                name=self.replica.store.name,
                state="ok" if state.ok else "degraded",
                since=moment(state.since),
                detail=state.detail,
            ),
            left_out=list(self.replica.document.left_out),
        )

    @property
    def _control(self) -> Control:
        return self.replica.document.control

    @property
    def _version(self) -> int:
        return self.replica.document.version

    async def _change(self, what: What, edit: Callable[[Control], Control], expected: int | None, by: str) -> Done:
        entry = await self.replica.change(what, edit, expected=expected, by=by)
        return done_of(entry, self._control, self.replica.epoch)

    async def _try(self, changed: Control) -> DryRun:
        """One at a time: each takes up to seconds of a processor, and the threads that plans are made in."""
        async with self._trying:
            sample = self.replica.traffic.sample()
            changes = await asyncio.to_thread(trial.compare, self._in_force(), changed, sample)
        return DryRun(changes=changes_of(changes), settings=settings_of(changed, self.replica.default_interval))

    def _in_force(self) -> trial.InForce:
        active = self.replica.active
        widths = self.replica.traffic.usual_widths()
        return trial.InForce(active.control, active.twin(), self.replica.default_interval, widths)
