"""Laws of transactions whose requests are delayed, resent or lost, against a real broker."""

import asyncio
import logging
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, KafkaError, NotCoordinatorError, RequestTimedOutError
from aiokafka.producer.producer import TransactionContext
from aiokafka.producer.sender import BaseHandler, Sender
from aiokafka.producer.transaction_manager import TransactionState
from aiokafka.protocol import transaction as protocol
from aiokafka.protocol.produce import ProduceRequest
from keygrouping_local.proxy import Api, Proxy, Request, Stray
from keygrouping_service import kafka
from keygrouping_service import settings as settings_module
from keygrouping_service.owned import OwnedPartition
from keygrouping_service.partitions import PartitionRunner
from keygrouping_service.progress import Progress
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster, Row, rows_of, until
from keygrouping_service.transactions import AnswerUnknown, TransactionalProducer

pytestmark = pytest.mark.kafka

STAGE = "copy"
REQUEST_TIMEOUT_MS = 3000
"""Longer than a fetch may wait for records."""

TRANSACTIONAL = [Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that give an answer up after seconds."""
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
    await owned.settle()


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


async def assert_copied(cluster: Cluster, settings: StageSettings, source: str, rows: list[Row]) -> None:
    """Every record once, and the offset behind the last one."""
    target, group = source.replace("-in", "-out"), settings.group(STAGE)

    async def through() -> bool:
        return (await cluster.committed(group, source))[0].offset == len(rows)

    await until(through)
    assert rows_of(await cluster.read(target)) == sorted(rows, key=repr)


def is_end(committed: bool) -> "kafka.Callable[[Request], bool]":
    return lambda request: request.api is Api.END_TXN and request.committed is committed


def error_code(answer: bytes) -> int:
    """That of an EndTxn's answer: behind correlation id and throttle time."""
    return int(struct.unpack_from(">h", answer, 8)[0])


async def test_a_commit_that_comes_late_can_not_end_the_next_transaction_half_way(
    cluster: Cluster, delayed: StageSettings, proxy: Proxy, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, _ = await topics(cluster, topic_prefix)
    rows = [(b"k", b"%d" % n) for n in range(40)]
    await cluster.write(source, rows)
    stray = Stray(proxy, is_end(committed=True))
    written = stray.hold_in_next(Api.PRODUCE, answer=True)
    offsets = stray.hold_in_next(Api.TXN_OFFSET_COMMIT)
    with caplog.at_level(logging.WARNING, "keygrouping_service.partitions"):
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
