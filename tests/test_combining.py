"""`stages: combine`: workers read the events themselves, and all that holds with routers holds without them."""

import asyncio
import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator

import orjson
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from keygrouping.partial import Partial
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.comparison import check_run
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.records import read_all
from keygrouping_service.kafka.topic_ids import read_topic_id

pytestmark = pytest.mark.kafka

DAY = 86_400_000
START = 1_357_000_000_000
SEED = int(os.environ.get("KEYGROUPING_TEST_SEED", "1"))
JOB = orjson.dumps(
    {
        "window": "1m",
        "lateness": "5s",
        "weight": {"field": "cost"},
        "aggregates": [
            {"name": "events", "op": "count"},
            {"name": "total", "op": "sum", "field": "n"},
            {"name": "least", "op": "min", "field": "n"},
            {"name": "spread", "op": "variance", "field": "n"},
            {"name": "kinds", "op": "distinct", "field": "kind"},
        ],
    }
).decode()


@pytest.fixture(scope="module")
def broker(fresh_broker: EmbeddedBroker) -> EmbeddedBroker:
    return fresh_broker


def events(count: int, partitions: int = 4, seed: int = SEED) -> Iterator[Event]:
    """A stream with hot keys, out of order, partly late; some events have no key, no JSON, or a number as kind."""
    chance = random.Random(seed)
    for n in range(count):
        rank = int(chance.paretovariate(0.7))
        late = chance.choice([0, 0, 0, 900, 4000]) if n % 500 else 60_000
        key = None if n % 1000 == 999 else b"key-%d" % min(rank, 200)
        value = b'{"n":%d,"kind":"%d","cost":%d}' % (chance.randrange(1000), rank % 7, rank % 3)
        value = b"no JSON" if n % 700 == 1 else b'{"kind":[],"cost":1}' if n % 700 == 2 else value
        yield Event(n % partitions, key, value, START + n * 20 - late)


