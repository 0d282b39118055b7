"""Laws of the exactly-once loop against a real broker: nothing lost, nothing doubled, whatever happens."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError, ProducerFenced
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Progress
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.observability import metrics
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster, Row, rows_of, until
from prometheus_client import REGISTRY

pytestmark = pytest.mark.kafka

STAGE = "copy"
LONGEST = 120.0
"""Seconds until a record that is there has come, on a machine that is busy."""


@pytest.fixture(scope="module")
def broker(fresh_broker: EmbeddedBroker) -> EmbeddedBroker:
    return fresh_broker


def copy_to(target: str, most: int = 50) -> Callable[[OwnedPartition], Awaitable[None]]:
    """Work that copies its partition and counts in the progress how many records it has seen."""

    async def work(owned: OwnedPartition) -> None:
        seen = max(0, owned.progress.time)
        while not owned.stopping:
            records = await owned.poll(most, 0.1)
            if records:
                seen += len(records)
                outbox = owned.outbox()
                outbox.pass_on(target, owned.partition, records)
                await owned.submit(outbox, owned.position, Progress(seen))
        await owned.flush()

    return work


@asynccontextmanager
async def running(runner: PartitionRunner) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    task = asyncio.create_task(runner.run(stop))
    try:
        yield task
    finally:
        stop.set()
        await task


def numbered(count: int, mark: str = "") -> list[Row]:
    return [(b"k%d" % (n % 7), f"{mark}{n}".encode()) for n in range(count)]


async def topics(cluster: Cluster, prefix: str, partitions: int = 2) -> tuple[str, str]:
    source, target = f"{prefix}-in", f"{prefix}-out"
    await cluster.create(**{source: partitions, target: partitions})
    return source, target


async def test_everything_is_copied_once_and_progress_goes_with_the_offsets(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix)
    rows = [numbered(500, "a"), numbered(300, "b")]
    for partition in (0, 1):
        await cluster.write(source, rows[partition], partition)
    runner = PartitionRunner(settings, STAGE, source, copy_to(target))
    async with running(runner):
        await until(lambda: runner.ready)
        await until(lambda: copied(cluster, target, 800))
        assert await cluster.members(runner.group) == 1
    assert await cluster.members(runner.group) == 0, "a stopped member has left its group"
    assert rows_of(await cluster.read(target)) == sorted(rows[0] + rows[1], key=repr)
    committed = await cluster.committed(runner.group, source)
    assert {p: (c.offset, c.progress.time) for p, c in committed.items()} == {0: (500, 500), 1: (300, 300)}


async def test_the_lag_grows_while_work_is_at_a_standstill(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, _ = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, numbered(50), 0)

    async def work(owned: OwnedPartition) -> None:
        await owned.poll(10, LONGEST)
        await until(lambda: owned.stopping)

    runner = PartitionRunner(settings, STAGE, source, work)
    async with running(runner):
        await until(lambda: [owned.lag for owned in runner.owned.values()] == [40])
        await cluster.write(source, numbered(25), 0)
        await until(lambda: [owned.lag for owned in runner.owned.values()] == [65])


async def test_the_lag_is_shown_while_work_restarts(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, _ = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, numbered(50), 0)

    async def work(owned: OwnedPartition) -> None:
        await owned.poll(10, LONGEST)
        if owned.offset == 0:
            await owned.commit(None, owned.position, Progress())
        raise KafkaError("every time")

    runner = PartitionRunner(settings, STAGE, source, work)

    def resting_with(lag: int) -> bool:
        shown = REGISTRY.get_sample_value("keygrouping_lag_records", {"group": runner.group})
        return not runner.owned and shown == lag

    async with running(runner):
        await until(lambda: resting_with(40))
        await cluster.write(source, numbered(25), 0)
        await until(lambda: resting_with(65))
    assert resting_with(0)


async def test_the_lag_is_shown_where_work_can_not_even_begin(
    cluster: Cluster, settings: StageSettings, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await topics(cluster, topic_prefix, 2)
    for partition in (0, 1):
        await cluster.write(source, numbered(50), partition)
    await cluster.admin.delete_records({TopicPartition(source, 1): RecordsToDelete(before_offset=20)})
    runner = PartitionRunner(settings, STAGE, source, copy_to(target))
    new_producer = runner._new_producer

    def away(_: int) -> AIOKafkaProducer:
        raise KafkaError("no coordinator of transactions")

    def lag() -> float | None:
        return REGISTRY.get_sample_value("keygrouping_lag_records", {"group": runner.group})

    monkeypatch.setattr(runner, "_new_producer", away)
    async with running(runner):
        await until(lambda: lag() == 80)
        monkeypatch.setattr(runner, "_new_producer", new_producer)
        await until(lambda: runner.ready and lag() == 0)


async def test_when_the_input_was_last_seen_is_shown_by_who_owns_nothing_of_it_too(
    broker: EmbeddedBroker, cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)

    def seen(runner: PartitionRunner) -> float:
        labels = {"group": runner.group}
        return REGISTRY.get_sample_value("keygrouping_input_seen_timestamp_seconds", labels) or 0.0

    class Nothing(RoundRobinPartitionAssignor):  # type: ignore[misc]
        """No partitions for anybody."""

        name = "nothing"

        def assign(self, _: Any, members: dict[str, Any]) -> dict[str, Any]:
            return dict.fromkeys(members, ConsumerProtocolMemberAssignment(0, [], b""))

    runner = PartitionRunner(settings, STAGE, source, copy_to(target), assignor=Nothing())
    began = seen(runner)
    assert time.time() - began < 5
    async with running(runner):
        await until(lambda: runner.ready and seen(runner) > began)
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(1)
            last = seen(runner)
            await asyncio.sleep(5)
            assert seen(runner) == last
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        await until(lambda: seen(runner) > last)


async def test_work_goes_on_after_a_call_that_its_client_gave_up(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, numbered(50), 0)
    given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    given_up.cancel()
    calls = [given_up]
    copy = copy_to(target)

    async def work(owned: OwnedPartition) -> None:
        while calls:
            await calls.pop()
        await copy(owned)

    runner = PartitionRunner(settings, STAGE, source, work)
    async with running(runner):
        await until(lambda: copied(cluster, target, 50))


async def copied(cluster: Cluster, target: str, count: int) -> bool:
    return len(await cluster.read(target)) >= count


async def test_a_new_runner_goes_on_where_the_last_one_stopped(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)
    for part in (1, 2):
        await cluster.write(source, numbered(100, str(part)))
        async with running(PartitionRunner(settings, STAGE, source, copy_to(target))):
            await until(partial(copied, cluster, target, 100 * part))
    assert len(await cluster.read(target)) == 200
    assert (await cluster.committed(settings.group(STAGE), source))[0].progress == Progress(200)


async def test_work_that_fails_at_random_moments_neither_loses_nor_doubles(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix)
    random.seed(5)

    async def flaky(owned: OwnedPartition) -> None:
        seen = max(0, owned.progress.time)
        while not owned.stopping:
            records = await owned.poll(40, 0.1)
            outbox = owned.outbox()
            outbox.pass_on(target, owned.partition, records)
            seen += len(records)
            if records:
                await owned.submit(outbox, owned.position, Progress(seen))
                if random.random() < 0.2:
                    raise KafkaError("as if a request had failed")
        await owned.flush()

    for partition in (0, 1):
        await cluster.write(source, numbered(600, f"{partition}-"), partition)
    async with running(PartitionRunner(settings, STAGE, source, flaky)):
        await until(lambda: copied(cluster, target, 1200))
    expected = numbered(600, "0-") + numbered(600, "1-")
    assert rows_of(await cluster.read(target)) == sorted(expected, key=repr)


async def test_replicas_come_and_go_in_mid_stream(cluster: Cluster, settings: StageSettings, topic_prefix: str) -> None:
    source, target = await topics(cluster, topic_prefix, 4)
    written = 0

    async def feed(count: int) -> None:
        nonlocal written
        for partition in range(4):
            await cluster.write(source, numbered(count, f"{partition}-{written}-"), partition)
        written += 4 * count

    first = PartitionRunner(settings, STAGE, source, copy_to(target, 20))
    async with running(first):
        await feed(300)
        await until(lambda: first.ready)
        others = [PartitionRunner(settings, STAGE, source, copy_to(target, 20)) for _ in range(2)]
        async with running(others[0]), running(others[1]):
            await until(lambda: all(r.ready and r.owned for r in (first, *others)))
            assert sorted(p for r in (first, *others) for p in r.owned) == [0, 1, 2, 3]
            await feed(300)
        await until(lambda: len(first.owned) == 4)
        await feed(300)
        await until(lambda: copied(cluster, target, written))
    records = await cluster.read(target)
    assert len(records) == written
    assert len({(r.partition, r.value) for r in records}) == written


async def test_a_zombie_is_fenced_and_nothing_of_it_is_seen(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, numbered(10))
    zombies: list[OwnedPartition] = []
    release = asyncio.Event()
    outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def sleepy(owned: OwnedPartition) -> None:
        records = await owned.poll(10, LONGEST)
        outbox = owned.outbox()
        outbox.pass_on(target, 0, records)
        zombies.append(owned)
        await release.wait()
        try:
            await owned.commit(outbox, owned.position, Progress(666))
        except BaseException as error:
            outcome.set_result(error)
            raise
        outcome.set_result(None)

    async with running(PartitionRunner(settings, STAGE, source, sleepy)):
        await until(lambda: zombies)
        usurper = clients.producer(settings, transactional_id=settings.transactional_id(STAGE, 0))
        async with clients.started(usurper):
            release.set()
            assert isinstance(await outcome, ProducerFenced)
    assert await cluster.read(target) == []
    assert (await cluster.committed(settings.group(STAGE), source))[0].offset is None


async def test_position_moves_over_what_is_aborted_and_over_markers(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, _ = await topics(cluster, topic_prefix, 1)
    positions: list[int] = []

    async def watch(owned: OwnedPartition) -> None:
        while not owned.stopping:
            assert not await owned.poll(10, 0.1)
            if owned.position >= await owned.end() > 0:
                positions.append(owned.position)

    transactional = AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, transactional_id=topic_prefix)
    async with transactional:
        await transactional.begin_transaction()
        await transactional.send_and_wait(source, b"never", partition=0)
        async with running(PartitionRunner(settings, STAGE, source, watch)) as task:
            await until(lambda: not task.done())
            assert not positions, "an open transaction holds the position back"
            await transactional.abort_transaction()
            await until(lambda: positions)
    assert positions[0] == 2, "one aborted record and one marker"


async def test_at_least_once_commits_offsets_and_progress_too(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, numbered(100))
    runner = PartitionRunner(settings, STAGE, source, copy_to(target), delivery="at_least_once")
    async with running(runner):
        await until(lambda: copied(cluster, target, 100))
    assert rows_of(await cluster.read(target)) == sorted(numbered(100), key=repr)
    assert (await cluster.committed(runner.group, source))[0].progress == Progress(100)


@pytest.mark.long
async def test_the_loop_survives_a_killed_broker(
    broker: EmbeddedBroker, cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 2)
    for partition in (0, 1):
        await cluster.write(source, numbered(2000, f"{partition}-"), partition)
    runner = PartitionRunner(settings, STAGE, source, copy_to(target, 20))
    async with running(runner):
        await until(lambda: copied(cluster, target, 200))
        broker.kill()
        await asyncio.to_thread(broker.start)
        await until(lambda: copied(cluster, target, 4000))
    expected = numbered(2000, "0-") + numbered(2000, "1-")
    assert rows_of(await cluster.read(target)) == sorted(expected, key=repr)


async def test_a_fault_of_the_work_stops_the_runner(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, _ = await topics(cluster, topic_prefix, 1)

    async def broken(owned: OwnedPartition) -> None:
        raise Fatal(f"no use for {owned.partition}")

    with pytest.raises(Fatal, match="no use for 0"):
        await PartitionRunner(settings, STAGE, source, broken).run(asyncio.Event())


async def test_what_retention_deleted_is_skipped_and_counted(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, numbered(10, "a"))
    async with running(PartitionRunner(settings, STAGE, source, copy_to(target))):
        await until(lambda: copied(cluster, target, 10))
    await cluster.write(source, numbered(10, "b"))
    await cluster.admin.delete_records({TopicPartition(source, 0): RecordsToDelete(before_offset=15)})
    before = metrics.EXPIRED_OFFSETS.labels(settings.group(STAGE))._value.get()
    async with running(PartitionRunner(settings, STAGE, source, copy_to(target))):
        await until(lambda: copied(cluster, target, 15))
    assert metrics.EXPIRED_OFFSETS.labels(settings.group(STAGE))._value.get() - before == 5
    values = [record.value for record in await cluster.read(target)]
    assert values == [b"a%d" % n for n in range(10)] + [b"b%d" % n for n in range(5, 10)]


async def test_a_topic_created_again_under_old_offsets_is_a_clear_fault(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, numbered(10))
    async with running(PartitionRunner(settings, STAGE, source, copy_to(target))):
        await until(lambda: copied(cluster, target, 10))
    other = PartitionRunner(settings, STAGE, source, copy_to(target))
    await cluster.recreate(source)
    commit = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap_servers, group_id=other.group, enable_auto_commit=False
    )
    async with commit:
        commit.assign([TopicPartition(source, 0)])
        await commit.commit({TopicPartition(source, 0): 10})
    with pytest.raises(Fatal, match="it has lost records"):
        await asyncio.wait_for(other.run(asyncio.Event()), 60)


@pytest.mark.long
async def test_clients_close_within_seconds_while_the_broker_is_away(
    broker: EmbeddedBroker, cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    _, target = await topics(cluster, topic_prefix, 1)
    producer = clients.producer(settings, transactional_id=topic_prefix)
    reader = clients.reader(settings)
    await producer.start()
    await reader.start()
    await producer.begin_transaction()
    await producer.send(target, b"never", partition=0)
    broker.kill()
    try:
        commit = asyncio.create_task(producer.commit_transaction())
        began = time.monotonic()
        await clients.close(producer)
        await clients.close(reader)
        assert time.monotonic() - began < 10
        commit.cancel()
    finally:
        await asyncio.to_thread(broker.start)
    await until(lambda: copied(cluster, target, 0))


async def test_a_custom_assignor_decides_who_gets_what(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 4)

    class Greedy(RoundRobinPartitionAssignor):  # type: ignore[misc]
        """All for the member with the highest user data, which is its ordinal."""

        name = "greedy"

        def __init__(self, ordinal: int) -> None:
            self._ordinal = ordinal

        def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
            return ConsumerProtocolMemberMetadata(0, list(topics), b"%d" % self._ordinal)

        def assign(self, cluster: Any, members: dict[str, Any]) -> dict[str, Any]:
            chosen = max(members, key=lambda member: members[member].user_data)
            everything = super().assign(cluster, {chosen: members[chosen]})
            nothing = ConsumerProtocolMemberAssignment(0, [], b"")
            return {member: everything.get(member, nothing) for member in members}

    runners = [
        PartitionRunner(settings, STAGE, source, copy_to(target), assignor=Greedy(ordinal)) for ordinal in (1, 2)
    ]
    async with running(runners[1]), running(runners[0]):
        await until(lambda: all(runner.ready for runner in runners) and len(runners[1].owned) == 4)
        assert not runners[0].owned


async def test_a_transaction_that_is_given_up_is_aborted_and_counted(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, [(b"k", b"v")])
    begun = 0
    committed: list[int] = []

    async def stuck_once(owned: OwnedPartition) -> None:
        nonlocal begun
        begun += 1
        outbox = owned.outbox()
        outbox.append(target, 0, 1, b"k", b"v%d" % begun)
        if begun == 1:
            sending = outbox.send

            async def never_done() -> None:
                await sending()
                await asyncio.Event().wait()

            outbox.send = never_done  # type: ignore[method-assign]
            await owned.submit(outbox, owned.position, Progress(), lambda: committed.append(1))
            await until(lambda: seen(b"v1"))
            raise KafkaError("given up")
        await owned.submit(outbox, owned.position, Progress(), lambda: committed.append(2))
        while not owned.stopping:
            await owned.poll(1, 0.1)

    async def seen(value: bytes) -> bool:
        return value in [record.value for record in await cluster.read(target, committed=False)]

    runner = PartitionRunner(settings, STAGE, source, stuck_once)
    aborts = metrics.TRANSACTION_ABORTS.labels(runner.group)
    async with running(runner):
        await until(lambda: copied(cluster, target, 1))
    assert rows_of(await cluster.read(target)) == [(b"k", b"v2")]
    assert aborts._value.get() == 1
    assert committed == [2], "only who is committed is told so"


async def test_a_commit_that_is_done_counts_even_if_its_session_ends_before_the_answer(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source, target = await topics(cluster, topic_prefix, 1)
    await cluster.write(source, [(b"k", b"v")])
    committed: list[int] = []
    answer = asyncio.Event()

    async def ends_in_mid_commit(owned: OwnedPartition) -> None:
        if owned.offset == 0:
            records = await owned.poll(1, LONGEST)
            producer = owned._clients.producer
            commit = producer.commit_transaction

            async def answered_late() -> None:
                await commit()
                await answer.wait()

            producer.commit_transaction = answered_late
            outbox = owned.outbox()
            outbox.pass_on(target, 0, records)
            await owned.submit(outbox, owned.position, Progress(), lambda: committed.append(len(records)))
            await until(lambda: copied(cluster, target, 1))
            asyncio.get_running_loop().call_later(0.1, answer.set)
            raise KafkaError("as if the partition had gone to another member")
        while not owned.stopping:
            await owned.poll(1, 0.1)

    runner = PartitionRunner(settings, STAGE, source, ends_in_mid_commit)
    async with running(runner):
        await until(lambda: runner.owned and runner.owned[0].offset > 0)
    assert committed == [1]
