"""What the audit reads: receipts, results, late events and dead letters, up to ends at which all is complete."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from keygrouping.receipt import MOST
from keygrouping_service.kafka.progress import MIN_TIME, partitions_of, read_progress, stage_watermark
from keygrouping_service.kafka.topic_ids import read_topic_id, read_topic_id_if_any
from keygrouping_service.records.aiokafka_adapter import PartitionsSource
from keygrouping_service.records.record import DeadLetter, Record, by_partition, in_order

from keygrouping_observer.audit.books import Books, Origin
from keygrouping_observer.settings import ObserverSettings

log = logging.getLogger(__name__)

WAIT_MS = 200
POLL_RECORDS = 5000
_SLICE = 500
_NUMBER = re.compile(rb"-?[0-9]{1,18}")

Positions = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Target:
    """Once all topics are read up to `ends`, what ends at `time` (ms of event time) or before can be compared."""

    time: int
    ends: Mapping[TopicPartition, int]


class Reading:
    """Enters what the topics hold into the books; it writes nothing.

    What is read beyond the target's ends waits: a comparison is made of just what lies before them. `stopping` ends a
    reading before its ends.
    """

    def __init__(
        self,
        settings: ObserverSettings,
        admin: AIOKafkaAdminClient,
        source: PartitionsSource,
        probe: AIOKafkaConsumer,
        books: Books,
        stopping: Callable[[], bool],
    ) -> None:
        self.books = books
        self.positions: Positions = {}
        """The next offset of every partition that is read."""
        self.entered = 0
        """Records that were entered so far."""
        self._settings = settings
        self._admin = admin
        self._source = source
        self._reader = source.consumer
        self._probe = probe
        self._stopping = stopping
        self._held: dict[TopicPartition, list[Record | DeadLetter]] = {}

    @property
    def topics(self) -> tuple[str, ...]:
        """All that are read."""
        s = self._settings
        own = (s.quarantine_topic,) if s.quarantine_topic else ()
        return (s.receipts_topic, s.results_topic, s.late_topic, s.dead_letters_topic, *own)

    async def place(self) -> None:
        """Begins to read where the books end; a new proof begins at the beginnings."""
        tps = [tp for topic in self.topics for tp in await self._partitions(topic)]
        firsts, ends = await self._reader.beginning_offsets(tps), await self._probe.end_offsets(tps)
        known = self.books.positions
        if not known:
            await self._begin_late(firsts, ends)
        self._reader.assign(tps)
        for tp in tps:
            saved = known.get(tp.topic, {}).get(tp.partition)
            if saved is not None and not firsts[tp] <= saved <= ends[tp]:
                self.books.lost_unread(tp.topic, tp.partition, min(saved, firsts[tp]), max(saved, firsts[tp]))
                saved = firsts[tp]
            self.positions[tp] = firsts[tp] if saved is None else saved
            self._reader.seek(tp, self.positions[tp])

    async def _partitions(self, topic: str) -> list[TopicPartition]:
        found = await partitions_of(self._admin, topic)
        if not found:
            raise UnknownTopicOrPartitionError(f"create the topic {topic!r}")
        return [TopicPartition(topic, partition) for partition in found]

    async def _begin_late(self, firsts: Positions, ends: Positions) -> None:
        """A proof that begins where records are deleted already doesn't condemn what they may have spoken of.

        A window gets no events before the clock is within `max_future` of it, which bounds what the deleted receipts
        may have routed; the confirmed times of the partitions bound it where event times lie in the past.
        """
        s, books = self._settings, self.books
        begun = {tp.topic for tp, first in firsts.items() if first > 0}
        kinds = {s.late_topic: "late", s.dead_letters_topic: "dead"}
        books.uncompared = [kind for topic, kind in kinds.items() if topic in begun]
        if begun & {s.results_topic, s.dead_letters_topic}:
            since = _now_ms()
        elif s.receipts_topic in begun:
            since = await self._first_receipt(firsts, ends)
        else:
            return
        partitions = await partitions_of(self._admin, s.events_topic)
        progress = await read_progress(self._admin, s.group("router"), s.events_topic, partitions)
        reached = max((entry.progress.time for entry in progress.values()), default=MIN_TIME)
        books.windows.since = (since if reached == MIN_TIME else min(since, reached)) + s.job.max_future_ms + 1
        log.warning(
            "the first records of %s are deleted: windows that start before %d ms are proven only if they add up",
            *(" and ".join(sorted(begun)), books.windows.since),
        )

    async def _first_receipt(self, firsts: Positions, ends: Positions) -> int:
        """When (ms) the first receipt was written that is still there; now, if there is none."""
        tp = TopicPartition(self._settings.receipts_topic, 0)
        self._reader.assign([tp])
        self._reader.seek(tp, firsts[tp])
        while await self._reader.position(tp) < ends[tp] and not self._stopping():
            for record in (await self._source.poll(tp, most=1, timeout=WAIT_MS / 1000)).get(tp, ()):
                return record.timestamp
            self._source.left_out()  # It is read again.
        return _now_ms()

    def require_all_partitions(self) -> None:
        """Ends the session where partitions have been added: the next one reads them, too."""
        for topic in self.topics:
            seen = self._reader.partitions_for_topic(topic) or set()
            if len(seen) > sum(tp.topic == topic for tp in self.positions):
                raise KafkaError(f"{topic} has more partitions now")

    async def look(self) -> Target:
        """How far results are final, then the end of the receipts, then the ends of all else: in this order."""
        settings, tps = self._settings, list(self.positions)
        partitions = await partitions_of(self._admin, settings.partials_topic)
        found = await read_progress(self._admin, settings.group("aggregator"), settings.partials_topic, partitions)
        ends = await self._probe.end_offsets([tp for tp in tps if tp.topic == settings.receipts_topic])
        ends |= await self._probe.end_offsets([tp for tp in tps if tp.topic != settings.receipts_topic])
        return Target(stage_watermark({partition: entry.progress for partition, entry in found.items()}), ends)

    async def read_to(
        self, ends: Mapping[TopicPartition, int], meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Enters all that lies before the ends; `meanwhile` is called now and then."""
        for tp, records in list(self._held.items()):
            await self._take(tp, records, ends[tp])
        while not self._stopping() and (hungry := [tp for tp, end in ends.items() if self.positions[tp] < end]):
            fetched = await self._source.poll(*hungry, most=POLL_RECORDS, timeout=WAIT_MS / 1000)
            letters = by_partition(self._source.left_out())
            for tp in hungry:
                await self._take(tp, in_order(fetched.get(tp, ()), letters.get(tp, ())), ends[tp])
            if meanwhile is not None:
                await meanwhile()

    async def _take(self, tp: TopicPartition, records: Sequence[Record | DeadLetter], end: int) -> None:
        """Enters what lies before the end, and holds the rest back."""
        inside = [record for record in records if record.offset < end]
        held = list(records[len(inside) :])
        for number, record in enumerate(inside, 1):
            self._enter(record)
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        self.entered += len(inside)
        self._held.pop(tp, None)
        if held:
            self._held[tp] = held
        self.positions[tp] = held[0].offset if held else await self._reader.position(tp)

    def _enter(self, record: Record | DeadLetter) -> None:
        settings, books = self._settings, self.books
        if isinstance(record, DeadLetter):
            books.unreadable(record)
        elif record.topic == settings.receipts_topic:
            books.receipt(record.value, record.offset)
        elif record.topic == settings.results_topic:
            books.result(record.value, record.offset)
        else:
            enter_letter(books, "late" if record.topic == settings.late_topic else "dead", record)


