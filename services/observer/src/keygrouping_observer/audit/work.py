"""The audit at work: reads receipts, results, late events and dead letters, compares, and keeps what it knows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Progress
from keygrouping_service.records.unpacking import LARGEST_OF_ANY

from keygrouping_observer import metrics
from keygrouping_observer.audit.books import Books
from keygrouping_observer.audit.reading import POLL_RECORDS, WAIT_MS, Reading, read_routed_id
from keygrouping_observer.audit.report import LatestAudit
from keygrouping_observer.settings import ObserverSettings

log = logging.getLogger(__name__)

_MOST_UNSAVED = 50_000
_KEPT_MS = 7 * 86_400_000
_PURGE_SECONDS = 3600.0


class AuditStage:
    """Audits one application; `work` is what a `PartitionRunner` runs on the audit's own topic."""

    def __init__(self, settings: ObserverSettings, latest: LatestAudit) -> None:
        self._settings = settings
        self._latest = latest
        self._stand_by()

    async def work(self, owned: OwnedPartition) -> None:
        """One session."""
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            source = clients.source(
                settings, largest=LARGEST_OF_ANY, wait_ms=WAIT_MS, max_partition_fetch_bytes=settings.fetch_bytes
            )
            probe = clients.reader(settings, committed=False)
            for consumer in (source.consumer, probe):
                await stack.enter_async_context(clients.started(consumer))
            stack.callback(self._stand_by)
            routed_id = await read_routed_id(settings, owned.admin)
            books = Books(settings.events_topic, settings.routed_topic, settings.job, routed_id, _now_ms)
            await _restore(owned, books)
            reading = Reading(settings, owned.admin, source, probe, books, lambda: owned.stopping)
            await reading.place()
            self._latest.show(books)
            await _Session(settings, owned, source.consumer, reading).run()

    def _stand_by(self) -> None:
        """Another replica shows from now on what differs."""
        self._latest.stand_by()
        for kind in ("window", "input"):
            metrics.AUDIT_DIFFERENCES.labels(kind).set(0)


async def _restore(owned: OwnedPartition, books: Books) -> None:
    """Reads the audit's topic to its end; `Fatal` if what it holds can't be read."""
    end = await owned.end()
    rows: dict[bytes, bytes] = {}
    while owned.position < end and not owned.stopping:
        for record in await owned.poll(POLL_RECORDS, WAIT_MS / 1000):
            if record.value is None:
                rows.pop(record.key or b"", None)
            else:
                rows[record.key or b""] = record.value
    try:
        books.restore(rows)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Fatal(
            f"{owned.tp.topic} holds no state of the audit ({error!r}): delete the topic to begin a new proof"
        ) from None


class _Session:
    """One owner of the audit's topic: compares what is read, and keeps it."""

    def __init__(
        self, settings: ObserverSettings, owned: OwnedPartition, reader: AIOKafkaConsumer, reading: Reading
    ) -> None:
        self._settings = settings
        self._owned = owned
        self._reader = reader
        self._reading = reading
        self._books = reading.books
        self._saved = 0
        self._purge_due = 0.0

    async def run(self) -> None:
        """Audits until the service stops."""
        while not self._owned.stopping:
            began = time.monotonic()
            self._reading.require_all_partitions()
            try:
                target = await self._reading.look()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("cannot read the progress of the results now: %r", error)
            else:
                await self._reading.read_to(target.ends, self._save_if_much)
                if self._owned.stopping:
                    return
                self._books.judge(target.time)
                await self._save()
                metrics.AUDIT_COMPARED.set_to_current_time()
            await asyncio.sleep(max(0.0, began + self._settings.look_interval - time.monotonic()))

    async def _save_if_much(self) -> None:
        if self._reading.entered - self._saved >= _MOST_UNSAVED:
            await self._save()

    async def _save(self) -> None:
        """Writes what has changed, in one transaction."""
        positions: dict[str, dict[int, int]] = {}
        for tp, position in self._reading.positions.items():
            positions.setdefault(tp.topic, {})[tp.partition] = position
        if positions == self._books.positions and not self._books.changed:
            return
        self._books.positions = positions
        outbox, now_ms = self._owned.outbox(), _now_ms()
        for key, value in self._books.records():
            outbox.append(self._owned.tp.topic, 0, now_ms, key, value)
        await self._owned.commit(outbox, self._owned.offset, Progress())
        self._saved = self._reading.entered
        await self._purge()

    async def _purge(self) -> None:
        """Deletes receipts that have been entered and are older than a week."""
        if time.monotonic() < self._purge_due:
            return
        self._purge_due = time.monotonic() + _PURGE_SECONDS
        tp = TopicPartition(self._settings.receipts_topic, 0)
        try:
            kept = (await self._reader.offsets_for_times({tp: _now_ms() - _KEPT_MS}))[tp]
            before = self._reading.positions[tp] if kept is None else min(kept.offset, self._reading.positions[tp])
            if kept is not None and before > 0:
                await self._owned.admin.delete_records({tp: RecordsToDelete(before_offset=before)})
        except KafkaError as error:
            log.warning("cannot delete old receipts now: %r", error)


def _now_ms() -> int:
    return int(time.time() * 1000)
