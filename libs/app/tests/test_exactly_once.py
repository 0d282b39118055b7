"""What handlers return is seen once by readers of committed records, whatever is killed, sleeps, or goes unanswered."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, ProducerFenced, RequestTimedOutError
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, Event, Output
from keygrouping_app.events import Outgoing
from keygrouping_app.kafka import stable
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.topics import Topics
from keygrouping_app.kafka.transactions import OnceProducer, Transactions, UnansweredError
from keygrouping_app.kafka.writing import write_all
from keygrouping_local.proxy import Api, Proxy, Stray
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka

NewMember = Callable[..., Awaitable[asyncio.subprocess.Process]]

TRANSACTIONAL = (Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN)


async def terminate(members: list[asyncio.subprocess.Process]) -> list[int]:
    for member in members:
        member.terminate()
    return [await member.wait() for member in members]


async def create(cluster: Cluster, prefix: str, partitions: int = 1) -> None:
    await cluster.create(**{f"{prefix}-in": partitions, f"{prefix}-out": 2, f"{prefix}-dead": 1})


def transactions_of(cluster: Cluster, prefix: str, servers: str) -> Transactions:
    tp = TopicPartition(f"{prefix}-in", 0)

    async def find() -> OffsetAndMetadata:
        found = await cluster.admin.list_consumer_group_offsets(prefix, partitions=[tp])
        if tp not in found:
            raise KafkaConnectionError("the group's coordinator is loading")
        return OffsetAndMetadata(found[tp].offset, found[tp].metadata or "")

    return Transactions(Settings(group=prefix, brokers=servers, dead_letters="dead"), Topics(), tp, find)


def outgoing(prefix: str, value: bytes) -> list[Outgoing]:
    return [Outgoing(f"{prefix}-out", 0, -1, None, value)]


async def values(cluster: Cluster, prefix: str, committed: bool = True) -> list[bytes | None]:
    return [record.value for record in await cluster.read(f"{prefix}-out", committed=committed)]


async def has(cluster: Cluster, prefix: str, wanted: list[bytes]) -> None:
    """The end of a transaction is answered before its records can be read."""

    async def shown() -> bool:
        return len(await values(cluster, prefix)) >= len(wanted)

    await until(shown)
    assert await values(cluster, prefix) == wanted


async def test_a_former_owner_commits_nothing_any_more(cluster: Cluster, topic_prefix: str) -> None:
    await create(cluster, topic_prefix)
    former, owner = (transactions_of(cluster, topic_prefix, cluster.bootstrap_servers) for _ in range(2))
    try:
        await former.begin()
        await former.commit(OffsetAndMetadata(1, "a"), outgoing(topic_prefix, b"1"))
        assert await owner.begin() == OffsetAndMetadata(1, "a")
        with pytest.raises(ProducerFenced):
            await former.commit(OffsetAndMetadata(2, ""), outgoing(topic_prefix, b"forbidden"))
        await owner.commit(OffsetAndMetadata(2, ""), outgoing(topic_prefix, b"2"))
    finally:
        await former.close()
        await owner.close()
    await has(cluster, topic_prefix, [b"1", b"2"])


async def test_apps_and_topics_whose_names_are_alike_in_a_row_fence_nobody(cluster: Cluster, topic_prefix: str) -> None:
    """An app `a` of the topic `b-c`, and `a-b` of `c`."""
    apps = {topic_prefix: f"b-{topic_prefix}", f"{topic_prefix}-b": topic_prefix}
    await cluster.create(**dict.fromkeys(apps.values(), 1), **{f"{topic_prefix}-out": 1})

    async def find() -> OffsetAndMetadata:
        return OffsetAndMetadata(0, "")

    both = [
        Transactions(
            Settings(group=app, brokers=cluster.bootstrap_servers, dead_letters="dead"),
            Topics(),
            TopicPartition(topic, 0),
            find,
        )
        for app, topic in apps.items()
    ]
    try:
        for each in both:
            await each.begin()
        for each in both:
            await each.commit(OffsetAndMetadata(1, ""), outgoing(topic_prefix, b"1"))
    finally:
        for each in both:
            await each.close()
    await has(cluster, topic_prefix, [b"1", b"1"])


async def test_it_begins_with_what_a_transaction_commits_that_has_not_been_shown_yet(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(cluster, topic_prefix)
    owner = transactions_of(cluster, topic_prefix, cluster.bootstrap_servers)
    asked: list[bool] = []
    held = stable._held

    async def counted(*given: Any) -> bool:
        asked.append(await held(*given))
        return asked[-1]

    monkeypatch.setattr(stable, "_held", counted)
    # Another id than the owner's, so that its beginning does not end the transaction.
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic_prefix) as other:
        await other.begin_transaction()
        offset = OffsetAndMetadata(7, "theirs")
        await other.send_offsets_to_transaction({TopicPartition(f"{topic_prefix}-in", 0): offset}, topic_prefix)
        beginning = asyncio.create_task(owner.begin())
        await until(lambda: asked.count(True) > 1)
        await other.commit_transaction()
        assert await asyncio.wait_for(beginning, 60) == offset
    await owner.close()


async def test_what_is_not_written_is_named_by_its_topic(caplog: pytest.LogCaptureFixture) -> None:
    class Producer:
        client = SimpleNamespace(cluster=SimpleNamespace(partitions_for_topic=lambda _: {0}))

        async def send(self, topic: str, *_: object, headers: object) -> asyncio.Future[None]:
            assert headers == []
            written = asyncio.get_running_loop().create_future()
            if topic == "good":
                written.set_result(None)
            else:
                written.set_exception(RequestTimedOutError("not so fast"))
            return written

    records = [Outgoing(topic, None, -1, None, b"1") for topic in ("good", "bad", "bad")]
    with pytest.raises(RequestTimedOutError):
        await write_all(cast("AIOKafkaProducer", Producer()), records, Topics())
    assert "records for bad are not written: RequestTimedOutError" in caplog.text


@pytest.mark.parametrize("api", TRANSACTIONAL)
@pytest.mark.parametrize("answer", [False, True], ids=["request-lost", "answer-lost"])
async def test_a_request_that_is_not_answered_is_not_sent_again_and_nothing_is_written_twice(
    cluster: Cluster, proxy: Proxy, topic_prefix: str, api: Api, answer: bool
) -> None:
    await create(cluster, topic_prefix)
    transactions = transactions_of(cluster, topic_prefix, proxy.bootstrap_servers)
    what = OffsetAndMetadata(5, "kg1:")
    await transactions.begin()
    proxy.reset(lambda request: request.api is api, answer=answer)
    try:
        if api is Api.END_TXN and answer:
            await transactions.commit(what, outgoing(topic_prefix, b"once"))
        else:
            with pytest.raises(KafkaError):
                await transactions.commit(what, outgoing(topic_prefix, b"once"))
            assert len(proxy.seen(lambda request: request.api is api)) == 1
            await transactions.commit(what, outgoing(topic_prefix, b"once"))
        assert await transactions.begin() == what
    finally:
        await transactions.close()
    await has(cluster, topic_prefix, [b"once"])


async def test_a_commit_that_comes_late_ends_no_later_transaction(
    cluster: Cluster, proxy: Proxy, topic_prefix: str
) -> None:
    """KAFKA-17754: it must not commit the half of the next transaction that is there already."""
    await create(cluster, topic_prefix)
    count = 40
    await cluster.write(f"{topic_prefix}-in", [(b"k%d" % number, b"%d" % number) for number in range(count)])
    app = App(
        f"{topic_prefix}-group",
        brokers=proxy.bootstrap_servers,
        dead_letters=f"{topic_prefix}-dead",
        kafka={"request_timeout_ms": 3000},
    )

    @app.on(f"{topic_prefix}-in", exactly_once=True)
    async def copy(event: Event) -> Output:
        return Output(f"{topic_prefix}-out", event.value, partition=0)

    stray = Stray(proxy, lambda request: request.api is Api.END_TXN and bool(request.committed))
    offsets = stray.hold_in_next(Api.TXN_OFFSET_COMMIT)
    stop = asyncio.Event()
    task = asyncio.create_task(app.serve(stop))
    try:
        await offsets.caught()
        await stray.deliver()
        offsets.release()

        async def all_there() -> bool:
            return len(await values(cluster, topic_prefix)) >= count

        await until(all_there)
    finally:
        offsets.release()
        stop.set()
        await task
    assert sorted(int(value or b"") for value in await values(cluster, topic_prefix)) == list(range(count))


async def write_events(cluster: Cluster, prefix: str, partitions: int, count: int, first: int = 0) -> set[bytes]:
    """So many of each partition, `first` is the offset of the first one; gives their identities."""
    chance = random.Random(7)
    for partition in range(partitions):
        events = [(b"p%d-%d" % (partition, int(40 * chance.random() ** 2)), b"1") for _ in range(count)]
        await cluster.write(f"{prefix}-in", events, partition)
    return {b"%s-in/%d/%d" % (prefix.encode(), p, o) for p in range(partitions) for o in range(first, first + count)}


async def test_killed_members_write_nothing_twice(cluster: Cluster, topic_prefix: str, new_member: NewMember) -> None:
    await create(cluster, topic_prefix, 4)
    wanted = await write_events(cluster, topic_prefix, 4, 800)
    members = [await new_member(exactly_once=True) for _ in range(2)]
    try:
        for part in (0.2, 0.4, 0.6):

            async def reached(goal: float = part) -> bool:
                return len(await values(cluster, topic_prefix)) > goal * len(wanted)

            await until(reached)
            victim = members.pop(0)
            victim.send_signal(signal.SIGKILL)
            await victim.wait()
            members.append(await new_member(exactly_once=True))

        async def all_there() -> bool:
            return len(await values(cluster, topic_prefix)) >= len(wanted)

        await until(all_there)
    finally:
        codes = await terminate(members)
    assert codes == [0, 0]
    assert Counter(await values(cluster, topic_prefix)) == Counter(wanted)
    assert await cluster.read(f"{topic_prefix}-dead") == []


async def write_far_apart(cluster: Cluster, topic: str) -> Counter[bytes]:
    """Events of which every other one is of the key `hot`, among offsets that have nothing to be read."""
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic)
    keys = [b"hot" if number % 2 == 0 else b"k%d" % number for number in range(200)]
    async with producer as writer:
        for turn in range(25):
            async with writer.transaction():
                for number, key in enumerate(keys, turn * len(keys)):
                    await writer.send(topic, b"%d" % number, key, 0)
            await writer.begin_transaction()
            for _ in range(1000):
                await writer.send(topic, b"-1", b"k", 0)
            await writer.abort_transaction()
    return Counter(b"%d" % number for number in range(25 * len(keys)))


async def test_nothing_is_written_twice_where_offsets_are_missing(cluster: Cluster, topic_prefix: str) -> None:
    """One record of a commit says which events have ended behind a hot key's, and has room for so many offsets only."""
    await create(cluster, topic_prefix)
    wanted = await write_far_apart(cluster, f"{topic_prefix}-in")
    hangs = asyncio.Event()

    def app() -> App:
        made = App(f"{topic_prefix}-group", brokers=cluster.bootstrap_servers, dead_letters=f"{topic_prefix}-dead")

        @made.on(f"{topic_prefix}-in", exactly_once=True)
        async def copy(event: Event) -> Output:
            if event.raw.key == b"hot":
                await hangs.wait()
            return Output(f"{topic_prefix}-out", event.value, partition=0)

        return made

    async def written() -> int:
        return len(await values(cluster, topic_prefix))

    async with asyncio.TaskGroup() as tasks:
        killed = tasks.create_task(app().serve(asyncio.Event()))
        await until(lambda: written_more_than(written, 1500))
        await until(lambda: stands(written))
        killed.cancel()
    hangs.set()
    stop = asyncio.Event()
    task = asyncio.create_task(app().serve(stop))
    try:
        await until(lambda: written_more_than(written, wanted.total() - 1))
    finally:
        stop.set()
        await task
    assert Counter(value for value in await values(cluster, topic_prefix) if value) == wanted