async def write_slowly(deployment: Deployment, stream: Iterator[Event], per_second: int) -> None:
    while batch := list(itertools.islice(stream, per_second // 10)):
        await asyncio.gather(deployment.write(batch), asyncio.sleep(0.1))


def start(deployment: Deployment, *names: str, **settings: object) -> None:
    for name in names:
        own = {"stages": "combine"} | (settings if name.startswith("worker") else {})
        deployment.start(name, **own)


async def test_results_equal_the_oracle_and_partials_are_named_by_places_in_the_input(deploy: Deploy) -> None:
    deployment = await deploy(JOB)
    await deployment.admin.delete_topics([deployment.settings.routed_topic])  # Nobody needs it.
    start(deployment, "worker-0", "worker-1", "aggregator-0", idle_timeout=60, flush_interval=0.1)
    await write_slowly(deployment, events(10_000), 8000)
    comparison = await deployment.check()
    assert comparison.equal, comparison
    rows = {row.name: row for row in comparison.rows}
    assert min(rows["late"].found, rows["dead-letters"].found) > 0
    assert [each.field for each in comparison.skipped] == ["/kind"]
    await assert_each_event_is_in_one_partial(deployment, comparison.used)


async def assert_each_event_is_in_one_partial(deployment: Deployment, used: int) -> None:
    """Partials of a partition cover its offsets without overlap; their worker is the partition."""
    topic_id = await read_topic_id(deployment.admin, deployment.settings.events_topic)
    counted: Counter[int] = Counter()
    seen = set()
    async for records in read_all(deployment.settings, deployment.settings.partials_topic):
        for record in records:
            partial = Partial.decode(record.value)
            assert partial.topic == topic_id
            assert (record.key, partial.identity) not in seen
            seen.add((record.key, partial.identity))
            counted[partial.worker] += partial.events
    assert sum(counted.values()) == used
    assert set(counted) == set(range(4))


async def test_kills_of_every_part_change_nothing(deploy: Deploy, broker: EmbeddedBroker) -> None:
    deployment = await deploy(JOB)
    names = ["worker-0", "worker-1", "aggregator-0"]
    start(deployment, *names, idle_timeout=60)

    async def faults() -> None:
        await deployment.disturb(dict.fromkeys(names, 2), (0.5, 2.0), SEED)
        broker.kill()
        await asyncio.to_thread(broker.start)

    await asyncio.gather(write_slowly(deployment, events(20_000), 2000), faults())
    comparison = await deployment.check()
    assert comparison.equal, comparison


async def test_a_silent_partition_holds_results_back_no_longer_than_told_and_comes_back(deploy: Deploy) -> None:
    deployment = await deploy(JOB)
    start(deployment, "worker-0", "aggregator-0", idle_timeout=1)
    before = START - 2 * DAY
    await deployment.write([Event(0, b"a", b'{"cost":1}', before), Event(1, b"b", b'{"cost":1}', before)])
    await deployment.write([Event(0, b"a", b'{"cost":1}', before + DAY)])
    await deployment.until(lambda: deployment.is_final(before + DAY - 3_600_000))
    await deployment.write([Event(1, b"late", b'{"cost":1}', before + 60_000)])
    await deployment.write(events(3000))
    comparison = await deployment.check()
    assert comparison.equal, comparison
    assert {row.name: row for row in comparison.rows}["late: partition-was-idle"].found >= 1


async def test_routers_may_come_and_go_while_events_flow(deploy: Deploy) -> None:
    """Who reads the input goes on where the one before has ended; no window is final before what was routed is in."""
    deployment = await deploy(JOB, Shape(max_workers=4))
    start(deployment, "aggregator-0")
    deployment.start("worker-0")
    deployment.start("router-0", workers=4, grouping="pkg", idle_timeout=60)
    stream = events(12_000)
    await deployment.write(itertools.islice(stream, 3000))
    await deployment.until(deployment.is_routed)
    deployment.stop("worker-0")
    await deployment.write(itertools.islice(stream, 3000))
    await deployment.until(deployment.is_routed)
    assert deployment.stop("router-0") == 0
    start(deployment, "worker-1", idle_timeout=60)
    await deployment.write(itertools.islice(stream, 3000))
    await deployment.until(deployment.is_routed)
    third = START + 120_000  # no event of the first two parts is as late
    assert not await deployment.is_final(third), "events that were routed are in no partial yet"
    deployment.start("worker-0")
    await deployment.until(lambda: deployment.is_final(third))
    assert deployment.stop("worker-1") == 0
    deployment.stop("aggregator-0")
    deployment.start("aggregator-0")
    deployment.start("router-0", workers=4, grouping="pkg", idle_timeout=60)
    await deployment.write(stream)
    comparison = await deployment.check()
    assert comparison.equal, comparison


@pytest.mark.spark
@pytest.mark.timeout(900)
async def test_spark_aggregates_what_native_workers_combine(deploy: Deploy) -> None:
    deployment = await deploy(JOB)
    await deployment.admin.delete_topics([deployment.settings.routed_topic])
    deployment.start("spark-0", {"KEYGROUPING_STAGES": "combine"}, stages="aggregator")
    start(deployment, "worker-0", idle_timeout=60)
    await write_slowly(deployment, events(10_000), 5000)
    await deployment.finish()
    await deployment.until(deployment.is_final, timeout=400)
    comparison = await check_run(deployment.settings, deployment.job)
    assert comparison.equal, comparison


async def test_an_aggregator_that_does_not_know_that_workers_combine_says_what_to_do(deploy: Deploy) -> None:
    deployment = await deploy(JOB)
    start(deployment, "worker-0", idle_timeout=60)
    deployment.start("aggregator-0")
    await deployment.write(events(1000))

    async def said() -> bool:
        return "set KEYGROUPING_STAGES=combine here too" in deployment.log("aggregator-0").read_text()

    await deployment.until(said)


async def test_an_aggregator_that_stays_behind_when_workers_change_says_what_to_do(deploy: Deploy) -> None:
    deployment = await deploy(JOB)
    deployment.start("aggregator-0")
    deployment.start("worker-0")
    deployment.start("router-0", workers=1, grouping="key", idle_timeout=60)
    stream = events(10_000_000)
    await deployment.write(itertools.islice(stream, 1000))
    await deployment.until(deployment.is_routed)
    await deployment.until(lambda: deployment.is_final(START))
    assert deployment.stop("router-0") == deployment.stop("worker-0") == 0
    start(deployment, "worker-1", idle_timeout=60, flush_interval=0.1)

    async def said() -> bool:
        await deployment.write(itertools.islice(stream, 50))
        return "set KEYGROUPING_STAGES=combine here too" in deployment.log("aggregator-0").read_text()

    await deployment.until(said)


async def test_what_nobody_reads_stops_no_aggregator(deploy: Deploy) -> None:
    """A broker may have made `routed` itself, as it makes all topics."""
    deployment = await deploy(JOB)
    short = ConfigResource(ConfigResourceType.TOPIC, deployment.settings.routed_topic, {"retention.ms": "1000"})
    await deployment.admin.alter_configs([short])
    start(deployment, "worker-0", "aggregator-0", idle_timeout=60)
    await deployment.write(events(2000))
    comparison = await deployment.check()
    assert comparison.equal, comparison
    assert deployment.log("aggregator-0").read_text().count("retention: ") == 0


@pytest.mark.fault
@pytest.mark.timeout(3600)
async def test_twenty_kills_while_a_million_events_flow(deploy: Deploy, broker: EmbeddedBroker) -> None:
    deployment = await deploy(JOB)
    names = ["worker-0", "worker-1", "aggregator-0"]
    start(deployment, *names, idle_timeout=120)

    async def faults() -> None:
        for round_ in range(3):
            await deployment.disturb(dict.fromkeys(names, 2), (0.5, 8.0), SEED + round_)
            broker.kill()
            await asyncio.to_thread(broker.start)

    await asyncio.gather(write_slowly(deployment, events(1_000_000), 8000), faults())
    comparison = await deployment.check()
    assert comparison.equal, comparison