async def read_routed_id(settings: ObserverSettings, admin: AIOKafkaAdminClient) -> str:
    """The id of the topic that routers write to; where there are none, there may be no such topic."""
    read_id = read_topic_id_if_any if settings.stages == "combine" else read_topic_id
    return await read_id(admin, settings.routed_topic)


def enter_letter(books: Books, kind: str, record: Record) -> None:
    """Enters a record of `late` or `dead-letters` that says where it came from.

    What a reader left out is stamped with the time at which it was, and says that of the event.
    """
    said = dict(record.headers)
    own = said.get("keygrouping-timestamp")
    timestamp = int(own) if own and _NUMBER.fullmatch(own) else record.timestamp
    if (origin := origin_of(said)) is not None:
        books.letter(kind, origin, record.value, timestamp)


def origin_of(said: Mapping[str, bytes | None]) -> Origin | None:
    """Where a late event or dead letter came from by its headers; None if they don't say it."""
    try:
        partition, offset = (int(said[f"keygrouping-{name}"] or b"") for name in ("partition", "offset"))
        if 0 <= partition <= MOST and 0 <= offset <= MOST:
            return Origin((said["keygrouping-topic"] or b"").decode(), partition, offset)
    except (KeyError, ValueError):
        pass
    return None


def _now_ms() -> int:
    return int(time.time() * 1000)
