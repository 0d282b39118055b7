"""The producer service: a replay, the HTTP interface beside it, and the end of both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from keygrouping_service.http.app import create_app, serving
from keygrouping_service.http.limits import limit_requests
from keygrouping_service.http.media import JSON, LINES
from keygrouping_service.kafka.premises_check import checked

from keygrouping_producer.api import event_routes, replay_routes
from keygrouping_producer.ingest import Ingest
from keygrouping_producer.processes import ProcessReplay
from keygrouping_producer.replay import Replay, Replayer
from keygrouping_producer.settings import ProducerSettings

log = logging.getLogger(__name__)


async def serve(settings: ProducerSettings, stop: asyncio.Event) -> None:
    """Runs the producer until `stop` is set, or until all is acknowledged if the settings say so."""
    ingest = Ingest(settings)
    replayer: Replayer = Replay(settings) if settings.processes == 1 else ProcessReplay(settings)
    routes = event_routes(settings, ingest), replay_routes(settings, replayer)
    app = create_app("keygrouping producer", lambda: ingest.ready, *routes, frequent={"/events"})
    limit_requests(app, body_bytes=settings.max_body_bytes, rate=settings.api_rate)
    async with serving(app, settings.http_host, settings.http_port, **settings.http_bounds, media=(JSON, LINES)):
        if not await checked(settings, stop, reads=(), writes=("events", "dead_letters")):
            return
        running = asyncio.create_task(replayer.run())
        taking = asyncio.create_task(ingest.run())
        ends: list[Coroutine[Any, Any, Any]] = [stop.wait()]
        if settings.exit_when_done:
            ends.append(replayer.done())
        asked = [asyncio.create_task(end) for end in ends]
        await asyncio.wait([running, taking, *asked], return_when=asyncio.FIRST_COMPLETED)
        replayer.stop()
        try:
            await running
            if taking.done():
                await taking
        finally:
            for task in (running, taking, *asked):
                task.cancel()
            await asyncio.gather(running, taking, *asked, return_exceptions=True)
    log.info("stopped: %s", replayer.status().model_dump_json())
