"""Runs a service's main coroutine: logging, signals, exit codes, and one clear line when it can't go on."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import KafkaError

from keygrouping_service.kafka import Fatal, can_be_retried

log = logging.getLogger(__name__)

Main = Callable[[asyncio.Event], Awaitable[None]]

EXIT_FATAL = 1


def run(main: Main, *, log_level: str = "INFO") -> int:
    """Runs `main(stop)` until it returns; SIGTERM and SIGINT set `stop`. Gives the exit code: 0, or 1 after a fault.

    An expected fault (`Fatal`, a Kafka error that a retry won't cure) is one line on stderr; anything else is a
    defect and shows its traceback.
    """
    set_up_logging(log_level)
    try:
        asyncio.run(_with_signals(main))
    except Fatal as error:
        print(f"fatal: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_FATAL
    except Exception as error:
        if isinstance(error, KafkaError) or can_be_retried(error):
            print(f"fatal: Kafka refuses: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
            return EXIT_FATAL
        log.exception("stopped by a defect")
        return EXIT_FATAL
    return 0


class Calm(logging.Filter):
    """Lets each kind of message of a chatty library through once per `interval` seconds.

    While a broker is away, aiokafka says so some hundred times per second.
    """

    def __init__(self, library: str, interval: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._library = library
        self._interval = interval
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is to be written."""
        if record.name.split(".")[0] != self._library:
            return True
        kind = (record.name, str(record.msg))
        now = self._clock()
        if now - self._said.get(kind, float("-inf")) < self._interval:
            return False
        self._said[kind] = now
        return True


def set_up_logging(level: str) -> None:
    """One line per event to stderr; of aiokafka's own only warnings, and of each kind not too many."""
    handler = logging.StreamHandler(sys.stderr)
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=[handler], force=True
    )
    if level != "DEBUG":
        logging.getLogger("aiokafka").setLevel(logging.WARNING)
        # A retry that aiokafka makes by itself, as part of every other transaction: nothing to warn of.
        logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)
        handler.addFilter(Calm("aiokafka"))
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _leftover(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """aiokafka gives one failure to several futures, of which we await one; the others are no news."""
    if isinstance(context.get("exception"), KafkaError):
        log.debug("%s: %r", context.get("message"), context["exception"])
    else:
        loop.default_exception_handler(context)


async def _with_signals(main: Main) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_leftover)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Records come and go by the ten thousand, without cycles: the collector needn't look at each thousand of them, nor
    # ever again at what was made at start.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    await main(stop)
