"""What the audit reads of topics that hold what can't be read, over a real broker."""

from collections.abc import AsyncIterator

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping.receipt import NOTHING, Receipt, Tally
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import write_unreadable
from keygrouping_local.topics import settings_for
from keygrouping_observer.audit.books import Books
from keygrouping_observer.audit.reading import Reading
from keygrouping_observer.audit.recounting import Recounting
from keygrouping_observer.settings import ObserverSettings
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.topics import create_topics, topics_of
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.v2.batch import BufferBatch

pytestmark = pytest.mark.kafka

ID = "e" * 22
TIME = 1_700_000_000_000


@pytest.fixture
def settings(broker: EmbeddedBroker, application: str) -> ObserverSettings:
    named = settings_for(broker.bootstrap_servers, application)
    return ObserverSettings(**named.model_dump(exclude_unset=True), job='{"window": 1000, "aggregates": []}')


@pytest.fixture
async def admin(settings: ObserverSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    async with clients.started(clients.admin(settings)) as admin:
        await create_topics(admin, topics_of(settings, 1, 1))
        yield admin


def receipt(first: int) -> bytes:
    return Receipt(ID, 0, first, first + 1, Tally(1, 1), NOTHING, Tally(1, 1), NOTHING).encode()


async def append(settings: ObserverSettings, topic: str, value: bytes, *headers: tuple[str, bytes]) -> None:
    """One record, in a transaction after one that is aborted."""
    name = f"{settings.application}-writer"
    async with clients.started(clients.producer(settings, transactional_id=name, compression="zstd")) as producer:
        for aborted in (True, False):
            await producer.begin_transaction()
            outbox = Outbox(producer)
            row = (0, TIME, b"k", b"aborted" if aborted else value, headers)
            outbox.pass_on(topic, 0, BufferBatch.of("", 0, [row]))
            await outbox.send()
            await (producer.abort_transaction() if aborted else producer.commit_transaction())


async def test_what_can_not_be_read_is_a_difference_once_and_stops_nothing(
    broker: EmbeddedBroker, settings: ObserverSettings, admin: AIOKafkaAdminClient
) -> None:
    tp = TopicPartition(settings.receipts_topic, 0)
    origin = [("keygrouping-topic", settings.events_topic.encode()), ("keygrouping-partition", b"0")]
    await append(settings, settings.late_topic, b"{}", ("caf\udce9", b"1"), *origin, ("keygrouping-offset", b"1"))
    await append(settings, tp.topic, receipt(0))
    async with clients.started(clients.reader(settings, committed=False)) as probe:
        before = (await probe.end_offsets([tp]))[tp]
        await write_unreadable(broker, settings, tp.topic, TIME)
        await append(settings, tp.topic, receipt(1))
        source = clients.source(settings, wait_ms=200)
        async with clients.started(source.consumer):
            books = Books(settings.events_topic, settings.routed_topic, settings.job, "r" * 22, lambda: TIME)
            reading = Reading(settings, admin, source, probe, books, lambda: False)
            await reading.place()
            ends = await probe.end_offsets(list(reading.positions))
            await reading.read_to(ends | {tp: before})
            (lane,) = books.lanes.values()
            assert books.differences == [] and len(lane._claims) == 1
            assert reading.positions[tp] == before, "what lies behind the end waits"
            for _ in range(2):
                await reading.read_to(ends)
                found = [(d.kind, d.partition, d.first, d.after) for d in books.differences]
                assert found == [("unreadable", 0, before, before + 1), ("unreadable", 0, before + 1, before + 3)]
            large, damaged = (difference.detail for difference in books.differences)
            assert f"{tp.topic}[0]: what these offsets say is not known: the record has" in large
            assert "its checksum is wrong" in damaged
            assert len(lane._claims) == 2 and books.letters == {0: {"late": {1: 1}, "dead": {}}}
            assert reading.positions == ends

            again = Recounting(settings, admin, source, ends).records(settings.receipts_topic, settings.late_topic)
            values = sorted([record.value or b"" async for record in again])
            assert values == sorted([b"{}", receipt(0), receipt(1)]) and source.left_out() == []


async def test_the_first_receipt_that_can_be_read_says_since_when_there_is_a_proof(
    broker: EmbeddedBroker, settings: ObserverSettings, admin: AIOKafkaAdminClient
) -> None:
    tp = TopicPartition(settings.receipts_topic, 0)
    await write_unreadable(broker, settings, tp.topic, 7)
    await append(settings, tp.topic, receipt(1))
    source = clients.source(settings, wait_ms=200)
    async with clients.started(source.consumer) as reader, clients.started(clients.reader(settings)) as probe:
        books = Books(settings.events_topic, settings.routed_topic, settings.job, "r" * 22, lambda: TIME)
        reading = Reading(settings, admin, source, probe, books, lambda: False)
        assert await reading._first_receipt({tp: 0}, await reader.end_offsets([tp])) == TIME
        assert source.left_out() == [], "it is read again"
