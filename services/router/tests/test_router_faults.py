"""Laws of the router while its process, its peers or its broker die: exactly once, and every partition on its way."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count

import pytest
from aiokafka.errors import ProducerFenced
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_router.service import serve
from keygrouping_router.settings import RouterSettings
from keygrouping_service.kafka import clients
from keygrouping_service.settings import names_of
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka

START_MS = 1_700_000_000_000
JOB = '{"aggregates": [{"name": "events", "op": "count"}]}'


@pytest.fixture(scope="module")
def broker(fresh_broker: EmbeddedBroker) -> EmbeddedBroker:
    return fresh_broker


def environment(settings: RouterSettings) -> dict[str, str]:
    """The settings as the environment of a process."""
    given = {name: value for name, value in settings if value is not None and name in settings.model_fields_set}
    env = {names_of(RouterSettings, name)[0]: str(value) for name, value in given.items() if name != "job"}
    return {**os.environ, **env, "KEYGROUPING_JOB": JOB}


class RouterProcess:
    """The router as its users run it."""

    def __init__(self, settings: RouterSettings) -> None:
        self._env = environment(settings)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(sys.executable, "-m", "keygrouping_router", env=self._env)

    async def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()


async def feed(cluster: Cluster, topic: str, enough: Callable[[int], bool]) -> set[bytes]:
    """Writes to both input partitions, round after round, until it is enough; gives all values."""
    written: set[bytes] = set()
    for number in count():
        if enough(number):
            return written
        for partition in (0, 1):
            values = [b"%d-%d-%d" % (partition, number, n) for n in range(40)]
            await cluster.write(topic, [(value[-1:], value) for value in values], partition, START_MS + number)
            written |= set(values)
        await asyncio.sleep(0.02)
    raise AssertionError("the rounds are endless")


async def routed_count(cluster: Cluster, settings: RouterSettings) -> int:
    return len(await cluster.read(settings.routed_topic))


async def assert_exactly(cluster: Cluster, settings: RouterSettings, written: set[bytes]) -> None:
    """Every event was routed once: compared with what `events` holds, whatever the test's own client repeated."""

    async def all_there() -> bool:
        return await routed_count(cluster, settings) >= len(written)

    await until(all_there)
    events = Counter(record.value for record in await cluster.read(settings.events_topic))

    async def as_many() -> bool:
        return await routed_count(cluster, settings) >= events.total()

    await until(as_many)
    routed = Counter(record.value for record in await cluster.read(settings.routed_topic))
    assert not routed - events, "nothing doubled"
    assert not events - routed, "nothing lost"
    assert set(routed) == written


async def kill_while_routing(cluster: Cluster, settings: RouterSettings, kills: int) -> None:
    random.seed(kills)
    # A static member comes back at once; a dead dynamic one must first be missed.
    process = RouterProcess(settings.model_copy(update={"instance_id": "router-0", "max_batch": 100}))
    enough = asyncio.Event()
    feeding = asyncio.create_task(feed(cluster, settings.events_topic, lambda _: enough.is_set()))
    try:
        for _ in range(kills):
            await process.start()
            await until(partial(moved_on, cluster, settings, await routed_count(cluster, settings)))
            await asyncio.sleep(random.random())
            assert await process.end(signal.SIGKILL) == -signal.SIGKILL
        enough.set()
        await process.start()
        await assert_exactly(cluster, settings, await feeding)
        assert await process.end(signal.SIGTERM) == 0
    finally:
        enough.set()
        await process.end(signal.SIGKILL)


async def moved_on(cluster: Cluster, settings: RouterSettings, before: int) -> bool:
    return await routed_count(cluster, settings) > before


async def test_a_killed_router_loses_and_doubles_nothing(cluster: Cluster, settings: RouterSettings) -> None:
    await kill_while_routing(cluster, settings, kills=2)


@pytest.mark.fault
@pytest.mark.timeout(1200)
async def test_a_router_killed_twenty_times_loses_and_doubles_nothing(
    cluster: Cluster, settings: RouterSettings
) -> None:
    await kill_while_routing(cluster, settings, kills=20)


@pytest.mark.long
async def test_replicas_come_and_go_and_a_broker_dies_in_mid_stream(
    broker: EmbeddedBroker, cluster: Cluster, settings: RouterSettings
) -> None:
    small = settings.model_copy(update={"max_batch": 50})
    feeding = asyncio.create_task(feed(cluster, settings.events_topic, lambda rounds: rounds == 150))
    async with AsyncExitStack() as stack:
        stops: list[asyncio.Event] = []

        async def add_replica() -> None:
            stops.append(asyncio.Event())
            task = asyncio.create_task(serve(small, stops[-1]))

            async def finish(stop: asyncio.Event = stops[-1]) -> None:
                stop.set()
                await task

            stack.push_async_callback(finish)

        async def members(wanted: int) -> bool:
            return await cluster.members(settings.group("router")) == wanted

        await add_replica()
        await until(lambda: members(1))
        await add_replica()
        await add_replica()
        await until(lambda: members(3))
        broker.kill()
        await asyncio.to_thread(broker.start)
        written = await feeding
        for stop in stops[1:]:
            stop.set()
        await until(lambda: members(1))
        await assert_exactly(cluster, settings, written)


async def test_a_router_that_was_fenced_takes_its_partition_up_again(
    cluster: Cluster, settings: RouterSettings
) -> None:
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings, stop))
    written = await feed(cluster, settings.events_topic, lambda rounds: rounds == 3)
    await assert_exactly(cluster, settings, written)
    usurper = clients.producer(settings, transactional_id=settings.transactional_id("router", 0))
    async with clients.started(usurper):
        await cluster.write(settings.events_topic, [(b"k", b"after")], 0, START_MS)
        await assert_exactly(cluster, settings, written | {b"after"})
        with pytest.raises(ProducerFenced):
            async with usurper.transaction():
                await usurper.send_and_wait(settings.routed_topic, b"zombie", partition=0)
    stop.set()
    await task
    assert b"zombie" not in {record.value for record in await cluster.read(settings.routed_topic)}
