"""What the adapter relies on of the aiokafka that is installed. Where this fails, read the adapter again."""

import asyncio
import inspect
import sys
import tomllib
import tracemalloc
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.codec import lz4_encode
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator, MessageBatch
from aiokafka.producer.sender import Sender
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.produce import ProduceRequestStruct
from aiokafka.record import memory_records
from aiokafka.record.default_records import DefaultRecordBase, DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import _LegacyRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from keygrouping_service.kafka.clients import admin, producer, reader, started
from keygrouping_service.records import aiokafka_adapter as adapter
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.inflating import LZ4
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.unpacking import _HEADER, Unpacking
from keygrouping_service.records.v2.built import built
from keygrouping_service.records.v2.layout import HEADER_BYTES
from keygrouping_service.settings import ServiceSettings
from keygrouping_service.testing import Cluster, fetch

PartitionRecords, FetchResult = adapter.PartitionRecords, adapter._FetchResult.__base__  # type: ignore[attr-defined]
ROOT = Path(__file__).parents[4]
OFFLINE = ServiceSettings(bootstrap_servers="127.0.0.1:1")


def test_every_package_asks_for_the_versions_that_were_read() -> None:
    assert version("aiokafka").startswith("0.14.")
    folders = ("libs/*", "services/*", "spark-jobs", "load-generators", "experiments")
    projects = [file for folder in folders for file in ROOT.glob(f"{folder}/pyproject.toml")]
    wanted = {
        dependency
        for file in projects
        for dependency in tomllib.loads(file.read_text())["project"].get("dependencies", [])
        if dependency.startswith("aiokafka")
    }
    assert wanted == {"aiokafka>=0.14,<0.15"}


def names_in(*methods: Callable[..., Any]) -> set[str]:
    """What these methods name: members, globals and arguments."""
    return {name for method in methods for name in (*method.__code__.co_names, *method.__code__.co_varnames)}


def test_the_fetcher_looks_up_the_classes_that_are_replaced_where_they_are() -> None:
    assert {"PartitionRecords", "FetchResult", "MemoryRecords"} <= names_in(Fetcher._proc_fetch_request)
    assert fetcher.PartitionRecords is adapter._partition_records
    assert fetcher.FetchResult is adapter._FetchResult
    assert issubclass(fetcher.MemoryRecords, _MemoryRecordsPy)
    assert "FetchResult" in names_in(Fetcher.fetched_records), "it compares the very class"


def test_a_buffer_of_records_has_the_arguments_and_members_that_are_used() -> None:
    given = list(inspect.signature(PartitionRecords.__init__).parameters)[1:]
    assert given == [
        *("tp", "records", "aborted_transactions", "fetch_offset"),
        *("key_deserializer", "value_deserializer", "check_crcs", "isolation_level"),
    ]
    assert vars(_MemoryRecordsPy(b"bytes"))["_buffer"] == b"bytes"
    assert fetcher.MemoryRecords(b"bytes")._buffer == b"bytes"
    assert {"check_assignment", "_update_position", "getall"} <= vars(FetchResult).keys()
    assert "next_fetch_offset" in names_in(FetchResult._update_position, FetchResult.check_assignment)


def test_old_messages_tell_what_is_asked_of_them_and_batches_have_the_header_that_is_read() -> None:
    assert {"next_offset", "validate_crc", "__iter__"} <= set(dir(_LegacyRecordBatchPy))
    assert memory_records.LegacyRecordBatch is _LegacyRecordBatchPy
    assert "LegacyRecordBatch" in names_in(_MemoryRecordsPy.next_batch)
    assert (_HEADER.format, _HEADER.size) == (DefaultRecordBase.HEADER_STRUCT.format, 61)


