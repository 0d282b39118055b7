"""A member that the group may have gone on without starts nothing more, and what it does then is not committed."""

from __future__ import annotations

import asyncio
import gc
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CorruptRecordException, ProducerFenced, UnknownMemberIdError
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, AppError, Event, Output
from keygrouping_app.events import Record
from keygrouping_app.handlers import Handler
from keygrouping_app.kafka import member
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.reading import Reading
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.kafka.session import Session
from keygrouping_app.kafka.transactions import OnceProducer
from keygrouping_app.lanes import LoopLanes, ThreadLanes
from keygrouping_local.proxy import Api, Proxy
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.testing import Cluster, until

from .served import serving

SESSION = 6.0
"""Brokers take none that are shorter."""


class Work:
    """What handlers of several members note."""

    def __init__(self) -> None:
        self.starts: defaultdict[str, list[float]] = defaultdict(list)
        self.order: defaultdict[str, list[int]] = defaultdict(list)
        self.ended: set[tuple[int, int]] = set()
        self.at_work: dict[str, int] = defaultdict(int)
        self.cancelled = 0

    def member(
        self, name: str, prefix: str, brokers: str, run: Callable[[Event], Awaitable[object]], **more: Any
    ) -> App:
        """A member whose handler is `run`."""
        app = App(f"{prefix}-group", brokers=brokers, dead_letters=f"{prefix}-dead", session_timeout=SESSION, **more)

        @app.on(f"{prefix}-in", concurrency=4, timeout=600)
        async def work(event: Event) -> None:
            self.starts[name].append(asyncio.get_running_loop().time())
            self.order[event.key].append(event.offset)
            self.at_work[name] += 1
            try:
                await run(event)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.at_work[name] -= 1
            self.ended.add((event.partition, event.offset))

        return app


async def create(cluster: Cluster, prefix: str, partitions: int, events: int) -> None:
    await cluster.create(**{f"{prefix}-in": partitions, f"{prefix}-dead": 1})
    await write(cluster, prefix, partitions, events)


async def write(cluster: Cluster, prefix: str, partitions: int, events: int) -> None:
    for partition in range(partitions):
        rows = [(b"p%d-%d" % (partition, number % 50), b"1") for number in range(events)]
        await cluster.write(f"{prefix}-in", rows, partition)


async def slowly(_: Event) -> None:
    await asyncio.sleep(0.02)


