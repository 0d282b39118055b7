"""A run over several processes: all start at one moment, their reports become one."""

from __future__ import annotations

import asyncio
import logging
import time

from keygrouping_service.children import Children
from keygrouping_service.errors import Fatal

from keygrouping_load.report import Outcome, Report
from keygrouping_load.sender import READY
from keygrouping_load.settings import EventLoadSettings

log = logging.getLogger(__name__)

_AHEAD_SECONDS = 0.2
_KILL_AFTER = 5.0


async def generate(settings: EventLoadSettings, stop: asyncio.Event) -> Outcome:
    """Sends all events and gives the outcome; `Fatal` if a process fails, or if `stop` is set before the end."""
    commands = [("-m", "keygrouping_load.sender", str(slot)) for slot in range(settings.processes)]
    async with Children(commands, _KILL_AFTER) as senders:
        running = asyncio.create_task(_lead(settings, senders))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise Fatal("stopped before the end")
            return await running
        finally:
            running.cancel()
            stopping.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)


async def _lead(settings: EventLoadSettings, senders: Children) -> Outcome:
    slots = range(settings.processes)
    await asyncio.gather(*(_ready(senders, slot) for slot in slots))
    log.info("%d events at %g/s begin", settings.events, settings.rate)
    senders.order(repr(time.monotonic() + _AHEAD_SECONDS))
    reports = await asyncio.gather(*(senders.report(slot) for slot in slots))
    return Outcome(settings, [Report.model_validate_json(line) for line in reports])


async def _ready(senders: Children, slot: int) -> None:
    if (line := await senders.report(slot)) != READY:
        raise Fatal(f"a sender says {line!r} instead of {READY!r}")
