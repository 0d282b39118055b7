"""Runs a service's main coroutine: logging, traces, signals, exit codes, and one clear line when it can't go on."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import KafkaError
from keygrouping.printable import printable
from keygrouping_kafka.errors import can_be_retried

from keygrouping_service.errors import Fatal
from keygrouping_service.heap import keep_heap_small
from keygrouping_service.observability.logs import set_up_logging
from keygrouping_service.observability.loop_lag import measure_loop_lag
from keygrouping_service.observability.tracing import tracing
from keygrouping_service.settings import ServiceSettings

log = logging.getLogger(__name__)

Main = Callable[[asyncio.Event], Awaitable[None]]

EXIT_FATAL = 1


def run(main: Main, settings: ServiceSettings) -> int:
    """Runs `main(stop)` until it returns; SIGTERM and SIGINT set `stop`. Gives the exit code: 0, or 1 after a fault.

    An expected fault (`Fatal`, a Kafka error that a retry won't cure) is one line on stderr; anything else is a
    defect and shows its traceback.
    """
    set_up_logging(settings.log_level, settings.log_format)
    try:
        with tracing(settings):
            asyncio.run(_with_signals(main))
    except Fatal as error:
        return _stopped_by(str(error), settings)
    except Exception as error:
        if isinstance(error, KafkaError) or can_be_retried(error):
            return _stopped_by(f"Kafka refuses: {' '.join(str(error).split())}", settings)
        log.exception("stopped by an unexpected error")
        return EXIT_FATAL
    return 0


def _stopped_by(fault: str, settings: ServiceSettings) -> int:
    if settings.log_format == "json":
        log.critical("%s", fault)
    else:
        print(printable(f"fatal: {fault}"), file=sys.stderr)  # noqa: T201
    return EXIT_FATAL


def _leftover(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """aiokafka gives one failure to several futures, of which we await one; the others are no news."""
    if isinstance(context.get("exception"), KafkaError):
        log.debug("%s: %r", context.get("message"), context["exception"])
    else:
        loop.default_exception_handler(context)


def collect_rarely() -> None:
    """Records come and go by the ten thousand, without cycles: the collector needn't look at each thousand of them.

    Nor ever again at what was made until now: that takes as long as routing a few thousand.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


async def _with_signals(main: Main) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_leftover)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    collect_rarely()
    beside = [asyncio.create_task(each()) for each in (measure_loop_lag, keep_heap_small)]
    try:
        await main(stop)
    finally:
        for task in beside:
            task.cancel()
