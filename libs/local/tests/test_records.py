"""Laws of reading whole topics, over a real broker."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer
from keygrouping.partial import Result
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import write_unreadable
from keygrouping_local.errors import LocalError
from keygrouping_local.records import DuplicateResultError, read_all, read_results, reasons
from keygrouping_local.topics import settings_for
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.topics import create_topics, topics_of
from keygrouping_service.settings import ServiceSettings

pytestmark = pytest.mark.kafka


@pytest.fixture
async def settings(broker: EmbeddedBroker, application: str) -> ServiceSettings:
    made = settings_for(broker.bootstrap_servers, application)
    async with clients.started(clients.admin(made)) as admin:
        await create_topics(admin, topics_of(made, partitions=2))
    return made


@pytest.fixture
async def producer(settings: ServiceSettings, application: str) -> AsyncIterator[AIOKafkaProducer]:
    async with clients.started(clients.producer(settings, transactional_id=application)) as client:
        yield client


def result(key: bytes, final: bool = True) -> Result:
    return Result(key, 0, 10, 1, 1, final, {"n": 1})


async def write_results(producer: AIOKafkaProducer, settings: ServiceSettings, *results: Result) -> None:
    async with producer.transaction():
        for each in results:
            await producer.send_and_wait(settings.results_topic, each.encode(), each.record_key)


async def test_an_empty_topic_is_read_at_once(settings: ServiceSettings) -> None:
    assert await read_results(settings) == {}


async def test_everything_committed_is_read_in_order_and_nothing_aborted(
    settings: ServiceSettings, producer: AIOKafkaProducer
) -> None:
    async def write(count: int, mark: bytes) -> None:
        for i in range(count):
            await producer.send_and_wait(settings.events_topic, mark + str(i).encode(), partition=i % 2)

    async with producer.transaction():
        await write(50, b"kept-")
    await producer.begin_transaction()
    await write(50, b"lost-")
    await producer.abort_transaction()
    found = [record.value or b"" async for records in read_all(settings, settings.events_topic) for record in records]
    assert sorted(found) == sorted(b"kept-%d" % i for i in range(50))
    evens = [value for value in found if int(value[5:]) % 2 == 0]
    assert evens == sorted(evens, key=lambda value: int(value[5:]))


async def test_results_are_the_final_ones_by_key_and_window(
    settings: ServiceSettings, producer: AIOKafkaProducer
) -> None:
    await write_results(producer, settings, result(b"a", final=False), result(b"a"), result(b"b|0"))
    assert await read_results(settings) == {(b"a", 0): result(b"a"), (b"b|0", 0): result(b"b|0")}


async def test_a_transaction_that_is_under_way_is_waited_for(
    settings: ServiceSettings, producer: AIOKafkaProducer
) -> None:
    await write_results(producer, settings, result(b"a"))
    await producer.begin_transaction()
    await producer.send_and_wait(settings.results_topic, result(b"b").encode(), result(b"b").record_key)
    reading = asyncio.create_task(read_results(settings))
    done, _ = await asyncio.wait([reading], timeout=1)
    assert not done
    await producer.commit_transaction()
    assert {key for key, _ in await reading} == {b"a", b"b"}


async def test_a_window_that_is_final_twice_is_a_fault(settings: ServiceSettings, producer: AIOKafkaProducer) -> None:
    await write_results(producer, settings, result(b"a"), result(b"a"))
    with pytest.raises(DuplicateResultError, match="two final results for the window at 0 ms"):
        await read_results(settings)


async def test_reasons_are_by_place_of_the_event(settings: ServiceSettings, producer: AIOKafkaProducer) -> None:
    async def write(topic: str) -> None:
        origin = {"own": "header", "topic": topic, "reason": "no-key", "partition": "1", "offset": "42"}
        headers = [(f"keygrouping-{name}", text.encode()) for name, text in origin.items()]
        async with producer.transaction():
            await producer.send_and_wait(settings.dead_letters_topic, b"", headers=headers)

    await write("the topic of another stage")
    await write(settings.events_topic)
    assert await reasons(settings, settings.dead_letters_topic) == {(1, 42): "no-key"}
    await write(settings.events_topic)
    with pytest.raises(DuplicateResultError, match="stands twice"):
        await reasons(settings, settings.dead_letters_topic)


async def test_what_can_not_be_read_is_told(broker: EmbeddedBroker, settings: ServiceSettings) -> None:
    await write_unreadable(broker, settings, settings.events_topic, 1)
    found = []
    with pytest.raises(LocalError, match=rf"{settings.events_topic}\[0\]: offset 1: .* its checksum is wrong"):
        async for records in read_all(settings, settings.events_topic):
            found += [len(record.value or b"") for record in records]
    assert found == [17 << 20], "who checks a run may look at any record"


async def test_a_topic_that_does_not_exist_is_named(settings: ServiceSettings) -> None:
    with pytest.raises(LocalError, match="topic nowhere does not exist"):
        async for _ in read_all(settings, "nowhere"):
            pass