async def written_more_than(written: Callable[[], Awaitable[int]], least: int) -> bool:
    return await written() > least


async def stands(written: Callable[[], Awaitable[int]]) -> bool:
    """Whether nothing has been written for a while."""
    before = await written()
    await asyncio.sleep(2)
    return await written() == before


async def test_a_member_that_slept_too_long_writes_nothing_twice(
    cluster: Cluster, topic_prefix: str, new_member: NewMember
) -> None:
    await create(cluster, topic_prefix, 2)
    wanted = await write_events(cluster, topic_prefix, 2, 1500)
    members = [await new_member(0.02, exactly_once=True)]

    async def more_than(number: int) -> bool:
        return len(await values(cluster, topic_prefix)) > number

    try:
        await until(lambda: more_than(200))
        members[0].send_signal(signal.SIGSTOP)
        wanted |= await write_events(cluster, topic_prefix, 2, 500, 1500)  # or it may have left nothing to do
        asleep_at = len(await values(cluster, topic_prefix))
        members.append(await new_member(exactly_once=True))
        await until(lambda: more_than(asleep_at + 200))
        members[0].send_signal(signal.SIGCONT)
        await until(lambda: more_than(len(wanted) - 1))
    finally:
        members[0].send_signal(signal.SIGCONT)
        codes = await terminate(members)
    assert codes == [0, 0]
    assert Counter(await values(cluster, topic_prefix)) == Counter(wanted)


async def test_a_producer_that_was_not_answered_ends_and_leaves_nothing_behind(
    cluster: Cluster, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sender would try again for ever, ten times a second, after the app has gone on with another one."""
    await cluster.create(**{topic_prefix: 1})
    before = asyncio.all_tasks()
    producer = OnceProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic_prefix)
    send: Any = producer._send_on

    async def cut(node: int, request: object, **options: object) -> object:
        if isinstance(request, AddPartitionsToTxnRequest):
            raise KafkaConnectionError("cut")
        return await send(node, request, **options)

    with patch.object(producer, "_send_on", cut):
        await producer.start()
        await producer.begin_transaction()
        sent = await producer.send(topic_prefix, b"1")
        await asyncio.wait([producer.unanswered])
        await asyncio.wait_for(producer.stop(), 60)
    assert isinstance(sent.exception(), UnansweredError)
    await until(lambda: asyncio.all_tasks() <= before)
    assert caplog.text.count("Could not send") < 10
