import asyncio
import json
import random
import time
from typing import Any

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from keygrouping.partial import Partial
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import END, Committed, Progress, commit_progress
from keygrouping_service.testing import is_shared, until

pytestmark = pytest.mark.kafka
Pipeline = Any  # the fixture's class, of which conftest.py is the only home


@pytest.fixture(scope="module")
def broker(fresh_broker: EmbeddedBroker) -> EmbeddedBroker:
    return fresh_broker


async def test_results_equal_a_plain_count_and_come_when_their_window_is_complete(pipeline: Pipeline) -> None:
    pipeline.start("worker-0")
    pipeline.start("worker-1")
    pipeline.start("aggregator-0")
    # Events whose partition changes hands before they are committed are counted by both workers.
    await until(lambda: is_shared(pipeline.admin, pipeline.settings.group("worker"), 2))
    await pipeline.route_skewed(2000, start=0, watermark=3000)
    early = await pipeline.results(3000)
    assert early == {place: n for place, n in pipeline.expected.items() if place[1] < 3000}
    await pipeline.route_skewed(2000, start=3000, watermark=END)
    assert await pipeline.results() == pipeline.expected
    assert {p.time for p in (await pipeline.progress("worker")).values()} == {END}
    figures = [line for name in pipeline.processes for line in (await pipeline.metrics(name)).splitlines()]
    events = [float(line.split()[1]) for line in figures if line.startswith("keygrouping_worker_events_total")]
    assert sum(events) == 4000
    assert f"keygrouping_aggregator_results_total {len(pipeline.expected)}.0" in figures
    assert "keygrouping_aggregator_open_windows 0.0" in figures
    for name in list(pipeline.processes):
        assert pipeline.stop(name) == 0, name


async def test_one_key_on_one_worker_is_no_special_case(pipeline: Pipeline) -> None:
    # Before the worker starts: it may see events of a transaction a moment before the offsets that tell their epoch.
    await pipeline.route([(4, b"", time) for time in range(0, 3000, 3)], watermark=END)
    pipeline.start("worker-0")
    pipeline.start("aggregator-0")
    assert await pipeline.results() == pipeline.expected
    partials = [Partial.decode(record.value) for record in await pipeline.records(pipeline.settings.partials_topic)]
    assert sum(p.events for p in partials) == 1000
    assert {(p.worker, p.epoch) for p in partials} == {(4, 7)}


async def test_nothing_is_final_before_every_workers_watermark_has_passed(pipeline: Pipeline) -> None:
    pipeline.start("aggregator-0")
    await pipeline.route_skewed(500, start=0, watermark=END)
    pipeline.start("worker-0")
    assert await pipeline.results() == pipeline.expected


async def test_an_input_without_events_ends_too(pipeline: Pipeline) -> None:
    pipeline.start("worker-0")
    pipeline.start("aggregator-0")
    await pipeline.route([], watermark=END)
    assert await pipeline.results() == {}


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.fault)])
async def test_kills_at_random_moments_lose_and_double_nothing(pipeline: Pipeline, kills: int) -> None:
    chance = random.Random(kills)
    # Static members are back at once, the others wait for the session of their predecessor to run out.
    statics = {f"worker-{n}": {"KEYGROUPING_INSTANCE_ID": f"worker-{n}"} for n in range(2)}
    names = [*statics, "aggregator-0", "aggregator-1"]
    for name in names:
        pipeline.start(name, **statics.get(name, {}))
    for kill in range(kills):
        await pipeline.route_skewed(1000, start=2000 * kill)
        await pipeline.until(lambda reached=2000 * kill: has_reached(pipeline, reached))
        await pipeline.route_skewed(1000, start=2000 * kill + 1000)
        await asyncio.sleep(chance.random() / 3)
        victim = chance.choice(names[:2] if kill % 2 else names[2:])
        pipeline.kill(victim)
        pipeline.start(victim, **statics.get(victim, {}))
    await pipeline.route([], watermark=END)
    assert await pipeline.results() == pipeline.expected


async def has_reached(pipeline: Pipeline, time_ms: int) -> bool:
    """Whether all workers are at work, so that a kill hits one that has something in hand."""
    return all(p.time >= time_ms for p in (await pipeline.progress("worker")).values())


