"""Whatever is killed and whenever: results equal the oracle's, exactly."""

import asyncio
import itertools
import os
import random
import re
from collections.abc import Iterator

import orjson
import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

START = 1_357_000_000_000
JOB = orjson.dumps(
    {
        "window": "1m",
        "lateness": "5s",
        "aggregates": [
            {"name": "events", "op": "count"},
            {"name": "total", "op": "sum", "field": "n"},
            {"name": "spread", "op": "variance", "field": "n"},
            {"name": "kinds", "op": "distinct", "field": "kind"},
        ],
    }
).decode()
STAGES = {"native": ["worker-0", "worker-1", "aggregator-0"], "spark": ["spark-0"]}
SEED = int(os.environ.get("KEYGROUPING_TEST_SEED", "1"))


@pytest.fixture(scope="module")
def broker(fresh_broker: EmbeddedBroker) -> EmbeddedBroker:
    return fresh_broker


def skewed(count: int, partitions: int = 4, seed: int = SEED) -> Iterator[Event]:
    """A stream with hot keys, somewhat out of order, now and then late, and a record without key in a thousand."""
    chance = random.Random(seed)
    for n in range(count):
        rank = int(chance.paretovariate(0.7))
        late = chance.choice([0, 0, 0, 900, 4000]) if n % 500 else 60_000
        key = None if n % 1000 == 999 else b"key-%d" % min(rank, 200)
        value = b'{"n":%d,"kind":"%d"}' % (chance.randrange(1000), rank % 7)
        yield Event(n % partitions, key, value, START + n * 20 - late)


async def write_slowly(deployment: Deployment, events: Iterator[Event], per_second: int) -> None:
    """Writes at a rate, and goes on where it was after the broker has been away."""
    chunk = max(1, per_second // 10)
    batch = [event for _, event in zip(range(chunk), events, strict=False)]
    while batch:
        _, batch = await asyncio.gather(
            asyncio.gather(deployment.write(batch), asyncio.sleep(0.1)), _take(events, chunk)
        )


async def _take(events: Iterator[Event], count: int) -> list[Event]:
    return [event for _, event in zip(range(count), events, strict=False)]


def generations(deployment: Deployment) -> int:
    """How often the routers' group has been rebalanced, by what its members say."""
    found = [0]
    for log in deployment.log("router-0").parent.glob("router-*.log"):
        found += [int(number) for number in re.findall(r"generation (\d+)", log.read_text())]
    return max(found)


@pytest.mark.parametrize("runner", STAGES)
async def test_kills_of_every_part_change_nothing(deploy: Deploy, broker: EmbeddedBroker, runner: str) -> None:
    deployment = await deploy(JOB, Shape(max_workers=6))
    for name in [*STAGES[runner], "router-0", "router-1"]:
        settings = {"workers": 6, "grouping": "pkg", "idle_timeout": 60} if name.startswith("router") else {}
        deployment.start(name, **settings)
    victims = dict.fromkeys([*STAGES[runner], "router-0", "router-1"], 1)

    async def faults() -> None:
        await deployment.disturb(victims, (1.0, 3.0), SEED)
        broker.kill()
        await asyncio.to_thread(broker.start)

    await asyncio.gather(write_slowly(deployment, skewed(20_000), 2000), faults())
    comparison = await deployment.check()
    assert comparison.equal, comparison
    assert generations(deployment) < 30


@pytest.mark.long
async def test_routers_and_workers_may_come_and_go_in_mid_stream(deploy: Deploy) -> None:
    deployment = await deploy(JOB, Shape(max_workers=10))
    for name in STAGES["native"]:
        deployment.start(name)
    numbers = itertools.count()
    stream = asyncio.create_task(write_slowly(deployment, skewed(24_000), 1500))
    for workers, replicas in ((4, 1), (4, 3), (10, 3), (3, 1)):
        for name in [name for name in deployment.names if name.startswith("router-")]:
            assert deployment.stop(name) == 0
        for name in [f"router-{next(numbers)}" for _ in range(replicas)]:
            await start_router(deployment, name, workers)
        await deployment.until(lambda: moved(deployment, stream))
    await stream
    comparison = await deployment.check()
    assert comparison.equal, comparison


async def start_router(deployment: Deployment, name: str, workers: int) -> None:
    """Starts a router and waits until it can be stopped in order."""

    async def has_started() -> bool:
        return "listening on" in deployment.log(name).read_text()

    deployment.start(name, workers=workers, grouping="pkg")
    await deployment.until(has_started)


async def moved(deployment: Deployment, stream: "asyncio.Task[None]") -> bool:
    """Whether the routers that run now have routed something since they were first looked at."""
    before = sum(entry.offset or 0 for entry in (await deployment.committed("router")).values())
    await asyncio.sleep(0.5)
    after = sum(entry.offset or 0 for entry in (await deployment.committed("router")).values())
    return after > before or stream.done()


@pytest.mark.fault
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("runner", STAGES)
async def test_twenty_kills_while_a_million_events_flow(deploy: Deploy, broker: EmbeddedBroker, runner: str) -> None:
    deployment = await deploy(JOB, Shape(max_workers=10))
    routers = ["router-0", "router-1"]
    for name in STAGES[runner]:
        deployment.start(name)
    for name in routers:
        deployment.start(name, workers=10, grouping="dkg", idle_timeout=120)
    victims = dict.fromkeys(routers, 5) | dict.fromkeys(STAGES[runner], 8 if runner == "spark" else 4)

    async def faults() -> None:
        for round_ in range(3):
            part = {name: -(-times // 3) for name, times in victims.items()}
            await deployment.disturb(part, (0.5, 8.0), SEED + round_)
            broker.kill()
            await asyncio.to_thread(broker.start)

    await asyncio.gather(write_slowly(deployment, skewed(1_000_000), 8000), faults())
    comparison = await deployment.check()
    assert comparison.equal, comparison
    assert generations(deployment) < 200