async def test_a_producer_takes_batches_that_it_has_not_built() -> None:
    """It asks no more of a builder than what `BuiltBatch` answers, and says whose the records are before the bytes."""
    builder = AIOKafkaProducer.create_batch(producer_of("none"))
    assert isinstance(builder, BatchBuilder)
    records = Columns.of("t", 0, [(n, 10 + n, b"k", b"v", [("h", None)]) for n in range(5)])
    (batch,) = built(records, 3, 0, 999, True)[3]
    wanted = {"append", "close", "closed", "record_count", "size", "_set_producer_state", "_build"}
    assert wanted <= set(dir(builder)) and wanted <= set(dir(batch))
    asked = names_in(*(method for method in vars(MessageBatch).values() if callable(method)))
    assert {name for name in asked if name in dir(BatchBuilder)} - {"_builder"} <= wanted | set(dir(object))
    batch.append(timestamp=1, key=b"", value=b"", headers=[])
    assert batch.closed() and batch.record_count() == 5
    batch._set_producer_state(7, 1, 3)
    bytes_of_it = batch._build()
    assert len(bytes_of_it) == batch.size() and batch._build() is bytes_of_it
    read = DefaultRecordBatch(bytes(bytes_of_it))
    assert read.validate_crc() and read.is_transactional
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (7, 1, 3)
    assert len(list(read)) == batch.record_count() == 5


def test_a_produce_request_is_what_it_would_be_and_each_batch_in_it_is_copied_once() -> None:
    assert [*get_args(ProduceRequestStruct)][3:] == adapter.PRODUCE_REQUESTS, "another version: see what it adds"
    batch = memoryview(bytes(8 << 20))
    for kind in adapter.PRODUCE_REQUESTS:
        for transactional_id, batches in (
            (None, []),
            ("caf\u00e9", [(0, batch[:9]), (2, batch[:0])]),
            ("t", [(1, batch)]),
        ):
            given = (transactional_id, -1, 30_000, [("events", batches), ("late", [(7, b"bytes")])])
            tracemalloc.start()
            encoded = kind(*given).encode()
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert encoded == kind.SCHEMA.encode(given) and most < 1.5 * len(encoded) + 10_000


def test_what_a_producer_builds_is_compressed_as_what_it_passes_on() -> None:
    """With lz4 at the quickest level, not at aiokafka's."""
    value = b"".join(b'{"n":%d}' % (number * number) for number in range(400))
    compiled = DefaultRecordBatchBuilder.__module__.endswith("_crecords.default_records")
    assert compiled and "lz4_encode" in vars(sys.modules[DefaultRecordBatchBuilder.__module__])
    builder = DefaultRecordBatchBuilder(2, LZ4, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 1, b"k", value, [])
    (ours,) = built(Columns.of("t", 0, [(0, 1, b"k", value, ())]), 0, LZ4, 1 << 20, False)[0]
    ours.compress()
    found = bytes(builder.build())
    assert found == bytes(ours._build())
    (record,) = DefaultRecordBatch(found)
    assert record.value == value
    plain = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    plain.append(0, 1, b"k", value, [])
    assert len(found) < len(plain.build()) and len(lz4_encode(value)) < len(found) - HEADER_BYTES


async def test_how_a_producer_packs_is_known() -> None:
    for transactional_id in (None, "t"):
        made = producer(OFFLINE, transactional_id=transactional_id, compression="lz4")
        made._closed = True
        codec, most, transactional = adapter.packing_of(made)
        assert (codec, transactional) == (3, transactional_id is not None) and most >= 1 << 14


def producer_of(transactional_id: str) -> AIOKafkaProducer:
    made = producer(OFFLINE, transactional_id=transactional_id)
    made._closed = True  # nobody starts it
    return made


async def test_a_producer_has_inside_what_is_reached_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = producer_of("t")
    assert isinstance(made._sender, Sender) and isinstance(made._txn_manager, TransactionManager)
    assert isinstance(made._message_accumulator, MessageAccumulator)
    assert {"client", "_sender_task"} & vars(made._sender).keys() == {"client", "_sender_task"}
    assert "_batches" in vars(made._message_accumulator) and "_drain_waiter" in names_in(MessageBatch.__init__)
    made._txn_manager.set_pid_and_epoch(1, 0)
    await made.begin_transaction()
    inside = adapter.ProducerInside(made)
    assert (inside.failed, inside.committing) == (False, False)
    waiters = inside.waiters()
    assert waiters and all(isinstance(waiter, asyncio.Future) for waiter in waiters)
    monkeypatch.setattr(made._sender, "_sender_task", asyncio.create_task(asyncio.sleep(60)))
    inside.fail(KafkaError("over"))
    assert inside.failed
    with pytest.raises(asyncio.CancelledError):
        await made._sender.sender_task
    made._txn_manager.wait_for_transaction_end().exception()


