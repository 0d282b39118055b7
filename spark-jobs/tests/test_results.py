"""The writer of Spark's results, on a real broker and without Spark."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import OffsetAndMetadata
from keygrouping.partial import Result
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.proxy import Api, Proxy, Stray
from keygrouping_service import settings as settings_module
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.progress import MIN_TIME
from keygrouping_service.records.batches import partition_of
from keygrouping_service.records.record import Record
from keygrouping_service.testing import Cluster
from keygrouping_spark import results
from keygrouping_spark.refused import Refused
from keygrouping_spark.results import Noted, ResultWriter, Written
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.stages import _open_results
from prometheus_client import REGISTRY

pytestmark = pytest.mark.kafka

COUNT, SUM = "keygrouping_result_delay_seconds_count", "keygrouping_result_delay_seconds_sum"


def result(key: bytes, end: int) -> Written:
    made = Result(key=key, start=end - 1000, end=end, events=1, weight=1, final=True, aggregates={})
    return Written(partition_of(key, 1 << 31), end, made.record_key, made.encode(), "")


def settings_of(bootstrap_servers: str, application: str) -> SparkSettings:
    return SparkSettings(
        bootstrap_servers=bootstrap_servers,
        application=application,
        results_topic=f"{application}.results",
        positions_topic=f"{application}.positions",
        checkpoint="none",
        job='{"window": 1000, "lateness": 10000, "aggregates": []}',
    )


def figure(settings: SparkSettings, name: str) -> float:
    return REGISTRY.get_sample_value(name, {"group": settings.group("aggregator")}) or 0


async def test_each_window_that_was_written_is_told_of_once(broker: EmbeddedBroker, application: str) -> None:
    settings = settings_of(broker.bootstrap_servers, application)
    now = int(time.time() * 1000)
    batch = [result(b"a", now - 30_000), result(b"b", now - 30_000), result(b"a", now - 15_000), result(b"a", 1000)]
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{settings.results_topic: 2, settings.positions_topic: 1})
        writer, successor = ResultWriter(settings, "one"), ResultWriter(settings, "one")
        assert figure(settings, COUNT) == 0
        assert await writer.write(0, batch) == 4
        passed = time.time() - now / 1000
        assert figure(settings, COUNT) == 2
        assert 25 <= figure(settings, SUM) <= 25 + 2 * passed
        assert await successor.write(0, batch) == 0
        with pytest.raises(Fatal):
            await writer.write(1, batch[:1])
        assert figure(settings, COUNT) == 2
        await writer.close()
        await successor.close()


async def test_a_batch_is_not_written_again_although_the_broker_has_forgotten_its_number(
    broker: EmbeddedBroker, application: str
) -> None:
    settings = settings_of(broker.bootstrap_servers, application)
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{settings.results_topic: 2, settings.positions_topic: 1})
        for batch, forgets, checkpoint, written in ((7, False, "one", 1), (7, True, "one", 0), (7, True, "two", 1)):
            if forgets:
                await cluster.forget(settings.group("aggregator-batches"))
            writer = ResultWriter(settings, checkpoint)
            try:
                if checkpoint == "two":
                    await writer.take_over()
                assert await writer.write(batch, [result(b"a", 1000)]) == written
            finally:
                await writer.close()


async def test_a_commit_that_comes_late_neither_doubles_nor_loses_a_batch(
    broker: EmbeddedBroker, proxy: Proxy, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings_module, "REQUEST_TIMEOUT_MS", 4000)
    settings = settings_of(proxy.bootstrap_servers, application)
    batches = [[result(b"%d" % number, 1000)] for number in range(4)]
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{settings.results_topic: 1, settings.positions_topic: 1})
        writer = ResultWriter(settings, "one")
        stray = Stray(proxy, lambda request: request.api is Api.END_TXN)
        written = stray.hold_in_next(Api.PRODUCE, answer=True)
        writing = asyncio.create_task(write_all(writer, batches))
        await written.caught()
        offsets = proxy.hold(lambda request: request.api is Api.TXN_OFFSET_COMMIT)
        written.release()
        await offsets.caught()
        await stray.deliver()
        offsets.release()
        await writing
        await writer.close()
        written_keys = [record.key for record in await cluster.read(settings.results_topic)]
        assert written_keys == [row.key for (row,) in batches]


@pytest.mark.parametrize("answer", [False, True], ids=["request-lost", "answer-lost"])
async def test_a_batch_whose_commit_is_not_answered_is_written_once_and_told_of(
    broker: EmbeddedBroker, proxy: Proxy, application: str, answer: bool
) -> None:
    settings = settings_of(proxy.bootstrap_servers, application)
    now = int(time.time() * 1000)
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{settings.results_topic: 1, settings.positions_topic: 1})
        writer = ResultWriter(settings, "one")
        proxy.reset(lambda request: request.api is Api.END_TXN, answer=answer)
        assert await writer.write(0, [result(b"a", now)]) == 1
        assert figure(settings, COUNT) == 1
        assert await writer.write(0, [result(b"a", now)]) == 0
        await writer.close()
        assert len(await cluster.read(settings.results_topic)) == 1


@pytest.fixture
async def writers(broker: EmbeddedBroker, application: str) -> AsyncIterator[Callable[[str], ResultWriter]]:
    """Makes a writer for a checkpoint; all of them end with the test."""
    settings = settings_of(broker.bootstrap_servers, application)
    async with Cluster(broker.bootstrap_servers) as cluster, contextlib.AsyncExitStack() as stack:
        await cluster.create(**{settings.results_topic: 2, settings.positions_topic: 1})

        def make(checkpoint: str) -> ResultWriter:
            writer = ResultWriter(settings, checkpoint)
            stack.push_async_callback(writer.close)
            return writer

        yield make


async def test_a_new_checkpoint_takes_over_before_it_believes_what_is_final(
    writers: Callable[[str], ResultWriter],
) -> None:
    former, new = writers("one"), writers("two")
    assert await former.take_over() == MIN_TIME
    await former.write(0, [result(b"a", 1000), result(b"b", 2000)])
    await new.open()
    await former.close()  # as after an error: it goes on, and fences the new one, which doesn't know of these results
    await former.write(1, [result(b"a", 3000)])
    await former.write(2, [])
    with pytest.raises(Fatal, match="another Spark driver of this application writes results now"):
        await new.take_over()
    await new.close()
    assert await new.take_over() == 3000
    with pytest.raises(Fatal, match="another Spark driver of this application writes results now"):
        await former.write(3, [])
    await former.close()
    with pytest.raises(Fatal, match="of the aggregator is out of date, as a driver with another one has gone on since"):
        await former.write(3, [result(b"a", 4000)])
    again = writers("one")
    await again.open()
    with pytest.raises(Fatal, match="out of date, as a driver with another one"):
        again.require(9)
    await new.close()
    assert await new.write(0, [result(b"c", 3500)]) == 1


async def test_a_former_driver_has_ended_before_a_new_checkpoint_learns_what_is_final(
    writers: Callable[[str], ResultWriter],
) -> None:
    former = writers("one")
    await former.take_over()
    await former.write(0, [result(b"a", 2000)])

    async def judge() -> None:
        with pytest.raises(Fatal, match="another Spark driver of this application writes results now"):
            await former.write(1, [result(b"a", 3000)])

    async def open_checkpoint(_: str) -> tuple[Any, None]:
        return SimpleNamespace(create=lambda identity: identity), None

    group: Any = SimpleNamespace(name="aggregator", topic_id="T" * 22, judge=judge, watermark=1000)
    async with contextlib.AsyncExitStack() as stack:
        environment: Any = SimpleNamespace(settings=former._settings, stack=stack, open_checkpoint=open_checkpoint)
        _, identity, writer = await _open_results(environment, group)
        assert identity.floor == 2000, "the group was told of less than was written"
        assert await writer.write(0, [result(b"a", 3000)]) == 1


async def test_an_older_copy_of_a_checkpoint_is_told_which_batch_it_lacks(
    writers: Callable[[str], ResultWriter],
) -> None:
    writer, copy = writers("one"), writers("one")
    await writer.take_over()
    for batch, rows in enumerate([[result(b"a", 2000)], [], [result(b"b", 1000)], []]):
        await writer.write(batch, rows)
    await copy.open()
    copy.require(3)
    since = "its last batch is 2, and it has gone on to 3 in another copy"
    with pytest.raises(Fatal, match=f"of the aggregator is out of date, as {since}: start the newest one"):
        copy.require(2)
    assert await copy.take_over() == 2000


def test_what_a_version_noted_that_did_not_take_over_refuses_no_checkpoint() -> None:
    """It noted a checkpoint only once that had results."""
    noted = Noted.decode(OffsetAndMetadata(7, "v1 one 7"))
    assert noted == Noted("one", 7, None)
    assert Noted.decode(OffsetAndMetadata(0, "")) is Noted.decode(OffsetAndMetadata(-1, "")) is None
    for checkpoint, written in (("one", 7), ("two", -1)):
        writer = ResultWriter(settings_of("unused:1", "old"), checkpoint)
        writer._noted = noted
        writer.require(written)
        assert (writer.written, writer._final) == (written, MIN_TIME)


async def write_all(writer: ResultWriter, batches: list[list[Written]]) -> None:
    for number, batch in enumerate(batches):
        await writer.write(number, batch)


class Waits:
    """Stands for a producer whose broker acknowledges nothing before all of a transaction is on its way."""

    def __init__(self, wanted: int) -> None:
        self._real = AIOKafkaProducer(bootstrap_servers="unused:1")
        self._missing = wanted
        self._all = asyncio.get_running_loop().create_future()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def partitions_for(self, _: str) -> set[int]:
        return {0}

    def create_batch(self) -> Any:
        return self._real.create_batch()

    async def send_batch(self, batch: Any, *_: object, **__: object) -> Any:
        return self._came(batch.record_count())

    async def send_and_wait(self, *_: object) -> Any:
        return await self._came(1)

    async def send_offsets_to_transaction(self, *_: object) -> None:
        assert self._all.done()

    def _came(self, records: int) -> Any:
        self._missing -= records
        if not self._missing:
            self._all.set_result(SimpleNamespace(offset=0))
        return self._all


async def test_many_refused_partials_are_not_written_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else their transaction would take longer than brokers wait for one."""
    writer = ResultWriter(settings_of("unused:1", "refused"), "one")
    origin = Record("partials", 0, 7, -1, b"k", b"no partial")
    client: Any = Waits(wanted=6000 + 1)
    writer._producer = client

    async def any_size(*_: object) -> int:
        return 1000

    @contextlib.asynccontextmanager
    async def nobody(_: object) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(results, "largest_letter", any_size)
    monkeypatch.setattr(results, "admin", lambda _: None)
    monkeypatch.setattr(results, "started", nobody)
    async with asyncio.timeout(60):
        await writer._transaction(Noted("one", 0, 0), [], [Refused(origin, "invalid-partial", "not JSON")] * 6000)
    writer._producer = None
