"""Carries Spark's reports from its listener thread into the event loop and the metrics."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from keygrouping_spark.query_metrics import record
from keygrouping_spark.reports import Report, read_report

log = logging.getLogger(__name__)


class Listener(StreamingQueryListener):
    """Calls `finished(query name, report)` in the event loop for every batch that a query has finished."""

    def __init__(self, loop: asyncio.AbstractEventLoop, finished: Callable[[str, Report], None]) -> None:
        self._loop = loop
        self._finished = finished

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch has ended, or nothing was to be done for a while."""
        progress: dict[str, Any] = json.loads(event.progress.json)
        query = str(progress["name"])
        record(query, progress)
        report = read_report(progress)
        if report is not None and not self._loop.is_closed():
            log.debug("%s: batch %d, %d ms", query, report.batch, progress["durationMs"]["triggerExecution"])
            self._loop.call_soon_threadsafe(self._finished, query, report)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Not needed."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Not needed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Not needed: whoever awaits the query sees its end."""
