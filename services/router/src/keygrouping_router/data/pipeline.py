"""The data path of an input partition: reads events, routes them, and commits the decision with the offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import floor_of_resuming, partitions_of
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.records.batches import QUARANTINED, origin_headers
from keygrouping_service.records.protocols import Header, RecordBatch, Sink
from keygrouping_service.records.record import Record

from keygrouping_router import metrics
from keygrouping_router.data.accounting import Traffic
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.data.extract import Extractor, Judged, Usable, parts, sort_out_late
from keygrouping_router.data.lateness import FINISHED, REASONS, PartitionClock
from keygrouping_router.data.receipts import Entry, Ledger
from keygrouping_router.data.scheduling import Scheduler
from keygrouping_router.settings import RouterSettings

log = logging.getLogger(__name__)

LATE_BY = "keygrouping-late-by"
"""Header of late events: by how many ms, see `lateness.Judgement`."""

_QUIET_SECONDS = 0.5
"""Longest wait for records, so that idleness and shutdown are noticed in time."""

_BUSY_SECONDS = 0.02
"""How often it is looked whether the transaction before has ended."""

_MOST_BYTES = 16 << 20
"""Most bytes of one transaction, so that memory stays bounded where records are large."""

_STRETCH = 5000
"""Most records that are taken from what was fetched, or routed, at one stretch."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Partition counts of the topics that the router writes to, and the largest record that it takes (bytes)."""

    late: int
    dead_letters: int
    quarantine: int
    routed: int
    largest: int


def _left(deadline: float, owned: OwnedPartition) -> float:
    """Seconds for which records may still be gathered."""
    return max(deadline - time.monotonic(), _BUSY_SECONDS if owned.busy else 0.0)


