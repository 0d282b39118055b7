"""Starts an observer process: settings, the stage on its state topic, and its HTTP side."""

from __future__ import annotations

import asyncio

from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.http.app import serving
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.premises import Role
from keygrouping_service.kafka.premises_check import checked
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_observer.api import observer_app
from keygrouping_observer.audit.report import LatestAudit
from keygrouping_observer.audit.work import AuditStage
from keygrouping_observer.settings import ObserverSettings
from keygrouping_observer.snapshots import RecentSnapshots
from keygrouping_observer.topics import prepare_topics
from keygrouping_observer.work import ObserverStage


async def serve(settings: ObserverSettings, stop: asyncio.Event) -> None:
    """Observes until `stop` is set; what is known of the open interval is read again at the next start."""
    recent = RecentSnapshots(settings.group("observer"))
    stage = ObserverStage(settings, recent)
    runner = PartitionRunner(settings, "observer", settings.state_topic, stage.work, own_state=True)
    latest_audit = LatestAudit()
    audit = PartitionRunner(
        settings, "audit", settings.audit_topic, AuditStage(settings, latest_audit).work, own_state=True
    )
    app = observer_app(settings, recent, latest_audit, lambda: runner.ready and audit.ready)
    async with serving(app, settings.http_host, settings.http_port, **settings.http_bounds):
        await clients.retry(lambda: prepare_topics(settings), "preparing the observer's topics")
        source: Role = "events" if settings.stages == "combine" else "routed"
        if await checked(settings, stop, reads=(source, "partials"), writes=("dead_letters",)):
            await _run_both(runner, audit, stop)


async def _run_both(runner: PartitionRunner, audit: PartitionRunner, stop: asyncio.Event) -> None:
    """Until `stop` is set, or one of them fails: then the other one ends too."""
    running = [asyncio.create_task(each.run(stop)) for each in (runner, audit)]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.gather(*running)


def main() -> int:
    """Entry point of `keygrouping-observer`; gives the exit code."""
    take_no_arguments("keygrouping-observer")
    settings = load(ObserverSettings)
    return run(lambda stop: serve(settings, stop), settings)
