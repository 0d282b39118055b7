"""Command `keygrouping-load`: events into Kafka at a held rate, or calls of the HTTP interfaces."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from keygrouping.version import version
from keygrouping_service.errors import Fatal
from keygrouping_service.run import run
from keygrouping_service.settings import EXIT_SETTINGS, load

from keygrouping_load.calls import call
from keygrouping_load.leader import generate
from keygrouping_load.options import take_options
from keygrouping_load.settings import EventLoadSettings, HttpLoadSettings

_USAGE = "usage: keygrouping-load events | http [OPTIONS]; `keygrouping-load events --help` lists them"


def main(arguments: Sequence[str] | None = None) -> None:
    """Exits with 0 if the load was made as asked; 1 if not, 2 on wrong options or settings."""
    command, *options = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command == "--version":
        print(f"keygrouping {version()}")
        sys.exit(0)
    if command == "events":
        take_options(command, EventLoadSettings, options)
        settings = load(EventLoadSettings)
        sys.exit(run(lambda stop: _send_events(settings, stop), settings))
    if command == "http":
        take_options(command, HttpLoadSettings, options)
        _call(load(HttpLoadSettings))
    print(_USAGE, file=sys.stderr)
    sys.exit(0 if command in ("-h", "--help") else EXIT_SETTINGS)


def _call(settings: HttpLoadSettings) -> None:
    try:
        call(settings)
    except Fatal as error:
        sys.exit(f"fatal: {error}")


async def _send_events(settings: EventLoadSettings, stop: asyncio.Event) -> None:
    outcome = await generate(settings, stop)
    print(outcome.as_json() if settings.log_format == "json" else outcome.as_text(), flush=True)
    if not outcome.held:
        raise Fatal(f"the rate was not held: {outcome.error:+.2%}, the tolerance is {settings.tolerance:.2%}")