class Pipeline:
    """Routes the input partitions that this replica owns; all share one active grouping, so that it sees all loads."""

    def __init__(
        self,
        settings: RouterSettings,
        topics: Topics,
        active: ActiveGrouping,
        traffic: Traffic,
        not_below: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._job = settings.job
        self._extractor = Extractor(settings.job)
        self._scheduler = Scheduler()
        self._active = active
        self._traffic = traffic
        self._not_below = not_below
        self._skipping: set[int] = set()
        for field in self._job.fields:
            metrics.SKIPPED_FIELDS.labels(field.pointer).inc(0)

    async def work(self, owned: OwnedPartition) -> None:
        """Routes one input partition until the service stops."""
        idle_timeout = self._settings.idle_timeout
        self._not_below(owned.progress.epoch)
        clock = PartitionClock(
            owned.progress, self._job.lateness_ms, self._job.confirmations, idle_timeout, time.monotonic()
        )
        ledger = await self._open_ledger(owned)
        if owned.progress.resuming:
            await self._resume(owned, clock)
        while not owned.stopping:
            await self._take_turn(owned, clock, ledger)
        await owned.flush()

    async def _take_turn(self, owned: OwnedPartition, clock: PartitionClock, ledger: Ledger) -> None:
        """One batch; nothing holds it any longer while the next one is gathered."""
        records = await self._next_batch(owned)
        if not records:
            await self._rest(owned, clock, ledger)
            return
        clock.saw_records(time.monotonic())
        if clock.must_resume:
            await self._resume(owned, clock)
        for part in parts(records, _MOST_BYTES):
            last = int(part.offsets[-1])
            behind_gap = last >= owned.skipped_to
            after = owned.position if last == records.offsets[-1] and behind_gap else last + 1
            outbox, entry = owned.outbox(), ledger.entry(after, owned.skipped_to if behind_gap else 0)
            entry.consume(part.offsets)
            entry.leave_out(owned.left_out(after))
            await self._route(part, outbox, clock, entry)
            outbox.end_with(self._settings.receipts_topic, entry.records)
            await owned.submit(outbox, after, clock.progress(self._active.epoch))

    async def _open_ledger(self, owned: OwnedPartition) -> Ledger:
        routed = self._settings.routed_topic
        routed_id = await read_topic_id(owned.admin, routed)
        return Ledger(owned.topic_id, owned.partition, (routed, routed_id), self._job, owned.offset)

    async def _next_batch(self, owned: OwnedPartition) -> RecordBatch:
        """Records for one transaction: what is there, and what comes within `linger` after the first of them, or for as
        long as the transaction before is under way, as they would wait for that anyway.

        They are all before what retention has deleted unread, or all behind it: a receipt has one range.
        """
        most, alone = self._settings.max_batch, owned.careful
        records = await owned.poll(min(most, _STRETCH), _QUIET_SECONDS)
        if not records or alone or owned.careful:
            return records
        deadline = time.monotonic() + self._settings.linger
        later: list[RecordBatch] = []
        count, size, last = len(records), int(records.sizes().sum()), records.offsets[-1]
        while count < most and size < _MOST_BYTES and not owned.stopping and (left := _left(deadline, owned)) > 0:
            if polled := await owned.poll(min(most - count, _STRETCH), left):
                later.append(polled)
                count, size, last = count + len(polled), size + int(polled.sizes().sum()), polled.offsets[-1]
            if last < owned.skipped_to:
                break
        return records.followed_by(later)

    async def _rest(self, owned: OwnedPartition, clock: PartitionClock, ledger: Ledger) -> None:
        """No records: commits the end of the range, idleness when it is due, and a position that moved over markers."""
        await owned.flush()
        if owned.at_end and not owned.committed.progress.ended:
            clock.finish()
            log.info("%s[%d] is routed up to the end of the range", owned.tp.topic, owned.partition)
        elif clock.is_due(time.monotonic()) and owned.position >= await owned.end():
            clock.go_idle(int(time.time() * 1000))
            log.info("%s[%d] is idle", owned.tp.topic, owned.partition)
        elif owned.position == owned.committed.offset:
            return
        outbox = owned.outbox()
        if owned.position != owned.committed.offset:
            entry = ledger.entry(owned.position, owned.skipped_to)
            entry.leave_out(owned.left_out(owned.position))
            outbox.end_with(self._settings.receipts_topic, entry.records)
        await owned.commit(outbox, owned.position, clock.progress(self._active.epoch))

    async def _resume(self, owned: OwnedPartition, clock: PartitionClock) -> None:
        """Comes back from an idle time; see `PartitionClock` for the order of the steps."""
        await owned.flush()
        epoch = self._active.epoch
        await owned.commit(None, owned.committed.offset or 0, clock.resuming(epoch))
        topic = self._settings.events_topic
        partitions = await partitions_of(owned.admin, topic)
        progress = await owned.group_progress(partitions)
        clock.resume(floor_of_resuming(progress, owned.partition, self._job.lateness_ms))
        log.info("%s[%d] has events again", owned.tp.topic, owned.partition)

    async def _route(self, records: RecordBatch, outbox: Sink, clock: PartitionClock, entry: Entry) -> None:
        if not records:
            return
        judged = await self._extractor.extract(records, int(time.time() * 1000))
        if judged.skipped:
            self._report_skipped(judged.skipped)
        now = time.monotonic()
        judged = sort_out_late(judged, clock)
        if judged.late or judged.rejected:
            self._dead_letter(judged, outbox, entry)
        usable = self._quarantine(judged.usable, outbox, entry)
        if not len(usable.keys):
            return
        await self._scheduler.run(self._stretches(usable, outbox, now, entry))
        metrics.BATCH_SECONDS.observe(time.monotonic() - now)

    def _stretches(self, usable: Usable, outbox: Sink, now: float, entry: Entry) -> Iterator[None]:
        """Routes and packs the events of a batch, stretch by stretch."""
        workers = np.empty(len(usable.keys), np.int32)
        for start in range(0, len(workers), _STRETCH):
            part = usable.cut(start, start + _STRETCH)
            routed = self._active.route(part, now)
            self._traffic.record(part, routed, now)
            workers[start : start + _STRETCH] = routed.workers
            yield
        outbox.pass_on(self._settings.routed_topic, workers, usable.batch)
        yield
        entry.route(usable, workers)
        for worker, events in enumerate(np.bincount(workers).tolist()):
            if events:
                metrics.ROUTED.labels(str(worker)).inc(events)

    def _report_skipped(self, skipped: Mapping[int, tuple[int, Record]]) -> None:
        """Counts values of the wrong type; the first of each field is logged."""
        for position, (records, first) in skipped.items():
            field = self._job.fields[position]
            metrics.SKIPPED_FIELDS.labels(field.pointer).inc(records)
            if position not in self._skipping:
                self._skipping.add(position)
                log.warning(
                    "%s[%d] at offset %d: field %r is not %s, so its aggregates skip it as if it were missing; "
                    "keygrouping_router_skipped_fields_total counts how often",
                    *(first.topic, first.partition, first.offset, field.pointer, field.wanted),
                )

    def _dead_letter(self, judged: Judged, outbox: Sink, entry: Entry) -> None:
        """Late and unusable records go to their topics, with headers that say why."""
        entry.set_late([event.record.offset for event in judged.late])
        entry.dead_letter([record.offset for record, _ in judged.rejected])
        for record, verdict, late_by in judged.late:
            reason, detail = REASONS[verdict]
            headers = origin_headers(record, reason, detail)
            if verdict != FINISHED:
                headers.append((LATE_BY, str(late_by).encode()))
            self._send_on(outbox, record, self._settings.late_topic, self._topics.late, headers)
            metrics.LATE.labels(reason).inc()
        for record, rejection in judged.rejected:
            topic, partitions = self._settings.dead_letters_topic, self._topics.dead_letters
            headers = origin_headers(record, rejection.reason, rejection.detail)
            self._send_on(outbox, record, topic, partitions, headers)
            metrics.DEAD.labels(rejection.reason).inc()

    def _quarantine(self, usable: Usable, outbox: Sink, entry: Entry) -> Usable:
        """Events of quarantined keys go to their topic; the rest is to be routed."""
        chosen = self._active.quarantined(usable.keys)
        if chosen is None:
            return usable
        aside = usable.where(chosen)
        entry.dead_letter(aside.batch.offsets)
        topic = self._settings.quarantine_topic or self._settings.dead_letters_topic
        for record in aside.batch:
            headers = origin_headers(record, QUARANTINED, "its key is quarantined: GET /overrides says until when")
            self._send_on(outbox, record, topic, self._topics.quarantine, headers)
        metrics.QUARANTINED.inc(len(aside.batch))
        return usable.where(~chosen)

    @staticmethod
    def _send_on(outbox: Sink, record: Record, topic: str, partitions: int, headers: list[Header]) -> None:
        partition = record.partition % partitions
        outbox.append(topic, partition, record.timestamp, record.key, record.value, headers)
