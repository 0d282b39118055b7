"""Laws of where a stage goes on when its offsets are forgotten, or its topic is created again."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.errors import can_be_retried
from keygrouping_kafka.stable_offsets import StableOffsetsRequest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import write_unreadable
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients, progress
from keygrouping_service.kafka.end_of_input import finish_input
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import END, Committed, Progress, commit_progress, read_offsets
from keygrouping_service.kafka.runner import Delivery, PartitionRunner
from keygrouping_service.kafka.starts import find_starts
from keygrouping_service.kafka.topic_ids import UNKNOWN, read_topic_id
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.record import UndecodableError
from keygrouping_service.settings import ServiceSettings, StageSettings
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka
STAGE = "copy"


def copy_to(target: str) -> Callable[[OwnedPartition], Awaitable[None]]:
    """Work that copies its partition and counts in the progress how many records it has seen."""

    async def work(owned: OwnedPartition) -> None:
        seen = max(0, owned.progress.time)
        while not owned.stopping:
            if records := await owned.poll(3, 0.1):
                seen += len(records)
                outbox = owned.outbox()
                outbox.pass_on(target, owned.partition, records)
                await owned.submit(outbox, owned.position, Progress(seen))

    return work


class Stage:
    """A stage that copies partition 0 of one topic to another."""

    def __init__(self, cluster: Cluster, settings: StageSettings, prefix: str) -> None:
        self.cluster, self.settings = cluster, settings
        self.source, self.target = f"{prefix}-in", f"{prefix}-out"
        self.group = settings.group(STAGE)
        self.written = 0

    async def write(self, count: int) -> None:
        rows = [(b"k", b"%d" % number) for number in range(self.written, self.written + count)]
        await self.cluster.write(self.source, rows)
        self.written += count

    def runner(self, delivery: Delivery = "exactly_once", begin_again: str = "") -> PartitionRunner:
        changed = self.settings.model_copy(update={"begin_again": begin_again})
        return PartitionRunner(changed, STAGE, self.source, copy_to(self.target), delivery=delivery)

    @asynccontextmanager
    async def running(
        self, delivery: Delivery = "exactly_once", begin_again: str = ""
    ) -> AsyncIterator[PartitionRunner]:
        stop = asyncio.Event()
        runner = self.runner(delivery, begin_again)
        task = asyncio.create_task(runner.run(stop))
        try:
            yield runner
        finally:
            stop.set()
            await task

    async def copies(self) -> list[int]:
        return [int(record.value or b"") for record in await self.cluster.read(self.target)]

    async def copy_all(self, count: int, delivery: Delivery = "exactly_once", begin_again: str = "") -> None:
        """Runs until the target holds so many records and the group has committed the end, and stops."""

        async def done() -> bool:
            end = (await self.committed()).offset
            return len(await self.copies()) >= count and end is not None and end >= self.written

        async with self.running(delivery, begin_again):
            await until(done)

    async def committed(self) -> Committed:
        return (await self.cluster.committed(self.group, self.source))[0]

    async def fails(self, match: str, begin_again: str = "") -> None:
        with pytest.raises(Fatal, match=match):
            await asyncio.wait_for(self.runner(begin_again=begin_again).run(asyncio.Event()), 60)

    async def recreate(self) -> str:
        """Creates the source again, with no records; gives its id."""
        await self.cluster.recreate(self.source)
        self.written = 0
        return await read_topic_id(self.cluster.admin, self.source)


@pytest.fixture
async def stage(cluster: Cluster, settings: StageSettings, topic_prefix: str) -> Stage:
    stage = Stage(cluster, settings, topic_prefix)
    await cluster.create(**{stage.source: 1, stage.target: 1})
    return stage


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
async def test_a_stage_whose_offsets_are_forgotten_goes_on_where_it_was(
    stage: Stage, delivery: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.write(10)
    await stage.copy_all(10, delivery)
    await stage.cluster.forget(stage.group)
    assert (await stage.committed()).offset is None
    with caplog.at_level(logging.WARNING):
        async with stage.running(delivery):
            await until(lambda: _is(stage, 10))
        assert await stage.copies() == list(range(10)), "nothing twice, though there is nothing new"
    assert [line for line in caplog.messages if "has forgotten what group" in line]
    assert (await stage.committed()).progress == Progress(10)
    await stage.cluster.forget(stage.group)
    await stage.write(5)
    await stage.copy_all(15, delivery)
    assert await stage.copies() == list(range(15))
    assert await stage.committed() == Committed(15, Progress(15))


async def _is(stage: Stage, offset: int) -> bool:
    return (await stage.committed()).offset == offset


async def test_offsets_that_a_tool_has_reset_win_over_the_copy(stage: Stage) -> None:
    await stage.write(6)
    await stage.copy_all(6)
    client = AIOKafkaConsumer(
        bootstrap_servers=stage.cluster.bootstrap_servers, group_id=stage.group, enable_auto_commit=False
    )
    async with clients.started(client):
        client.assign([TopicPartition(stage.source, 0)])
        await client.commit({TopicPartition(stage.source, 0): 2})
    assert (await stage.committed()).topic_id == UNKNOWN
    await stage.copy_all(10)
    assert await stage.copies() == [*range(6), *range(2, 6)]


async def test_a_topic_that_was_created_again_stops_the_stage_until_it_is_told_to_begin_again(stage: Stage) -> None:
    await stage.write(4)
    await stage.copy_all(4)
    before = (await stage.committed()).topic_id
    topic_id = await stage.recreate()
    await stage.write(9)
    await stage.fails(rf"its id was {before}, is {topic_id}.*set KEYGROUPING_BEGIN_AGAIN={topic_id}")
    await stage.fails("deleted and created again", begin_again=before)
    assert await stage.copies() == list(range(4)), "nothing of the new topic is taken for the rest of the old one"

    await stage.copy_all(13, begin_again=f"{before},{topic_id}")
    assert await stage.copies() == [*range(4), *range(9)]
    assert await stage.committed() == Committed(9, Progress(13)), "progress never goes back"
    await stage.write(2)
    await stage.copy_all(15, begin_again=topic_id)
    assert await stage.copies() == [*range(4), *range(11)], "the setting may stay"


async def test_a_topic_of_another_id_under_an_offset_that_is_still_there_stops_the_stage(stage: Stage) -> None:
    await stage.write(4)
    tp = TopicPartition(stage.source, 0)
    other = "x" * 22
    client = AIOKafkaConsumer(
        bootstrap_servers=stage.cluster.bootstrap_servers, group_id=stage.group, enable_auto_commit=False
    )
    async with clients.started(client):
        client.assign([tp])
        await commit_progress(client, stage.source, {0: Committed(2, Progress(2), other)})
    await stage.fails(f"its id was {other}")


async def test_a_topic_that_is_created_again_under_a_running_stage_stops_it(stage: Stage) -> None:
    await stage.write(4)
    runner = stage.runner()
    running = asyncio.create_task(runner.run(asyncio.Event()))
    await until(lambda: _is(stage, 4))
    await stage.recreate()
    await stage.write(9)
    with pytest.raises(Fatal, match="was deleted and created again"):
        await asyncio.wait_for(running, 60)


async def test_a_partition_that_has_lost_records_begins_again_only_on_purpose(stage: Stage) -> None:
    await stage.write(2)
    await stage.copy_all(2)
    committed = await stage.committed()
    client = AIOKafkaConsumer(
        bootstrap_servers=stage.cluster.bootstrap_servers, group_id=stage.group, enable_auto_commit=False
    )
    async with clients.started(client):
        client.assign([TopicPartition(stage.source, 0)])
        await commit_progress(client, stage.source, {0: replace(committed, offset=7)})
    await stage.fails(rf"\[0\] ends before offset 7, .* set KEYGROUPING_BEGIN_AGAIN={committed.topic_id}")
    await stage.copy_all(4, begin_again=committed.topic_id)
    assert await stage.copies() == [0, 1, 0, 1]


async def test_progress_of_the_group_is_known_although_its_offsets_are_forgotten(
    cluster: Cluster, settings: StageSettings, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that comes back from an idle time must know how far the others have gone."""
    source = f"{topic_prefix}-in"
    await cluster.create(**{source: 2})
    known: list[dict[int, Progress]] = []

    async def commits(owned: OwnedPartition) -> None:
        await owned.commit(None, 0, Progress(100 + owned.partition))
        known.append(await owned.group_progress([0, 1]))
        await until(lambda: owned.stopping)

    async def run(enough: Callable[[], bool], **changes: object) -> None:
        stop = asyncio.Event()
        runner = PartitionRunner(settings, STAGE, source, commits)
        for name, value in changes.items():
            monkeypatch.setattr(runner, name, value)
        task = asyncio.create_task(runner.run(stop))
        await until(enough)
        stop.set()
        await task

    await run(lambda: len(known) == 2)
    await cluster.forget(settings.group(STAGE))
    known.clear()
    new_producer = PartitionRunner._new_producer

    def only_of_0(partition: int) -> AIOKafkaProducer:
        if partition == 1:
            raise KafkaError("partition 1 can't begin")
        return new_producer(PartitionRunner(settings, STAGE, source, commits), partition)

    await run(lambda: len(known) == 1, _new_producer=only_of_0)
    assert known == [{0: Progress(100), 1: Progress(101)}]


