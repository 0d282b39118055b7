"""`keygrouping inspect --follow --metrics-port`: metrics and advice for a topic that nobody routes. It only reads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing

import numpy as np
from aiokafka.errors import UnknownTopicOrPartitionError
from keygrouping.inspection import Ceiling, Wanted, Watch
from keygrouping.job import JobSpec
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried
from numpy.typing import NDArray

from keygrouping_service import inspect_metrics
from keygrouping_service.http.app import serving
from keygrouping_service.http.inspect_api import AdviceView, State, advice_view, exporter_app
from keygrouping_service.kafka.topic_fetching import KeptEvent, batch_of, kept_by
from keygrouping_service.kafka.topic_reading import connection
from keygrouping_service.kafka.topic_slices import MOST, Slice, TopicGone, TopicSlices
from keygrouping_service.run import run
from keygrouping_service.settings import ApiSettings

log = logging.getLogger(__name__)

RANKS = 10
"""Heaviest keys that have a series."""


def export(wanted: Wanted, *, bootstrap_servers: str | None, port: int) -> int:
    """Serves metrics and advice at this port until SIGTERM or SIGINT; gives the exit code.

    Raises InspectionError for settings that can't be used.
    """
    settings = connection(ApiSettings, bootstrap_servers, http_port=port)
    exporter = Exporter(settings, wanted)
    return run(exporter.serve, settings)


class Exporter:
    """Watches a topic, whether it is there or not, and shows what was found."""

    def __init__(self, settings: ApiSettings, wanted: Wanted) -> None:
        self.state: State = "starting"
        self._settings = settings
        self._wanted = wanted
        self._job: JobSpec = wanted.extraction.job()
        self._watch = Watch(wanted.workers, wanted.naming, wanted.window, wanted.every)
        self._topic_id: str | None = None
        self._found: Ceiling | None = None
        self._at = time.time()
        self._due = 0.0

    async def serve(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; Kafka may come and go meanwhile, and so may the topic."""
        settings = self._settings
        app = exporter_app(settings, self.advice, lambda: self.state == "reading")
        inspect_metrics.begin(self._wanted.topic)
        inspect_metrics.READ_AT.labels(self._wanted.topic).set_to_current_time()
        async with serving(app, settings.http_host, settings.http_port, **settings.http_bounds):
            reading = asyncio.create_task(self._read_for_ever())
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, stopping):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def advice(self) -> AdviceView | None:
        """What was found last; None: nothing was read yet."""
        if self._found is None:
            return None
        wanted = self._wanted
        return advice_view(self._found, topic=wanted.topic, state=self.state, at=self._at, window=wanted.window)

    async def _read_for_ever(self) -> None:
        """Raises what a retry won't fix."""
        slices = TopicSlices(self._settings, self._wanted.topic, kept_by(self._job), MOST)
        pauses = backoff()
        while True:
            state, why = await self._session(slices)
            if self.state == "reading":
                pauses = backoff()
            self._say(state, why)
            await self._pass(next(pauses))

    async def _session(self, slices: TopicSlices) -> tuple[State, str]:
        """Reads as long as it can, and says why not any longer."""
        topic = self._wanted.topic
        try:
            with given_up_calls():
                await self._follow(slices, await slices.topic_id())
        except (TopicGone, UnknownTopicOrPartitionError):
            return "missing", f"topic {topic} is not there, or may not be seen: waiting for it"
        except Exception as error:
            if not can_be_retried(error):
                raise
            said = " ".join(str(error).split()) or type(error).__name__
            return "unreachable", f"topic {topic} can't be read, trying again: {said}"
        raise AssertionError("a topic has no end")

    async def _follow(self, slices: TopicSlices, topic_id: str) -> None:
        """Until the topic is gone, or Kafka is."""
        if self._topic_id not in (None, topic_id):
            self._watch.forget()
        self._topic_id = topic_id
        async with aclosing(slices.slices(topic_id)) as reading:
            async for found in reading:
                self._say("reading", f"topic {self._wanted.topic} is read from now on")
                inspect_metrics.READ_AT.labels(self._wanted.topic).set_to_current_time()
                await asyncio.to_thread(self._take, found)
                self._count(found)
                self._show()

    def _take(self, found: Slice) -> None:
        self._watch.set_partitions(found.partitions)
        self._watch.advance(time.monotonic())
        self._watch.add(batch_of(found.events, self._job), _records(found.events, found.partitions), found.scale)

    async def _pass(self, seconds: float) -> None:
        """Time goes on while nothing can be read: what is old is forgotten all the same."""
        if self._found is not None:
            await asyncio.to_thread(self._watch.advance, time.monotonic())
            self._show()
        await asyncio.sleep(seconds)

    def _count(self, found: Slice) -> None:
        topic = self._wanted.topic
        inspect_metrics.READ.labels(topic).inc(len(found.events))
        inspect_metrics.EVENTS.labels(topic).inc(len(found.events) * found.scale)
        for reason, count in Counter(event.fault for event in found.events if event.fault is not None).items():
            inspect_metrics.LEFT_OUT.labels(topic, reason).inc(count)

    def _show(self) -> None:
        """New figures, if they are due."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._wanted.every
        self._found, self._at = self._watch.ceiling(max(self._wanted.top, RANKS)), time.time()
        show(self._found, self._wanted.topic, self._wanted.key_labels)

    def _say(self, state: State, line: str) -> None:
        """Once for each change."""
        if state != self.state:
            self.state = state
            log.log(logging.INFO if state == "reading" else logging.WARNING, "%s", line)


def show(found: Ceiling, topic: str, key_labels: bool) -> None:
    """Sets all gauges; those of which nothing is known are not there."""
    inspect_metrics.PARTITIONS.labels(topic).set(len(found.partitions))
    for gauge, value in (
        (inspect_metrics.PARTITION_IMBALANCE, found.partition_lambda),
        (inspect_metrics.WORKS_LIKE, found.works_like),
        (inspect_metrics.USEFUL, found.useful_consumers),
        (inspect_metrics.KEY_CEILING, found.key_ceiling),
    ):
        gauge.clear()
        if value is not None:
            gauge.labels(topic).set(value)
    inspect_metrics.IMBALANCE.clear()
    for tried in found.tried:
        for grouping, value in (("key", tried.by_key), (tried.splitting, tried.split)):
            if value is not None:
                inspect_metrics.IMBALANCE.labels(topic, grouping, tried.workers).set(value)
    _show_keys(found, topic, key_labels)


def _show_keys(found: Ceiling, topic: str, key_labels: bool) -> None:
    widths = {} if found.here is None else {split.name: split.width for split in found.here.splits}
    for gauge in (inspect_metrics.HOT_SHARE, inspect_metrics.HOT_WIDTH, inspect_metrics.NAMED_SHARE):
        gauge.clear()
    for rank, key in enumerate(found.keys[:RANKS], 1):
        inspect_metrics.HOT_SHARE.labels(topic, rank).set(key.share)
        inspect_metrics.HOT_WIDTH.labels(topic, rank).set(widths.get(key.name, 1))
        if key_labels:
            inspect_metrics.NAMED_SHARE.labels(topic, key.name).set(key.share)


def _records(events: Sequence[KeptEvent], partitions: int) -> NDArray[np.int64]:
    """How many records each partition brought."""
    return np.bincount([event.partition for event in events], minlength=partitions)
