"""Laws of the proxy that knows Kafka's protocol."""

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import HOST, free_ports
from keygrouping_local.proxy import Api, Proxy, Request
from keygrouping_local.proxy.requests import parse

HEARTBEAT, LEAVE = Api.HEARTBEAT, Api.LEAVE_GROUP


def api(wanted: Api) -> Callable[[Request], bool]:
    return lambda request: request.api is wanted


def frame_of(key: int, correlation: int, version: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, correlation, 1) + b"c" + body


class FakeBroker:
    """Answers each request with its correlation id, and remembers the order in which requests came."""

    def __init__(self) -> None:
        self.came: list[tuple[int, int]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, _, correlation = struct.unpack_from(">hhi", await reader.readexactly(size))
                self.came.append((key, correlation))
                writer.write(struct.pack(">ii", 4, correlation))
        writer.close()

    async def has(self, *requests: tuple[int, int]) -> None:
        """Waits until exactly these have come."""
        async with asyncio.timeout(60):
            while True:
                if self.came == list(requests):
                    return
                await asyncio.sleep(0.01)


class Client:
    """A connection that sends bare requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def send(self, key: int, correlation: int) -> None:
        frame = frame_of(key, correlation)
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def answer(self, timeout: float = 10) -> int:
        answer = await asyncio.wait_for(self._reader.readexactly(8), timeout)
        return int(struct.unpack(">ii", answer)[1])


@asynccontextmanager
async def fake() -> AsyncIterator[tuple[FakeBroker, Proxy, Callable[[], "asyncio.Future[Client]"]]]:
    broker = FakeBroker()
    server = await asyncio.start_server(broker.serve, HOST, 0)
    with Proxy([server.sockets[0].getsockname()[1]]) as proxy:

        async def connect() -> Client:
            return Client(*await asyncio.open_connection(HOST, proxy.ports[0]))

        yield broker, proxy, lambda: asyncio.ensure_future(connect())
    server.close()


async def test_a_held_request_is_overtaken_and_reaches_the_broker_after_its_client_has_gone() -> None:
    async with fake() as (broker, proxy, connect):
        held = proxy.hold(api(HEARTBEAT))
        first, other = await connect(), await connect()
        first.send(HEARTBEAT, 1)
        assert (await held.caught()).correlation_id == 1
        first.writer.close()
        other.send(HEARTBEAT, 2)
        assert await other.answer() == 2
        assert broker.came == [(HEARTBEAT, 2)]
        held.release()
        assert await held.answered() == struct.pack(">i", 1)
        assert broker.came == [(HEARTBEAT, 2), (HEARTBEAT, 1)]


async def test_what_follows_a_held_request_on_its_connection_passes_but_answers_keep_their_order() -> None:
    async with fake() as (broker, proxy, connect):
        held = proxy.hold(api(HEARTBEAT))
        client = await connect()
        client.send(HEARTBEAT, 1)
        client.send(LEAVE, 2)
        await broker.has((LEAVE, 2))
        held.release()
        assert [await client.answer(), await client.answer()] == [1, 2]


async def test_a_held_answer_belongs_to_a_request_that_is_done() -> None:
    async with fake() as (broker, proxy, connect):
        held = proxy.hold(api(HEARTBEAT), answer=True)
        client = await connect()
        client.send(HEARTBEAT, 1)
        await held.caught()
        assert broker.came == [(HEARTBEAT, 1)]
        held.release()
        assert await client.answer() == 1


async def test_a_discarded_request_never_arrives() -> None:
    async with fake() as (broker, proxy, connect):
        held = proxy.hold(api(HEARTBEAT))
        client = await connect()
        client.send(HEARTBEAT, 1)
        await held.caught()
        held.discard()
        client.send(LEAVE, 2)
        await broker.has((LEAVE, 2))
        with pytest.raises(ConnectionError):
            await held.answered()


async def test_two_requests_of_different_connections_change_places() -> None:
    async with fake() as (broker, proxy, connect):
        proxy.hold(api(HEARTBEAT), until=api(LEAVE))
        one, other = await connect(), await connect()
        one.send(HEARTBEAT, 1)
        await proxy.came(api(HEARTBEAT))
        other.send(LEAVE, 2)
        assert [await one.answer(), await other.answer()] == [1, 2]
        assert broker.came == [(LEAVE, 2), (HEARTBEAT, 1)]


async def test_delayed_requests_keep_the_order_of_their_connection() -> None:
    async with fake() as (broker, proxy, connect):
        rule = proxy.delay(api(HEARTBEAT), 0.3)
        client, other = await connect(), await connect()
        started = time.monotonic()
        client.send(HEARTBEAT, 1)
        client.send(LEAVE, 2)
        other.send(LEAVE, 3)
        assert await other.answer() == 3
        assert [await client.answer(), await client.answer()] == [1, 2]
        assert time.monotonic() - started >= 0.3
        assert broker.came[1:] == [(HEARTBEAT, 1), (LEAVE, 2)]
        rule.remove()


@pytest.mark.parametrize(("answer", "done"), [(False, []), (True, [(HEARTBEAT, 1)])])
async def test_a_connection_is_closed_before_or_after_the_broker_has_acted(
    answer: bool, done: list[tuple[int, int]]
) -> None:
    async with fake() as (broker, proxy, connect):
        proxy.reset(api(HEARTBEAT), answer=answer)
        client = await connect()
        client.send(HEARTBEAT, 1)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.answer()
        assert broker.came == done
        client = await connect()
        client.send(HEARTBEAT, 2)
        assert await client.answer() == 2


@pytest.mark.parametrize(("to_broker", "from_broker"), [(True, True), (True, False), (False, True)])
async def test_a_cut_stops_one_way_or_both_until_it_heals(to_broker: bool, from_broker: bool) -> None:
    async with fake() as (broker, proxy, connect):
        client = await connect()
        client.send(HEARTBEAT, 1)
        assert await client.answer() == 1
        cut = proxy.cut(to_broker=to_broker, from_broker=from_broker)
        client.send(HEARTBEAT, 2)
        with pytest.raises(TimeoutError):
            await client.answer(timeout=0.3)
        if not to_broker:
            await broker.has((HEARTBEAT, 1), (HEARTBEAT, 2))
        assert ((HEARTBEAT, 2) in broker.came) == (not to_broker)
        cut.heal()


async def test_what_was_sent_in_a_cut_arrives_when_it_heals_although_its_client_has_gone() -> None:
    async with fake() as (broker, proxy, connect):
        client = await connect()
        cut = proxy.cut()
        client.send(HEARTBEAT, 1)
        await proxy.came(api(HEARTBEAT))
        client.writer.close()
        cut.heal()
        await broker.has((HEARTBEAT, 1))


async def test_dropped_and_throttled_connections() -> None:
    async with fake() as (_, proxy, connect):
        client = await connect()
        client.send(HEARTBEAT, 1)
        assert await client.answer() == 1
        proxy.drop_connections()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.answer()
        client = await connect()
        proxy.throttle(50)
        started = time.monotonic()
        client.send(HEARTBEAT, 2)
        assert await client.answer() == 2
        assert time.monotonic() - started >= 15 / 50
        proxy.throttle(None)


async def test_without_its_broker_a_connection_is_closed_at_once() -> None:
    with Proxy(free_ports(1)) as proxy:
        reader, _ = await asyncio.open_connection(HOST, proxy.ports[0])
        assert await asyncio.wait_for(reader.read(), 10) == b""


async def create(broker: EmbeddedBroker, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()


def test_transactional_fields_are_read_in_plain_and_in_flexible_versions() -> None:
    ids = struct.pack(">qh", 7, 3)
    plain = parse(frame_of(Api.END_TXN, 5, 1, b"\x00\x01t" + ids + b"\x01"), 1, 2)
    assert (plain.transactional_id, plain.producer_id, plain.producer_epoch, plain.committed) == ("t", 7, 3, True)
    assert (plain.correlation_id, plain.client_id, plain.broker, plain.connection) == (5, "c", 1, 2)
    flexible = parse(frame_of(Api.END_TXN, 5, 3, b"\x01\x09\x02xx" + b"\x02t" + ids + b"\x00\x00"), 1, 2)
    assert (flexible.transactional_id, flexible.producer_id, flexible.committed) == ("t", 7, False)
    offsets = parse(frame_of(Api.TXN_OFFSET_COMMIT, 5, 0, b"\x00\x01t\x00\x01g" + ids), 1, 2)
    assert (offsets.transactional_id, offsets.producer_id, offsets.producer_epoch) == ("t", 7, 3)
    unacknowledged = parse(frame_of(Api.PRODUCE, 5, 7, b"\xff\xff\x00\x00"), 1, 2)
    assert (unacknowledged.transactional_id, unacknowledged.answered) == (None, False)
    assert parse(frame_of(99, 5), 1, 2).api == 99


@pytest.mark.kafka
async def test_clients_stay_behind_the_proxy_in_transactions_and_groups(
    broker: EmbeddedBroker, topic_prefix: str
) -> None:
    await create(broker, topic_prefix)
    port = int(broker.bootstrap_servers.partition(":")[2])
    with Proxy([port]) as proxy:
        options = {"bootstrap_servers": proxy.bootstrap_servers}
        async with AIOKafkaProducer(**options, transactional_id=topic_prefix) as producer, producer.transaction():
            await producer.send_and_wait(topic_prefix, b"here", partition=0)
        group = {"group_id": topic_prefix, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with AIOKafkaConsumer(topic_prefix, **options, **group) as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 30)).value == b"here"
            await consumer.commit()
        seen = {request.api for request in proxy.seen()}
        assert {Api.PRODUCE, Api.END_TXN, Api.FETCH, Api.JOIN_GROUP, Api.OFFSET_COMMIT, Api.INIT_PRODUCER_ID} <= seen
        (commit,) = proxy.seen(api(Api.END_TXN))
        assert (commit.transactional_id, commit.committed) == (topic_prefix, True)


@pytest.mark.kafka
async def test_a_held_record_is_read_once_it_is_released(broker: EmbeddedBroker, topic_prefix: str) -> None:
    await create(broker, topic_prefix)
    tp = TopicPartition(topic_prefix, 0)
    with Proxy([int(broker.bootstrap_servers.partition(":")[2])]) as proxy:
        async with (
            AIOKafkaProducer(bootstrap_servers=proxy.bootstrap_servers) as producer,
            AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as onlooker,
        ):
            onlooker.assign([tp])
            held = proxy.hold(api(Api.PRODUCE))
            sent = await producer.send(topic_prefix, b"held", partition=0)
            await held.caught()
            assert await onlooker.end_offsets([tp]) == {tp: 0}
            held.release()
            await asyncio.wait_for(sent, 30)
            assert await onlooker.end_offsets([tp]) == {tp: 1}
