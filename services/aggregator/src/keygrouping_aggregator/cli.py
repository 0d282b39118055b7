"""Starts an aggregator process: settings, the stage over its partitions, and its HTTP side."""

from __future__ import annotations

import asyncio

from keygrouping.precompile import precompile_partials
from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.kafka.premises import Role
from keygrouping_service.kafka.premises_check import checked
from keygrouping_service.kafka.purging import Purger, Ripening, purging, readers_of
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_aggregator import metrics
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_aggregator.work import AggregatorStage


async def serve(settings: AggregatorSettings, stop: asyncio.Event) -> None:
    """Works until `stop` is set, then commits and leaves the group."""
    # Before the group is joined, as kernels hold the interpreter while they are compiled or loaded.
    await asyncio.to_thread(precompile_partials)
    stage = AggregatorStage(settings)
    runner = PartitionRunner(settings, "aggregator", settings.partials_topic, stage.work, dead=metrics.DEAD)
    app = create_app("keygrouping aggregator", lambda: runner.ready)
    readers = readers_of(runner.group, settings.partials_readers, guests=[settings.observer_group])
    purger = Purger(settings.partials_topic, readers, Ripening(settings.purge_after), lambda: runner.owned)
    async with serving(app, settings.http_host, settings.http_port, **settings.http_bounds):
        writes: tuple[Role, ...] = ("results", "dead_letters", "positions")
        source: Role = "events" if settings.stages == "combine" else "routed"
        if await checked(settings, stop, reads=(source, "partials"), writes=writes):
            async with purging(settings, purger):
                await runner.run(stop)


def main() -> int:
    """Entry point of `keygrouping-aggregator`; gives the exit code."""
    take_no_arguments("keygrouping-aggregator")
    settings = load(AggregatorSettings)
    return run(lambda stop: serve(settings, stop), settings)