async def test_workers_may_come_and_go_in_mid_stream(pipeline: Pipeline) -> None:
    pipeline.start("worker-0")
    pipeline.start("aggregator-0")

    async def stream(start: int) -> None:
        for step in range(10):
            await pipeline.route_skewed(500, start=start + 500 * step)
            await asyncio.sleep(0.1)

    await stream(0)
    pipeline.start("worker-1")
    pipeline.start("worker-2")
    await stream(5000)

    async def are_shared_out() -> bool:
        return await shares(pipeline) == {"0": [0, 3], "1": [1, 4], "2": [2, 5]}

    await pipeline.until(are_shared_out)
    assert pipeline.stop("worker-1") == 0
    await stream(10_000)
    assert pipeline.stop("worker-2") == 0
    await stream(15_000)
    await pipeline.route([], watermark=END)
    assert await pipeline.results() == pipeline.expected


async def shares(pipeline: Pipeline) -> dict[str, list[int]]:
    """Partitions of `routed` by the ordinal of the worker that owns them; empty while the group rebalances."""
    (answer,) = await pipeline.admin.describe_consumer_groups([pipeline.settings.group("worker")])
    ((_, _, state, _, _, members, *_),) = answer.groups
    if state != "Stable":
        return {}
    return {
        ConsumerProtocolMemberMetadata.decode(metadata).user_data.decode(): sorted(
            tp.partition for tp in ConsumerProtocolMemberAssignment.decode(assignment).partitions()
        )
        for _, _, _, metadata, assignment, *_ in members
    }


