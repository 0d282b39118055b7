"""Command of the Spark job: `keygrouping-spark [--stages ...]`, `python -m keygrouping_spark`, or by spark-submit."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial

from keygrouping.version import add_version
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.http.media import FORM, JSON
from keygrouping_service.http.workers_in_use import WorkersInUse
from keygrouping_service.kafka.clients import admin, reader, retry, started
from keygrouping_service.kafka.premises import Role
from keygrouping_service.kafka.premises_check import checked
from keygrouping_service.kafka.purging import purging
from keygrouping_service.kubernetes import Kubernetes
from keygrouping_service.run import run
from keygrouping_service.settings import load
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from keygrouping_spark import session
from keygrouping_spark.executors import Executors
from keygrouping_spark.leftovers import delete_leftovers
from keygrouping_spark.listener import Listener
from keygrouping_spark.purging import purgers
from keygrouping_spark.query_metrics import show
from keygrouping_spark.reports import Report
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.stages import Environment, Stage, aggregator_stage, worker_stage
from keygrouping_spark.token_endpoint import PATH, TokenEndpoint

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
_UNREAD_SECONDS = 20.0
"""Between two looks at what retention is about to delete."""
_POD = "POD_NAME"
"""Names the driver's pod where it asks Kubernetes for executors; see the image's entrypoint."""


_WRITTEN: tuple[Role, ...] = ("partials", "results", "positions", "dead_letters")


async def serve(settings: SparkSettings, stop: asyncio.Event) -> None:
    """Runs the stages of the settings until `stop`."""
    session.require_version()
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stages: list[Stage] = []
    for query in settings.stages.split(","):
        show(query, settings.group(query))
    endpoint = TokenEndpoint(settings.tokens()) if settings.takes_tokens else None
    app = create_app(
        "keygrouping Spark job", lambda: bool(stages), *([endpoint.router] if endpoint else []), frequent={PATH}
    )
    bounds = {**settings.http_bounds, "media": (JSON, FORM) if endpoint else (JSON,)}
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(app, settings.http_host, settings.http_port, **bounds))
        if pod := os.environ.get(_POD):
            await delete_leftovers(Kubernetes(), pod)
        spark = await asyncio.to_thread(session.create, settings)
        stack.push_async_callback(_quietly, spark.stop)
        client = await retry(lambda: stack.enter_async_context(started(admin(settings))), "connecting to Kafka")
        if endpoint:
            settings = await endpoint.login(settings, spark, port)
        probe = await stack.enter_async_context(started(reader(settings, committed=False)))
        environment = Environment(settings, spark, client, probe, stack)
        if settings.runs("aggregator"):
            stages.append(await aggregator_stage(environment))
        if settings.runs("worker"):
            stages.append(await worker_stage(environment))
        readings = {stage.name: stage.reading for stage in stages}

        def finished(query: str, report: Report) -> None:
            readings[query].update(report)

        listener = Listener(asyncio.get_running_loop(), finished)
        spark.streams.addListener(listener)
        stack.push_async_callback(_quietly, spark.streams.removeListener, listener)
        await stack.enter_async_context(_following(settings, Executors(spark)))
        if await checked(settings, stop, reads=sources(settings), writes=_WRITTEN):
            for stage in stages:
                await retry(stage.unread.look, f"reading what the {stage.name} has yet to read")
                await stage.unread.require(stage.began, settings.checkpoint, stop)
            async with purging(settings, *purgers(settings, stages)):
                await _run(spark, stages, settings.progress_seconds, stop)


def sources(settings: SparkSettings) -> tuple[Role, ...]:
    """The topics whose records become partials: nobody reads `routed` where workers read the events themselves."""
    return ("events",) if settings.combines else ("events", "routed")


@contextlib.asynccontextmanager
async def _following(settings: SparkSettings, executors: Executors) -> AsyncIterator[None]:
    """Meanwhile there are as many executors as the router has workers, if it can be asked."""
    if settings.router_url is None:
        yield
        return
    in_use = WorkersInUse(settings.router_url, settings.router_token_file, pause=_LOOK_SECONDS)
    loops = (in_use.keep_asking(), executors.follow(lambda: in_use.workers, _LOOK_SECONDS))
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _quietly(action: Callable[..., None], *arguments: object) -> None:
    """Cleans up in Spark; not worth a word if its Java process has ended."""
    with contextlib.suppress(Py4JError, OSError):
        await asyncio.to_thread(action, *arguments)


async def _run(spark: SparkSession, stages: list[Stage], interval: float, stop: asyncio.Event) -> None:
    """Runs queries and loops; at `stop` the queries first, then a last commit of what they have finished."""
    queries = [asyncio.create_task(stage.runner.run()) for stage in stages]
    loops = [asyncio.create_task(_keep_committing(stage, interval)) for stage in stages]
    loops += [asyncio.create_task(_keep_looking(stage)) for stage in stages]
    stopped = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([*queries, *loops, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopped}:
            task.result()
    finally:
        for task in (*loops, stopped):
            task.cancel()
        await _quietly(session.expect_end, spark)
        await asyncio.gather(*(stage.runner.stop() for stage in stages), return_exceptions=True)
        await asyncio.gather(*loops, *queries, return_exceptions=True)
    for stage in stages:
        await _commit(stage)


async def _keep_committing(stage: Stage, interval: float) -> None:
    while True:
        await _commit(stage)
        await stage.reading.changed(interval)


async def _keep_looking(stage: Stage) -> None:
    while True:
        await asyncio.sleep(_UNREAD_SECONDS)
        try:
            await stage.unread.look()
        except Exception as error:
            if not can_be_retried(error):
                raise
            log.warning("cannot read the lag of the %s now: %r", stage.name, error)


async def _commit(stage: Stage) -> None:
    try:
        await stage.progress.step()
    except Exception as error:
        if not can_be_retried(error):
            raise
        log.warning("cannot commit the progress of the %s now: %s", stage.name, " ".join(str(error).split()))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="keygrouping-spark", description=__doc__)
    add_version(parser)
    parser.add_argument("--stages", choices=["worker,aggregator", "worker", "aggregator"])
    options = parser.parse_args()
    settings = load(SparkSettings)
    if options.stages:
        settings = settings.model_copy(update={"stages": options.stages})
    sys.exit(run(partial(serve, settings), settings))


if __name__ == "__main__":
    main()
