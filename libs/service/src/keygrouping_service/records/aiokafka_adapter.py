"""The one place that knows aiokafka from within: its records, its private members, and the classes that are replaced.

All else keeps to its public clients, except `aiokafka_legacy`, which has its reader of old formats: the compiled path,
which this adapter stands on, needs that. `tests/records/test_aiokafka_adapter.py` says what is relied on here, and the
packages depend on the versions that it holds for.

aiokafka's fetcher decompresses each batch whole, hands on all records that fit a poll, and makes an object of each. A
consumer made with an `Unpacking` gives batches of columns instead (`v2.fetched`), in bounded memory; others behave as
ever. It is read by a `PartitionSource` or a `PartitionsSource`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import KafkaError
from aiokafka.producer.transaction_manager import TransactionResult
from aiokafka.protocol import produce
from aiokafka.protocol.types import Int16, Int32, String
from aiokafka.record import memory_records
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import _LegacyRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy

from keygrouping_service.records.columns import Columns
from keygrouping_service.records.inflating import LZ4
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import DeadLetter, UndecodableError
from keygrouping_service.records.unpacking import AT_ONCE, Unpacking
from keygrouping_service.records.v2.deflating import deflate

if TYPE_CHECKING:
    from keygrouping_service.records.v2.fetched import Fetched

_ConsumerRecord: TypeAlias = "ConsumerRecord[bytes, bytes]"


# reading


class PartitionSource:
    """A `Source` over a started consumer that was made with `unpacking`, and has this partition alone."""

    def __init__(self, consumer: AIOKafkaConsumer, tp: TopicPartition, unpacking: Unpacking) -> None:
        self._consumer = consumer
        self._tp = tp
        self._unpacking = unpacking
        self._nothing = Columns.of(tp.topic, tp.partition, ())

    async def poll(self, most: int, timeout: float) -> RecordBatch:
        """The next records, see `Source`."""
        found = await _polled(self._consumer, self._unpacking, [self._tp], most, timeout)
        batch = found.get(self._tp, self._nothing)
        if isinstance(batch, UndecodableError):
            raise batch
        return batch

    async def position(self) -> int:
        """The offset of the next record to come."""
        return int(await self._consumer.position(self._tp))

    def end(self) -> int | None:
        """The partition's end as it was seen last."""
        seen: int | None = self._consumer.highwater(self._tp)
        return seen

    async def first(self) -> int:
        """The partition's first offset now."""
        (first,) = (await self._consumer.beginning_offsets([self._tp])).values()
        return int(first)

    def seek(self, offset: int) -> None:
        """Goes on at another offset."""
        self._consumer.seek(self._tp, offset)

    def left_out(self) -> list[DeadLetter]:
        """The records that were left out since the last call."""
        return self._unpacking.take_letters()


class PartitionsSource:
    """Several partitions of a started consumer that was made with `unpacking`; it is assigned and sought as ever.

    A batch that can't be read does not stop it, unless its length is what is damaged: it is fetched once more, as it
    may have come wrongly, then passed over, and is among what was left out.
    """

    def __init__(self, consumer: AIOKafkaConsumer, unpacking: Unpacking) -> None:
        self.consumer = consumer
        self._unpacking = unpacking
        self._doubted: dict[TopicPartition, int] = {}

    async def poll(self, *tps: TopicPartition, most: int, timeout: float) -> dict[TopicPartition, RecordBatch]:
        """What comes next of these partitions (none: of all), `most` records of all together at most.

        Nothing if nothing comes within `timeout` seconds, or all that came was left out. Raises OffsetOutOfRangeError
        where a position is none of its partition's offsets, and other KafkaErrors; no records are lost by that.
        """
        found = await _polled(self.consumer, self._unpacking, tps, most, timeout)
        failed = {tp: batch for tp, batch in found.items() if isinstance(batch, UndecodableError)}
        for tp, error in failed.items():
            self._pass_over(tp, error)
        return {tp: batch for tp, batch in found.items() if not isinstance(batch, UndecodableError)}

    def _pass_over(self, tp: TopicPartition, error: UndecodableError) -> None:
        first = error.letter.record.offset
        if self._doubted.pop(tp, None) != first:
            self._doubted[tp] = first
            return
        # A header that may be damaged says where the batch ends: it is believed up to the end of the partition.
        stable, end = self.consumer.last_stable_offset(tp), self.consumer.highwater(tp)
        known = stable if stable is not None and stable >= 0 else end or error.after
        after = max(first + 1, min(error.after, known))
        self._unpacking.letters.append(error.letter._replace(last=after - 1))
        self.consumer.seek(tp, after)

    def left_out(self) -> list[DeadLetter]:
        """What lies before the positions and can't be read or is too large, since the last call."""
        return self._unpacking.take_letters()


