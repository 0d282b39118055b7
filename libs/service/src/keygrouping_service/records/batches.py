"""Records on their way out: one or few record batches per partition instead of one call per record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.partitioner import murmur2
from keygrouping.hashing import kafka_hashes, kafka_partitions

from keygrouping_service.records.aiokafka_adapter import packing_of
from keygrouping_service.records.protocols import Header, Partitions, RecordBatch, Sink, Written
from keygrouping_service.records.record import Record

if TYPE_CHECKING:
    from keygrouping_service.records.v2.built import BuiltBatch


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a key among `partitions`, as Kafka's default partitioner (murmur2) chooses it."""
    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions


_SLICE = 500
_BYTES_PER_PARTITION, _MOST_BYTES = 1 << 18, 1 << 23
"""Of values that are packed at once. Fewer make many small batches, which are sent one after another; more leave the
processor's caches until then, which triples what it costs."""


NewRecord: TypeAlias = tuple[bytes, bytes, bytes]
"""A record that a stage makes: the key that chooses its partition, its own key, and its value."""


async def add_by_key(outbox: Sink, topic: str, partitions: int, records: Iterator[NewRecord]) -> None:
    """Adds new records, each to the partition of its key (see `partition_of`), stamped with the current time.

    Lets heartbeats through in between.
    """
    now_ms = int(time.time() * 1000)
    made: list[NewRecord] = []
    size = 0
    while some := list(islice(records, _SLICE)):
        made += some
        size += sum(len(value) for _, _, value in some)
        if size >= min(_MOST_BYTES, partitions * _BYTES_PER_PARTITION):
            _add(outbox, topic, partitions, now_ms, made)
            made, size = [], 0
        await asyncio.sleep(0)
    _add(outbox, topic, partitions, now_ms, made)


def _add(outbox: Sink, topic: str, partitions: int, now_ms: int, records: Sequence[NewRecord]) -> None:
    if records:
        placed_by, keys, values = zip(*records, strict=True)
        outbox.add(topic, kafka_partitions(kafka_hashes(placed_by), partitions), now_ms, keys, values)


QUARANTINED = "quarantined"
"""Reason of events whose key people have quarantined to a topic; their time counts, they themselves don't."""


def origin_headers(record: Record, reason: str, detail: str) -> list[Header]:
    """Headers of a record that goes to `late` or `dead-letters`: its own, then why, and where it came from.

    Bytes of a name that are not UTF-8 are written as `\\udcXX`.
    """
    return [
        *((name.encode(errors="backslashreplace").decode(), value) for name, value in record.headers),
        ("keygrouping-reason", reason.encode()),
        ("keygrouping-detail", detail.encode(errors="replace")),
        ("keygrouping-topic", record.topic.encode()),
        ("keygrouping-partition", str(record.partition).encode()),
        ("keygrouping-offset", str(record.offset).encode()),
    ]


class Outbox:
    """A `Sink` of aiokafka's producer: the records of one transaction, packed into batches per target partition.

    Batches close when they reach the producer's batch size; a single larger record still gets a batch of its own.
    Timestamps are ms since the epoch. An outbox is bound to one producer and is sent once.
    """

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._batches: dict[tuple[str, int], list[Any]] = {}
        self._packed: list[BuiltBatch] = []
        """Those that are to be compressed: that takes milliseconds, so a thread does it."""
        self._last: tuple[str, Callable[[Written], Iterable[bytes]]] | None = None
        self.records = 0

    def __bool__(self) -> bool:
        return self.records > 0 or self._last is not None

    def append(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
    ) -> None:
        """Adds one record."""
        batches = self._batches.setdefault((topic, partition), [])
        row = list(headers)
        if not (batches and batches[-1].append(timestamp=timestamp, key=key, value=value, headers=row)):
            batches.append(self._producer.create_batch())
            batches[-1].append(timestamp=timestamp, key=key, value=value, headers=row)
            _close_untimed(batches[-1], timestamp)
        self.records += 1

    def add(
        self,
        topic: str,
        partitions: Partitions,
        timestamp: int,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        """Adds new records, which have no headers."""
        from keygrouping_service.records.v2.batch import BufferBatch

        self.pass_on(topic, partitions, BufferBatch.new(timestamp, keys, values))

    def pass_on(self, topic: str, partitions: Partitions, batch: RecordBatch) -> None:
        """Adds records of a batch unchanged: key, value, headers and timestamp."""
        from keygrouping_service.records.v2.built import built

        codec, most, transactional = packing_of(self._producer)
        for partition, batches in built(batch, partitions, codec, most, transactional).items():
            self._batches.setdefault((topic, partition), []).extend(batches)
            self._packed += batches if codec else ()
        self.records += len(batch)

    def end_with(self, topic: str, values: Callable[[Written], Iterable[bytes]]) -> None:
        """Has records without key written to partition 0 of a topic once the offsets of all others are known."""
        self._last = (topic, values)

    async def send(self) -> None:
        """Sends everything and returns when the broker has it; raises the first error there was.

        The caller must not commit a transaction of which this has failed: aiokafka would commit it without the
        batches that were refused.
        """
        if self._packed:
            packed, self._packed = self._packed, []
            await asyncio.to_thread(_compress, packed)
        written = await self._send_all()
        if self._last is not None:
            (topic, values), self._last = self._last, None
            self._batches = {}
            now_ms = int(time.time() * 1000)
            for value in values(written):
                self.append(topic, 0, now_ms, None, value)
            await self._send_all()

    async def _send_all(self) -> Written:
        await self._know_partitions()
        lanes = (self._send(topic, partition, batches) for (topic, partition), batches in self._batches.items())
        results = await asyncio.gather(*lanes, return_exceptions=True)
        written = {}
        for place, result in zip(self._batches, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            written[place] = result
        return written

    async def _know_partitions(self) -> None:
        """Lets the producer look again for partitions that were added after it last looked."""
        furthest: dict[str, int] = {}
        for topic, partition in self._batches:
            furthest[topic] = max(partition, furthest.get(topic, 0))
        for topic, partition in furthest.items():
            if partition not in await self._producer.partitions_for(topic):
                await self._producer.client.force_metadata_update()
                if partition not in await self._producer.partitions_for(topic):
                    raise UnknownTopicOrPartitionError(f"{topic} has no partition {partition}")

    async def _send(self, topic: str, partition: int, batches: list[Any]) -> list[tuple[int, int]]:
        sent = [await self._producer.send_batch(batch, topic, partition=partition) for batch in batches]
        written = await asyncio.gather(*sent)
        return [(metadata.offset, batch.record_count()) for metadata, batch in zip(written, batches, strict=True)]


def _compress(batches: Iterable[BuiltBatch]) -> None:
    for batch in batches:
        batch.compress()


def _close_untimed(batch: Any, timestamp: int) -> None:
    """A record without timestamp (-1) stays alone: aiokafka takes a first -1 for "no record yet"."""
    if timestamp == -1:
        batch.close()
