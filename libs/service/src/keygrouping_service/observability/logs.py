"""What the services write to stderr: a line of text or a JSON object per event, and not too many."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

import structlog
from keygrouping.printable import printable

from keygrouping_service.observability import tracing

LogFormat = Literal["text", "json"]


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


class TextFormatter(logging.Formatter):
    """One line per event, whatever stands in its message: a key may hold line ends or a terminal's commands."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, with what commands a terminal written as escapes; a traceback follows it, line by line."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """The traceback, whose last line may quote a key."""
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


def json_formatter() -> logging.Formatter:
    """One JSON object per event: timestamp (UTC), level, logger, event, and trace_id and span_id within a trace.

    An exception is the text `exception`. Everything beyond ASCII is escaped.
    """
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _add_trace,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _order,
            structlog.processors.JSONRenderer(serializer=json.dumps),
        ],
    )


def set_up_logging(level: str, log_format: LogFormat) -> None:
    """Writes to stderr; of the libraries' own messages only warnings, and of each kind not too many."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(json_formatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level != "DEBUG":
        logging.getLogger("aiokafka").setLevel(logging.WARNING)
        # A retry that aiokafka makes by itself, as part of every other transaction: nothing to warn of.
        logging.getLogger("aiokafka.producer.sender").setLevel(logging.ERROR)
        for library in ("uvicorn", "httpx"):
            logging.getLogger(library).setLevel(logging.WARNING)
        for library in ("aiokafka", "opentelemetry"):
            handler.addFilter(Calm(library))


def _add_trace(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if (spans := tracing.active()) is not None:
        event.update(spans.current_ids())
    return event


def _order(_: Any, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    first = {name: event[name] for name in ("timestamp", "level", "logger", "event")}
    return first | dict(event)
