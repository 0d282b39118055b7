"""The contract of the worker and aggregator stages, kept by both runners and by every mixture of them."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial

import orjson
import pytest
from keygrouping.partial import Partial
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.records import read_all

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

DAY = 86_400_000
START = 1_357_000_000_000
JOB = orjson.dumps(
    {
        "window": "1h",
        "lateness": "10m",
        "aggregates": [
            {"name": "events", "op": "count"},
            {"name": "delayed", "op": "count", "field": "delay"},
            {"name": "total", "op": "sum", "field": "delay"},
            {"name": "least", "op": "min", "field": "delay"},
            {"name": "most", "op": "max", "field": "delay"},
            {"name": "delay", "op": "mean", "field": "delay"},
            {"name": "spread", "op": "variance", "field": "/delay"},
            {"name": "places", "op": "distinct", "field": "/to/place"},
        ],
    }
).decode()
RUNNERS = {"native": ["worker-0", "aggregator-0"], "spark": ["spark-0"]}
MIXED = {
    "spark worker, native aggregator": ["spark-worker", "aggregator-0"],
    "native worker, spark aggregator": ["worker-0", "spark-aggregator"],
}


def start_stages(deployment: Deployment, mixture: str) -> None:
    for name in (RUNNERS | MIXED)[mixture]:
        service, _, stages = name.partition("-")
        if service == "spark":
            deployment.start("spark-0", stages="worker,aggregator" if stages == "0" else stages)
        else:
            deployment.start(name)


def value_of(chance: random.Random) -> bytes:
    members: dict[str, object] = {"delay": chance.choice([None, -3, 0, 7, 12.5, 1e6 + 0.25])}
    if chance.random() < 0.5:
        members["to"] = {"place": chance.choice(["ATL", "çığ", "", 42, None])}
    if chance.random() < 0.1:
        del members["delay"]
    return orjson.dumps(members)


def backlog(seed: int, count: int) -> Iterator[Event]:
    """Partitions that lie days of event time apart, each out of order, partly beyond the allowed lateness."""
    chance = random.Random(seed)
    clocks = {partition: START + partition * 3 * DAY for partition in range(3)}
    for _ in range(count):
        partition = chance.randrange(3)
        clocks[partition] += chance.randrange(60_000)
        late = chance.choice([0, 0, 0, 0, 300_000, 600_000, 5_000_000])
        rank = int(chance.paretovariate(0.9))
        key = b"\xff%d" % rank if rank == 3 else b"" if rank == 4 else b"key-%d" % min(rank, 40)
        yield Event(partition, key, value_of(chance), clocks[partition] - late)


@pytest.mark.parametrize("mixture", [*RUNNERS, *(pytest.param(name, marks=pytest.mark.long) for name in MIXED)])
async def test_results_come_while_the_stream_flows_and_a_backlog_equals_the_oracle(
    deploy: Deploy, mixture: str
) -> None:
    deployment = await deploy(JOB, Shape(partitions=4, max_workers=6))
    start_stages(deployment, mixture)
    deployment.start("router-0", workers=5, grouping="pkg", max_batch=500, idle_timeout=1)
    await idle_partitions_hold_nothing(deployment)
    await deployment.write(backlog(seed=1, count=6000))
    comparison = await deployment.check()
    assert comparison.equal, comparison
    rows = {row.name: row for row in comparison.rows}
    assert rows["late: partition-was-idle"].found >= 1
    assert rows["late"].expected > 0
    assert rows["windows"].expected > 300
    assert deployment.crashed == []
    await assert_partials_tell_all(deployment)


async def idle_partitions_hold_nothing(deployment: Deployment) -> None:
    """Two days before the backlog, windows become final though three of four partitions are silent by then."""
    start = START - 2 * DAY
    await deployment.write([Event(0, b"a", b"{}", start), Event(1, b"b", b"{}", start)])
    await deployment.write([Event(0, b"a", b"{}", start + DAY)])
    await deployment.until(lambda: deployment.is_final(start + DAY - 3_600_000))
    await deployment.write([Event(1, b"late", b"{}", start + 60_000)])


@pytest.mark.parametrize("runner", RUNNERS)
async def test_windows_close_while_nothing_flows(deploy: Deploy, runner: str) -> None:
    """A partition is given up as silent when all stages have had nothing to do for seconds."""
    deployment = await deploy(JOB, Shape(partitions=4, max_workers=6))
    start_stages(deployment, runner)
    deployment.start("router-0", workers=5, grouping="pkg", idle_timeout=8)
    for days in range(1, 4):
        now = START + days * DAY
        await deployment.write([Event(0, b"a", b"{}", now - DAY), Event(1, b"b", b"{}", now - DAY)])
        await deployment.write([Event(0, b"a", b"{}", now)])
        await deployment.until(partial(deployment.is_final, now - 3_600_000))
    comparison = await deployment.check()
    assert comparison.equal, comparison
    assert deployment.crashed == []


async def assert_partials_tell_all(deployment: Deployment) -> None:
    """Once each identity is taken once, the partials hold every routed event, at its worker."""
    settings = deployment.settings
    events: Counter[int] = Counter()
    seen = set()
    async for records in read_all(settings, settings.partials_topic):
        for record in records:
            partial = Partial.decode(record.value)
            assert partial.end - partial.start == deployment.job.window_ms
            assert partial.first <= partial.last
            assert set(partial.aggregates) == {aggregate.name for aggregate in deployment.job.aggregates}
            if (record.key, partial.identity) not in seen:
                seen.add((record.key, partial.identity))
                events[partial.worker] += partial.events
    routed: Counter[int] = Counter()
    async for records in read_all(settings, settings.routed_topic):
        routed[records.partition] += len(records)
    assert events == routed


async def test_a_slow_worker_holds_results_back_and_loses_nothing(deploy: Deploy) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    deployment.start("aggregator-0")
    deployment.start("worker-0")
    deployment.start("worker-1", flush_interval=3)
    deployment.start("router-0", workers=4, grouping="shuffle")
    await asyncio.gather(
        deployment.write(backlog_of(0)),
        deployment.write(backlog_of(1)),
    )
    comparison = await deployment.check()
    assert comparison.equal, comparison


def backlog_of(partition: int) -> Iterator[Event]:
    chance = random.Random(partition)
    return (
        Event(partition, b"key-%d" % chance.randrange(9), value_of(chance), START + partition * DAY + n * 20_000)
        for n in range(2000)
    )
