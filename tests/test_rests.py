"""Results stay exact although the broker forgets where the stages stood, and although a topic is created again."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from keygrouping.partial import Partial
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.records import read_all, read_results
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka

START, WINDOW = 1_700_000_000_000, 1000
JOB = '{"window": 1000, "lateness": "1s", "confirmations": 1, "aggregates": [{"name": "n", "op": "count"}]}'
STAGES = ("router", "worker", "aggregator")
SHAPE = Shape(partitions=2, max_workers=2)


def events(number: int, count: int) -> Iterator[Event]:
    """Some windows of events: those of each number lie behind those of the one before."""
    chance = random.Random(number)
    for step in range(count):
        time = START + 20 * WINDOW * number + 15 * WINDOW * step // count
        yield Event(chance.randrange(2), b"k%d" % min(9, int(chance.expovariate(0.4))), None, time)


def start(deployment: Deployment, **of_the_worker: object) -> None:
    deployment.start("router-0", workers=2, idle_timeout=86_400)
    deployment.start("worker-0", **of_the_worker)
    deployment.start("aggregator-0")


def stop(deployment: Deployment) -> None:
    for name in deployment.names:
        assert deployment.stop(name) == 0


async def run_once(deployment: Deployment, number: int, count: int) -> None:
    written = list(events(number, count))
    await deployment.write(written)
    newest = min(max(e.time_ms for e in written if e.partition == partition) for partition in (0, 1))

    async def done() -> bool:
        """Whether the stages have done all that they can with what there is."""
        return await deployment.is_routed() and await deployment.is_final(newest - WINDOW)

    await deployment.until(done)


async def each_result_once(deployment: Deployment) -> None:
    results = [r async for records in read_all(deployment.settings, deployment.settings.results_topic) for r in records]
    assert set(Counter(record.key for record in results).values()) == {1}


def forgotten(deployment: Deployment, stage: str) -> str:
    return f"the broker has forgotten what group {deployment.settings.group(stage)} had committed"


async def test_the_offsets_of_any_stage_may_be_forgotten_while_it_rests(deploy: Deploy) -> None:
    deployment = await deploy(JOB, SHAPE)
    async with Cluster(deployment.settings.bootstrap_servers) as cluster:
        for number, groups in enumerate([("router",), ("worker",), ("aggregator",), STAGES]):
            start(deployment)
            await run_once(deployment, number, 500)
            stop(deployment)
            for stage in groups:
                await cluster.forget(deployment.settings.group(stage))
        start(deployment)
        await run_once(deployment, 9, 500)
        comparison = await deployment.check()
        assert comparison.equal, comparison
        await each_result_once(deployment)
        for stage in STAGES:
            assert deployment.log(f"{stage}-0").read_text().count(forgotten(deployment, stage)) >= 2


@pytest.mark.long
async def test_the_broker_may_forget_by_itself(tmp_path: Path) -> None:
    properties = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    with EmbeddedBroker(tmp_path / "broker", properties=properties) as broker:
        async with Deployment(broker.bootstrap_servers, "rests", tmp_path, JOB, shape=SHAPE) as deployment:
            start(deployment)
            await run_once(deployment, 0, 2000)
            stop(deployment)
            before = await deployment.committed("router")
            assert all(entry.offset for entry in before.values())

            async def is_forgotten() -> bool:
                found = [await deployment.committed(stage) for stage in STAGES]
                return all(entry.offset is None for of_stage in found for entry in of_stage.values())

            await until(is_forgotten)
            start(deployment)
            await run_once(deployment, 1, 2000)
            comparison = await deployment.check()
            assert comparison.equal, comparison
            await each_result_once(deployment)
            for stage in STAGES:
                assert forgotten(deployment, stage) in deployment.log(f"{stage}-0").read_text()


async def test_routed_is_created_again_in_an_open_window_and_nothing_is_doubled_or_lost(deploy: Deploy) -> None:
    """The events of both topics have the same keys, windows and offsets; all of them count."""
    deployment = await deploy(JOB, SHAPE)
    routed, topic = deployment.settings.routed_topic, deployment.settings.partials_topic

    def open_window(count: int) -> list[Event]:
        return [Event(number % 2, b"k%d" % (number % 7), None, START) for number in range(count)]

    async def are_partials() -> bool:
        partials = [r async for records in read_all(deployment.settings, topic) for r in records]
        return sum(Partial.decode(record.value).events for record in partials) == 100

    start(deployment, flush_interval=0.1)
    await deployment.write(open_window(100))
    await deployment.until(are_partials)
    stop(deployment)
    async with Cluster(deployment.settings.bootstrap_servers) as cluster:
        await cluster.recreate(routed, SHAPE.max_workers)
        topic_id = await read_topic_id(cluster.admin, routed)
        deployment.start("router-0", workers=2, idle_timeout=86_400)
        await deployment.write(open_window(500))
        await deployment.until(deployment.is_routed)
        deployment.start("worker-0")
        await until(lambda: deployment.dead())
        (lines,) = deployment.dead().values()
        assert deployment.stop("worker-0") == 1
        assert f"set KEYGROUPING_BEGIN_AGAIN={topic_id}" in lines[-1], lines

        deployment.start("worker-0", begin_again=topic_id, flush_interval=0.1)
        deployment.start("aggregator-0")
        comparison = await deployment.check()
        assert comparison.equal, comparison
        results = await read_results(deployment.settings)
        assert sum(result.events for result in results.values()) == 600
        await each_result_once(deployment)
