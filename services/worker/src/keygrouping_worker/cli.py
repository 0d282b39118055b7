"""Starts a worker process: settings, the stage over its partitions, and its HTTP side."""

from __future__ import annotations

import asyncio

from keygrouping.precompile import precompile_accounts, precompile_folds, precompile_formats
from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.events.input_partition import STAGE
from keygrouping_service.events.lateness import warm_up
from keygrouping_service.events.sorting import count_partitions, largest_records
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.premises import Role
from keygrouping_service.kafka.premises_check import checked
from keygrouping_service.kafka.purging import Purger, Ripening, purging, readers_of
from keygrouping_service.kafka.ranges import decide
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_worker import metrics
from keygrouping_worker.assignor import OrdinalAssignor
from keygrouping_worker.combining import CombiningStage
from keygrouping_worker.settings import WorkerSettings
from keygrouping_worker.work import WorkerStage


async def serve(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """Works until `stop` is set, then flushes, commits and leaves the group."""
    await asyncio.to_thread(_warm_up)
    await (_combine(settings, stop) if settings.stages == "combine" else _work(settings, stop))


def _warm_up() -> None:
    """Before the group is joined, as kernels hold the interpreter while they are compiled or loaded."""
    for kernels in (precompile_formats, precompile_accounts, precompile_folds):
        kernels()


async def _work(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """The worker stage behind routers."""
    stage = WorkerStage(settings)
    runner = PartitionRunner(
        settings,
        "worker",
        settings.routed_topic,
        stage.work,
        assignor=OrdinalAssignor(settings.ordinal),
        dead=metrics.DEAD,
    )
    app = create_app("keygrouping worker", lambda: runner.ready)
    readers = readers_of(runner.group, settings.routed_readers)
    purger = Purger(settings.routed_topic, readers, Ripening(settings.purge_after), lambda: runner.owned)
    async with serving(app, settings.http_host, settings.http_port, **settings.http_bounds):
        writes: tuple[Role, ...] = ("partials", "dead_letters", "positions")
        if await checked(settings, stop, reads=("events", "routed"), writes=writes):
            async with purging(settings, purger):
                await runner.run(stop)


async def _combine(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """Router and worker stage in one: the input belongs to the user, so nothing of it is purged."""
    writes: tuple[Role, ...] = ("partials", "late", "dead_letters", "positions")
    if not await checked(settings, stop, reads=("events",), writes=writes):
        return
    partitions, largest = await clients.retry(lambda: _look_up_topics(settings), "reading the topics")
    ends = await clients.retry(
        lambda: decide(settings, STAGE, settings.events_topic, *settings.range), "deciding the range"
    )
    await asyncio.to_thread(warm_up)
    metrics.RESULT_WAIT.set((settings.job.window_ms + settings.job.lateness_ms) / 1000)
    stage = CombiningStage(settings, partitions, largest)
    runner = PartitionRunner(settings, STAGE, settings.events_topic, stage.work, ends=ends, dead=metrics.DEAD)
    app = create_app("keygrouping worker", lambda: runner.ready)
    async with serving(app, settings.http_host, settings.http_port, **settings.http_bounds):
        await runner.run(stop)


async def _look_up_topics(settings: WorkerSettings) -> tuple[dict[str, int], dict[str, int]]:
    """Partitions of the topics, and the largest records that those of whole events take.

    What is compressed may be smaller than it is known to be before: then the broker alone knows what it refuses.
    """
    written = (settings.partials_topic, settings.late_topic, settings.dead_letters_topic, settings.receipts_topic)
    async with clients.started(clients.admin(settings)) as admin:
        partitions = await count_partitions(admin, settings.events_topic, *written, settings.positions_topic)
        if settings.compression != "none":
            return partitions, {}
        return partitions, await largest_records(admin, settings.late_topic, settings.dead_letters_topic)


def main() -> int:
    """Entry point of `keygrouping-worker`; gives the exit code."""
    take_no_arguments("keygrouping-worker")
    settings = load(WorkerSettings)
    return run(lambda stop: serve(settings, stop), settings)
