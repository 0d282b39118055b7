"""The observer at work: one replica reads all partials, and writes a snapshot and its state in one transaction.

The partition of the state topic is what replicas share: who owns it observes, the others stand by.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.http.workers_in_use import WorkersInUse
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Committed, Progress, commit_progress
from keygrouping_service.observability.metrics import INVALID_PARTIAL
from keygrouping_service.records.aiokafka_adapter import PartitionsSource
from keygrouping_service.records.batches import origin_headers
from keygrouping_service.records.protocols import Sink
from keygrouping_service.records.record import by_partition, in_order

from keygrouping_observer import metrics
from keygrouping_observer.latency import look_up
from keygrouping_observer.observation import Observation
from keygrouping_observer.offsets import look
from keygrouping_observer.reading import place, read_snapshots
from keygrouping_observer.settings import ObserverSettings
from keygrouping_observer.snapshots import RecentSnapshots
from keygrouping_observer.state import restore

log = logging.getLogger(__name__)

_SLICE = 500
_MOST_UNUSABLE = 1000
_WAIT_SECONDS = 0.2
_PROBED_BYTES = 64 << 10
_LONG_OVER_MS = 600_000


class ObserverStage:
    """Observes one application; `work` is what a `PartitionRunner` runs on the state topic."""

    def __init__(self, settings: ObserverSettings, recent: RecentSnapshots) -> None:
        self._settings = settings
        self._recent = recent

    async def work(self, owned: OwnedPartition) -> None:
        """One session."""
        settings, recent = self._settings, self._recent
        async with contextlib.AsyncExitStack() as stack:
            partials = clients.source(settings, max_partition_fetch_bytes=settings.fetch_bytes)
            events = clients.source(settings, committed=False, wait_ms=1, max_partition_fetch_bytes=_PROBED_BYTES)
            registrar = clients.reader(settings, group_id=settings.observer_group)
            for consumer in (partials.consumer, events.consumer, registrar):
                await stack.enter_async_context(clients.started(consumer))
            stack.callback(recent.stand_by)
            recent.state = "restoring"
            state, rows = await restore(owned)
            recent.restore(await read_snapshots(partials, settings.distribution_topic, recent.observer))
            partitions = await place(partials.consumer, owned, settings, state)
            observation = Observation(settings, state, rows, partitions)
            recent.state = "observing"
            registrar.assign([TopicPartition(settings.partials_topic, partition) for partition in partitions])
            session = _Session(settings, recent, owned, partials, events, registrar, observation)
            await session.register()
            await session.run()


class _Session:
    """One owner of the state topic's partition, from its restored state to the end of its time."""

    def __init__(
        self,
        settings: ObserverSettings,
        recent: RecentSnapshots,
        owned: OwnedPartition,
        partials: PartitionsSource,
        events: PartitionsSource,
        registrar: AIOKafkaConsumer,
        observation: Observation,
    ) -> None:
        self._settings = settings
        self._recent = recent
        self._owned = owned
        self._partials = partials
        self._events = events
        self._registrar = registrar
        self._observation = observation
        self._in_use = WorkersInUse(
            settings.router_url if settings.stages == "route" else None,
            settings.router_token_file,
            pause=settings.look_interval,
            workers=observation.workers,
        )
        self._look_due = 0.0

    async def run(self) -> None:
        """Observes until the service stops."""
        asking = asyncio.create_task(self._in_use.keep_asking())
        try:
            while not self._owned.stopping:
                await self._read()
                await self._look()
                await self._count()
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    async def register(self) -> None:
        """Tells by committed offsets what a restart reads again, so that the aggregator's purging leaves it there.

        Always after the state that it goes by, so that the offsets never run ahead of it.
        """
        needed = {partition: Committed(offset) for partition, offset in self._observation.needed.items()}
        await commit_progress(self._registrar, self._settings.partials_topic, needed)

    async def _read(self) -> None:
        topic, timeline = self._settings.partials_topic, self._observation.timeline
        tps = [TopicPartition(topic, partition) for partition in timeline.hungry]
        if not tps:
            return
        found = await self._partials.poll(*tps, most=self._settings.batch_records, timeout=_WAIT_SECONDS)
        left_out = self._partials.left_out()
        for letter in left_out:
            place = topic, letter.record.partition, letter.offset
            log.error("%s[%d]: offset %d goes to dead-letters: %s", *place, letter.detail)
        letters = by_partition(left_out)
        for tp in tps:
            position = await self._partials.consumer.position(tp)
            read = in_order(found.get(tp, ()), letters.get(tp, ()))
            self._observation.read(tp.partition, read, position, _now_ms())

    async def _look(self) -> None:
        """Looks at the offsets if it is time to; while they can't be read, what was seen before stays true."""
        if time.monotonic() < self._look_due:
            return
        try:
            found = await look(self._settings, self._owned.admin, self._events.consumer, _now_ms())
        except Exception as error:
            if not can_be_retried(error):
                raise
            log.warning("cannot read offsets now: %r", error)
        else:
            self._observation.look(found)
            self._recent.show_lags(found.lags)
        self._look_due = time.monotonic() + self._settings.look_interval

    async def _count(self) -> None:
        """Counts what has been read; ends the intervals that are complete."""
        observation = self._observation
        await self._take()
        while observation.timeline.complete:
            await self._close()
            await self._take()
        if len(observation.unusable) >= _MOST_UNUSABLE:
            outbox = self._owned.outbox()
            self._dead_letter(outbox)
            self._append_state(outbox, *observation.state)
            await self._owned.commit(outbox, self._owned.offset, Progress())

    async def _take(self) -> None:
        for number, _ in enumerate(self._observation.take()):
            if number % _SLICE == 0:
                await asyncio.sleep(0)

    async def _close(self) -> None:
        settings, observation, outbox = self._settings, self._observation, self._owned.outbox()
        latencies = await self._latencies()
        if settings.stages == "route":
            observation.workers = self._in_use.workers
            observation.capacities = self._in_use.capacities or observation.capacities
        snapshot = observation.close(latencies)
        self._dead_letter(outbox)
        for number, row in enumerate(observation.rows(), 1):
            self._append_state(outbox, *row)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        if snapshot is not None:
            value = orjson.dumps(snapshot, option=orjson.OPT_NON_STR_KEYS)
            outbox.append(settings.distribution_topic, 0, _now_ms(), self._recent.observer.encode(), value)
        await self._owned.commit(outbox, self._owned.offset, Progress())
        await self.register()
        if snapshot is not None:
            self._recent.add(orjson.loads(value), latencies)

    async def _latencies(self) -> list[float]:
        """Latencies of the open interval; of one that is long over none, to catch up sooner."""
        span = self._observation.timeline.open
        if span is None or span.end < _now_ms() - _LONG_OVER_MS:
            return []
        return await look_up(self._events, self._observation.topics, self._observation.samples)

    def _append_state(self, outbox: Sink, key: bytes, value: bytes | None) -> None:
        outbox.append(self._settings.state_topic, 0, _now_ms(), key, value)

    def _dead_letter(self, outbox: Sink) -> None:
        unusable = self._observation.take_unusable()
        for record, detail in unusable:
            headers = origin_headers(record, INVALID_PARTIAL, f"observer: {detail}")
            topic = self._settings.dead_letters_topic
            outbox.append(topic, 0, record.timestamp, record.key, record.value, headers)
        metrics.DEAD.labels(INVALID_PARTIAL).inc(len(unusable))


def _now_ms() -> int:
    return int(time.time() * 1000)
