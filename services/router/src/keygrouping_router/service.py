"""The router: reads events, decides who gets them, and commits the decision with the offsets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from keygrouping_service.errors import Fatal
from keygrouping_service.http.app import serving
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.premises import Role
from keygrouping_service.kafka.premises_check import checked
from keygrouping_service.kafka.progress import floor_of_resuming, partitions_of
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.observability import metrics
from keygrouping_service.records.batches import QUARANTINED, Header, Outbox, origin_headers
from keygrouping_service.store import open_store

from keygrouping_router.api.app import router_app
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.data.extract import Extractor, Judged, Record, Records, Usable, parts, sort_out_late
from keygrouping_router.data.lateness import REASONS, PartitionClock, warm_up
from keygrouping_router.data.receipts import Entry, Ledger
from keygrouping_router.data.scheduling import Turns
from keygrouping_router.scaling.statefulset import StatefulSetPods
from keygrouping_router.scaling.worker_pods import WorkerPods
from keygrouping_router.scaling.worker_stage import KafkaWorkerStage
from keygrouping_router.settings import RouterSettings

log = logging.getLogger(__name__)

STAGE = "router"
_QUIET_SECONDS = 0.5
"""Longest wait for records, so that idleness and shutdown are noticed in time."""

_MOST_BYTES = 2 << 20
"""Most bytes of one transaction: they are compressed at one stretch, in which no heartbeat is sent."""

_FETCHED = 2500
"""Most records that are taken from what was fetched at one stretch."""

_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""

_MOST_FRAMING = 1024
"""What a record batch adds to its record, at most, but for many headers."""

_STRETCH = 1000
"""Records that are packed at one stretch."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Partition counts of the topics that the router writes to, and the largest record that it takes (bytes)."""

    late: int
    dead_letters: int
    quarantine: int
    routed: int
    largest: int


async def check_topics(admin: AIOKafkaAdminClient, settings: RouterSettings) -> Topics:
    """Counts the partitions of all topics; `Fatal` if one is missing or `routed` has fewer than the workers need."""
    names = (
        *(settings.events_topic, settings.routed_topic, settings.late_topic, settings.dead_letters_topic),
        settings.receipts_topic,
        settings.positions_topic,
        settings.quarantine_topic or settings.dead_letters_topic,
    )
    counts = {name: len(await partitions_of(admin, name)) for name in names}
    missing = [name for name, count in counts.items() if count == 0]
    if missing:
        raise Fatal(f"missing topics: {', '.join(missing)}; create them first")
    if counts[settings.routed_topic] < settings.workers:
        raise Fatal(
            f"topic {settings.routed_topic!r} has {counts[settings.routed_topic]} partitions, too few for "
            f"KEYGROUPING_ROUTER_WORKERS={settings.workers}: add partitions or use fewer workers"
        )
    return Topics(
        late=counts[settings.late_topic],
        dead_letters=counts[settings.dead_letters_topic],
        quarantine=counts[settings.quarantine_topic or settings.dead_letters_topic],
        routed=counts[settings.routed_topic],
        largest=await _largest_record(admin, settings),
    )


async def _largest_record(admin: AIOKafkaAdminClient, settings: RouterSettings) -> int:
    """The largest event to be read, in bytes: what is larger could not be written to `routed`."""
    topic, wanted = settings.routed_topic, settings.max_record_bytes
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((code, message, _, _, entries),) = answer.resources
    if code:
        log.warning("max.message.bytes of %s can't be read (%s): its default is assumed", topic, message)
    found = {entry[0]: entry[1] for entry in entries}
    most = int(found.get("max.message.bytes", _MESSAGE_BYTES)) - _MOST_FRAMING
    if wanted is not None and wanted > most:
        raise Fatal(
            f"KEYGROUPING_ROUTER_MAX_RECORD_BYTES={wanted} is more than topic {topic!r} takes: "
            f"set its max.message.bytes to {wanted + _MOST_FRAMING} or more, or the bound to {most} or less"
        )
    return wanted or most