async def test_partials_that_come_twice_and_what_is_no_partial_change_nothing(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    partial = Partial(0, 0, 1000, 3, 3, 5, 9, 1, {"n": 3}).encode()
    other = Partial(0, 0, 1000, 4, 4, 10, 14, 1, {"n": 4}).encode()
    members = orjson.loads(partial)
    poison = [{"events": 1 << 64}, {"events": -7}, {"end": (1 << 63) - 1}, {"epoch": 1 << 70}, {"weight": 10**300}]
    damaged = [json.dumps({**members, **one}).encode() for one in poison]
    foreign = [b"", b"{", b'{"v":1}', Partial(0, 0, 1000, 3, 3, 5, 9, 1, {}).encode(), None, *damaged]
    async with clients.started(clients.producer(settings)) as producer:
        for value in [partial, other, partial, *foreign, other]:
            await producer.send_and_wait(settings.partials_topic, value, b"k", partition=0)
    await commit_watermark(pipeline, END)
    pipeline.start("aggregator-0")
    assert await pipeline.results() == {(b"k", 0): 7}
    dead = await pipeline.records(settings.dead_letters_topic)
    assert [record.value for record in dead] == foreign
    assert {dict(record.headers)["keygrouping-reason"] for record in dead} == {b"invalid-partial"}
    assert [int(dict(record.headers)["keygrouping-offset"]) for record in dead] == list(range(3, 13))


async def test_it_is_told_how_late_each_window_became_final(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    now = int(time.time()) * 1000
    windows = [(0, now - 40_000), (0, now - 40_000), (1, now - 40_000), (1, now + 60_000), (0, 0)]
    async with clients.started(clients.producer(settings)) as producer:
        for number, (partition, start) in enumerate(windows):
            value = Partial(0, start, start + 1000, 1, 1, number, number, 1, {"n": 1}).encode()
            await producer.send_and_wait(settings.partials_topic, value, b"k%d" % number, partition=partition)
    job = '{"window": 1000, "lateness": 10000, "aggregates": [{"name": "n", "op": "count"}]}'
    pipeline.start("aggregator-0", KEYGROUPING_JOB=job)
    begun = time.time() - now / 1000
    await commit_watermark(pipeline, END)
    assert len(await pipeline.results()) == 5
    lines = (line.rsplit(" ", 1) for line in (await pipeline.metrics("aggregator-0")).splitlines() if line[0] != "#")
    figures = {name: float(value) for name, value in lines}
    labels = f'group="{settings.group("aggregator")}"'
    assert figures[f"keygrouping_result_delay_seconds_count{{{labels}}}"] == 3, "of each partition; not of history"
    assert figures[f'keygrouping_result_delay_seconds_bucket{{{labels},le="0.05"}}'] == 1, "the future is no delay"
    ended = time.time() - now / 1000
    assert 2 * (29 + begun) <= figures[f"keygrouping_result_delay_seconds_sum{{{labels}}}"] <= 2 * (29 + ended)


async def commit_watermark(pipeline: Pipeline, time_ms: int) -> None:
    """Commits as workers that have nothing to write."""
    settings = pipeline.settings
    async with clients.started(clients.reader(settings, group_id=settings.group("worker"))) as consumer:
        consumer.assign([TopicPartition(settings.routed_topic, p) for p in range(6)])
        await commit_progress(consumer, settings.routed_topic, {p: Committed(0, Progress(time_ms)) for p in range(6)})


async def test_an_open_window_survives_a_kill_though_its_offset_was_never_committed(pipeline: Pipeline) -> None:
    pipeline.start("worker-0")
    pipeline.start("aggregator-0")
    await pipeline.route([(0, b"long", 2500), *((1, b"k%d" % n, n) for n in range(2000))], watermark=2000)
    await pipeline.results(2000)
    pipeline.kill("aggregator-0")
    await pipeline.route([(1, b"long", 2600)], watermark=END)
    pipeline.start("aggregator-0")
    assert await pipeline.results() == pipeline.expected


async def test_results_are_exact_though_what_has_been_read_is_deleted_and_all_is_killed(pipeline: Pipeline) -> None:
    pipeline.start("worker-0", KEYGROUPING_PURGE_AFTER="0")
    pipeline.start("aggregator-0", KEYGROUPING_PURGE_AFTER="0")
    await pipeline.route_skewed(1000, start=0)
    await pipeline.route([(0, b"open", 9000)], watermark=8000)
    await pipeline.until(lambda: purged(pipeline, pipeline.settings.routed_topic, [0, 1]))
    await pipeline.until(lambda: purged(pipeline, pipeline.settings.partials_topic, [0, 1]))
    for name in ("worker-0", "aggregator-0"):
        pipeline.kill(name)
    await pipeline.route_skewed(1000, start=8000, watermark=8500)
    pipeline.start("worker-0", KEYGROUPING_PURGE_AFTER="0")
    pipeline.start("aggregator-0", KEYGROUPING_PURGE_AFTER="0")
    await pipeline.route([], watermark=END)
    assert await pipeline.results() == pipeline.expected
    assert "deleted" not in pipeline.log("worker-0").read_text() + pipeline.log("aggregator-0").read_text()


async def purged(pipeline: Pipeline, topic: str, partitions: list[int]) -> bool:
    """Whether each of the partitions has lost what it began with."""
    async with clients.started(clients.reader(pipeline.settings)) as reader:
        starts = await reader.beginning_offsets([TopicPartition(topic, partition) for partition in partitions])
    return all(start > 0 for start in starts.values())


async def test_routed_records_that_no_router_wrote_go_to_dead_letters(pipeline: Pipeline) -> None:
    async with clients.started(clients.producer(pipeline.settings)) as producer:
        await producer.send_and_wait(pipeline.settings.routed_topic, b"no key", None, partition=2)
    await pipeline.route([(2, b"k", 10)], watermark=END)
    pipeline.start("worker-0")
    pipeline.start("aggregator-0")
    assert await pipeline.results() == pipeline.expected
    (dead,) = await pipeline.records(pipeline.settings.dead_letters_topic)
    assert dict(dead.headers)["keygrouping-reason"] == b"no-key"


@pytest.mark.long
async def test_the_broker_may_be_killed_in_mid_stream(pipeline: Pipeline, broker: Any) -> None:
    pipeline.start("worker-0")
    pipeline.start("aggregator-0")
    await pipeline.route_skewed(1000, start=0)
    broker.kill()
    broker.start()
    await pipeline.route_skewed(1000, start=5000, watermark=END)
    assert await pipeline.results() == pipeline.expected