@pytest.mark.kafka
async def test_who_hears_nothing_for_the_sessions_time_starts_nothing_until_it_does(
    cluster: Cluster, proxy: Proxy, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its network is gone, so that nobody can tell it that others have its partitions."""
    partitions, events, more = 2, 2000, 500
    await create(cluster, topic_prefix, partitions, events)
    work = Work()

    async def is_back() -> bool:
        """However long it takes to join again, it finds something to do."""
        nonlocal events
        if len(work.ended) > partitions * (events - more):
            await write(cluster, topic_prefix, partitions, more)
            events += more
        return len(work.starts["cut"]) > before

    async with serving(work.member("cut", topic_prefix, proxy.bootstrap_servers, slowly)):
        await until(lambda: len(work.starts["cut"]) > 50)
        cut = proxy.cut()
        async with serving(work.member("other", topic_prefix, cluster.bootstrap_servers, slowly)):
            await until(lambda: work.starts["other"])
            await until(lambda: len(work.starts["other"]) > 50)
            silent, before = work.starts["cut"][-1], len(work.starts["cut"])
            assert silent < work.starts["other"][0]
            cut.heal()
            await until(is_back)
            await until(lambda: len(work.ended) == partitions * events)
    for key, offsets in work.order.items():
        assert list(dict.fromkeys(offsets)) == sorted(set(offsets)), key
    told = caplog.text
    assert "has answered nothing for session_timeout (6 s)" in told
    assert f"group {topic_prefix}-group has gone on without this member since generation" in told
    found = await cluster.admin.list_consumer_group_offsets(f"{topic_prefix}-group")
    assert {tp.partition: each.offset for tp, each in found.items()} == dict.fromkeys(range(partitions), events)


@pytest.mark.kafka
async def test_who_is_thrown_out_stops_what_runs_and_joins_again(
    cluster: Cluster, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    await create(cluster, topic_prefix, 1, 20)
    work, group = Work(), f"{topic_prefix}-group"

    async def hang_once(event: Event) -> None:
        if event.offset == 3 and not work.cancelled:
            await asyncio.Event().wait()

    async with serving(work.member("only", topic_prefix, cluster.bootstrap_servers, hang_once)):
        await until(lambda: len(work.ended) == 19)
        (description,) = await cluster.admin.describe_consumer_groups([group])
        ((_, _, _, _, _, ((member, *_),), *_),) = description.groups
        coordinator = await cluster.admin.find_coordinator(group)
        await send_request(cluster.admin, LeaveGroupRequest(group, member), coordinator)
        await until(lambda: len(work.ended) == 20)
    assert work.cancelled == 1
    assert f"group {group} has gone on without this member since generation 1" in caplog.text


@pytest.mark.kafka
async def test_nothing_runs_any_more_when_the_group_is_left_as_the_app_can_not_go_on(
    cluster: Cluster, proxy: Proxy, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have its partitions from that moment on."""
    await create(cluster, topic_prefix, 1, 500)
    work, read = Work(), Reading.read

    async def fail(reading: Reading) -> None:
        if len(work.ended) > 20:
            raise AppError(["it can not go on"])
        await read(reading)

    monkeypatch.setattr(Reading, "read", fail)
    leaving = proxy.hold(lambda request: request.api is Api.LEAVE_GROUP)
    app = work.member("only", topic_prefix, proxy.bootstrap_servers, slowly, max_events=100)
    task = asyncio.create_task(app.serve(asyncio.Event()))
    try:
        await leaving.caught()
        assert work.at_work["only"] == 0
        started = len(work.starts["only"])
    finally:
        leaving.release()
        with suppress(AppError):
            await task
    assert isinstance(task.exception(), AppError)
    assert len(work.starts["only"]) == started


@pytest.mark.kafka
async def test_nothing_runs_any_more_when_the_group_is_left_to_join_it_as_another_member(
    cluster: Cluster, proxy: Proxy, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka's consumer ends by errors that it does not know, such as of a coordinator that loads its groups."""
    await create(cluster, topic_prefix, 1, 1500)
    work, answered = Work(), Session.answered
    failing = True

    def answer(session: Session, request: object, told: Any, sent: float) -> None:
        nonlocal failing
        if isinstance(request, HeartbeatRequest) and failing:
            failing, told.error_code = False, 14
        answered(session, request, told, sent)

    monkeypatch.setattr(Session, "answered", answer)
    leaving = proxy.hold(lambda request: request.api is Api.LEAVE_GROUP)
    async with serving(work.member("only", topic_prefix, proxy.bootstrap_servers, slowly)):
        try:
            await leaving.caught()
            assert work.at_work["only"] == 0
            assert len(work.ended) < 1500
        finally:
            leaving.release()
        await until(lambda: len(work.ended) == 1500)
    for key, offsets in work.order.items():
        assert list(dict.fromkeys(offsets)) == sorted(set(offsets)), key


@pytest.mark.kafka
async def test_a_stop_ends_although_nothing_can_be_committed_any_more(
    cluster: Cluster, proxy: Proxy, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await create(cluster, topic_prefix, 1, 500)
    monkeypatch.setattr(member, "_REBALANCE_SECONDS", 1.0)
    work, stop = Work(), asyncio.Event()
    task = asyncio.create_task(work.member("only", topic_prefix, proxy.bootstrap_servers, slowly).serve(stop))
    await until(lambda: len(work.ended) > 20)
    cut = proxy.cut()
    try:
        ended = len(work.ended)
        await until(lambda: len(work.ended) > ended)
        stop.set()
        await asyncio.wait_for(task, 300)
    finally:
        cut.heal()
    assert "the group does not answer, so what ended since the last commit runs again" in caplog.text


async def test_asyncio_tells_of_nothing_when_a_producer_is_fenced() -> None:
    loop, told = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: told.append(context))

    async def sends() -> None:
        raise ProducerFenced

    producer = OnceProducer(bootstrap_servers="127.0.0.1:1", transactional_id="a/b/0")
    transaction, accumulator = producer._txn_manager, producer._message_accumulator
    transaction.set_pid_and_epoch(1, 0)
    await producer.begin_transaction()
    written = await accumulator.add_message(TopicPartition("t", 0), b"k", b"v", 1.0, None)
    committed = asyncio.create_task(producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "group"))
    await asyncio.sleep(0)
    committed.cancel()  # as of a partition that is lost meanwhile
    await asyncio.wait([committed])
    ended = asyncio.create_task(sends())
    await asyncio.wait([ended])
    producer._sender._fail_all(ended)
    with pytest.raises(ProducerFenced):
        await written
    del producer, transaction, accumulator, written, committed, ended
    gc.collect()
    await asyncio.sleep(0)
    assert [each for each in told if "never retrieved" in each["message"]] == []


class Client:
    """Gives the next answer that was laid out."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.answer: object = None

    async def send(self, _: int, request: object, **__: object) -> object:
        self.sent.append(request)
        return self.answer


class Told:
    """A session of 6 s, and what it tells."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.client = Client()
        self.session = Session(SESSION, lambda: self.lines.append("renewed"), lambda: self.lines.append("out"))
        self.session.watch(SimpleNamespace(_client=self.client))

    async def ask(self, request: object, code: int) -> None:
        if isinstance(request, OffsetCommitRequest):
            self.client.answer = SimpleNamespace(topics=[("t", [(0, code)])])
        else:
            self.client.answer = SimpleNamespace(error_code=code, generation_id=7)
        await self.client.send(0, request)


HEARTBEAT = HeartbeatRequest("g", 1, "m")
JOIN = JoinGroupRequest("g", 6000, 6000, "m", None, "consumer", [])
SYNC = SyncGroupRequest("g", 1, "m", None, [])
COMMIT = OffsetCommitRequest("g", 1, "m", -1, [])


@pytest.mark.parametrize(("request_", "code"), [(HEARTBEAT, 0), (HEARTBEAT, 27), (JOIN, 0), (SYNC, 0)])
async def test_a_session_lasts_from_when_what_was_answered_last_was_sent(request_: object, code: int) -> None:
    told = Told()
    assert told.session.until == -math.inf
    before = asyncio.get_running_loop().time()
    await told.ask(request_, code)
    assert before + SESSION <= told.session.until <= asyncio.get_running_loop().time() + SESSION
    assert told.lines == ["renewed"]


@pytest.mark.parametrize(("request_", "code"), [(HEARTBEAT, 15), (JOIN, 79), (SYNC, 27), (COMMIT, 0), (COMMIT, 27)])
async def test_other_answers_do_not_renew_it(request_: object, code: int) -> None:
    told = Told()
    await told.ask(request_, code)
    assert told.session.until == -math.inf
    assert not told.lines


@pytest.mark.parametrize("request_", [HEARTBEAT, JOIN, SYNC, COMMIT])
@pytest.mark.parametrize("code", [22, 25])
async def test_who_is_no_member_any_more_is_told_once_and_commits_nothing(request_: object, code: int) -> None:
    told = Told()
    await told.ask(HEARTBEAT, 0)
    await told.ask(request_, code)
    await told.ask(HEARTBEAT, 25)
    assert told.lines == ["renewed", "out"]
    assert told.session.until == -math.inf
    sent = len(told.client.sent)
    with pytest.raises(UnknownMemberIdError):
        await told.ask(COMMIT, 0)
    assert len(told.client.sent) == sent
    await told.ask(JOIN, 0)
    assert told.session.generation == 7
    told.session.assigned()
    await told.ask(COMMIT, 0)
    assert len(told.client.sent) == sent + 2


def reading_member() -> tuple[Runner, Handler]:
    """One that reads topic t, and its handler."""
    app = App("a")

    @app.on("t")
    async def work(event: Event) -> None:
        assert event

    (handler,) = app.handlers
    return Runner(app.settings(), {"t": (handler, lambda on_end: LoopLanes(handler, work, on_end))}), handler


def reading_of(runner: Runner, reader: Any) -> Reading:
    """As this reader has it read."""
    reader._fetcher = SimpleNamespace()
    return Reading(Settings("a", "unused:1", "dead"), reader, runner.partitions, runner.handling, None)


async def test_what_was_fetched_before_a_partition_came_back_is_not_taken_for_what_comes_next() -> None:
    """It went away and came back while records were fetched: what lies between its new start and them would be lost."""
    runner, handler = reading_member()
    tp = TopicPartition("t", 0)

    def found(offset: int) -> Partition:
        return Partition(tp, handler.topic, OffsetAndMetadata(offset, ""), asyncio.Event())

    class Reader:
        async def getmany(self, *_: TopicPartition, **__: int) -> dict[TopicPartition, list[Record]]:
            runner.partitions[tp] = found(2)
            return {tp: [Record("t", 0, 5, 0, b"k", b"1")]}

        async def position(self, _: TopicPartition) -> int:
            return 6

    runner.partitions[tp] = found(5)
    await reading_of(runner, Reader()).read()
    assert runner.partitions[tp].gaps.position == 2
    assert runner.partitions[tp].events == 0


async def test_what_one_partition_had_given_is_read_again_when_another_fails() -> None:
    """A consumer that meets a damaged batch forgets what it has taken of other partitions before."""
    runner, handler = reading_member()
    tp = TopicPartition("t", 0)

    class Reader:
        def __init__(self) -> None:
            self.at = 5
            self.failed = False

        def assign(self, _: list[TopicPartition]) -> None:
            """There is only one."""

        def seek(self, _: TopicPartition, offset: int) -> None:
            self.at = offset

        async def getmany(self, *_: TopicPartition, **__: int) -> dict[TopicPartition, list[Record]]:
            found = {tp: [Record("t", 0, 5, 0, b"k", b"1")]} if self.at == 5 else {}
            self.at = 6
            if not self.failed:
                self.failed = True
                raise CorruptRecordException
            await asyncio.sleep(0)
            return found

        async def position(self, _: TopicPartition) -> int:
            return self.at

    runner.partitions[tp] = Partition(tp, handler.topic, OffsetAndMetadata(5, ""), asyncio.Event())
    reading = asyncio.create_task(reading_of(runner, Reader()).keep())
    async with asyncio.timeout(60):
        while runner.partitions[tp].gaps.position < 6:  # noqa: ASYNC110 -- nobody tells of it
            await asyncio.sleep(0.01)
    reading.cancel()
    assert runner.lanes[0].tally.ended + runner.partitions[tp].events == 1


@pytest.mark.parametrize("plain", [False, True])
async def test_nothing_starts_while_outputs_fill_the_memory(plain: bool) -> None:
    """All that waits would run, and what it returns would be kept until a broker takes it."""
    app, output = App("a", max_bytes=10_000), Output("out", b"x" * 1000)

    async def work(_: Event) -> Output:
        return output

    def work_on_a_thread(_: Event) -> Output:
        return output

    app.on("t", concurrency=4, order=None)(work_on_a_thread if plain else work)
    (handler,) = app.handlers
    lanes_of = ThreadLanes if plain else LoopLanes
    runner = Runner(app.settings(), {"t": (handler, lambda on_end: lanes_of(handler, handler.function, on_end))})
    tp = TopicPartition("t", 0)
    runner.partitions[tp] = mine = Partition(tp, handler.topic, OffsetAndMetadata(0, ""), asyncio.Event())
    (lanes,) = runner.lanes
    lanes.offer(mine.take([Record("t", 0, number, 0, b"k", b"1") for number in range(2000)], 2000))
    written, most = 0, 10 + 4 + (256 if plain else 0)  # threads have as many quick calls more
    async with asyncio.timeout(60):
        while written < 2000:
            await asyncio.sleep(0.01)
            taken = mine.take_returned()
            assert len(taken) <= most
            mine.wrote(taken)
            written += len(taken)
            runner.handling.wrote([])
    lanes.close()
    assert mine.unwritten_bytes == 0


class Leaving:
    """A consumer that is answered once more while it stops, as its coordinator finishes what is under way."""

    def __init__(self) -> None:
        self._client = SimpleNamespace(send=self._answered)
        self.joined = asyncio.Event()

    async def _answered(self, *_: object) -> Any:
        return SimpleNamespace(error_code=0)

    async def start(self) -> None:
        """Nothing to do."""

    def subscribe(self, **_: object) -> None:
        self.joined.set()

    async def getmany(self, **_: object) -> None:
        await self._client.send(0, HeartbeatRequest("g", 1, "m"))
        await asyncio.Event().wait()

    async def stop(self) -> None:
        await asyncio.sleep(0.01)
        await self._client.send(0, HeartbeatRequest("g", 1, "m"))


async def test_an_answer_to_who_is_leaving_is_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[float] = []
    owner = SimpleNamespace(may_start=allowed.append, lose=lambda _: None)
    consumer = Leaving()
    monkeypatch.setattr(member.Member, "_new_consumer", lambda _: consumer)
    leaving = member.Member(Settings("g", "unused:1", "dead", session_timeout=SESSION), ["in"], owner)
    keeping = asyncio.create_task(leaving.keep())
    await until(lambda: allowed)
    assert leaving._silence is not None
    keeping.cancel()
    await asyncio.wait([keeping])
    assert leaving._silence is None and len(allowed) == 1, "nobody waits for what comes next"
