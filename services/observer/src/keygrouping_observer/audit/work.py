"""The audit at work: reads receipts, results, late events and dead letters, compares, and keeps what it knows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from keygrouping.receipt import MOST
from keygrouping_service.errors import Fatal, can_be_retried
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition, Record
from keygrouping_service.kafka.progress import MIN_TIME, Progress, partitions_of, read_progress, stage_watermark
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.observability import metrics
from keygrouping_service.records.surrogateescape import read_leniently

from keygrouping_observer.audit.books import Books, Origin
from keygrouping_observer.audit.report import AuditBoard
from keygrouping_observer.settings import ObserverSettings

log = logging.getLogger(__name__)

_SLICE = 500
_WAIT_MS = 200
_POLL_RECORDS = 5000
_MOST_UNSAVED = 50_000
_NUMBER = re.compile(rb"-?[0-9]{1,18}")
_KEPT_MS = 7 * 86_400_000
_PURGE_SECONDS = 3600.0

Positions = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Target:
    """Once all topics are read up to `ends`, what ends at `time` (ms of event time) or before can be compared."""

    time: int
    ends: Mapping[TopicPartition, int]


class AuditStage:
    """Audits one application; `work` is what a `PartitionRunner` runs on the audit's own topic."""

    def __init__(self, settings: ObserverSettings, board: AuditBoard) -> None:
        self._settings = settings
        self._board = board
        self._stand_by()

    async def work(self, owned: OwnedPartition) -> None:
        """One incarnation."""
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            reader = clients.reader(settings, wait_ms=_WAIT_MS, max_partition_fetch_bytes=settings.fetch_bytes)
            probe = clients.reader(settings, committed=False)
            for consumer in (reader, probe):
                await stack.enter_async_context(clients.started(consumer))
            stack.callback(self._stand_by)
            routed_id = await read_topic_id(owned.admin, settings.routed_topic)
            books = Books(settings.events_topic, settings.routed_topic, settings.job, routed_id, _now_ms)
            await _restore(owned, books)
            audit = _Incarnation(settings, owned, reader, probe, books)
            await audit.place()
            self._board.show(books)
            await audit.run()

    def _stand_by(self) -> None:
        """Another replica shows from now on what differs."""
        self._board.stand_by()
        for kind in ("window", "input"):
            metrics.AUDIT_DIFFERENCES.labels(kind).set(0)


async def _restore(owned: OwnedPartition, books: Books) -> None:
    """Reads the audit's topic to its end; `Fatal` if what it holds can't be read."""
    end = await owned.end()
    rows: dict[bytes, bytes] = {}
    while owned.position < end and not owned.stopping:
        for record in await owned.poll(_POLL_RECORDS, _WAIT_MS / 1000):
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


