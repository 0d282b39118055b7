"""The router as a process: checks the topics, puts the parts together, and runs them until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from keygrouping.aggregate import is_foreign
from keygrouping.aggregate.trial import microseconds_of_check
from keygrouping.job import JobSpec
from keygrouping.precompile import precompile_accounts, precompile_formats
from keygrouping_service.errors import Fatal
from keygrouping_service.events.input_partition import STAGE
from keygrouping_service.events.lateness import warm_up
from keygrouping_service.events.sorting import MOST_FRAMING, count_partitions, largest_records
from keygrouping_service.http.app import serving
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.premises import Role
from keygrouping_service.kafka.premises_check import checked
from keygrouping_service.kafka.ranges import decide
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.store import open_store

from keygrouping_router import metrics
from keygrouping_router.api.app import router_app
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.control.seeds import drawn
from keygrouping_router.data.pipeline import Pipeline
from keygrouping_router.replica import new_replica
from keygrouping_router.scaling.statefulset import StatefulSetPods
from keygrouping_router.scaling.worker_pods import WorkerPods
from keygrouping_router.scaling.worker_stage import KafkaWorkerStage
from keygrouping_router.settings import RouterSettings

log = logging.getLogger(__name__)

_SLOW_MICROSECONDS = 20.0
_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""


class Topics(NamedTuple):
    """Partitions of the topics that the router uses, and the largest record that it takes (bytes)."""

    partitions: dict[str, int]
    largest: int


async def check_topics(admin: AIOKafkaAdminClient, settings: RouterSettings) -> Topics:
    """Counts the partitions of all topics; `Fatal` if one is missing or `routed` has fewer than the workers need."""
    names = (
        *(settings.events_topic, settings.routed_topic, settings.late_topic, settings.dead_letters_topic),
        settings.receipts_topic,
        settings.positions_topic,
        settings.quarantine_topic or settings.dead_letters_topic,
    )
    counts = await count_partitions(admin, *names)
    if counts[settings.routed_topic] < settings.workers:
        raise Fatal(
            f"topic {settings.routed_topic!r} has {counts[settings.routed_topic]} partitions, too few for "
            f"KEYGROUPING_ROUTER_WORKERS={settings.workers}: add partitions or use fewer workers"
        )
    return Topics(counts, await _largest_record(admin, settings))


async def _largest_record(admin: AIOKafkaAdminClient, settings: RouterSettings) -> int:
    """The largest event to be read, in bytes: what is larger could not be written to `routed`."""
    topic, wanted = settings.routed_topic, settings.max_record_bytes
    most = (await largest_records(admin, topic)).get(topic, _MESSAGE_BYTES - MOST_FRAMING)
    if wanted is not None and wanted > most:
        raise Fatal(
            f"KEYGROUPING_ROUTER_MAX_RECORD_BYTES={wanted} is more than topic {topic!r} takes: "
            f"set its max.message.bytes to {wanted + MOST_FRAMING} or more, or the bound to {most} or less"
        )
    return wanted or most


class _Input:
    """The input partitions of this replica, as the API looks at them."""

    def __init__(self, runner: PartitionRunner) -> None:
        self._runner = runner

    @property
    def ready(self) -> bool:
        return self._runner.ready

    @property
    def lags(self) -> dict[int, int | None]:
        return {partition: owned.lag for partition, owned in self._runner.owned.items()}


async def serve(settings: RouterSettings, stop: asyncio.Event) -> None:
    """Runs the router until `stop` is set, or the range is over that it is to read."""
    tell_slow_checks(settings.job)
    topics = await clients.retry(lambda: _look_up_topics(settings), "reading the topics")
    writes: tuple[Role, ...] = ("routed", "late", "dead_letters", "quarantine", "positions")
    if not await checked(settings, stop, reads=("events",), writes=writes):
        return
    ends = await clients.retry(
        lambda: decide(settings, STAGE, settings.events_topic, *settings.range), "deciding the range"
    )
    async with contextlib.AsyncExitStack() as stack:
        metrics.RESULT_WAIT.set((settings.job.window_ms + settings.job.lateness_ms) / 1000)
        store = open_store(settings)
        stack.push_async_callback(store.close)
        seed = None if settings.store_url.startswith("memory") else drawn()  # All keys move if a restart forgets it.
        replica = new_replica(
            settings, store, topics.partitions[settings.routed_topic], stage=KafkaWorkerStage(settings), seed=seed
        )
        plane = ControlPlane(replica, settings.max_batch)
        await asyncio.to_thread(_warm_up)
        await replica.start()
        pipeline = Pipeline(settings, topics.partitions, replica.active, replica.traffic, replica.not_below)
        runner = PartitionRunner(
            settings,
            STAGE,
            settings.events_topic,
            pipeline.work,
            delivery=settings.delivery,
            ends=ends,
            largest=topics.largest,
            dead=metrics.DEAD,
        )
        plane.watch(_Input(runner))
        app, address = router_app(plane, settings), (settings.http_host, settings.http_port)
        await stack.enter_async_context(serving(app, *address, **settings.http_bounds))
        await stack.enter_async_context(replica.running())
        if settings.worker_pods is not None:
            await stack.enter_async_context(
                _going_on(WorkerPods(replica, StatefulSetPods(settings.worker_pods), replica.store))
            )
        await runner.run(stop)


def _warm_up() -> None:
    """Before the group is joined, as kernels hold the interpreter while they are compiled or loaded."""
    for kernels in (precompile_formats, precompile_accounts, warm_up):
        kernels()


def tell_slow_checks(job: JobSpec) -> None:
    """Warns of aggregates of a user's own that hold up routing: each event is checked here before it is routed."""
    for aggregate in filter(is_foreign, job.aggregates):
        if (took := microseconds_of_check(aggregate)) > _SLOW_MICROSECONDS:
            log.warning(
                "aggregate %r (%s): to check an event takes the router %.0f µs, so it routes at most %.0f events per "
                "second: give the class a quicker check(), or run more routers",
                *(aggregate.name, aggregate.op, took, 1e6 / took),
            )


@contextlib.asynccontextmanager
async def _going_on(pods: WorkerPods) -> AsyncIterator[None]:
    keeping = asyncio.create_task(pods.keep_equal())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _look_up_topics(settings: RouterSettings) -> Topics:
    async with clients.started(clients.admin(settings)) as admin:
        return await check_topics(admin, settings)
