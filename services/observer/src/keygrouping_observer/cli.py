"""Starts an observer process: settings, the stage on its state topic, and its HTTP side."""

from __future__ import annotations

import asyncio

from keygrouping_service import kafka
from keygrouping_service.app import serving
from keygrouping_service.partitions import PartitionRunner
from keygrouping_service.premises_check import checked
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_observer.api import observer_app
from keygrouping_observer.settings import ObserverSettings
from keygrouping_observer.snapshots import Board
from keygrouping_observer.topics import prepare_topics
from keygrouping_observer.work import ObserverStage


async def serve(settings: ObserverSettings, stop: asyncio.Event) -> None:
    """Observes until `stop` is set; what is known of the open interval is read again at the next start."""
    board = Board(settings.group("observer"))
    stage = ObserverStage(settings, board)
    runner = PartitionRunner(settings, "observer", settings.state_topic, stage.work, own_state=True)
    app = observer_app(settings, board, lambda: runner.ready)
    async with serving(app, settings.http_host, settings.http_port, **settings.http_bounds):
        await kafka.retry(lambda: prepare_topics(settings), "preparing the observer's topics")
        if await checked(settings, stop, reads=("routed", "partials"), writes=("dead_letters",)):
            await runner.run(stop)


def main() -> int:
    """Entry point of `keygrouping-observer`; gives the exit code."""
    settings = load(ObserverSettings)
    return run(lambda stop: serve(settings, stop), settings)