class Router:
    """Routes the input partitions that this replica owns; all share one plane, so that it sees all loads."""

    def __init__(self, settings: RouterSettings, topics: Topics, plane: ControlPlane) -> None:
        self._settings = settings
        self._topics = topics
        self._job = settings.job
        self._extractor = Extractor(settings.job)
        self._turns = Turns()
        self._plane = plane
        self._skipping: set[int] = set()
        for field in self._job.fields:
            metrics.SKIPPED_FIELDS.labels(field.pointer).inc(0)

    async def work(self, owned: OwnedPartition) -> None:
        """Routes one input partition until the service stops."""
        idle_timeout = self._settings.idle_timeout
        self._plane.not_below(owned.progress.epoch)
        clock = PartitionClock(
            owned.progress, self._job.lateness_ms, self._job.confirmations, idle_timeout, time.monotonic()
        )
        ledger = await self._open_ledger(owned)
        if owned.progress.resuming:
            await self._resume(owned, clock)
        while not owned.stopping:
            records = await self._next_batch(owned)
            if not records:
                await self._rest(owned, clock, ledger)
                continue
            clock.saw_records(time.monotonic())
            if clock.must_resume:
                await self._resume(owned, clock)
            for part in parts(records, _MOST_BYTES):
                behind_gap = part[-1].offset >= owned.skipped_to
                after = owned.position if part[-1] is records[-1] and behind_gap else part[-1].offset + 1
                outbox, entry = owned.outbox(), ledger.entry(after, owned.skipped_to if behind_gap else 0)
                entry.consume(part)
                entry.leave_out(owned.left_out(after))
                await self._route(part, outbox, clock, entry)
                outbox.end_with(self._settings.receipts_topic, entry.records)
                await owned.submit(outbox, after, clock.progress(self._plane.epoch))
        await owned.settle()

    async def _open_ledger(self, owned: OwnedPartition) -> Ledger:
        routed = self._settings.routed_topic
        routed_id = await read_topic_id(owned.admin, routed)
        return Ledger(owned.topic_id, owned.partition, (routed, routed_id), self._job, owned.offset)

    async def _next_batch(self, owned: OwnedPartition) -> Records:
        """Records for one transaction: what is there, and what comes within `linger` after the first of them.

        They are all before what retention has deleted unread, or all behind it: a receipt has one range.
        """
        most, alone = self._settings.max_batch, owned.careful
        records = await owned.poll(min(most, _FETCHED), _QUIET_SECONDS)
        if not records or alone or owned.careful:
            return records
        deadline = time.monotonic() + self._settings.linger
        while len(records) < most and not owned.stopping and (left := deadline - time.monotonic()) > 0:
            records += await owned.poll(min(most - len(records), _FETCHED), left)
            if records[-1].offset < owned.skipped_to:
                break
        return records

    async def _rest(self, owned: OwnedPartition, clock: PartitionClock, ledger: Ledger) -> None:
        """No records: commits idleness when it is due, and a position that moved over transaction markers."""
        await owned.settle()
        if clock.is_due(time.monotonic()) and owned.position >= await owned.end():
            clock.go_idle(int(time.time() * 1000))
            log.info("%s[%d] is idle", owned.tp.topic, owned.partition)
        elif owned.position == owned.committed.offset:
            return
        outbox = owned.outbox()
        if owned.position != owned.committed.offset:
            entry = ledger.entry(owned.position, owned.skipped_to)
            entry.leave_out(owned.left_out(owned.position))
            outbox.end_with(self._settings.receipts_topic, entry.records)
        await owned.commit(outbox, owned.position, clock.progress(self._plane.epoch))

    async def _resume(self, owned: OwnedPartition, clock: PartitionClock) -> None:
        """Comes back from an idle time; see `PartitionClock` for the order of the steps."""
        await owned.settle()
        epoch = self._plane.epoch
        await owned.commit(None, owned.committed.offset or 0, clock.resuming(epoch))
        topic = self._settings.events_topic
        partitions = await partitions_of(owned.admin, topic)
        progress = await owned.group_progress(partitions)
        clock.resume(floor_of_resuming(progress, owned.partition, self._job.lateness_ms))
        log.info("%s[%d] has events again", owned.tp.topic, owned.partition)

    async def _route(self, records: Records, outbox: Outbox, clock: PartitionClock, entry: Entry) -> None:
        if not records:
            return
        judged = await self._extractor.extract(records, int(time.time() * 1000))
        if judged.skipped:
            self._tell_skipped(judged.skipped)
        now = time.monotonic()
        judged = sort_out_late(judged, clock)
        if judged.late or judged.rejected:
            self._set_aside(judged, outbox, entry)
        usable = self._divert(judged.usable, outbox, entry)
        if not usable.keys:
            return
        await self._turns.take(self._stretches(usable, outbox, now, entry))
        metrics.BATCH_SECONDS.observe(time.monotonic() - now)

    def _stretches(self, usable: Usable, outbox: Outbox, now: float, entry: Entry) -> Iterator[None]:
        """Routes and packs the events of a batch, stretch by stretch."""
        routed = self._plane.route(usable, now)
        yield
        packed = 0
        for worker, indexes in routed.shares():
            outbox.pass_on(self._settings.routed_topic, worker, [usable.records[i] for i in indexes.tolist()])
            entry.route(worker, usable, indexes)
            metrics.ROUTED.labels(str(worker)).inc(len(indexes))
            packed += len(indexes)
            if packed >= _STRETCH:
                packed = 0
                yield

    def _tell_skipped(self, skipped: Mapping[int, Records]) -> None:
        """Counts values of the wrong type; the first of each field is told."""
        for position, records in skipped.items():
            field, first = self._job.fields[position], records[0]
            metrics.SKIPPED_FIELDS.labels(field.pointer).inc(len(records))
            if position not in self._skipping:
                self._skipping.add(position)
                log.warning(
                    "%s[%d] at offset %d: field %r is not %s, so its aggregates skip it as if it were missing; "
                    "keygrouping_router_skipped_fields_total counts how often",
                    *(first.topic, first.partition, first.offset, field.pointer, field.wanted),
                )

    def _set_aside(self, judged: Judged, outbox: Outbox, entry: Entry) -> None:
        """Late and unusable records go to their topics, with headers that say why."""
        entry.set_late([record for record, _ in judged.late])
        entry.bury([record for record, _ in judged.rejected])
        for record, verdict in judged.late:
            reason, detail = REASONS[verdict]
            topic, partitions = self._settings.late_topic, self._topics.late
            self._set_one_aside(outbox, record, topic, partitions, origin_headers(record, reason, detail))
            metrics.LATE.labels(reason).inc()
        for record, rejection in judged.rejected:
            topic, partitions = self._settings.dead_letters_topic, self._topics.dead_letters
            headers = origin_headers(record, rejection.reason, rejection.detail)
            self._set_one_aside(outbox, record, topic, partitions, headers)
            metrics.DEAD.labels(rejection.reason).inc()

    def _divert(self, usable: Usable, outbox: Outbox, entry: Entry) -> Usable:
        """Events of quarantined keys go to their topic; the rest is to be routed."""
        chosen = self._plane.diverted(usable)
        if chosen is None:
            return usable
        aside = usable.where(chosen)
        entry.bury(aside.records)
        topic = self._settings.quarantine_topic or self._settings.dead_letters_topic
        for record in aside.records:
            headers = origin_headers(record, QUARANTINED, "its key is quarantined: GET /overrides says until when")
            self._set_one_aside(outbox, record, topic, self._topics.quarantine, headers)
        metrics.QUARANTINED.inc(len(aside.records))
        return usable.where(~chosen)

    @staticmethod
    def _set_one_aside(outbox: Outbox, record: Record, topic: str, partitions: int, headers: list[Header]) -> None:
        partition = record.partition % partitions
        outbox.append(topic, partition, record.timestamp, record.key, record.value, headers)


