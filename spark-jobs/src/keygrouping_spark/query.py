"""Keeps one streaming query running: restarts it when Kafka was away, ends it after the current batch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable
from typing import Any

from keygrouping_kafka.calls import backoff
from keygrouping_service.errors import Fatal
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from keygrouping_spark import metrics
from keygrouping_spark.reports import Reading

log = logging.getLogger(__name__)

# Errors that may pass by themselves, Kafka's and those of our own tasks, as they appear in the text of a failed query.
_BROKER_AWAY = re.compile(
    r"keygrouping_spark\.fetching\.BrokerAwayError|kafka\.common\.errors\.(Timeout|Disconnect|Network|NotLeader\w*|LeaderNotAvailable|Coordinator\w+|"
    r"BrokerNotAvailable|NotEnoughReplicas\w*|UnknownTopicOrPartition)Exception"
)
_TRACEBACK = "Traceback (most recent call last):"
_STOP_TIMEOUT = 30.0


class QueryRunner:
    """Runs the query that `start` makes; `reading` knows of its batches, `failure` gives the sink's own error."""

    def __init__(
        self,
        name: str,
        start: Callable[[], StreamingQuery],
        reading: Reading,
        failure: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        self._name = name
        self._start = start
        self._reading = reading
        self._failure = failure
        self._query: StreamingQuery | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Returns after `stop`; `Fatal` in one line if the query failed and a retry won't help."""
        for delay in backoff(first=1.0, most=15.0):
            try:
                self._query = await asyncio.to_thread(self._start)
                if self._stopping.is_set():
                    await asyncio.to_thread(self._query.stop)
                await asyncio.to_thread(self._query.awaitTermination)
                reason = "it has ended"
            except (StreamingQueryException, Py4JError, OSError) as error:
                reason = reason_of(error)
                if not self._stopping.is_set():
                    self._judge(error)
            if self._stopping.is_set():
                return
            metrics.QUERY_RESTARTS.labels(self._name).inc()
            log.warning("%s query lost the broker, trying again in %.0f s: %s", self._name, delay, reason)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()

    async def advance(self, watermark: int) -> None:
        """Raises the watermark (ms) of the next batch at once; to be called while a batch is being written only.

        Between two batches Spark may have asked whether the next one is needed, and fails if its watermark is another
        one by the time it begins.

        By a watermark record alone it rises a batch later: one takes it in, the next one works with it. Spark has no
        public call for this; where its own is missing or the query is about to start, the record does it. What has
        been raised stands in the batch's commit, so a restart does not take it back.
        """
        if self._query is not None:
            with contextlib.suppress(Py4JError):
                await asyncio.to_thread(_raise_watermark, self._query, watermark)

    async def stop(self) -> None:
        """Lets the current batch end, and stops the query before the next one writes anything."""
        self._stopping.set()
        self._reading.close()
        query = self._query
        if query is None:
            return
        await asyncio.to_thread(self._finish_batch, query)
        await asyncio.to_thread(query.stop)

    def _finish_batch(self, query: StreamingQuery) -> None:
        deadline = time.monotonic() + _STOP_TIMEOUT
        while self._reading.busy and query.isActive:
            if time.monotonic() > deadline:
                log.warning("%s query: the batch took too long and was cancelled; it will be run again", self._name)
                return
            time.sleep(0.05)

    def _judge(self, error: Exception) -> None:
        own = self._failure()
        if own is not None:
            raise own
        if not _BROKER_AWAY.search(str(error)):
            raise Fatal(f"the {self._name} query failed: {reason_of(error)}") from None


def _raise_watermark(query: StreamingQuery, watermark: int) -> None:
    tracker: Any = query._jsq.streamingQuery().watermarkTracker()
    if tracker is not None and tracker.currentWatermark() < watermark:
        tracker.setWatermark(watermark)


def reason_of(error: Exception) -> str:
    """The innermost cause in Spark's long text, or that Java itself has ended."""
    if not isinstance(error, PySparkException | Py4JJavaError):
        return "the Java process of Spark has ended (out of memory, or killed)"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (_raised(str(error)) or (causes or lines or ["no reason given"])[-1 if causes else 0])[:500]


def _raised(text: str) -> str | None:
    """What Python raised last, if it is no error of Java's: the first line after its frames, which are indented."""
    if not (tracebacks := text.split(_TRACEBACK)[1:]):
        return None
    last = next((line for line in tracebacks[-1].splitlines() if line and not line.startswith(" ")), "")
    return None if last.startswith("py4j.") else last or None
