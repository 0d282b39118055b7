"""What a slot does not take is handled by the member that has it: nothing is lost, and no healthy event is dead."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import TEXT, App, AppError, Event, Output, Topic
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.gaps import decode
from keygrouping_app.kafka.clients import Settings, timeout_within
from keygrouping_app.kafka.draining import GRACE, Draining
from keygrouping_app.kafka.giving import GIVE_SECONDS, keep_giving
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.partition import Given, Partition
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.kafka.writing import Writer
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.surplus import SOURCE, record_of
from keygrouping_service.testing import Cluster, until

from .served import serving
from .simulated_group import PureTime

EVENTS, FEED = 1500, 500
CALL = 0.02
REFUSED = "events were not written, so they are handled here"
ONCE = pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])


class Streams:
    """An app whose first input partition has one hot key, and its topics."""

    def __init__(self, cluster: Cluster, prefix: str, exactly_once: bool) -> None:
        self.cluster, self.exactly_once = cluster, exactly_once
        self.source, self.out, self.dead, self.group = (f"{prefix}-{each}" for each in ("in", "out", "dead", "group"))
        self.slots = f"{self.group}.overflow"
        self.written = self.seen = 0

    async def create(self, largest: int, value: bytes = b'"x"') -> None:
        await self.cluster.create(**{self.source: 2, self.out: 1, self.dead: 1})
        config = {"max.message.bytes": str(largest), "retention.ms": "-1"}
        await self.cluster.admin.create_topics([NewTopic(self.slots, 2, 1, topic_configs=config)])
        await self.write(value)

    async def write(self, value: bytes, events: int = EVENTS) -> None:
        await self.cluster.write(self.source, [(b"hot", value)] * events, 0)
        self.written += events

    async def feed(self, value: bytes) -> None:
        """However slow members are to start, there is something to share."""
        if self.written - self.seen < FEED:
            await self.write(value, FEED)

    @property
    def identities(self) -> set[str]:
        return {f"{self.source}/0/{number}" for number in range(self.written)}

    async def limit(self, largest: int) -> None:
        """Slots take no batch of more bytes from now on."""
        config = {"max.message.bytes": str(largest), "retention.ms": "-1"}
        await self.cluster.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self.slots, config)])

    def app(self) -> App:
        app = App(self.group, brokers=self.cluster.bootstrap_servers, dead_letters=self.dead)

        @app.on(self.source, split=True, concurrency=4, exactly_once=self.exactly_once)
        async def work(event: Event) -> Output:
            await asyncio.sleep(CALL)
            self.seen += 1
            return Output(Topic(self.out, value=TEXT), event.identity)

        return app

    async def outputs(self) -> Counter[str]:
        return Counter((record.value or b"").decode() for record in await self.cluster.read(self.out))

    async def are_all_out(self) -> bool:
        return (await self.outputs()).keys() == self.identities

    async def shared(self, committed: bool = True) -> Counter[str]:
        """The identities of what is in the slots."""
        records = await self.cluster.read(self.slots, committed=committed)
        return Counter((dict(record.headers)[SOURCE] or b"").decode() for record in records)


@pytest.mark.kafka
@ONCE
async def test_what_a_slot_refuses_is_handled_where_it_is(
    cluster: Cluster, topic_prefix: str, exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    streams, value = Streams(cluster, topic_prefix, exactly_once), b'"%s"' % (b"x" * 2000)
    await streams.create(100_000, value)

    async def is_shared() -> bool:
        await streams.feed(value)
        return bool(await streams.shared())

    async def is_refused() -> bool:
        await streams.feed(value)
        return REFUSED in caplog.text

    async with serving(streams.app()), serving(streams.app()):
        await until(is_shared)
        await streams.limit(1000)
        await until(is_refused)
        shared = await streams.shared(committed=False)
        await until(streams.are_all_out)
    # Nobody was killed: so each ran once, in either case.
    assert await streams.outputs() == Counter(streams.identities)
    assert not await cluster.read(streams.dead)
    assert await streams.shared(committed=False) == shared


@pytest.mark.kafka
async def test_what_is_too_large_for_slots_is_not_given_to_them(
    cluster: Cluster, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    streams = Streams(cluster, topic_prefix, True)
    await streams.create(40_000, b'"%s"' % (b"x" * 39_900))

    async def is_shared() -> bool:
        await streams.feed(b'"small"')
        return len(await streams.shared()) > 50

    async with serving(streams.app()), serving(streams.app()):
        await until(is_shared)
        await until(streams.are_all_out)
    assert REFUSED not in caplog.text
    assert {record.value for record in await cluster.read(streams.slots, committed=False)} == {b'"small"'}
    assert not await cluster.read(streams.dead)
    await streams.limit(20_000)
    with pytest.raises(AppError, match=r"max.message.bytes=20000.*--add-config max.message.bytes=32768"):
        async with serving(streams.app()) as refused:
            await asyncio.wait_for(refused, 300)


@pytest.mark.kafka
async def test_while_outputs_cannot_be_written_nothing_is_written_to_slots_again(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams, real, tries = Streams(cluster, topic_prefix, False), Writer.write, itertools.count()

    async def write(self: Writer, outgoing: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        found = await real(self, [one for one in outgoing if one.topic != streams.out])
        if any(one.topic == streams.out for one in outgoing):
            if next(tries) % 4:
                raise KafkaConnectionError("the topic of outputs is away")
            found = await real(self, outgoing)
        return found

    async def is_shared() -> bool:
        await streams.feed(b'"x"')
        return bool(await streams.shared())

    monkeypatch.setattr(Writer, "write", write)
    await streams.create(100_000)
    async with serving(streams.app()), serving(streams.app()):
        await until(is_shared)
        await until(streams.are_all_out)
    shared = await streams.shared()
    assert max(shared.values()) == 1


@pytest.mark.parametrize(
    ("options", "expected"), [({}, 4000), ({"request_timeout_ms": 300}, 300)], ids=["ours", "less"]
)
def test_a_write_to_a_slot_without_leader_fails_before_its_input_is_given_away(
    options: dict[str, int], expected: int
) -> None:
    settings = Settings("g", "unused:1", "dead", options)
    assert timeout_within(settings, GIVE_SECONDS) == {"request_timeout_ms": expected}
    assert GIVE_SECONDS < GRACE


async def test_it_is_told_when_what_is_on_its_way_to_a_slot_may_run_twice(caplog: pytest.LogCaptureFixture) -> None:
    async def work(event: Event) -> None: ...

    app = App("g")
    app.on("in")(work)
    (handler,) = app.handlers
    partition, events = taken(2)
    with PureTime():
        handling = Handling(
            Settings("g", "unused:1", "dead"), {"in": (handler, lambda on_end: LoopLanes(handler, work, on_end))}, {}
        )
        draining = Draining(handling, Signal())
        partition.give(given_of(partition, events[1]))
        await draining.let_be_given(partition)
        assert (
            "in[0]: 1 events are on their way to slots; its next owner handles them, so they may run twice"
            in caplog.text
        )
        caplog.clear()
        partition.gave(partition.take_given())
        await draining.let_be_given(partition)
    handling.close()
    assert not caplog.text


def given_of(partition: Partition, event: Event) -> Given:
    assert event.source is partition
    return Given(event, record_of(event, "g.overflow", 1), 1)


def taken(events: int) -> tuple[Partition, list[Event]]:
    partition = Partition(TopicPartition("in", 0), Topic("in"), OffsetAndMetadata(0, ""), asyncio.Event())
    records: list[Any] = [Record("in", 0, offset, 0, b"k", b"1") for offset in range(events)]
    return partition, partition.take(records, events)


async def test_an_event_has_not_ended_before_it_is_in_its_slot() -> None:
    partition, events = taken(4)
    partition.give(given_of(partition, events[1]))
    partition.end([events[0]], [])
    given = partition.take_given()
    assert (partition.giving, partition.unwritten) == (1, 1)
    assert partition.unwritten_bytes > events[1].size
    alone, together = partition.due(), partition.due(given)
    assert alone == OffsetAndMetadata(1, "")
    assert together == OffsetAndMetadata(2, "")
    partition.end([events[3]], [])
    alone, together = partition.due(), partition.due(given)
    assert alone is not None
    assert together is not None
    assert (alone.offset, 3 in decode(1, alone.metadata)) == (1, True)
    assert (together.offset, 3 in decode(2, together.metadata)) == (2, True)
    partition.gave(given)
    assert partition.due() == together
    assert partition.giving == partition.unwritten == partition.unwritten_bytes == 0


async def test_what_no_slot_has_taken_is_handled_here_unless_the_partition_goes_to_another_member() -> None:
    partition, events = taken(3)
    for event in events:
        partition.give(given_of(partition, event))
    first, *rest = partition.take_given()
    assert partition.keep_here([first]) == [events[0]]
    assert partition.unshared == {0}
    partition.closed = True
    assert partition.keep_here(rest) == []
    assert partition.due() is None
    assert partition.giving == partition.unwritten == partition.unwritten_bytes == 0
    partition.end([events[0]], [])
    assert partition.unshared == set()
    assert partition.due() == OffsetAndMetadata(1, "")


async def test_of_what_is_given_away_only_what_may_not_be_written_is_handled_here() -> None:
    parts = [taken(3), taken(3)]
    for partition, events in parts:
        for event in events:
            partition.give(given_of(partition, event))
    error, told = KafkaConnectionError("away"), list[tuple[str, int, list[int], object]]()
    numbers = {partition: number for number, (partition, _) in enumerate(parts)}

    async def try_to_write(outgoing: Sequence[Outgoing]) -> dict[int, BaseException]:
        assert len(outgoing) == 6
        return {1: error, 3: error}

    def note(what: str) -> Any:
        def noted(partition: Partition, given: Sequence[Given], *more: object) -> None:
            told.append((what, numbers[partition], [each.event.offset for each in given], *(more or [None])))

        return noted

    sharing: Any = SimpleNamespace(dirty=asyncio.Event(), gave=note("gave"), keep_here=note("kept"))
    writer: Any = SimpleNamespace(try_to_write=try_to_write)
    sharing.dirty.set()
    partitions = {TopicPartition("in", number): partition for number, (partition, _) in enumerate(parts)}
    task = asyncio.create_task(keep_giving(sharing, partitions, writer, 60))
    await until(lambda: len(told) == 4)
    task.cancel()
    assert told == [
        ("gave", 0, [0, 2], None),
        ("kept", 0, [1], error),
        ("gave", 1, [1, 2], None),
        ("kept", 1, [0], error),
    ]
