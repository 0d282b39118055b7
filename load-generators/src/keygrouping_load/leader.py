"""A run over several processes: all start at one moment, their reports become one."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from asyncio.subprocess import PIPE, Process

from keygrouping_service.errors import Fatal

from keygrouping_load.report import Outcome, Report
from keygrouping_load.sender import READY
from keygrouping_load.settings import EventLoadSettings

log = logging.getLogger(__name__)

_LINE_LIMIT = 1 << 20
_AHEAD_SECONDS = 0.2
_KILL_AFTER = 5.0


async def generate(settings: EventLoadSettings, stop: asyncio.Event) -> Outcome:
    """Sends all events and gives the outcome; `Fatal` if a process fails, or if `stop` is set before the end."""
    children = [await _spawn(slot) for slot in range(settings.processes)]
    running = asyncio.create_task(_lead(settings, children))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise Fatal("stopped before the end")
        return await running
    finally:
        running.cancel()
        stopping.cancel()
        await _end(children)
        await asyncio.gather(running, stopping, return_exceptions=True)


async def _spawn(slot: int) -> Process:
    command = (sys.executable, "-m", "keygrouping_load.sender", str(slot))
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, limit=_LINE_LIMIT, start_new_session=True
    )


async def _lead(settings: EventLoadSettings, children: list[Process]) -> Outcome:
    await asyncio.gather(*(_ready(child) for child in children))
    log.info("%d events at %g/s begin", settings.events, settings.rate)
    start = time.monotonic() + _AHEAD_SECONDS
    for child in children:
        assert child.stdin is not None
        child.stdin.write(f"{start!r}\n".encode())
    reports = await asyncio.gather(*(_line(child) for child in children))
    return Outcome(settings, [Report.model_validate_json(line) for line in reports])


async def _ready(child: Process) -> None:
    if (line := await _line(child)) != READY:
        raise Fatal(f"a sender says {line!r} instead of {READY!r}")


async def _line(child: Process) -> str:
    assert child.stdout is not None
    if not (line := await child.stdout.readline()):
        raise Fatal("a sender has ended; its last lines stand above")
    return line.decode().strip()


async def _end(children: list[Process]) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    ending = [asyncio.create_task(child.wait()) for child in children]
    _, slow = await asyncio.wait(ending, timeout=_KILL_AFTER)
    for child in children if slow else ():
        if child.returncode is None:
            child.kill()
    await asyncio.gather(*ending)