async def test_clients_have_connections_inside() -> None:
    assert "_writer" in vars(AIOKafkaConnection("127.0.0.1", 1)) or "_writer" in names_in(AIOKafkaConnection.__init__)
    for made in (producer_of("t"), reader(OFFLINE), admin(OFFLINE)):
        client = adapter.client_of(made)
        assert isinstance(client, AIOKafkaClient) and "_conns" in vars(client)
    assert "_metadata_update" in vars(AIOKafkaClient)
    assert list(inspect.signature(AIOKafkaClient._metadata_update).parameters) == ["self", "cluster_metadata", "topics"]
    assert list(inspect.signature(AIOKafkaAdminClient._send_request).parameters) == ["self", "request", "node_id"]


@pytest.mark.kafka
async def test_a_source_gives_what_a_plain_consumer_reads_as_columns(cluster: Cluster, topic_prefix: str) -> None:
    topic = f"{topic_prefix}-records"
    await cluster.create(**{topic: 1})
    tp = TopicPartition(topic, 0)
    settings = ServiceSettings(bootstrap_servers=cluster.bootstrap_servers)
    sent = [
        (n, b"k%d" % n if n % 3 else None, b"v" * n if n % 4 else None, [("h", b"%d" % n)] * (n % 2)) for n in range(50)
    ]
    unpacking = Unpacking()
    async with (
        started(producer(settings)) as writer,
        started(reader(settings, unpacking=unpacking)) as stage,
        started(reader(settings)) as plain,
    ):
        outbox = Outbox(writer)
        for number, key, value, headers in sent:
            outbox.append(topic, 0, 1000 + number, key, value, headers)
        await outbox.send()
        for consumer in (stage, plain):
            consumer.assign([tp])
            consumer.seek(tp, 0)
        source = adapter.PartitionSource(stage, tp, unpacking)
        batches: list[RecordBatch] = []
        while sum(map(len, batches)) < 50:
            batches.append(await source.poll(7, 60.0))
            assert 0 < len(batches[-1]) <= 7
        whole = batches[0].followed_by(batches[1:])
        as_they_are: list[ConsumerRecord[bytes, bytes]] = []
        while len(as_they_are) < 50:
            as_they_are += (await plain.getmany(tp, timeout_ms=60_000)).get(tp, [])
        plain.seek(tp, 0)
        fetched = (await fetch(plain, tp, timeout_ms=60_000))[tp]
        assert await source.position() == source.end() == 50 and await source.first() == 0
        assert source.left_out() == [] and not await source.poll(7, 0.0)
        source.seek(48)
        assert (await source.poll(7, 60.0)).offsets.tolist() == [48, 49]
    expected = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in as_they_are]
    assert [record[2:] for record in whole] == [record[2:] for record in fetched] == expected
    assert [(o, k, v, list(h)) for o, _, k, v, h in expected] == sent


@pytest.mark.kafka
async def test_requests_without_a_method_of_their_own_are_answered(cluster: Cluster) -> None:
    answer = await adapter.send_request(cluster.admin, ApiVersionRequest())
    assert answer.api_versions
    assert adapter.transports_of(adapter.client_of(cluster.admin))


@pytest.mark.kafka
async def test_a_topic_that_is_asked_for_is_not_created(cluster: Cluster, topic_prefix: str) -> None:
    settings = ServiceSettings(bootstrap_servers=cluster.bootstrap_servers)
    async with started(reader(settings)) as consumer:
        assert isinstance(consumer, AIOKafkaConsumer)
        adapter.create_no_topics(consumer)
        consumer.assign([TopicPartition(f"{topic_prefix}-nowhere", 0)])
        assert not await fetch(consumer, timeout_ms=500)
        assert f"{topic_prefix}-nowhere" not in await cluster.admin.list_topics()
