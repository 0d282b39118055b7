"""Copies of committed offsets that no broker forgets: a compacted topic with one record per group and partition.

Kafka drops the offsets of a group that has had no members for a while (`offsets.retention.minutes`, 7 days as a rule),
and those of a topic that is deleted. "Nothing committed" therefore does not mean that nothing has been done. Each stage
writes a copy of what it commits, in the same transaction, so that copy and offset always say the same. It is read only
where the broker has no offset: without a copy this is the first start, with one the stage goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.hanging import warn_of_open_transactions
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.records.aiokafka_adapter import PartitionSource
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.protocols import Sink
from keygrouping_service.records.record import DeadLetter, in_order
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.settings import ServiceSettings

log = logging.getLogger(__name__)

_WAIT_MS = 100
_RECORDS = 10_000
_LONG_SECONDS = 5.0
_SHOWN = 100


class Positions:
    """The copies of one group's offsets. Of concurrent `find`s those that can share a reading of the topic do."""

    def __init__(self, settings: ServiceSettings, group: str) -> None:
        self.topic = settings.positions_topic
        self._settings = settings
        self._group = group
        self._lock = asyncio.Lock()
        self._read_at = -1.0
        self._found: dict[TopicPartition, OffsetAndMetadata] = {}

    async def require(self, admin: AIOKafkaAdminClient) -> None:
        """Raises UnknownTopicOrPartitionError if there is no such topic: a broker may create it without compaction."""
        await read_topic_id(admin, self.topic)

    def append(self, outbox: Sink, tp: TopicPartition, position: OffsetAndMetadata) -> None:
        """Adds the copy of an offset to the records of the transaction that commits it."""
        outbox.append(self.topic, 0, int(time.time() * 1000), *_record(self._group, tp, position))

    async def send(
        self, producer: AIOKafkaProducer, positions: Iterable[tuple[TopicPartition, OffsetAndMetadata]]
    ) -> None:
        """Writes copies and returns when the broker has them: for who commits outside of a transaction."""
        outbox = Outbox(producer)
        for tp, position in positions:
            self.append(outbox, tp, position)
        await outbox.send()

    async def find(
        self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The copies of these partitions' offsets, of all transactions that had begun before; of some there is none.

        `probe` is a started consumer without group that reads uncommitted.
        """
        asked_at = time.monotonic()
        async with self._lock:
            if self._read_at < asked_at:
                began = time.monotonic()
                self._found = await self._read(admin, probe)
                self._read_at = began
            return {tp: self._found[tp] for tp in partitions if tp in self._found}

    async def _read(
        self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        await self.require(admin)
        tp = TopicPartition(self.topic, 0)
        (end,) = (await probe.end_offsets([tp])).values()
        (first,) = (await probe.beginning_offsets([tp])).values()
        newest: dict[bytes, bytes | None] = {}
        late = time.monotonic() + _LONG_SECONDS
        unpacking = Unpacking()
        async with clients.started(clients.reader(self._settings, wait_ms=_WAIT_MS, unpacking=unpacking)) as reader:
            reader.assign([tp])
            reader.seek(tp, first)
            source = PartitionSource(reader, tp, unpacking)
            while await source.position() < end:
                # A batch that can't be read is not passed over: what it holds may be newer than what is known.
                batch = await source.poll(_RECORDS, _WAIT_MS / 1000)
                for found in in_order(batch, source.left_out()):
                    record = found.record if isinstance(found, DeadLetter) else found
                    newest[record.key or b""] = record.value
                if time.monotonic() > late:
                    log.warning("reading %s: waiting for open transactions", self.topic)
                    await warn_of_open_transactions(admin, tp)
                    late = time.monotonic() + 12 * _LONG_SECONDS
        return self._ours(newest)

    def _ours(self, newest: Mapping[bytes, bytes | None]) -> dict[TopicPartition, OffsetAndMetadata]:
        """This group's copies among the newest values by key; what has no key of ours is nobody's position."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for key, value in newest.items():
            if value is not None and (place := self._place(key)) is not None:
                found[place] = self._position(key, value)
        return found

    def _place(self, key: bytes) -> TopicPartition | None:
        try:
            group, topic, partition = orjson.loads(key)
        except (ValueError, TypeError):
            group = topic = partition = None
        if type(topic) is not str or type(partition) is not int:
            log.warning("%s holds a record that is not a position; it is skipped (key %r)", self.topic, key[:_SHOWN])
            return None
        return TopicPartition(topic, partition) if group == self._group else None

    def _position(self, key: bytes, value: bytes) -> OffsetAndMetadata:
        try:
            position: dict[str, Any] = orjson.loads(value)
            offset, metadata = position["offset"], position["metadata"]
        except (ValueError, KeyError, TypeError):
            offset = metadata = None
        if type(offset) is not int or type(metadata) is not str or offset < 0:
            raise Fatal(
                f"{self.topic} holds a record that is not a position ({value[:_SHOWN]!r}): to go on without it write a "
                f"record with the same key ({key.decode(errors='replace')}) and no value"
            )
        return OffsetAndMetadata(offset, metadata)


def _record(group: str, tp: TopicPartition, position: OffsetAndMetadata) -> tuple[bytes, bytes]:
    """Key and value of a copy."""
    return (
        orjson.dumps([group, tp.topic, tp.partition]),
        orjson.dumps({"offset": position.offset, "metadata": position.metadata}),
    )