async def _polled(
    consumer: AIOKafkaConsumer, unpacking: Unpacking, tps: Sequence[TopicPartition], most: int, timeout: float
) -> dict[TopicPartition, RecordBatch | UndecodableError]:
    """The next records of each partition that has some, or why there are none."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    while True:
        unpacking.unpacked = 0
        left = max(0, int((deadline - clock()) * 1000))
        given = await consumer.getmany(*tps, timeout_ms=left, max_records=most)
        outcomes = {tp: each.error if isinstance(each, _Unfinished) else each for tp, each in given.items()}
        found = {tp: outcome for tp, outcome in outcomes.items() if outcome is not None}
        if found or not given:
            return found
        await asyncio.sleep(0)  # Nothing else has had its turn.
        if clock() >= deadline:
            return {}


class _Unfinished:
    """No records yet, though there is more to take: the fetcher would wait for another fetch if it were false.

    With an error: what comes next can't be read. It is not raised there, as what other partitions gave to the same poll
    would be lost.
    """

    def __init__(self, error: UndecodableError | None = None) -> None:
        self.error = error

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


class _FetchResult(FetchResult):  # type: ignore[misc]
    _partition_records: Any

    def getall(self, max_records: int | None = None) -> Sequence[_ConsumerRecord] | RecordBatch | _Unfinished:
        if isinstance(self._partition_records, PartitionRecords | None):
            found: list[_ConsumerRecord] = super().getall(max_records)
            return found
        if not self.check_assignment(self._topic_partition):
            return ()
        fetched: Fetched = self._partition_records
        batch = _taken(fetched, max_records)
        self._update_position()
        if fetched.exhausted:
            self._partition_records = None
        return batch


def _taken(fetched: Fetched, most: int | None) -> RecordBatch | _Unfinished:
    if fetched.unpacking.unpacked >= AT_ONCE:  # by the other partitions of this poll
        return _Unfinished()
    try:
        batch = fetched.take(most)
    except UndecodableError as error:
        return _Unfinished(error)
    return batch if len(batch) or fetched.exhausted else _Unfinished()


def _partition_records(*given: Any) -> Any:
    """The one place that an `Unpacking` reaches: it is the consumer's value deserializer."""
    tp, records, aborted, offset, _, unpacking, *_ = given
    if not isinstance(unpacking, Unpacking):
        return PartitionRecords(*given)
    from keygrouping_service.records.v2.fetched import Fetched

    return Fetched(unpacking, tp.topic, tp.partition, offset, records._buffer, aborted or ())


# At the import, before there is any consumer: what one has fetched before would be of the old class, and aiokafka would
# take it for an error.
fetcher.PartitionRecords = _partition_records
fetcher.FetchResult = _FetchResult
if not issubclass(fetcher.MemoryRecords, _MemoryRecordsPy):
    fetcher.MemoryRecords = _MemoryRecordsPy  # the compiled one doesn't give its bytes away
# The compiled reader of old formats shows the collector the memoryview that it reads but doesn't let go of it. Both
# garbage at once, by an error whose traceback holds them, end the process with SIGSEGV.
memory_records.LegacyRecordBatch = _LegacyRecordBatchPy


# writing


