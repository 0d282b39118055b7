"""A group shares hot keys: evenly, no more than it needs, nothing without skew, and never more than slots take.

In virtual time, with the lanes, plans and windows of the app, see `simulated_group`.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack

import msgspec
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, AppError, Event, Topic
from keygrouping_app.kafka.board import TopicBoard
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.overflow import SlotPartition
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.sharing import Sharing
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.leveling import HotKey, Report, Slot
from keygrouping_app.reports import name_of, period_of, with_owners
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.testing import Cluster, until

from .boards import MemoryBoard, Wire
from .served import serving
from .simulated_group import KeyOf, PureTime, SimulatedGroup

MEMBERS = 4
LANES = 4
CALL = 0.02
CAPACITY = MEMBERS * LANES / CALL


def hot(part: float, members: int = MEMBERS, keys: int = 20_000) -> KeyOf:
    """A key of partition 0 with this part of all events, the others uniform."""

    def key_of(chance: random.Random, _: float) -> tuple[int, bytes]:
        if chance.random() < part:
            return 0, b"hot"
        key = chance.randrange(keys)
        return key % members, b"k%d" % key

    return key_of


def moving(chance: random.Random, second: float) -> tuple[int, bytes]:
    """Every 10 s another key of another partition has half of the events."""
    number = int(second / 10)
    if chance.random() < 0.5:
        return number % MEMBERS, b"hot%d" % number
    key = chance.randrange(20_000)
    return key % MEMBERS, b"k%d" % key


def two_at_once(chance: random.Random, second: float) -> tuple[int, bytes]:
    """From the fifth second on two keys of two members have six tenths of the events."""
    if second > 5 and chance.random() < 0.6:
        return (0, b"hot") if chance.random() < 0.5 else (1, b"too")
    key = chance.randrange(20_000)
    return key % MEMBERS, b"k%d" % key


def late(group: SimulatedGroup) -> float:
    """Seconds that 99 % of events have taken at most, from when they came to their end."""
    return sorted(group.waits)[len(group.waits) * 99 // 100]


async def played(rate: float, seconds: float, key_of: KeyOf, lanes: list[int] | None = None) -> SimulatedGroup:
    """All is handled a while later, each event once."""
    with PureTime():
        group = SimulatedGroup(lanes or [LANES] * MEMBERS, lambda _: CALL)
        try:
            await group.play(rate, seconds, key_of)
            await group.finish(60)
        finally:
            await group.end()
    assert set(group.runs.values()) == {1}
    assert len(group.runs) == group.events
    return group


async def test_a_hot_key_is_shared_so_that_all_keep_up_and_no_more_of_it_than_that_needs() -> None:
    group = await played(0.9 * CAPACITY, 30, hot(0.5))
    assert group.shared <= 1.15 * group.needed
    done = [group.done[number] for number in range(MEMBERS)]
    assert max(done) <= 1.1 * min(done)


async def test_without_skew_nothing_is_shared_however_busy_all_are() -> None:
    for rate in (0.3, 0.95, 1.1):
        group = await played(rate * CAPACITY, 10, hot(0.0))
        assert group.shared == 0


async def test_without_skew_few_keys_of_which_each_is_hot_stay_but_for_what_waits_by_chance() -> None:
    for rate in (0.3, 0.9, 1.1):
        group = await played(rate * CAPACITY, 10, hot(0.0, keys=20))
        assert group.shared <= 0.02 * group.events


async def test_long_calls_do_not_hold_up_quick_ones_elsewhere() -> None:
    """All members have idle lanes; one key takes fifty times as long as others, of which each member has as many."""

    def key_of(chance: random.Random, _: float) -> tuple[int, bytes]:
        return (0, b"slow") if chance.random() < 0.09 else (number := chance.randrange(MEMBERS), b"k%d" % number)

    with PureTime():
        group = SimulatedGroup([LANES] * MEMBERS, lambda _: 0.01, {b"slow": 0.5})
        try:
            await group.play(200, 10, key_of)
            await group.finish(60)
        finally:
            await group.end()
    assert set(group.runs.values()) == {1}
    quick = sorted(group.quick)
    assert quick[len(quick) * 99 // 100] < 0.4


async def test_a_burst_of_which_no_more_comes_is_shared_to_its_end() -> None:
    def key_of(_: random.Random, second: float) -> tuple[int, bytes]:
        return 0, b"hot" if second < 1 else b"last"

    with PureTime():
        group = SimulatedGroup([LANES] * MEMBERS, lambda _: CALL)
        try:
            await group.play(8 * CAPACITY, 1, key_of)
            await group.finish(15)
        finally:
            await group.end()
    # All members together need eight seconds, one by itself 32.
    assert len(group.runs) == group.events


async def test_while_nothing_can_be_told_nothing_is_written() -> None:
    with PureTime():
        group = SimulatedGroup([LANES] * MEMBERS, lambda _: CALL)
        try:
            await group.play(0.8 * CAPACITY, 5, hot(0.5))
            assert group.shared
            group.wire.deaf = True
            await group.play(0.8 * CAPACITY, 1, hot(0.5))
            shared = group.shared
            await group.play(0.8 * CAPACITY, 5, hot(0.5))
            assert group.shared == shared
            group.wire.deaf = False
            await group.play(0.8 * CAPACITY, 10, hot(0.5))
            assert group.shared > shared + 1000
        finally:
            await group.end()


async def test_keys_that_came_before_any_call_had_ended_have_no_cost_yet() -> None:
    with PureTime():
        group = SimulatedGroup([LANES] * MEMBERS, lambda _: 1.0)
        try:
            await group.play(1000, 0.05, lambda *_: (0, b"first"))
            await asyncio.sleep(0.7)  # so few of many events that they are not hot any more when the first calls end
            await group.play(4000, 0.3, lambda *_: (0, b"then"))
            await group.finish(120)
        finally:
            await group.end()
    assert len(group.runs) == group.events
    assert group.shared


async def test_where_all_have_too_much_nothing_is_told_more_often_for_it() -> None:
    group = await played(1.5 * CAPACITY, 20, hot(0.0, keys=20))
    assert group.wire.tellings <= 1.3 * MEMBERS * group.seconds / period_of(MEMBERS)


async def test_with_lanes_to_spare_a_hot_key_stays() -> None:
    group = await played(0.1 * CAPACITY, 10, hot(0.5))
    assert group.shared == 0


async def test_a_hot_key_that_moves_is_followed() -> None:
    group = await played(0.85 * CAPACITY, 40, moving)
    done = [group.done[number] for number in range(MEMBERS)]
    assert max(done) <= 1.15 * min(done)
    # All inputs are as long in the end, so that would be so without any sharing, too. At each moment one member has
    # five eighths of the events, so three eighths of all are to go elsewhere.
    needed = 3 / 8 * group.events
    assert 0.85 * needed <= group.shared <= 1.15 * needed
    # It brings three times what its member can do. Idle lanes take what comes until that is planned for.
    assert late(group) < 3.5 * late(await played(0.85 * CAPACITY, 20, hot(0.0)))


async def test_keys_that_get_hot_at_two_members_at_once_overload_nobody() -> None:
    group = await played(0.8 * CAPACITY, 20, two_at_once)
    assert late(group) < 3.5 * late(await played(0.8 * CAPACITY, 20, hot(0.0)))
    assert group.shared <= 1.15 * group.needed


async def test_calls_of_seconds_are_shared_like_quick_ones() -> None:
    call, lanes, seconds = 2.0, 2, 240
    with PureTime():
        group = SimulatedGroup([lanes] * MEMBERS, lambda _: call)
        try:
            await group.play(0.9 * MEMBERS * lanes / call, seconds, hot(0.5))
            await group.finish(60)
        finally:
            await group.end()
    assert set(group.runs.values()) == {1}
    assert len(group.runs) == group.events
    assert 0.8 * group.needed <= group.shared <= 1.15 * group.needed
    done = [group.done[number] for number in range(MEMBERS)]
    assert max(done) <= 1.2 * min(done)


async def test_a_member_with_more_lanes_gets_more() -> None:
    group = await played(0.9 * 20 / CALL, 20, hot(0.6), [4, 4, 4, 8])
    assert group.done[3] == pytest.approx(2 * group.done[1], rel=0.15)


async def test_a_slot_that_is_stuck_gets_what_it_was_granted_and_others_all_else() -> None:
    stuck = asyncio.Event()

    def call(member: int) -> float:
        return 3600 if member == 2 and stuck.is_set() else CALL

    with PureTime():
        group = SimulatedGroup([LANES] * MEMBERS, call)
        try:
            await group.play(0.7 * CAPACITY, 10, hot(0.5))
            shared = len(group.wire.slots[2])
            stuck.set()
            await group.play(0.7 * CAPACITY, 20, hot(0.5))
        finally:
            await group.end()
    assert shared > 500
    assert len(group.wire.slots[2]) - shared < 2.5 * LANES / CALL
    assert len(group.wire.slots[1]) > 1.5 * shared


async def test_a_slot_that_loses_its_leader_keeps_nobody_from_sharing_by_others() -> None:
    with PureTime():
        group = SimulatedGroup([LANES] * MEMBERS, lambda _: CALL)
        try:
            await group.play(0.7 * CAPACITY, 5, hot(0.5))
            group.wire.silent.add(2)
            shared = []
            for _ in range(4):
                before = [len(slot) for slot in group.wire.slots]
                await group.play(0.7 * CAPACITY, 5, hot(0.5))
                shared.append([len(slot) - other for slot, other in zip(group.wire.slots, before, strict=True)])
            # What it did not take is handled where it is, in the end.
            await group.play(0.1 * CAPACITY, 30, hot(0.0))
            await group.finish(60)
        finally:
            await group.end()
    assert [each[2] for each in shared] == [0] * 4
    assert min(min(each[1], each[3]) for each in shared) > 150
    assert len(group.runs) == group.events
    assert set(group.runs.values()) == {1}


@pytest.mark.kafka
async def test_a_member_that_ends_says_so_however_long_that_takes(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, runs, ending, ended = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[str]()
    tell, withdraw = TopicBoard.tell, TopicBoard.withdraw

    async def begin(self: TopicBoard, member: str, value: bytes | None) -> None:
        await tell(self, member, value)
        begun.set()

    async def end(self: TopicBoard, member: str) -> None:
        ending.set()
        await asyncio.sleep(1)  # what runs ends meanwhile
        await withdraw(self, member)
        ended.append(member)

    monkeypatch.setattr(TopicBoard, "tell", begin)
    monkeypatch.setattr(TopicBoard, "withdraw", end)
    await cluster.create(**{f"{topic_prefix}-in": 1, f"{topic_prefix}-dead": 1})
    app = App(f"{topic_prefix}-group", brokers=cluster.bootstrap_servers, dead_letters=f"{topic_prefix}-dead")

    @app.on(f"{topic_prefix}-in", split=True)
    async def work(_: Event) -> None:
        runs.set()
        await ending.wait()

    await cluster.write(f"{topic_prefix}-in", [(b"k", b"1")])
    async with serving(app):
        await asyncio.wait_for(runs.wait(), 300)
        await asyncio.wait_for(begun.wait(), 300)
    assert len(ended) == 1


class SilentBoard(MemoryBoard):
    """One slot gives no answer, whoever asks; what is told is kept from others."""

    def __init__(self, silent: int) -> None:
        super().__init__(Wire())
        self.silent = silent
        self.slots: set[int] = set()
        """Those of the last report."""

    async def tell(self, _: str, value: bytes) -> None:
        self.slots = {*msgspec.json.decode(value, type=Report).slots}

    async def ends(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        numbers = [tp.partition for tp in tps]
        await asyncio.sleep(40 if self.silent in numbers else 0.01)
        return dict.fromkeys(tps, 0)


async def test_answers_count_when_they_come_whoever_does_not_answer() -> None:
    app = App("g")

    @app.on("in", split=True)
    async def work(event: Event) -> None: ...

    (handler,) = app.handlers
    lanes = LoopLanes(handler, handler.function, lambda *_: None)
    start = OffsetAndMetadata(0, "")
    tps = [TopicPartition("g.overflow", number) for number in range(3)]
    slots = {tp: SlotPartition(tp, handler.topic, start, asyncio.Event(), {}) for tp in tps}
    with PureTime():
        board = SilentBoard(1)
        others = asyncio.all_tasks()
        keeping = asyncio.create_task(Sharing(Settings("g", "unused:1", "dead"), lanes, {**slots}).keep(board))
        await asyncio.sleep(3)  # two for the answer to the question for all of them, and a moment
        told = board.slots
        keeping.cancel()
        await asyncio.wait([keeping])
        left = asyncio.all_tasks() - others
    lanes.close()
    assert told == {0, 2}
    assert not left


async def test_keys_of_any_length_are_shared_and_make_no_report_long() -> None:
    long = b"hot" * 50_000

    def key_of(chance: random.Random, second: float) -> tuple[int, bytes]:
        partition, key = hot(0.5)(chance, second)
        return partition, long if key == b"hot" else key

    with PureTime():
        group = SimulatedGroup([LANES] * MEMBERS, lambda _: CALL)
        try:
            await group.play(0.7 * CAPACITY, 5, key_of)
            told = list(group.wire.told.values())
        finally:
            await group.end()
    assert group.shared > 300
    assert max(map(len, told)) < 2000


@pytest.mark.parametrize("group", [b"k", "k", ("a", 1), b"k" * 1000, "ä" * 1000, "\ud800" * 100], ids=range(6))
def test_the_name_of_a_key_is_short_and_its_own(group: str | bytes | tuple[str, int]) -> None:
    name = name_of(group)
    assert len(name) <= 64
    assert name == name_of(group)
    assert name != name_of(group[:-1])
    assert name.startswith(repr(group)[:40])


class Crowd:
    """What a member hears of so many others, each of which tells once in a period."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.heard: list[int] = []
        slots = {0: Slot(0, dict.fromkeys(range(1000), 9), {f"{each:032}": 9 for each in range(members)})}
        keys = [HotKey(name_of("k" * 100 + str(each)), 1 / 3, 1 / 3, 1000) for each in range(64)]
        self.told_by = [msgspec.json.encode(Report(f"{each:032}", 16, 1 / 3, 1e3, keys)) for each in range(members)]
        self.largest = len(msgspec.json.encode(Report("x" * 32, 16, 1 / 3, 1e3, keys, slots)))

    async def tell(self, member: str, value: bytes) -> None:
        pass

    async def hear(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def told(self, seconds: float) -> list[bytes]:
        now, period = asyncio.get_running_loop().time(), period_of(self.members)
        found = [
            value
            for number, value in enumerate(self.told_by)
            if (now + number / self.members * period) % period <= seconds
        ]
        self.heard.append(len(found))
        return found

    async def ends(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def withdraw(self, member: str) -> None:
        pass


@pytest.mark.parametrize("members", [20, 190, 300])
async def test_no_member_of_a_large_group_is_forgotten_between_its_reports(members: int) -> None:
    crowd, app = Crowd(members), App("g")

    @app.on("in", split=True)
    async def work(event: Event) -> None: ...

    (handler,) = app.handlers
    with PureTime():
        sharing = Sharing(Settings("g", "unused:1", "dead"), LoopLanes(handler, work, lambda *_: None), {})
        board: object = crowd
        task = asyncio.create_task(sharing.keep(board))  # type: ignore[arg-type]
        await asyncio.sleep(4 * period_of(members))
        task.cancel()
        await asyncio.wait([task])
    assert set(crowd.heard[len(crowd.heard) // 2 :]) == {members}
    assert crowd.largest < 50_000


def test_a_slot_that_two_tell_of_is_the_later_ones() -> None:
    dead = Report("a", 16, 1.0, slots={1: Slot(1), 2: Slot(2)})
    owner = Report("b", 16, 1.0, slots={2: Slot(2), 3: Slot(3)})
    assert [[*each.slots] for each in with_owners([dead, owner])] == [[1], [2, 3]]
    assert [[*each.slots] for each in with_owners([owner, dead])] == [[3], [1, 2]]


async def test_what_waits_for_another_handler_counts_for_nothing() -> None:
    with PureTime():
        group = SimulatedGroup([LANES] * 2, lambda _: CALL)
        other = Partition(TopicPartition("other", 0), Topic("other"), OffsetAndMetadata(0, ""), asyncio.Event())
        other.log_end = 1_000_000
        group.members[0].partitions[other.tp] = other
        try:
            await group.play(0.5 * 2 * LANES / CALL, 3, hot(0.0, 2))
            told = [msgspec.json.decode(each, type=Report) for each in group.wire.told.values()]
        finally:
            await group.end()
    assert len(told) == 2
    assert all(0 < each.demand < LANES for each in told)
    assert group.shared == 0


@pytest.mark.kafka
async def test_members_beyond_the_partitions_share_what_the_others_have_too_much_of(
    cluster: Cluster, topic_prefix: str
) -> None:
    """Four members of a topic with one partition: each of the three others has slots, and so work."""
    await cluster.create(**{f"{topic_prefix}-in": 1, f"{topic_prefix}-dead": 1})
    worked: dict[int, str] = {}

    def app(number: int) -> App:
        made = App(topic_prefix, brokers=cluster.bootstrap_servers, dead_letters=f"{topic_prefix}-dead")

        @made.on(f"{topic_prefix}-in", split=True, concurrency=2)
        async def work(event: Event) -> None:
            await asyncio.sleep(0.05)
            worked[number] = event.identity

        return made

    async def have_all_worked() -> bool:
        await cluster.write(f"{topic_prefix}-in", [(b"hot", b"1")] * 20, 0)
        return len(worked) == 4

    async with AsyncExitStack() as members:
        for number in range(4):
            await members.enter_async_context(serving(app(number)))
        await until(have_all_worked)


@pytest.mark.kafka
async def test_a_backfill_ends_when_slots_are_empty_and_topics_are_as_they_have_to_be(
    broker: EmbeddedBroker, topic_prefix: str
) -> None:
    seen, times = list[str](), set[int]()
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{f"{topic_prefix}-in": 2, f"{topic_prefix}-dead": 1})
        old = int(1000 * time.time()) - 30 * 86_400_000
        await cluster.write(f"{topic_prefix}-in", [(b"hot", b"1")] * 4000, 0, old)
        await cluster.write(f"{topic_prefix}-in", [(b"cold", b"1")] * 20, 1)

        def app(name: str) -> App:
            made = App(name, brokers=broker.bootstrap_servers, dead_letters=f"{topic_prefix}-dead", until="latest")

            @made.on(f"{topic_prefix}-in", split=True, concurrency=2, exactly_once=True)
            async def work(event: Event) -> None:
                await asyncio.sleep(0.02)
                seen.append(event.identity)
                times.add(event.time)

            return made

        async with serving(app(topic_prefix)) as one, serving(app(topic_prefix)) as other:
            await asyncio.wait_for(asyncio.gather(one, other), 240)
        assert len(seen) == len(set(seen)) == 4020
        in_slots = await cluster.read(f"{topic_prefix}.overflow")
        assert in_slots
        # Retention would delete them at once if they had the events' times.
        assert min(record.timestamp for record in in_slots) > old + 29 * 86_400_000
        assert old in times
        assert min(times) == old
        await cluster.create_compacted(f"{topic_prefix}-b.overflow")
        with pytest.raises(AppError, match=r"cleanup.policy=compact.*kafka-configs --alter.*cleanup.policy=delete"):
            async with serving(app(f"{topic_prefix}-b")) as refused:
                await asyncio.wait_for(refused, 300)
        short = NewTopic(f"{topic_prefix}-c.overflow", 1, 1, topic_configs={"retention.ms": "3600000"})
        await cluster.admin.create_topics([short])
        with pytest.raises(
            AppError, match=r"retention.ms=3600000, which may delete.*add-config retention.ms=604800000"
        ):
            async with serving(app(f"{topic_prefix}-c")) as refused:
                await asyncio.wait_for(refused, 300)
