"""What `keygrouping app` writes to stderr, a line of text or a JSON object each, as the services do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime

import orjson

from keygrouping_app.environment import LOG_FORMAT, LOG_LEVEL
from keygrouping_app.handlers import AppError

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FORMATS = ("text", "json")


class JsonFormatter(logging.Formatter):
    """One object per event: `timestamp` (UTC), `level`, `logger`, `event`, and an exception as the text `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(told, default=str).decode()


def set_up_logging(environment: Mapping[str, str], known: int | None = None) -> None:
    """As the environment says, `known` in place of its level if given; AppError if it says what there is not."""
    level, form = environment.get(LOG_LEVEL) or "INFO", environment.get(LOG_FORMAT) or "text"
    faults = [
        *([] if level in _LEVELS else [f"{LOG_LEVEL} is {level!r}: give {', '.join(_LEVELS)}"]),
        *([] if form in _FORMATS else [f"{LOG_FORMAT} is {form!r}: give {', '.join(_FORMATS)}"]),
    ]
    if faults:
        raise AppError(faults)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level if known is None else known, handlers=[handler])
