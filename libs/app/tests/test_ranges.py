"""Starts and ends of an app on a real broker: decided once, true whoever crashes, nothing left out between them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions, RecordsToDelete
from keygrouping_app import App, Event
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.testing import Cluster, until

from .served import until_left

pytestmark = pytest.mark.kafka

HOUR = 1_780_000_000_000
"""Ms: when the tests' first events are from."""


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as running:
        yield running


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(HOUR / 1000 + seconds, UTC)


class Site:
    """A topic of `partitions`, its app, and what members have handled, by partition."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self.topic, self.group, self.dead = f"{prefix}-in", f"{prefix}-group", f"{prefix}-dead"
        self.handled: defaultdict[int, list[int]] = defaultdict(list)

    async def create(self, partitions: int) -> None:
        await self.cluster.create(**{self.topic: partitions, self.dead: 1})

    async def write(self, partition: int, seconds: range) -> None:
        """An event for each second, with its time; by a producer that knows partitions that were just added."""
        async with Cluster(self.cluster.bootstrap_servers) as fresh:
            for second in seconds:
                await fresh.write(self.topic, [(b"k%d" % partition, b"%d" % second)], partition, HOUR + 1000 * second)

    def app(self, hangs: Callable[[Event], bool] | None = None, **given: Any) -> App:
        app = App(self.group, brokers=self.cluster.bootstrap_servers, dead_letters=self.dead, **given)

        @app.on(self.topic, concurrency=8, retries=0, timeout=600)
        async def work(event: Event) -> None:
            if hangs is not None and hangs(event):
                await asyncio.Event().wait()
            self.handled[event.partition].append(event.offset)

        return app

    async def committed(self) -> dict[int, int]:
        """Offsets, and -1 where there is none."""
        tps = [TopicPartition(self.topic, each) for each in await partitions_of(self.cluster.admin, self.topic)]
        found = await self.cluster.admin.list_consumer_group_offsets(self.group, partitions=tps)
        return {tp.partition: at.offset for tp, at in found.items()}

    async def delete(self, partition: int, before: int) -> None:
        tp = TopicPartition(self.topic, partition)
        await self.cluster.admin.delete_records({tp: RecordsToDelete(before)})


@pytest.fixture
def site(cluster: Cluster, topic_prefix: str) -> Site:
    return Site(cluster, topic_prefix)


@asynccontextmanager
async def crashing(app: App) -> AsyncIterator[None]:
    """Runs an app that crashes at the end of the body: it commits nothing any more."""
    task = asyncio.create_task(app.serve(asyncio.Event()))
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(app.serve(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def ended(app: App) -> None:
    """Runs an app that ends by itself."""
    async with asyncio.timeout(300):
        await app.serve(asyncio.Event())


async def test_latest_stays_what_it_was_at_the_first_start_whatever_crashes(site: Site) -> None:
    await site.create(3)
    await site.write(0, range(10))
    await site.write(1, range(5))

    async def begun() -> bool:
        return await site.committed() == {0: 10, 1: 5, 2: 0}

    async with crashing(site.app(lambda event: event.offset >= 0, start="latest")):
        await until(begun)
        for partition in range(3):
            await site.write(partition, range(100, 103))
    async with serving(site.app(start="latest")):
        await until(lambda: sum(map(len, site.handled.values())) >= 9)
    assert site.handled == {0: [10, 11, 12], 1: [5, 6, 7], 2: [0, 1, 2]}


async def test_members_that_start_together_agree_on_the_start_while_events_come(site: Site) -> None:
    await site.create(4)
    for partition in range(4):
        await site.write(partition, range(20))
    stops = [asyncio.Event() for _ in range(3)]
    members = [asyncio.create_task(site.app(start="latest").serve(stop)) for stop in stops]
    written = 20

    async def all_have_come() -> bool:
        nonlocal written
        for partition in range(4):
            await site.write(partition, range(written, written + 5))
        written += 5
        return all(len(site.handled[partition]) > 20 for partition in range(4))

    await until(all_have_come)
    await until(lambda: all(written - 1 in site.handled[partition] for partition in range(4)))
    for stop in stops:
        stop.set()
    await asyncio.gather(*members)
    for handled in site.handled.values():
        assert min(handled) >= 20
        assert sorted(set(handled)) == list(range(min(handled), written))


async def test_a_partition_that_is_added_later_begins_at_its_first_event(site: Site) -> None:
    await site.create(1)
    await site.write(0, range(10))
    async with serving(site.app(start="latest")):
        await until(lambda: began(site, {0: 10}))
    await site.cluster.admin.create_partitions({site.topic: NewPartitions(2)})
    await until(lambda: serves(site, 2))
    await site.cluster.producer.client.force_metadata_update()
    await site.write(1, range(5))
    async with serving(site.app(start="latest")):
        await until(lambda: len(site.handled[1]) == 5)
    assert site.handled == {1: [0, 1, 2, 3, 4]}


async def began(site: Site, where: dict[int, int]) -> bool:
    return await site.committed() == where


async def serves(site: Site, partitions: int) -> bool:
    return len(await partitions_of(site.cluster.admin, site.topic)) == partitions


async def test_a_range_of_times_is_handled_and_the_app_ends(site: Site) -> None:
    """Whole in partition 0; 1 is empty, 2 ends before the range, 3 has lost its first events, 4 begins behind it."""
    await site.create(5)
    await site.write(0, range(100))
    await site.write(2, range(10))
    await site.write(3, range(100))
    await site.delete(3, 40)
    await site.write(4, range(70, 75))
    # No broker ends a session while it is waited for that the group is left.
    await ended(site.app(start=at(20), until=at(60).isoformat(), session_timeout=600.0))
    assert {partition: sorted(handled) for partition, handled in site.handled.items()} == {
        0: list(range(20, 60)),
        3: list(range(40, 60)),
    }
    assert await site.committed() == {0: 60, 1: 0, 2: 10, 3: 60, 4: 0}
    await until_left(site.cluster, site.group)


async def test_the_end_stays_what_it_was_whatever_crashes_and_another_one_goes_on_from_it(site: Site) -> None:
    await site.create(2)
    await site.write(0, range(50))
    await site.write(1, range(5))
    async with crashing(site.app(lambda event: event.offset >= 30, until="latest")):
        await until(lambda: sorted(site.handled[1]) == [*range(5)] and sorted(site.handled[0]) == [*range(30)])
        await until(lambda: began(site, {0: 30, 1: 5}))
        await site.write(0, range(50, 60))
        await site.write(1, range(50, 60))
    await ended(site.app(until="latest"))
    await ended(site.app(until="latest"))
    assert await site.committed() == {0: 50, 1: 5}
    await ended(site.app(until=at(55)))
    assert await site.committed() == {0: 55, 1: 10}
    assert {partition: sorted(handled) for partition, handled in site.handled.items()} == {
        0: [*range(55)],
        1: [*range(10)],
    }


async def test_what_was_deleted_up_to_and_behind_the_end_holds_nothing_up(site: Site) -> None:
    await site.create(1)
    await site.write(0, range(20))
    async with crashing(site.app(lambda event: event.offset >= 3, until="latest")):
        await until(lambda: began(site, {0: 3}))
    await site.write(0, range(20, 40))
    await site.delete(0, 30)
    await ended(site.app(until="latest"))
    assert await site.committed() == {0: 20}
    assert site.handled == {0: [0, 1, 2]}


async def test_an_end_behind_a_transaction_is_reached_and_failed_events_are_no_hindrance(site: Site) -> None:
    await site.create(1)
    options = {"bootstrap_servers": site.cluster.bootstrap_servers, "transactional_id": site.group}
    producer = AIOKafkaProducer(**options)
    await producer.start()
    try:
        async with producer.transaction():
            for number in range(5):
                await producer.send(site.topic, b"%d" % number, partition=0)
    finally:
        await producer.stop()
    app = App(site.group, brokers=site.cluster.bootstrap_servers, dead_letters=site.dead, until="latest")

    @app.on(site.topic, retries=0)
    async def work(event: Event) -> None:
        raise RuntimeError(event.identity)

    await ended(app)
    assert await site.committed() == {0: 6}
    assert len(await site.cluster.read(site.dead)) == 5


async def test_two_members_share_a_range_and_both_end_when_all_of_it_is_handled(site: Site) -> None:
    await site.create(2)
    for partition in range(2):
        await site.write(partition, range(50))
    released = False

    def hangs(event: Event) -> bool:
        return event.partition == 1 and not released

    slow, other = site.app(hangs, until="latest"), site.app(hangs, until="latest")
    members = [asyncio.create_task(app.serve(asyncio.Event())) for app in (slow, other)]
    await until(lambda: len(site.handled[0]) >= 50)
    await until(lambda: first_is(site, 50))
    assert not any(member.done() for member in members)
    for member in members:
        member.cancel()
    await asyncio.gather(*members, return_exceptions=True)
    released = True
    async with asyncio.timeout(300):
        await asyncio.gather(ended(site.app(hangs, until="latest")), ended(site.app(hangs, until="latest")))
    assert await site.committed() == {0: 50, 1: 50}
    assert sorted(site.handled[1]) == [*range(50)]


async def first_is(site: Site, offset: int) -> bool:
    return (await site.committed())[0] == offset