class _Incarnation:
    """One owner of the audit's topic.

    What is read beyond the target's ends waits: a comparison is made of just what lies before them.
    """

    def __init__(
        self,
        settings: ObserverSettings,
        owned: OwnedPartition,
        reader: AIOKafkaConsumer,
        probe: AIOKafkaConsumer,
        books: Books,
    ) -> None:
        self._settings = settings
        self._owned = owned
        self._reader = reader
        self._probe = probe
        self._books = books
        self._positions: Positions = {}
        self._held: dict[TopicPartition, list[Record]] = {}
        self._unsaved = 0
        self._purge_due = 0.0

    @property
    def _topics(self) -> tuple[str, ...]:
        s = self._settings
        own = (s.quarantine_topic,) if s.quarantine_topic else ()
        return (s.receipts_topic, s.results_topic, s.late_topic, s.dead_letters_topic, *own)

    async def place(self) -> None:
        """Begins to read where the books end; a new proof begins at the beginnings."""
        tps = [tp for topic in self._topics for tp in await self._partitions(topic)]
        firsts, ends = await self._reader.beginning_offsets(tps), await self._probe.end_offsets(tps)
        known = self._books.positions
        if not known:
            firsts |= await self._begin_late(firsts)
        self._reader.assign(tps)
        for tp in tps:
            saved = known.get(tp.topic, {}).get(tp.partition)
            if saved is not None and not firsts[tp] <= saved <= ends[tp]:
                self._books.lost_unread(tp.topic, tp.partition, min(saved, firsts[tp]), max(saved, firsts[tp]))
                saved = firsts[tp]
            self._positions[tp] = firsts[tp] if saved is None else saved
            self._reader.seek(tp, self._positions[tp])

    async def _partitions(self, topic: str) -> list[TopicPartition]:
        found = await partitions_of(self._owned.admin, topic)
        if not found:
            raise UnknownTopicOrPartitionError(f"create the topic {topic!r}")
        return [TopicPartition(topic, partition) for partition in found]

    async def _begin_late(self, firsts: Mapping[TopicPartition, int]) -> Positions:
        """Where the first receipts are deleted, the proof begins with windows of which nothing has been routed yet."""
        settings = self._settings
        (tp,) = [tp for tp in firsts if tp.topic == settings.receipts_topic][:1]
        if firsts[tp] == 0:
            return {}
        end = (await self._probe.end_offsets([tp]))[tp]
        while (await self._reader.end_offsets([tp]))[tp] < end:  # noqa: ASYNC110 (a transaction is under way)
            await asyncio.sleep(0.1)
        partitions = await partitions_of(self._owned.admin, settings.events_topic)
        progress = await read_progress(self._owned.admin, settings.group("router"), settings.events_topic, partitions)
        self._books.windows.since = max((entry.progress.time for entry in progress.values()), default=MIN_TIME) + 1
        log.warning("the first receipts are deleted: windows that start before %d ms aren't proven", self._since)
        return {tp: end}

    @property
    def _since(self) -> int:
        return self._books.windows.since

    async def run(self) -> None:
        """Audits until the service stops."""
        while not self._owned.stopping:
            began = time.monotonic()
            self._require_all_partitions()
            try:
                target = await self._look()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("how far the results are can't be read now: %r", error)
            else:
                await self._read_to(target.ends)
                if self._owned.stopping:
                    return
                self._books.judge(target.time)
                await self._save()
                metrics.AUDIT_COMPARED.set_to_current_time()
            await asyncio.sleep(max(0.0, began + self._settings.look_interval - time.monotonic()))

    def _require_all_partitions(self) -> None:
        """Ends the incarnation where partitions have been added: the next one reads them, too."""
        for topic in self._topics:
            seen = self._reader.partitions_for_topic(topic) or set()
            if len(seen) > sum(tp.topic == topic for tp in self._positions):
                raise KafkaError(f"{topic} has more partitions now")

    async def _look(self) -> Target:
        """How far results are final, then the end of the receipts, then the ends of all else: in this order."""
        settings, tps = self._settings, list(self._positions)
        partitions = await partitions_of(self._owned.admin, settings.partials_topic)
        found = await read_progress(
            self._owned.admin, settings.group("aggregator"), settings.partials_topic, partitions
        )
        ends = await self._probe.end_offsets([tp for tp in tps if tp.topic == settings.receipts_topic])
        ends |= await self._probe.end_offsets([tp for tp in tps if tp.topic != settings.receipts_topic])
        return Target(stage_watermark({partition: entry.progress for partition, entry in found.items()}), ends)

    async def _read_to(self, ends: Mapping[TopicPartition, int]) -> None:
        for tp, records in list(self._held.items()):
            await self._take(tp, records, ends[tp])
        while not self._owned.stopping and (hungry := [tp for tp, end in ends.items() if self._positions[tp] < end]):
            try:
                fetched = await self._reader.getmany(*hungry, timeout_ms=_WAIT_MS, max_records=_POLL_RECORDS)
            except UnicodeDecodeError:
                log.warning("a header name that is not UTF-8")
                read_leniently()
                for tp in hungry:
                    self._reader.seek(tp, self._positions[tp])
                continue
            for tp in hungry:
                await self._take(tp, fetched.get(tp, []), ends[tp])
            if self._unsaved >= _MOST_UNSAVED:
                await self._save()

    async def _take(self, tp: TopicPartition, records: Sequence[Record], end: int) -> None:
        """Enters what lies before the end, and holds the rest back."""
        inside = [record for record in records if record.offset < end]
        held = list(records[len(inside) :])
        for number, record in enumerate(inside, 1):
            self._enter(record)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self._unsaved += len(inside)
        self._held.pop(tp, None)
        if held:
            self._held[tp] = held
        self._positions[tp] = held[0].offset if held else await self._reader.position(tp)

    def _enter(self, record: Record) -> None:
        settings, books = self._settings, self._books
        if record.topic == settings.receipts_topic:
            books.receipt(record.value, record.offset)
        elif record.topic == settings.results_topic:
            books.result(record.value, record.offset)
        else:
            enter_letter(books, "late" if record.topic == settings.late_topic else "dead", record)

    async def _save(self) -> None:
        """Writes what has changed, in one transaction."""
        positions: dict[str, dict[int, int]] = {}
        for tp, position in self._positions.items():
            positions.setdefault(tp.topic, {})[tp.partition] = position
        if positions == self._books.positions and not self._books.changed:
            return
        self._books.positions = positions
        outbox, now_ms = self._owned.outbox(), _now_ms()
        for key, value in self._books.records():
            outbox.append(self._owned.tp.topic, 0, now_ms, key, value)
        await self._owned.commit(outbox, self._owned.offset, Progress())
        self._unsaved = 0
        await self._purge()

    async def _purge(self) -> None:
        """Deletes receipts that have been entered and are older than a week."""
        if time.monotonic() < self._purge_due:
            return
        self._purge_due = time.monotonic() + _PURGE_SECONDS
        tp = TopicPartition(self._settings.receipts_topic, 0)
        try:
            kept = (await self._reader.offsets_for_times({tp: _now_ms() - _KEPT_MS}))[tp]
            before = self._positions[tp] if kept is None else min(kept.offset, self._positions[tp])
            if kept is not None and before > 0:
                await self._owned.admin.delete_records({tp: RecordsToDelete(before_offset=before)})
        except KafkaError as error:
            log.warning("old receipts can't be deleted now: %r", error)


def enter_letter(books: Books, kind: str, record: Record) -> None:
    """Enters a record of `late` or `dead-letters` that says where it came from.

    What a reader left out is stamped with the time at which it was, and says that of the event.
    """
    said = dict(record.headers)
    own = said.get("keygrouping-timestamp")
    timestamp = int(own) if own and _NUMBER.fullmatch(own) else record.timestamp
    if (origin := _origin(said)) is not None:
        books.letter(kind, origin, record.value, timestamp)


def _origin(said: Mapping[str, bytes | None]) -> Origin | None:
    try:
        partition, offset = (int(said[f"keygrouping-{name}"] or b"") for name in ("partition", "offset"))
        if 0 <= partition <= MOST and 0 <= offset <= MOST:
            return Origin((said["keygrouping-topic"] or b"").decode(), partition, offset)
    except (KeyError, ValueError):
        pass
    return None


def _now_ms() -> int:
    return int(time.time() * 1000)
