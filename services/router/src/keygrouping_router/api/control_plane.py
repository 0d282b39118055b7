"""Answers the questions and carries out the orders of the HTTP interface, for one router among its replicas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
from keygrouping.hashing import hash_key
from keygrouping_service.store import Store, Unavailable
from numpy.typing import NDArray

from keygrouping_router.api.changes import done_of, done_with
from keygrouping_router.api.shapes import (
    TOP,
    Done,
    DryRun,
    GroupingChange,
    GroupingReport,
    History,
    IntervalReport,
    KeyOverride,
    KeyQuery,
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
    filling_of,
    grouping_of,
    overrides_of,
    settings_of,
    thresholds_of,
    workers_of,
)
from keygrouping_router.control.overrides import override_of
from keygrouping_router.control.state import Control
from keygrouping_router.data.extract import Routed, Usable
from keygrouping_router.errors import Unknown
from keygrouping_router.knowledge import trial
from keygrouping_router.knowledge.keyspace import KeySpaceView, moment
from keygrouping_router.naming import base64_of
from keygrouping_router.replica import RouterCore
from keygrouping_router.scaling.worker_stage import LooksAtWorkers
from keygrouping_router.settings import RouterSettings
from keygrouping_router.times import Times

_FRESH_SECONDS = 0.5


class Input(Protocol):
    """The input partitions that this router owns."""

    @property
    def ready(self) -> bool:
        """Whether work has begun on all partitions that the group gave."""

    @property
    def lags(self) -> Mapping[int, int | None]:
        """Events yet to be routed, by partition; None: not known yet."""


class ControlPlane:
    """A `Plane`; see there. `route`, `epoch` and `not_below` are for the routing path and never wait."""

    def __init__(
        self,
        settings: RouterSettings,
        store: Store,
        most_workers: int,
        *,
        stage: LooksAtWorkers | None = None,
        times: Times | None = None,
    ) -> None:
        self._core = RouterCore(
            settings.control(),
            store,
            replica=settings.replica,
            interval=settings.interval,
            tracked_keys=settings.tracked_keys,
            most_workers=most_workers,
            auto_grace=settings.auto_grace,
            stage=stage,
            times=times,
            on_interval=self._publish_interval,
        )
        self._max_batch = settings.max_batch
        self._interval = settings.interval
        self._input: Input | None = None
        self._view: tuple[float, int, KeySpaceView] | None = None
        self._trying = asyncio.Lock()

    # the router's own side

    @property
    def replica(self) -> str:
        """Name of this router among its replicas."""
        return self._core.replica

    @property
    def epoch(self) -> int:
        """Number of the plan in force."""
        return self._core.epoch

    @property
    def core(self) -> RouterCore:
        """What it is made of, for tests that turn time themselves."""
        return self._core

    def route(self, usable: Usable, now: float) -> Routed:
        """The worker of each usable event; `now` in seconds of the steady clock."""
        return self._core.route(usable, now)

    def diverted(self, usable: Usable) -> NDArray[np.bool_] | None:
        """Which of the usable events go to the quarantine topic; None if none does."""
        return self._core.steering.diverted(usable.keys)

    def not_below(self, epoch: int) -> None:
        """A partition comes whose last owner was in this epoch."""
        self._core.not_below(epoch)

    def watch(self, partitions: Input) -> None:
        """Readiness is about these partitions."""
        self._input = partitions

    async def start(self) -> None:
        """Makes everything ready to route."""
        await self._core.start()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Follows the control document and holds the rounds while it lasts."""
        return self._core.running()

    # keys

    async def keyspace(self, query: KeyQuery) -> KeySpaceReport:
        """See `Plane`."""
        view = self._view_of(query.replica)
        keys, total = await view.page(query)
        return KeySpaceReport.model_construct(**self._head(view), keys=keys, total=total)

    async def key(self, key: bytes, replica: str | None) -> KeyReport:
        """See `Plane`."""
        return self._view_of(replica).report(key, hash_key(key))

    # settings

    async def thresholds(self) -> Thresholds:
        """See `Plane`."""
        return thresholds_of(self._control, self._version, self._interval)

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
        return History(entries=await self._core.document.history(limit))

    # workers

    async def workers(self) -> WorkersReport:
        """See `Plane`."""
        core, loads = self._core, self._view_of(None).loads
        return workers_of(self._control, self._version, core.epoch, loads, core.lags, core.most_workers)

    async def set_workers(self, change: WorkersChange, *, expected: int | None, by: str) -> WorkersReport:
        """See `Plane`."""
        most = self._core.most_workers
        done = await self._change("workers", lambda now: now.with_workers(change, most), expected, by)
        return done_with(await self.workers(), done)

    async def try_workers(self, change: WorkersChange) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.with_workers(change, self._core.most_workers))

    # grouping and plans

    async def grouping(self) -> GroupingReport:
        """See `Plane`."""
        return grouping_of(self._control, self._version, self._core.epoch)

    async def set_grouping(self, change: GroupingChange, *, expected: int | None, by: str) -> GroupingReport:
        """See `Plane`."""
        done = await self._change("grouping", lambda now: now.with_grouping(change), expected, by)
        return done_with(await self.grouping(), done)

    async def try_grouping(self, change: GroupingChange) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.with_grouping(change))

    # keys with an override

    async def overrides(self) -> OverridesReport:
        """See `Plane`."""
        return overrides_of(self._control, self._version, self._core.epoch)

    async def set_override(
        self, key: bytes, change: OverrideChange, *, expected: int | None, by: str
    ) -> OverridesReport:
        """See `Plane`."""
        override = self._override(key, change)
        done = await self._change("overrides", lambda now: now.with_override(override), expected, by)
        return done_with(await self.overrides(), done)

    async def try_override(self, key: bytes, change: OverrideChange) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.with_override(self._override(key, change)))

    async def end_override(self, key: bytes, *, expected: int | None, by: str) -> OverridesReport:
        """See `Plane`."""
        name = base64_of(key)
        done = await self._change("overrides", lambda now: now.without_override(name), expected, by)
        return done_with(await self.overrides(), done)

    async def try_ending_override(self, key: bytes) -> DryRun:
        """See `Plane`."""
        return await self._try(self._control.without_override(base64_of(key)))

    def _override(self, key: bytes, change: OverrideChange) -> KeyOverride:
        return override_of(key, change, datetime.fromtimestamp(self._core.times.wall(), UTC))

    async def plan(self, keys: int = TOP) -> PlanInForce:
        """See `Plane`."""
        filling, layout = self._core.steering.filling(keys), self._core.steering.overrides.layout
        report = None if filling is None else filling_of(filling, self._view_of(None).name, layout.shared)
        return PlanInForce(**dict(self._core.plans.newest()), filling=report)

    async def plans(self, limit: int) -> PlanHistory:
        """The last plans: those that were made in rounds, else those of this router."""
        if self._core.steering.planned_in_rounds:
            with contextlib.suppress(Unavailable):
                return PlanHistory(entries=await self._core.rounds.history(limit))
        return PlanHistory(entries=self._core.plans.newest_first()[:limit])

    # shadow

    async def shadow(self) -> ShadowReport:
        """See `Plane`; what this router alone has sampled."""
        core, shadow = self._core, self._core.traffic.shadow
        return ShadowReport(
            sample=self._control.sample,
            sampled_part=core.traffic.sampled_part,
            sampled_events=shadow.events,
            interval_seconds=self._core.interval,
            groupings=shadow.recent(),
            run=shadow.run(),
            version=self._version,
        )

    async def set_shadow(self, change: ShadowChange, *, expected: int | None, by: str) -> ShadowReport:
        """See `Plane`."""
        done = await self._change("shadow", lambda now: now.with_shadow(change), expected, by)
        return done_with(await self.shadow(), done)

    async def try_shadow(self, change: ShadowChange) -> ShadowDryRun:
        """See `Plane`."""
        changed = self._control.with_shadow(change)
        slices = self._core.traffic.sample()
        async with self._trying:
            results = await asyncio.to_thread(trial.side_by_side, self._in_force(), changed, slices)
        events = sum(len(taken.keys) for taken in slices)
        return ShadowDryRun(sample=changed.sample, sampled_events=events, groupings=results)

    # what happens

    def events(self, last_id: int | None) -> AsyncIterator[ServerEvent]:
        """See `Plane`."""
        return self._core.feed.listen(last_id)

    def readiness(self) -> Readiness:
        """See `Plane`."""
        state, partitions = self._core.store.state, self._input
        lags = [] if partitions is None else list(partitions.lags.values())
        known = [lag for lag in lags if lag is not None]
        lag = sum(known) if partitions is not None and len(known) == len(lags) else None
        ready = partitions is not None and partitions.ready
        return Readiness(
            status="ready" if ready else "starting",
            assigned=sorted(partitions.lags) if partitions is not None else [],
            caught_up=ready and lag is not None and lag < self._max_batch,
            lag=lag,
            store=StoreReport(
                name=self._core.store.name,
                state="ok" if state.ok else "degraded",
                since=moment(state.since),
                detail=state.detail,
            ),
            left_out=list(self._core.document.left_out),
        )

    @property
    def _control(self) -> Control:
        return self._core.document.control

    @property
    def _version(self) -> int:
        return self._core.document.version

    async def _change(self, what: str, edit: Callable[[Control], Control], expected: int | None, by: str) -> Done:
        entry = await self._core.change(what, edit, expected=expected, by=by)
        self._view = None
        return done_of(entry, self._control, self._core.epoch)

    async def _try(self, changed: Control) -> DryRun:
        """One at a time: each takes up to seconds of a processor, and the threads that plans are made in."""
        async with self._trying:
            sample = self._core.traffic.sample()
            changes = await asyncio.to_thread(trial.compare, self._in_force(), changed, sample)
        return DryRun(changes=changes, settings=settings_of(changed, self._interval))

    def _in_force(self) -> trial.InForce:
        steering = self._core.steering
        return trial.InForce(steering.control, steering.twin(), self._interval)

    def _view_of(self, replica: str | None) -> KeySpaceView:
        """What this replica alone knows, or another one, or None: all of them together."""
        core = self._core
        explain, cold = core.steering.explain, core.steering.cold_width
        capacities = core.steering.control.capacity_by_worker
        if replica is None:
            return self._merged_view()
        if replica == core.replica:
            return KeySpaceView([core.knowledge()], explain, cold, capacities, core.explained_at)
        if replica in core.peers.knowledge:
            return KeySpaceView([core.peers.knowledge[replica]], explain, cold, capacities, core.explained_at)
        known = ", ".join(sorted({core.replica, *core.peers.knowledge}))
        raise Unknown(f"no router is called {replica!r}; known are {known}")

    def _merged_view(self) -> KeySpaceView:
        """Made at most twice a second, as it takes some milliseconds of the routing's time."""
        core, now = self._core, self._core.times.steady()
        if self._view is None or now - self._view[0] >= _FRESH_SECONDS or self._view[1] != core.epoch:
            parts = [core.knowledge(), *core.peers.knowledge.values()]
            steering = core.steering
            capacities = steering.control.capacity_by_worker
            view = KeySpaceView(parts, steering.explain, steering.cold_width, capacities, core.explained_at)
            self._view = (now, core.epoch, view)
        return self._view[2]

    def _head(self, view: KeySpaceView) -> dict[str, Any]:
        control = self._core.steering.control
        return {
            "grouping": control.routed_by,
            "workers": control.workers,
            "epoch": self._core.epoch,
            "replicas": view.replicas,
            "interval_seconds": self._core.interval,
            "events": view.events,
            "total_keys": max(view.total_keys, len(view.counts)),
            "tracked_keys": len(view.counts),
            "spaces": view.spaces,
            "loads": view.loads.tolist(),
            "lambda_": view.lambda_,
            "std_dev": view.std_dev,
            "dist_cost": view.dist_cost,
            "lambda_before": view.lambda_before,
            "at": moment(self._core.times.wall()),
        }

    async def _publish_interval(self) -> None:
        await asyncio.sleep(0)
        self._view = None
        view = self._merged_view()
        hot, _ = await view.page(KeyQuery(limit=TOP))
        report = IntervalReport.model_construct(**self._head(view), hot=hot)
        self._core.feed.publish(ServerEvent("interval", report, self._core.number))
