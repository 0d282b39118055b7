"""Batches that a real broker has compressed, stamped or aborted are read; Java's client reads what is written."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.java import find_java
from keygrouping_service.records.inflating import GZIP, LZ4, SNAPPY, ZSTD
from keygrouping_service.records.record import Record
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.layout import Header
from keygrouping_service.records.v2.reading import Reader
from keygrouping_service.records.v2.visibility import Visibility
from keygrouping_service.records.v2.writing import Sender, compressed, pack, sealed
from keygrouping_service.testing import Cluster

pytestmark = pytest.mark.kafka
CODECS = {"uncompressed": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
HEADERS = [("trace", b"a1"), ("caf\u00e9", b""), ("none", b"\xff" * 300)]


@pytest.fixture
async def client(broker: EmbeddedBroker) -> AsyncIterator[AIOKafkaClient]:
    client = AIOKafkaClient(bootstrap_servers=broker.bootstrap_servers)
    await client.bootstrap()
    yield client
    await client.close()


async def leader(client: AIOKafkaClient, topic: str) -> int:
    await client.add_topic(topic)
    async with asyncio.timeout(60):
        while (node := client.cluster.leader_for_partition(TopicPartition(topic, 0))) in (None, -1):
            await client.force_metadata_update()
    return int(node or 0)


async def fetched(client: AIOKafkaClient, topic: str) -> tuple[bytes, Visibility]:
    """All bytes of partition 0, and which of its transactions were aborted."""
    request = FetchRequest(500, 1, 50 << 20, 1, [(topic, [(0, 0, 50 << 20)])])
    answer = await client.send(await leader(client, topic), request)
    ((_, ((_, code, _, *rest),)),) = answer.topics
    assert code == 0
    return bytes(rest[-1]), Visibility(rest[2] or ())


def read(data: bytes, visibility: Visibility, topic: str) -> list[Record]:
    reader = Reader(Unpacking(), topic, 0, 0)
    return [record for batch in reader.read(data, visibility) for record in batch]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("clock", ("CreateTime", "LogAppendTime"))
async def test_what_a_broker_has_packed_is_read(
    codec: str, clock: str, cluster: Cluster, client: AIOKafkaClient, application: str
) -> None:
    """The broker packs the records of a topic by the topic's codec, in Java, whatever they came in."""
    configs = {"compression.type": codec, "message.timestamp.type": clock, "retention.ms": "-1"}
    await cluster.admin.create_topics([NewTopic(application, 1, 1, topic_configs=configs)])
    await leader(client, application)
    values = [None if n % 50 == 7 else b"%d " % n * (n % 90) for n in range(500)]
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, max_batch_size=1 << 20, linger_ms=50
    ) as producer:
        sent = [
            await producer.send(
                *(application, value, b"k%d" % n if n % 3 or value is None else None),
                partition=0,
                timestamp_ms=1000 + n,
                headers=HEADERS if n % 5 == 0 else None,
            )
            for n, value in enumerate(values)
        ]
        await asyncio.gather(*sent)
    data, visibility = await fetched(client, application)
    header = Header.read(data)
    assert header.attributes & 0x0F == CODECS[codec] | (8 if clock == "LogAppendTime" else 0)
    found = read(data, visibility, application)
    assert found == [record._replace(headers=tuple(record.headers)) for record in await cluster.read(application)]
    assert [(record.offset, record.value) for record in found] == list(enumerate(values))
    assert clock == "LogAppendTime" or [record.timestamp for record in found] == [1000 + n for n in range(500)]


async def test_aborted_transactions_of_a_broker_are_hidden(
    cluster: Cluster, client: AIOKafkaClient, application: str
) -> None:
    await cluster.create(**{application: 1})
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=application) as producer:
        for number in range(6):
            await producer.begin_transaction()
            await producer.send_and_wait(application, b"%d" % number, partition=0)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
            await cluster.write(application, [(None, b"plain")])
    await cluster.transactions_end(application)
    data, visibility = await fetched(client, application)
    seen = [record.value for record in read(data, visibility, application)]
    assert seen == [record.value for record in await cluster.read(application)]
    assert [value for value in seen if value != b"plain"] == [b"0", b"2", b"4"]


async def test_java_reads_what_is_written(
    broker: EmbeddedBroker, cluster: Cluster, client: AIOKafkaClient, application: str
) -> None:
    await cluster.create(**{application: 1})
    node = await leader(client, application)
    rows = [(n, 1000 + n, b"k%d" % n, b"value %d" % n * 20, (("trace", b"a%d" % n),)) for n in range(300)]
    batch = BufferBatch.of(application, 0, rows)
    for codec in CODECS.values():
        for packed in pack(batch, np.zeros(len(rows), np.int64), 20_000):
            packed = compressed(packed, codec) if codec else packed
            assert packed.codec == codec
            request = ProduceRequest(None, -1, 30_000, [(application, [(0, bytes(sealed(packed, Sender())))])])
            answer = await client.send(node, request)
            ((_, ((_, code, *_),)),) = answer.topics
            assert code == 0
    wanted = [b"CreateTime:%d\ttrace:a%d\t%b\t%b" % (row[1], row[0], row[2], row[3]) for row in rows] * len(CODECS)
    shown = [f"--formatter-property=print.{part}=true" for part in ("key", "headers", "timestamp")]
    checked = ["--command-property=check.crcs=true", "--from-beginning", "--timeout-ms=240000"]
    command = [str(find_java().path), "-cp", os.pathsep.join(map(str, broker.jars)), "-Xmx128m", CONSOLE_CONSUMER]
    command += ["--bootstrap-server", broker.bootstrap_servers, "--topic", application]
    command += [f"--max-messages={len(wanted)}", "--isolation-level=read_committed", *checked, *shown]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.splitlines() == wanted
