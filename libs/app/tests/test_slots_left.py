"""What lies in slots is handled when `split` is taken away, or the app says at its start how to get there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from keygrouping_app import App, AppError, Event
from keygrouping_app.kafka import left
from keygrouping_app.surplus import SOURCE, TIME
from keygrouping_service.testing import Cluster, until

from .served import serving

pytestmark = pytest.mark.kafka

SLOTS, LEFT = 3, 40
AGAIN = "did not end in time", "is another member's", "may run twice", "belongs to another member"
"""What the log says when events may run again."""


class Streams:
    """Two topics, of one of which events are left in the slots of a group."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster, self.group, self.dead = cluster, f"{prefix}-group", f"{prefix}-dead"
        self.one, self.other, self.slots = f"{prefix}-in", f"{prefix}-other", f"{prefix}-group.overflow"
        self.seen: Counter[str] = Counter()
        self.began = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.left = {f"{self.one}/7/{number}" for number in range(LEFT)}

    async def create(self) -> None:
        await self.cluster.create(**{self.one: 2, self.other: 1, self.dead: 1, self.slots: SLOTS})

    async def leave(self) -> None:
        for number, identity in enumerate(sorted(self.left)):
            headers = [(SOURCE, identity.encode()), (TIME, b"5")]
            await self.cluster.producer.send_and_wait(self.slots, b"1", b"k", number % SLOTS, headers=headers)

    def app(self, *topics: str, until: Any = None, **options: Any) -> App:
        app = App(self.group, brokers=self.cluster.bootstrap_servers, dead_letters=self.dead, until=until)
        for topic in topics:
            app.on(topic, **options)(self.handler(topic, "state" in options))
        return app

    def handler(self, topic: str, has_state: bool) -> Callable[..., Awaitable[None]]:
        async def work(event: Event) -> None:
            assert event.topic == topic
            self.began += 1
            await self.may_end.wait()
            await asyncio.sleep(0.02)
            self.seen[event.identity] += 1

        async def keep(event: Event, _: object) -> None:
            await work(event)

        return keep if has_state else work


@pytest.fixture
async def streams(cluster: Cluster, topic_prefix: str) -> Streams:
    found = Streams(cluster, topic_prefix)
    await found.create()
    return found


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
async def test_what_is_left_in_slots_is_handled_without_split(streams: Streams, exactly_once: bool) -> None:
    await streams.leave()
    await streams.cluster.write(streams.one, [(b"k", b"1")] * 5)
    app = streams.app(streams.one, streams.other, until="latest", exactly_once=exactly_once)
    async with serving(app) as ended:
        await asyncio.wait_for(ended, 300)
    assert streams.seen == Counter(streams.left | {f"{streams.one}/0/{number}" for number in range(5)})
    # What a member of the version before writes later is of the same topic, as can be seen.
    streams.left = {f"{streams.one}/8/{number}" for number in range(LEFT)}
    async with serving(streams.app(streams.one, streams.other, exactly_once=exactly_once)):
        await streams.leave()
        await until(lambda: streams.left <= streams.seen.keys())
    assert set(streams.seen.values()) == {1}


@pytest.mark.parametrize("range_ends", [None, "latest"])
async def test_what_an_old_member_is_the_first_to_share_is_handled_by_an_app_of_several_handlers(
    streams: Streams, range_ends: str | None
) -> None:
    """Its slots are empty at the start, and so it can't be seen whose events they get."""
    await streams.cluster.write(streams.one, [(b"k", b"1")])
    streams.may_end.clear()
    async with serving(streams.app(streams.one, streams.other, until=range_ends)) as ended:
        await until(lambda: streams.began)
        await streams.leave()
        streams.may_end.set()
        if range_ends is not None:
            await asyncio.wait_for(ended, 300)
        await until(lambda: streams.left <= streams.seen.keys())
    assert streams.seen == Counter(streams.left | {f"{streams.one}/0/0"})


@pytest.mark.parametrize("range_ends", [None, "latest"])
async def test_what_is_left_by_a_version_that_came_and_went_meanwhile_is_handled(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, range_ends: str | None
) -> None:
    """There were no slots at all when the members began that run on."""
    monkeypatch.setattr(left, "_THERE_SECONDS", 1.0 if range_ends is None else 600.0)
    streams = Streams(cluster, topic_prefix)
    await cluster.create(**{streams.one: 2, streams.other: 1, streams.dead: 1})
    await cluster.write(streams.one, [(b"k", b"1")])
    streams.may_end.clear()
    async with serving(streams.app(streams.one, streams.other, until=range_ends)) as ended:
        await until(lambda: streams.began)
        await cluster.create(**{streams.slots: SLOTS})
        await streams.leave()
        streams.may_end.set()
        if range_ends is not None:
            await asyncio.wait_for(ended, 300)
        await until(lambda: streams.left <= streams.seen.keys())
    assert streams.seen == Counter(streams.left | {f"{streams.one}/0/0"})