class _Input:
    """The input partitions of this replica, as the plane looks at them."""

    def __init__(self, runner: PartitionRunner) -> None:
        self._runner = runner

    @property
    def ready(self) -> bool:
        return self._runner.ready

    @property
    def lags(self) -> dict[int, int | None]:
        return {partition: owned.lag for partition, owned in self._runner.owned.items()}


async def serve(settings: RouterSettings, stop: asyncio.Event) -> None:
    """Runs the router until `stop` is set."""
    topics = await clients.retry(lambda: _look_up_topics(settings), "reading the topics")
    writes: tuple[Role, ...] = ("routed", "late", "dead_letters", "quarantine", "positions")
    if not await checked(settings, stop, reads=("events",), writes=writes):
        return
    async with contextlib.AsyncExitStack() as stack:
        metrics.RESULT_WAIT.set((settings.job.window_ms + settings.job.lateness_ms) / 1000)
        store = open_store(settings)
        stack.push_async_callback(store.close)
        plane = ControlPlane(settings, store, topics.routed, stage=KafkaWorkerStage(settings))
        await asyncio.to_thread(warm_up)
        await plane.start()
        router = Router(settings, topics, plane)
        runner = PartitionRunner(
            settings,
            STAGE,
            settings.events_topic,
            router.work,
            delivery=settings.delivery,
            largest=topics.largest,
            dead=metrics.DEAD,
        )
        plane.watch(_Input(runner))
        app, address = router_app(plane, settings), (settings.http_host, settings.http_port)
        await stack.enter_async_context(serving(app, *address, **settings.http_bounds))
        await stack.enter_async_context(plane.running())
        if settings.worker_pods is not None:
            await stack.enter_async_context(
                _going_on(WorkerPods(plane, StatefulSetPods(settings.worker_pods), plane.core.store))
            )
        await runner.run(stop)


@contextlib.asynccontextmanager
async def _going_on(pods: WorkerPods) -> AsyncIterator[None]:
    keeping = asyncio.create_task(pods.keep_equal())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _look_up_topics(settings: RouterSettings) -> Topics:
    async with clients.started(clients.admin(settings)) as admin:
        return await check_topics(admin, settings)