def packing_of(producer: AIOKafkaProducer) -> tuple[int, int, bool]:
    """How its batches are compressed (see `inflating`), at most how large they are, and whether in transactions."""
    accumulator = producer._message_accumulator
    transactions = producer._txn_manager
    transactional = transactions is not None and transactions.transactional_id is not None
    return int(accumulator._compression_type), int(accumulator._batch_size), transactional


def _lz4_encode(data: bytes) -> bytes:
    """At the quickest level: aiokafka's own choice, 9, takes ten times as long, for a fifth fewer bytes."""
    return deflate(LZ4, memoryview(data))


# Where its builder of batches looks: that of single records, compiled or not.
vars(sys.modules[DefaultRecordBatchBuilder.__module__])["lz4_encode"] = _lz4_encode


def _encode_produce(request: Any) -> bytes:
    """What the request's own `encode` gives, which copies each batch once for each level that it is nested in."""
    text = String("utf-8").encode
    parts = [text(request.transactional_id), Int16.encode(request.required_acks), Int32.encode(request.timeout)]
    parts.append(Int32.encode(len(request.topics)))
    for topic, batches in request.topics:
        parts += text(topic), Int32.encode(len(batches))
        for partition, data in batches:
            parts += Int32.encode(partition), Int32.encode(len(data)), data
    return b"".join(parts)


PRODUCE_REQUESTS = [getattr(produce, f"ProduceRequest_v{version}") for version in range(3, 8)]
"""Those that carry message format 2."""

for _request in PRODUCE_REQUESTS:
    _request.encode = _encode_produce


class ProducerInside:
    """What a transactional producer of aiokafka keeps to itself."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    def send_through(self, client: object) -> None:
        """Its sender sends by this client from now on: what has the methods of an AIOKafkaClient."""
        self._producer._sender.client = client

    @property
    def failed(self) -> bool:
        """Whether it is at its end by an error."""
        return bool(self._producer._txn_manager.is_fatal_error())

    @property
    def committing(self) -> bool:
        """Whether its transaction is to be committed now."""
        return self._producer._txn_manager.needs_transaction_commit() is TransactionResult.COMMIT

    def waiters(self) -> list[asyncio.Future[Any]]:
        """What waits for the end of its transaction and of its batches."""
        batches = [batch for queue in self._producer._message_accumulator._batches.values() for batch in queue]
        waiters = (self._producer._txn_manager.wait_for_transaction_end(), *(batch._drain_waiter for batch in batches))
        return [waiter for waiter in waiters if waiter is not None]

    def fail(self, error: KafkaError) -> None:
        """Ends it: its transaction and all that is pending fail with this error."""
        self._producer._txn_manager.fatal_error(error)
        self._producer._message_accumulator.fail_all(error)
        self._producer._sender.sender_task.cancel()


async def drop_pending(producer: AIOKafkaProducer, error: KafkaError) -> None:
    """Ends a producer's sender, which waits for its requests after a first cancellation; what was not sent fails."""
    sender = producer._sender.sender_task
    while sender is not None and not sender.done():
        sender.cancel()
        await asyncio.wait([sender], timeout=0.2)
    producer._message_accumulator.fail_all(error)


# clients


def client_of(client: Any) -> AIOKafkaClient:
    """The connections of a consumer, producer or admin client."""
    return client.client if isinstance(client, AIOKafkaProducer) else client._client


def transports_of(client: AIOKafkaClient) -> list[asyncio.Transport]:
    """The transports of all its open connections."""
    return [connection._writer.transport for connection in client._conns.values() if connection._writer is not None]


async def send_request(admin: AIOKafkaAdminClient, request: Any, node: int | None = None) -> Any:
    """Sends a request that the admin client has no method for to a node, or to any; gives the answer."""
    return await admin._send_request(request, node)


def create_no_topics(consumer: AIOKafkaConsumer) -> None:
    """Lets the client ask for the metadata of all topics, never of one by its name.

    aiokafka lets brokers create the topics that it names, so one that is deleted while it is read would be back, empty.
    """
    ask = consumer._client._metadata_update
    consumer._client._metadata_update = lambda metadata, topics: ask(metadata, ())  # noqa: ARG005