async def test_what_an_old_member_is_the_first_to_share_and_no_handler_can_be_given_ends_the_app(
    streams: Streams,
) -> None:
    await streams.cluster.create(**{f"{streams.one}-third": 1})
    with pytest.raises(
        AppError, match=f"holds events of {streams.one!r} that are not handled yet, and this app has no"
    ):
        async with serving(streams.app(streams.other, f"{streams.one}-third")) as ended:
            await streams.cluster.write(streams.other, [(b"k", b"1")])
            await until(lambda: streams.began)
            await streams.leave()
            await asyncio.wait_for(ended, 300)


async def test_a_range_ends_though_slots_hold_what_is_nobodys(streams: Streams) -> None:
    """What a transaction that was aborted has left there, and the marker behind it."""
    transactional = AIOKafkaProducer(
        bootstrap_servers=streams.cluster.bootstrap_servers, transactional_id=streams.group
    )
    async with transactional as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(streams.slots, b"1", b"k", 0, headers=[(SOURCE, b"gone/0/0"), (TIME, b"5")])
        await producer.abort_transaction()
    await streams.cluster.write(streams.one, [(b"k", b"1")])
    async with serving(streams.app(streams.one, streams.other, until="latest")) as ended:
        await asyncio.wait_for(ended, 300)
    assert streams.seen == Counter([f"{streams.one}/0/0"])


async def test_what_no_handler_can_be_given_is_told_at_the_start(streams: Streams) -> None:
    async def fault(app: App) -> str:
        with pytest.raises(AppError) as told:
            async with serving(app) as refused:
                await asyncio.wait_for(refused, 300)
        (only,) = told.value.faults
        return only

    await streams.leave()
    held = f"topic {streams.slots!r} holds events of {streams.one!r} that are not handled yet, and"
    way = (
        f": first run a version with a handler of {streams.one!r} and no split, until kafka-consumer-groups --describe "
        f"--group {streams.group} shows no lag there"
    )
    assert await fault(streams.app(streams.other)) == f"{held} this app has no handler of it{way}"
    other = streams.app(streams.one)
    other.on(streams.other, split=True)(streams.handler(streams.other, False))
    assert await fault(other) == f"{held} its handler is not the one that would be given them{way}"
    await streams.cluster.create_compacted(f"{streams.group}-state")
    assert await fault(streams.app(streams.one, state=dict)) == f"{held} its handler has a state{way}"
    assert not streams.seen


async def test_what_an_old_member_shares_of_another_topic_ends_the_app(streams: Streams) -> None:
    app = streams.app(streams.one, split=False)
    app.on(streams.other, split=True)(streams.handler(streams.other, False))
    with pytest.raises(AppError, match=f"holds events of {streams.one!r} that are not handled yet, and its handler"):
        async with serving(app) as ended:
            await streams.cluster.write(streams.other, [(b"k", b"1")])
            await until(lambda: streams.seen)
            await streams.leave()
            await asyncio.wait_for(ended, 300)
    assert streams.seen == Counter([f"{streams.other}/0/0"])


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at-least-once", "exactly-once"])
async def test_versions_with_and_without_split_follow_each_other_while_events_flow(
    cluster: Cluster, topic_prefix: str, exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    streams = Streams(cluster, topic_prefix)
    await cluster.create(**{streams.one: 3, streams.dead: 1})
    written: Counter[int] = Counter()

    async def write(partition: int, count: int) -> None:
        await cluster.write(streams.one, [(b"k%d" % partition, b"1")] * count, partition)
        written[partition] += count

    async def is_shared() -> bool:
        if written.total() - len(streams.seen) < 500:  # however slow members are to start, there is something to share
            await write(1, 500)
        return len(await cluster.read(streams.slots)) > 50

    def version(split: bool) -> App:
        return streams.app(streams.one, split=split, concurrency=4, exactly_once=exactly_once)

    for partition, count in enumerate([100, 1500, 100]):
        await write(partition, count)
    async with AsyncExitStack() as last:
        async with serving(version(False)):
            await until(lambda: streams.seen)
            async with serving(version(True)), serving(version(True)):
                await until(is_shared)
                await last.enter_async_context(serving(version(False)))
        await until(lambda: len(streams.seen) == written.total())
    assert streams.seen.keys() == {f"{streams.one}/{part}/{n}" for part, count in written.items() for n in range(count)}
    # A member that was too slow to end what ran, or was taken for dead, has said so; else no event runs twice.
    assert set(streams.seen.values()) == {1} or any(reason in caplog.text for reason in AGAIN)