async def test_a_finished_input_stays_finished_although_its_offsets_are_forgotten(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    settings = settings.model_copy(update={"events_topic": f"{topic_prefix}-events"})
    await cluster.create(**{settings.events_topic: 2})
    await finish_input(settings)
    await cluster.forget(settings.group("router"))
    tps = [TopicPartition(settings.events_topic, partition) for partition in (0, 1)]
    positions = Positions(settings, settings.group("router"))
    async with clients.started(clients.reader(settings, committed=False)) as probe:
        found = await find_starts(cluster.admin, probe, settings, positions, settings.group("router"), tps)
    assert {start.committed.progress for start in found.values()} == {Progress(END)}
    await finish_input(settings)


async def test_a_copy_is_found_as_soon_as_its_transaction_has_ended(cluster: Cluster, settings: StageSettings) -> None:
    """Copies of another group, aborted ones and older ones don't count; an open transaction is waited for."""
    tp, group = TopicPartition("events", 0), settings.group(STAGE)
    positions, others = Positions(settings, group), Positions(settings, settings.group("other"))
    producer = clients.producer(settings, transactional_id=settings.application)
    async with (
        clients.started(clients.reader(settings, committed=False)) as probe,
        clients.started(producer),
        clients.started(clients.producer(settings)) as plain,
    ):
        assert await positions.find(cluster.admin, probe, [tp]) == {}
        for offset in (1, 2):
            async with producer.transaction():
                await positions.send(producer, [(tp, OffsetAndMetadata(offset, "ours"))])
        await producer.begin_transaction()
        await positions.send(producer, [(tp, OffsetAndMetadata(3, "aborted"))])
        await producer.abort_transaction()
        await others.send(plain, [(tp, OffsetAndMetadata(4, "another group's"))])
        assert await positions.find(cluster.admin, probe, [tp]) == {tp: OffsetAndMetadata(2, "ours")}

        await producer.begin_transaction()
        await positions.send(producer, [(tp, OffsetAndMetadata(5, "late"))])
        finding = [asyncio.create_task(positions.find(cluster.admin, probe, [tp])) for _ in range(3)]
        done, _ = await asyncio.wait(finding, timeout=1)
        assert not done
        await producer.commit_transaction()
        assert await asyncio.gather(*finding) == [{tp: OffsetAndMetadata(5, "late")}] * 3
        key = orjson.dumps([group, *tp])
        for bad in (b"nonsense", key):
            await plain.send_and_wait(settings.positions_topic, key=bad, value=b"{}")
        with pytest.raises(Fatal, match="holds a record that is not a position"):
            await positions.find(cluster.admin, probe, [tp])
        await plain.send_and_wait(settings.positions_topic, key=key)
        assert await positions.find(cluster.admin, probe, [tp]) == {}


async def test_a_copy_that_can_not_be_read_is_not_taken_for_none(
    broker: EmbeddedBroker, cluster: Cluster, settings: StageSettings
) -> None:
    """An older one may be out of date: what is too large has its key; of a damaged batch nothing is known."""
    tp, group = TopicPartition("events", 0), settings.group(STAGE)
    positions = Positions(settings, group)
    async with (
        clients.started(clients.reader(settings, committed=False)) as probe,
        clients.started(clients.producer(settings, compression="gzip")) as plain,
    ):

        async def find() -> dict[TopicPartition, OffsetAndMetadata]:
            return await positions.find(cluster.admin, probe, [tp])

        async def write_large(key: bytes) -> None:
            outbox = Outbox(plain)
            outbox.append(settings.positions_topic, 0, 1, key, bytes(17 << 20))
            await outbox.send()

        await positions.send(plain, [(tp, OffsetAndMetadata(2, "ours"))])
        await write_large(b"somebody's")
        assert await find() == {tp: OffsetAndMetadata(2, "ours")}
        await write_large(orjson.dumps([group, *tp]))
        with pytest.raises(Fatal, match="holds a record that is not a position"):
            await find()
        await positions.send(plain, [(tp, OffsetAndMetadata(3, "ours"))])
        assert await find() == {tp: OffsetAndMetadata(3, "ours")}
        await write_unreadable(broker, settings, settings.positions_topic, 1)
        with pytest.raises(UndecodableError, match=r"the batch that holds offsets 5 to 6 can't be read") as failure:
            await find()
        assert can_be_retried(failure.value)


async def test_offsets_of_a_transaction_under_way_are_waited_for(
    cluster: Cluster, settings: StageSettings, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_STABLE_SECONDS", 120.0)
    await cluster.create(**{topic_prefix: 1})
    tp, group = TopicPartition(topic_prefix, 0), settings.group(STAGE)
    async with clients.started(clients.producer(settings, transactional_id=topic_prefix)) as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({tp: OffsetAndMetadata(7, "ours")}, group)
        assert (await read_offsets(cluster.admin, group, [tp]))[tp].offset == -1, "overlooked without `stable`"
        reading = asyncio.create_task(read_offsets(cluster.admin, group, [tp], stable=True))
        done, _ = await asyncio.wait([reading], timeout=1)
        assert not done
        await producer.commit_transaction()
        assert await reading == {tp: OffsetAndMetadata(7, "ours")}

        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({tp: OffsetAndMetadata(9, "ours")}, group)
        with monkeypatch.context() as impatient, pytest.raises(KafkaTimeoutError) as failure:
            impatient.setattr(progress, "_STABLE_SECONDS", 0.2)
            await read_offsets(cluster.admin, group, [tp], stable=True)
        assert can_be_retried(failure.value)
        await producer.abort_transaction()
        assert await read_offsets(cluster.admin, group, [tp], stable=True) == {tp: OffsetAndMetadata(7, "ours")}


async def test_an_old_broker_is_asked_as_it_understands(
    cluster: Cluster, settings: StageSettings, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(**{topic_prefix: 1})
    tp = TopicPartition(topic_prefix, 0)
    send = AIOKafkaAdminClient._send_request

    async def refuse(self: AIOKafkaAdminClient, request: object, *node: int) -> object:
        if isinstance(request, StableOffsetsRequest):
            request.prepare({9: (0, 6)})
        return await send(self, request, *node)

    monkeypatch.setattr(AIOKafkaAdminClient, "_send_request", refuse)
    found = await read_offsets(cluster.admin, settings.group(STAGE), [tp], stable=True)
    assert found[tp].offset == -1


GOOD = b'{"offset":7,"metadata":"m"}'


@pytest.mark.parametrize(
    "key", [b"", b"nonsense", b"7", b"[]", b'["copy"]', b'["copy",[],0]', b'["copy","t","0"]', b'["copy","t",0,1]']
)
def test_what_has_no_key_of_a_position_stops_nobody(key: bytes) -> None:
    ours = positions_of("copy")
    assert ours._ours({key: b"{", b'["copy","t",0]': GOOD, b'["other","t",1]': b"{"}) == {
        TopicPartition("t", 0): OffsetAndMetadata(7, "m")
    }


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b"{}", b'{"offset":"7","metadata":"m"}', b'{"offset":-1,"metadata":"m"}', b'{"offset":7}'],
)
def test_a_position_of_ours_that_is_none_is_forgotten_by_what_the_message_says(value: bytes) -> None:
    ours, key = positions_of("copy"), b'["copy","t",0]'
    with pytest.raises(Fatal, match=r'the same key \(\["copy","t",0\]\) and no value'):
        ours._ours({key: value})
    assert ours._ours({key: None}) == {}


def positions_of(group: str) -> Positions:
    return Positions(ServiceSettings(bootstrap_servers="unused:1"), group)
