"""Reads what a recount needs, from the brokers: receipts, late events, dead letters, the input, and the results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import OffsetOutOfRangeError
from keygrouping.partial import RecordError, Result
from keygrouping.receipt import Receipt
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.records.aiokafka_adapter import (
    PartitionSource,
    PartitionsSource,
    create_no_topics,
)
from keygrouping_service.records.protocols import Source
from keygrouping_service.records.record import Record, UndecodableError
from keygrouping_service.records.unpacking import Unpacking

from keygrouping_observer.audit.books import Books, held_by
from keygrouping_observer.audit.reading import POLL_RECORDS, WAIT_MS, origin_of
from keygrouping_observer.audit.recount import Range, Recount
from keygrouping_observer.settings import ObserverSettings


class Recounting:
    """Reads up to the ends at which a comparison was made, with the source that was read for it and has no more to do.

    The audit has told what can't be read there.
    """

    def __init__(
        self,
        settings: ObserverSettings,
        admin: AIOKafkaAdminClient,
        source: PartitionsSource,
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._source = source
        self._reader = source.consumer
        self._ends = ends

    async def recount(self, books: Books, share: float) -> Recount:
        """Counts this share of the keys again."""
        settings = self._settings
        topic = await read_topic_id(self._admin, settings.events_topic)
        recount = Recount(settings.job, topic, books.windows.all, share)
        async for record in self.records(settings.receipts_topic):
            try:
                recount.receipt(Receipt.decode(record.value))
            except RecordError:
                continue  # The audit has told it.
        recount.end_receipts()
        async for record in self.records(settings.late_topic, settings.dead_letters_topic, settings.quarantine_topic):
            origin = origin_of(dict(record.headers))
            if origin is not None and origin.topic == settings.events_topic:
                recount.letter(origin.partition, origin.offset)
        await self._read_input(recount)
        async for record in self.records(settings.results_topic):
            enter_result(recount, record.value)
        recount.finish()
        return recount

    async def records(self, *topics: str | None) -> AsyncIterator[Record]:
        """All records of these topics, in order within each partition."""
        ends = {tp: end for tp, end in self._ends.items() if tp.topic in topics}
        firsts = await self._reader.beginning_offsets(list(ends))
        self._reader.assign(list(ends))
        for tp, first in firsts.items():
            self._reader.seek(tp, first)
        hungry = [tp for tp, end in ends.items() if firsts[tp] < end]
        while hungry:
            try:
                fetched = await self._source.poll(*hungry, most=POLL_RECORDS, timeout=WAIT_MS / 1000)
            except OffsetOutOfRangeError:
                if not await self._pass_over_deleted(hungry):
                    raise
                continue
            self._source.left_out()
            for tp, records in fetched.items():
                for record in records:
                    if record.offset < ends[tp]:
                        yield record
            hungry = [tp for tp in hungry if await self._reader.position(tp) < ends[tp]]

    async def _pass_over_deleted(self, tps: Sequence[TopicPartition]) -> bool:
        """Goes on behind what was deleted meanwhile, which the recount notices; False if nothing was."""
        firsts = await self._reader.beginning_offsets(tps)
        behind = [tp for tp in tps if await self._reader.position(tp) < firsts[tp]]
        for tp in behind:
            self._reader.seek(tp, firsts[tp])
        return bool(behind)

    async def _read_input(self, recount: Recount) -> None:
        unpacking = Unpacking()
        client = clients.reader(
            self._settings,
            wait_ms=WAIT_MS,
            unpacking=unpacking,
            max_partition_fetch_bytes=self._settings.fetch_bytes,
        )
        create_no_topics(client)
        async with clients.started(client) as reader:
            for partition in recount.ranges:
                tp = TopicPartition(self._settings.events_topic, partition)
                reader.assign([tp])
                end = (await reader.end_offsets([tp]))[tp]
                await read_again(PartitionSource(reader, tp, unpacking), end, partition, recount)


def enter_result(recount: Recount, value: bytes | None) -> None:
    """Enters a record of `results`; one that is deleted says nothing."""
    if value is None:
        return
    try:
        recount.seen(*held_by(value))
        result = Result.decode(value)
    except (KeyError, TypeError, ValueError):
        return  # The audit has told it, or its key will be told as missing.
    recount.result(result)


async def read_again(source: Source, end: int, partition: int, recount: Recount) -> None:
    """Reads the ranges of a partition that ends at `end`; those that are deleted, also meanwhile, are told as such."""
    lane = _Lane(source, await source.first())
    for found in recount.ranges[partition]:
        read = await lane.read(found) if found.after <= end else None
        if read is None:
            recount.deleted(found)
            continue
        records, unread = read
        recount.events(partition, records)
        recount.end_range(partition, found, [record.offset for record in records], unread)


class _Lane:
    """One partition of the input from its `first` offset, range by range; what was fetched beyond one waits."""

    def __init__(self, source: Source, first: int) -> None:
        self._source = source
        self._first = first
        self._records: list[Record] = []
        self._unread: list[range] = []
        self._position = -1

    async def read(self, found: Range) -> tuple[Sequence[Record], Sequence[range]] | None:
        """The records of the next range, and the offsets of what can't be read or is too large; None: it is deleted.

        A batch that can't be decoded is one range of offsets, maybe over the ends of the range that is read.
        """
        if found.first < self._first:
            return None
        if self._position < found.first:
            self._source.seek(found.first)
            self._position = found.first
        while self._position < found.after:
            try:
                await self._poll()
            except OffsetOutOfRangeError:
                self._first = await self._source.first()
                return None
        inside = [record for record in self._records if found.first <= record.offset < found.after]
        unread = [span for span in self._unread if span.start < found.after and found.first < span.stop]
        self._records = [record for record in self._records if record.offset >= found.after]
        self._unread = [span for span in self._unread if span.stop > found.after]
        return inside, unread

    async def _poll(self) -> None:
        try:
            self._records += await self._source.poll(POLL_RECORDS, WAIT_MS / 1000)
        except UndecodableError as error:
            self._unread.append(range(error.letter.record.offset, error.after))
            self._source.seek(error.after)
        self._unread += [range(letter.record.offset, letter.record.offset + 1) for letter in self._source.left_out()]
        self._position = await self._source.position()
