"""Laws of transactions whose requests are delayed, resent or lost, against a real broker."""

import asyncio
import logging
import os
import re
import signal
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import InvalidProducerEpoch, KafkaError, NotCoordinatorError
from aiokafka.producer.producer import TransactionContext
from aiokafka.producer.sender import BaseHandler, Sender
from aiokafka.producer.transaction_manager import TransactionState
from aiokafka.protocol import transaction as protocol
from aiokafka.protocol.produce import ProduceRequest
from keygrouping_kafka.errors import can_be_retried
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.proxy import Api, Match, Proxy, Stray
from keygrouping_service import settings as settings_module
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Progress
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.kafka.transactions import AnswerUnknown, TransactionalProducer
from keygrouping_service.records.aiokafka_adapter import transports_of
from keygrouping_service.settings import ServiceSettings, StageSettings
from keygrouping_service.testing import Cluster, Row, rows_of, until

pytestmark = pytest.mark.kafka

STAGE = "copy"
REQUEST_TIMEOUT_MS = 3000
"""Longer than a fetch may wait for records."""

NOT_FOR_EVER = 120.0
"""Seconds within which something ends that would else wait without end: a closer bound is one on the machine."""

TRANSACTIONAL = [Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that give an answer up after seconds, for tests in which one never comes."""
    monkeypatch.setattr(settings_module, "REQUEST_TIMEOUT_MS", REQUEST_TIMEOUT_MS)


@pytest.fixture
def delayed(settings: StageSettings, proxy: Proxy) -> StageSettings:
    """Settings of clients behind the proxy."""
    return settings.model_copy(update={"bootstrap_servers": proxy.bootstrap_servers})


async def copy(owned: OwnedPartition) -> None:
    """Work that copies ten records per transaction to the topic beside its own."""
    target = owned.tp.topic.replace("-in", "-out")
    while not owned.stopping:
        if records := await owned.poll(10, 0.1):
            outbox = owned.outbox()
            outbox.pass_on(target, owned.partition, records)
            await owned.submit(outbox, owned.position, Progress(owned.position))
    await owned.flush()


async def test_a_cluster_that_names_no_broker_yet_is_one_to_wait_for(
    settings: StageSettings, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AIOKafkaClient, "get_random_node", lambda _: None)
    with pytest.raises(KafkaError, match="names no broker yet") as caught:
        async with clients.started(clients.producer(settings, transactional_id=application)):
            raise AssertionError("it has found a coordinator")
    assert can_be_retried(caught.value)


@asynccontextmanager
async def copying(settings: StageSettings, source: str) -> AsyncIterator[PartitionRunner]:
    stop = asyncio.Event()
    runner = PartitionRunner(settings, STAGE, source, copy)
    task = asyncio.create_task(runner.run(stop))
    try:
        yield runner
    finally:
        stop.set()
        await task


async def topics(cluster: Cluster, prefix: str) -> tuple[str, str]:
    source, target = f"{prefix}-in", f"{prefix}-out"
    await cluster.create(**{source: 1, target: 1})
    return source, target


async def assert_copied(cluster: Cluster, settings: StageSettings, source: str, rows: Sequence[Row]) -> None:
    """Every record once, and the offset behind the last one."""
    target, group = source.replace("-in", "-out"), settings.group(STAGE)

    async def through() -> bool:
        return (await cluster.committed(group, source))[0].offset == len(rows)

    await until(through)
    assert rows_of(await cluster.read(target)) == sorted(rows, key=repr)


def is_end(committed: bool) -> Match:
    return lambda request: request.api is Api.END_TXN and request.committed is committed


def error_code(answer: bytes) -> int:
    """That of an EndTxn's answer: behind correlation id and throttle time."""
    return int(struct.unpack_from(">h", answer, 8)[0])


@pytest.mark.usefixtures("impatient")
async def test_a_commit_that_comes_late_can_not_end_the_next_transaction_half_way(
    cluster: Cluster, delayed: StageSettings, proxy: Proxy, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, _ = await topics(cluster, topic_prefix)
    rows = [(b"k", b"%d" % n) for n in range(40)]
    await cluster.write(source, rows)
    stray = Stray(proxy, is_end(committed=True))
    written = stray.hold_in_next(Api.PRODUCE, answer=True)
    offsets = stray.hold_in_next(Api.TXN_OFFSET_COMMIT)
    with caplog.at_level(logging.WARNING, "keygrouping_service.kafka.runner"):
        async with copying(delayed, source):
            await written.caught()
            await offsets.caught()
            answer = await stray.deliver()
            written.release()
            offsets.release()
            await assert_copied(cluster, delayed, source, rows)
    assert error_code(answer) == InvalidProducerEpoch.errno
    assert "a new session begins at the committed offset" in caplog.text
    assert "the answer to a commit is unknown" in caplog.text


@pytest.mark.usefixtures("impatient")
async def test_an_offset_that_comes_late_can_not_replace_a_newer_one(
    cluster: Cluster, delayed: StageSettings, proxy: Proxy, topic_prefix: str
) -> None:
    source, _ = await topics(cluster, topic_prefix)
    rows = [(b"k", b"%d" % n) for n in range(20)]
    await cluster.write(source, rows)
    stray = Stray(proxy, lambda request: request.api is Api.TXN_OFFSET_COMMIT)
    end = stray.hold_in_next(Api.END_TXN)
    async with copying(delayed, source):
        await end.caught()
        await stray.deliver()
        end.release()
        await assert_copied(cluster, delayed, source, rows)


@pytest.mark.usefixtures("impatient")
async def test_an_abort_that_comes_late_can_not_end_the_next_transaction_half_way(
    cluster: Cluster, delayed: StageSettings, proxy: Proxy, topic_prefix: str
) -> None:
    _, target = await topics(cluster, topic_prefix)
    stray = Stray(proxy, is_end(committed=False))
    async with clients.started(clients.producer(delayed, transactional_id=topic_prefix)) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(target, b"aborted", partition=0)
        with pytest.raises(AnswerUnknown, match="the answer to an abort is unknown"):
            await producer.abort_transaction()
        assert not await can_go_on(producer)
    successor = clients.producer(delayed, transactional_id=topic_prefix)
    async with clients.started(successor), successor.transaction():
        await successor.send_and_wait(target, b"first half", partition=0)
        assert error_code(await stray.deliver()) == InvalidProducerEpoch.errno
        await successor.send_and_wait(target, b"second half", partition=0)
    assert [record.value for record in await cluster.read(target)] == [b"first half", b"second half"]


@pytest.mark.usefixtures("impatient")
async def test_a_partition_whose_abort_is_delayed_is_processed_exactly(
    cluster: Cluster, delayed: StageSettings, proxy: Proxy, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix)
    rows = [(b"k", b"%d" % n) for n in range(30)]
    await cluster.write(source, rows)
    stray = Stray(proxy, is_end(committed=False))
    written = stray.hold_in_next(Api.PRODUCE, answer=True)
    faults = iter([True])

    async def faulty(owned: OwnedPartition) -> None:
        if next(faults, False):
            outbox = owned.outbox()
            outbox.pass_on(target, 0, await owned.poll(10, NOT_FOR_EVER))
            outbox.append(target, 7, 0, b"k", b"there is no such partition")
            await owned.commit(outbox, owned.position, Progress(1))
        await copy(owned)

    stop = asyncio.Event()
    task = asyncio.create_task(PartitionRunner(delayed, STAGE, source, faulty).run(stop))
    await written.caught()
    assert error_code(await stray.deliver()) == InvalidProducerEpoch.errno
    written.release()
    await assert_copied(cluster, delayed, source, rows)
    stop.set()
    await task


@pytest.mark.parametrize("api", TRANSACTIONAL)
@pytest.mark.parametrize("answer", [False, True], ids=["request-lost", "answer-lost"])
async def test_no_transactional_request_is_repeated_that_may_still_be_under_way(
    cluster: Cluster, delayed: StageSettings, proxy: Proxy, topic_prefix: str, api: Api, answer: bool
) -> None:
    source, target = await topics(cluster, topic_prefix)
    async with clients.started(clients.producer(delayed, transactional_id=topic_prefix)) as producer:
        proxy.reset(lambda request: request.api is api, answer=answer)
        with pytest.raises(AnswerUnknown, match="is unknown"):
            async with producer.transaction():
                await producer.send_and_wait(target, b"once", partition=0)
                await producer.send_offsets_to_transaction({TopicPartition(source, 0): 1}, topic_prefix)
        assert not await can_go_on(producer)
    ends = proxy.seen(lambda request: request.api is Api.END_TXN)
    assert len(proxy.seen(lambda request: request.api is api)) == 1
    assert len(ends) == (api is Api.END_TXN), "what is open is left to the epoch that follows"
    async with clients.started(clients.producer(delayed, transactional_id=topic_prefix)):
        written = [record.value for record in await cluster.read(target)]
    assert written == ([b"once"] if api is Api.END_TXN and answer else [])


async def can_go_on(producer: AIOKafkaProducer) -> bool:
    try:
        await producer.begin_transaction()
    except KafkaError:
        return False
    return True


async def test_what_a_broker_has_refused_for_now_is_sent_again(
    cluster: Cluster, settings: StageSettings, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = await topics(cluster, topic_prefix)
    async with clients.started(clients.producer(settings, transactional_id=topic_prefix)) as producer:
        client, refusals = producer.client, iter([NotCoordinatorError.errno])
        send = client.send

        async def refuse_first(node: int, request: object, **options: object) -> object:
            if isinstance(request, protocol.EndTxnRequest) and (code := next(refusals, None)) is not None:
                return protocol.EndTxnResponse_v0(0, code)
            return await send(node, request, **options)

        monkeypatch.setattr(client, "send", refuse_first)
        async with producer.transaction():
            await producer.send_and_wait(target, b"there", partition=0)
    assert [record.value for record in await cluster.read(target)] == [b"there"]


async def test_a_producer_closes_within_seconds_though_the_broker_does_not_take_what_was_sent(
    broker: EmbeddedBroker, cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    _, target = await topics(cluster, topic_prefix)
    large = 64 << 20
    producer = clients.producer(settings, transactional_id=topic_prefix, max_request_size=large, batch_bytes=large)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(target, b"there", partition=0)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        delivery = await producer.send(target, bytes(32 << 20), partition=0)
        transports = transports_of(producer.client)
        await until(lambda: any(transport.get_write_buffer_size() for transport in transports))
        await asyncio.wait_for(clients.close(producer), NOT_FOR_EVER)
        assert all(transport.get_write_buffer_size() == 0 for transport in transports)
        with pytest.raises(KafkaError):
            await delivery
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.usefixtures("impatient")
async def test_a_stage_stops_within_seconds_while_the_answer_to_a_commit_is_awaited(
    cluster: Cluster, delayed: StageSettings, proxy: Proxy, topic_prefix: str
) -> None:
    source, _ = await topics(cluster, topic_prefix)
    await cluster.write(source, [(b"k", b"%d" % n) for n in range(10)])
    commit = proxy.hold(is_end(committed=True))
    async with copying(delayed, source):
        await commit.caught()
        began = time.monotonic()
    assert time.monotonic() - began < NOT_FOR_EVER
    commit.discard()


@pytest.mark.usefixtures("impatient")
async def test_a_stage_stops_within_seconds_though_a_session_can_not_begin(
    cluster: Cluster, delayed: StageSettings, proxy: Proxy, topic_prefix: str
) -> None:
    source, _ = await topics(cluster, topic_prefix)
    initialization = proxy.hold(lambda request: request.api is Api.INIT_PRODUCER_ID)
    async with copying(delayed, source):
        await initialization.caught()
        cut = proxy.cut()
        began = time.monotonic()
    assert time.monotonic() - began < NOT_FOR_EVER
    cut.heal()


def test_all_producers_are_made_in_one_place() -> None:
    """So that no stage commits with a producer that repeats requests blindly."""
    root = Path(__file__).parents[4]
    sources = [
        path
        for room in ("libs", "services", "spark-jobs", "load-generators", "experiments")
        for path in (root / room).rglob("src/**/*.py")
    ]
    makers = {
        path.name for path in sources if re.search(r"= AIOKafkaProducer\(|return AIOKafkaProducer\(", path.read_text())
    }
    assert makers - {"testing.py", "__init__.py"} == {"clients.py"}
    transactional = {path.name for path in sources if "return TransactionalProducer(" in path.read_text()}
    assert transactional == {"clients.py"}


def test_this_is_the_aiokafka_that_the_producer_was_made_for() -> None:
    """Another version has to be read first: its sender, its transaction manager, its accumulator."""
    assert version("aiokafka").startswith("0.14.")
    assert {"do"} <= vars(BaseHandler).keys()
    assert {"_maybe_do_transactional_request", "_fail_all", "sender_task"} <= vars(Sender).keys()
    assert TransactionState.is_transition_valid(TransactionState.READY, TransactionState.FATAL_ERROR)
    assert not TransactionState.is_transition_valid(TransactionState.FATAL_ERROR, TransactionState.IN_TRANSACTION)
    assert TransactionContext.__aexit__.__code__.co_names.count("is_fatal_error") == 1
    single = {name for name in vars(protocol) if name.endswith("Request") and name != "Request"}
    known = {"InitProducerIdRequest", "AddPartitionsToTxnRequest", "AddOffsetsToTxnRequest"}
    assert single == known | {"TxnOffsetCommitRequest", "EndTxnRequest"}


def test_transactions_of_version_2_are_still_out_of_reach() -> None:
    """When this fails, each transaction can have an epoch of its own: see the module's docstring."""
    newest = {request: request._CLASSES[-1].API_VERSION for request in (protocol.EndTxnRequest, ProduceRequest)}
    assert newest == {protocol.EndTxnRequest: 0, ProduceRequest: 7}


@pytest.mark.parametrize("call", ["begin", "send_batch", "send_offsets", "commit"])
@pytest.mark.parametrize("given_up", [True, False])
async def test_a_producer_that_has_failed_says_so_as_an_error_of_kafka(call: str, given_up: bool) -> None:
    producer = clients.producer(ServiceSettings(bootstrap_servers="localhost:1"), transactional_id="t")
    assert isinstance(producer, TransactionalProducer)
    producer._txn_manager.set_pid_and_epoch(1, 0)
    await producer.begin_transaction()
    if given_up:
        producer.failure = AnswerUnknown("lost")
    producer._txn_manager.fatal_error(KafkaError("fenced"))
    producer._forget_failures()
    calls = {
        "begin": producer.begin_transaction,
        "send_batch": lambda: producer.send_batch(producer.create_batch(), "topic", partition=0),
        "send_offsets": lambda: producer.send_offsets_to_transaction({TopicPartition("topic", 0): 1}, "group"),
        "commit": producer.commit_transaction,
    }
    try:
        with pytest.raises(AnswerUnknown if given_up else KafkaError):
            await calls[call]()
    finally:
        await clients.close(producer)
