"""Starts a worker process: settings, the stage over its partitions, and its HTTP side."""

from __future__ import annotations

import asyncio

from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.kafka.premises import Role
from keygrouping_service.kafka.premises_check import checked
from keygrouping_service.kafka.purging import Purger, Ripening, purging, readers_of
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_worker import metrics
from keygrouping_worker.assignor import OrdinalAssignor
from keygrouping_worker.settings import WorkerSettings
from keygrouping_worker.work import WorkerStage


async def serve(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """Works until `stop` is set, then flushes, commits and leaves the group."""
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


def main() -> int:
    """Entry point of `keygrouping-worker`; gives the exit code."""
    take_no_arguments("keygrouping-worker")
    settings = load(WorkerSettings)
    return run(lambda stop: serve(settings, stop), settings)
