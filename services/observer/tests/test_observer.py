"""The observer as a process against a real broker: its snapshots say what the library says of the same records."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from keygrouping.grouping import create
from keygrouping.measure import Distribution, lambda_, std_dev
from keygrouping.partial import Partial
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import write_unreadable
from keygrouping_local.deployment import Deployment, Shape
from keygrouping_local.records import read_all
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import END, Progress, partitions_of
from keygrouping_service.records.batches import Outbox, partition_of
from keygrouping_service.records.record import Record
from keygrouping_service.records.v2.batch import BufferBatch
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.kafka

JOB = '{"window": 1000, "lateness": 0, "aggregates": [{"name": "n", "op": "count"}]}'
PARTITIONS = 3
PAST = 1_700_000_000_000
LOOK_SECONDS = 2
QUICK = {"interval": 1, "idle_timeout": 1, "look_interval": 0.1}


@pytest.fixture
async def deployment(broker: EmbeddedBroker, application: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with AsyncExitStack() as stack:
        shape = Shape(PARTITIONS, max_workers=8)
        yield await stack.enter_async_context(
            Deployment(broker.bootstrap_servers, application, tmp_path, JOB, shape=shape)
        )


async def begin(deployment: Deployment, *names: str, **settings: object) -> None:
    """Starts observers and waits for the topic that they create."""
    for name in names:
        deployment.start(name, **QUICK, **settings)

    async def is_there() -> bool:
        return bool(await partitions_of(deployment.admin, deployment.settings.distribution_topic))

    await deployment.until(is_there)


async def log_of(deployment: Deployment, topic: str) -> list[Record]:
    return [record async for records in read_all(deployment.settings, topic) for record in records]


async def snapshots_of(deployment: Deployment) -> list[dict[str, Any]]:
    found = await log_of(deployment, deployment.settings.distribution_topic)
    assert {record.key for record in found} <= {deployment.settings.group("observer").encode()}
    return [orjson.loads(record.value or b"") for record in found]


async def when_seen(deployment: Deployment, events: int) -> list[dict[str, Any]]:
    """All snapshots, once they hold this many events."""

    async def is_seen() -> bool:
        return sum(int(s["events"]) for s in await snapshots_of(deployment)) >= events

    await deployment.until(is_seen)
    return await snapshots_of(deployment)


def is_partial(record: Record) -> bool:
    return bool(orjson.loads(record.value or b""))


def distinct(records: list[Record]) -> list[tuple[Record, Partial]]:
    """Each partial once, the first time that it comes."""
    seen: set[Any] = set()
    found = []
    for record in filter(is_partial, records):
        partial = Partial.decode(record.value)
        if (record.key, partial.identity) not in seen:
            seen.add((record.key, partial.identity))
            found.append((record, partial))
    return found


def facts(part: list[tuple[Record, Partial]], before: list[float]) -> dict[str, Any]:
    """What the library says of these partials, and of the loads that key hashing gives."""
    collected = Distribution(0)
    for record, partial in part:
        collected.add(partial.worker, record.key, partial.weight, partial.events)
    m = collected.run()
    return {
        "events": m.events,
        "keys": m.keys,
        "lambda": m.lambda_,
        "least_share": m.least_share,
        "std_dev": m.std_dev,
        "dist_cost": m.dist_cost,
        "loads": list(m.loads),
        "messages_per_event": len(part) / m.events,
        "lambda_before": lambda_(before),
        "std_dev_before": std_dev(before),
    }


def key_hashing(part: list[tuple[Record, Partial]]) -> list[float]:
    hashing = create("key", 1 + max(partial.worker for _, partial in part))
    loads = [0.0] * hashing.workers
    for record, partial in part:
        loads[hashing.route(record.key or b"")] += partial.weight
    return loads


def check(snapshots: list[dict[str, Any]], records: list[Record]) -> None:
    """The snapshots cover the log without gaps, and say of each interval and of the run what the library says."""
    known = distinct(records)
    reached = dict.fromkeys(map(str, range(PARTITIONS)), 0)
    so_far: list[tuple[Record, Partial]] = []
    run_before: list[float] = []
    for snapshot in snapshots:
        ranges = snapshot["offsets"]
        assert {p: bounds[0] for p, bounds in ranges.items()} == reached
        reached = {p: bounds[1] for p, bounds in ranges.items()}
        part = [(r, p) for r, p in known if ranges[str(r.partition)][0] <= r.offset < ranges[str(r.partition)][1]]
        before, so_far = key_hashing(part), so_far + part
        longer = max(len(before), len(run_before))
        run_before = [sum(row[i] for row in (before, run_before) if i < len(row)) for i in range(longer)]
        for found, wanted in [(snapshot, facts(part, before)), (snapshot["run"], facts(so_far, run_before))]:
            assert {name: found[name] for name in wanted} == wanted
    assert len(so_far) == len(known)


def chunk(chance: random.Random, number: int, offsets: list[int], workers: int) -> list[tuple[int, bytes, bytes]]:
    """Time, key and value of the partials of five intervals; some come again later, some are none."""
    made: list[tuple[int, bytes, bytes]] = []
    for time in sorted(PAST + 5000 * number + chance.randrange(5000) for _ in range(300)):
        worker, events = chance.randrange(workers), chance.randint(1, 50)
        key = b"k%d" % min(int(chance.paretovariate(0.6)), 60)
        if made and chance.random() < 0.1:
            made.append((time, *chance.choice(made)[1:]))
        elif chance.random() < 0.02:
            made.append((time, key, b"{}"))
        else:
            last = offsets[worker] + events - 1
            value = Partial(worker, PAST, PAST + 1000, events, events, offsets[worker], last, 3, {"n": events})
            offsets[worker] += events
            made.append((time, key, value.encode()))
    return made


async def test_snapshots_agree_with_the_library_through_kills_repetitions_and_changes_of_the_workers(
    deployment: Deployment,
) -> None:
    chance, settings = random.Random(7), deployment.settings
    await begin(deployment, "observer-0", instance_id="observer")
    offsets = [0] * 8
    async with clients.started(clients.producer(settings, transactional_id=settings.application)) as producer:
        for number, workers in enumerate([3, 8, 8, 2, 3, 3]):
            async with producer.transaction():
                for time, key, value in chunk(chance, number, offsets, workers):
                    await producer.send(settings.partials_topic, value, key, partition_of(key, PARTITIONS), time)
            await asyncio.sleep(chance.random())
            deployment.kill("observer-0")
            deployment.revive()
    snapshots = await when_seen(deployment, sum(offsets))
    records = await log_of(deployment, settings.partials_topic)
    check(snapshots, records)
    assert [s["workers"] for s in snapshots] == [3] * 5 + [8] * 10 + [2] * 5 + [3] * 10
    assert [s["start"] for s in snapshots] == sorted({s["start"] for s in snapshots})
    by_time = [len(list(group)) for _, group in groupby(sorted(r.timestamp // 1000 for r, _ in distinct(records)))]
    assert [s["messages"] for s in snapshots] == by_time
    dead = await log_of(deployment, settings.dead_letters_topic)
    places = [tuple(dict(r.headers)[f"keygrouping-{name}"] for name in ("partition", "offset")) for r in dead]
    garbage = [(b"%d" % r.partition, b"%d" % r.offset) for r in records if not is_partial(r)]
    assert sorted(places) == sorted(garbage)
    assert {dict(record.headers)["keygrouping-reason"] for record in dead} == {b"invalid-partial"}


async def test_what_can_not_be_read_of_the_partials_is_told_and_stops_nothing(
    deployment: Deployment, broker: EmbeddedBroker
) -> None:
    """Beside it lie an aborted transaction, batches of each codec, and names of headers that are not UTF-8."""
    chance, settings, offsets = random.Random(5), deployment.settings, [0] * 3
    await begin(deployment, "observer-0", instance_id="observer")
    garbage = 0
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        name = f"{settings.application}-{number}"
        async with clients.started(clients.producer(settings, transactional_id=name, compression=codec)) as producer:
            for aborted in (True, False):
                rows = chunk(chance, number, [0] * 3 if aborted else offsets, 3)
                await producer.begin_transaction()
                outbox = Outbox(producer)
                for time, key, value in rows:
                    row = (0, time, key, value, (("caf\udce9", b"1"),))
                    outbox.pass_on(settings.partials_topic, number % PARTITIONS, BufferBatch.of("", 0, [row]))
                await outbox.send()
                await (producer.abort_transaction() if aborted else producer.commit_transaction())
            garbage += sum(value == b"{}" for _, _, value in rows)
        if number == 1:
            await write_unreadable(broker, settings, settings.partials_topic, PAST)
        elif number == 3:
            await when_told(deployment, 2)
            deployment.kill("observer-0")
            deployment.revive()
    snapshots = await when_seen(deployment, sum(offsets))
    assert sum(s["events"] for s in snapshots) == sum(offsets)
    dead = [r for r in await log_of(deployment, settings.dead_letters_topic) if r.key in (b"large", None)]
    assert [(r.key, r.value == bytes(100_000)) for r in dead] == [(b"large", True), (None, False)]
    assert b"AS IT WAS WRITTEN" in (dead[1].value or b"")
    assert {dict(r.headers)["keygrouping-reason"] for r in dead} == {b"invalid-partial"}
    assert b"observer: the record has" in (dict(dead[0].headers)["keygrouping-detail"] or b"")
    assert b"its checksum is wrong" in (dict(dead[1].headers)["keygrouping-detail"] or b"")
    all_dead = await log_of(deployment, settings.dead_letters_topic)
    assert len(all_dead) == garbage + 2


async def when_told(deployment: Deployment, count: int) -> None:
    """Once the log tells of as much that can't be read."""

    async def is_told() -> bool:
        return deployment.log("observer-0").read_text().count("goes to dead-letters: ") >= count

    await deployment.until(is_told)


async def test_behind_real_workers_lag_latency_and_metrics_are_told(deployment: Deployment) -> None:
    deployment.start("worker-0", flush_interval=0.2)
    await begin(deployment, "observer-0", service_rate=100_000)
    total = 0
    for workers in [2, 6, 3]:
        total += await route(deployment, [(n % workers, b"k%d" % (n % 23)) for n in range(1000)])
        await when_worked(deployment, total)
    snapshots = await when_seen(deployment, total)
    check(snapshots, await log_of(deployment, deployment.settings.partials_topic))
    latency = snapshots[-1]["run"]["latency"]
    assert latency["samples"] == sum(latency["counts"]) > 0
    (address,) = re.findall(r"listening on (http://\S+)", deployment.log("observer-0").read_text())
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        shown = (await client.get("/distribution", params={"limit": 60})).json()
        assert (await client.get("/distribution", params={"limit": 61})).status_code == 422
        await asyncio.sleep(2 * LOOK_SECONDS)  # By then the ends of the observer's own topic would have been seen.
        figures = text_string_to_metric_families((await client.get("/metrics")).text)
    assert shown["state"] == "observing"
    assert [s["offsets"] for s in shown["intervals"]] == [s["offsets"] for s in snapshots[::-1]]
    assert shown["run"] == snapshots[-1]["run"]
    assert sum(shown["lags"]) <= 2 * 8  # nothing but transaction markers
    values = {(s.name, *s.labels.values()): s.value for family in figures for s in family.samples}
    assert values["keygrouping_observer_imbalance", "used", "run"] == shown["run"]["lambda"]
    assert values["keygrouping_observer_imbalance", "key", "run"] == shown["run"]["lambda_before"]
    assert values["keygrouping_observer_least_share", "run"] == shown["run"]["least_share"]
    assert values["keygrouping_observer_efficiency", "run"] == shown["run"]["efficiency"]
    assert values[("keygrouping_observer_latency_seconds_count",)] == latency["samples"]
    assert [sample for sample in values if sample[0] == "keygrouping_lag_records"] == [], "it reads its state once"


async def when_worked(deployment: Deployment, events: int) -> None:
    async def is_worked() -> bool:
        records = await log_of(deployment, deployment.settings.partials_topic)
        return sum(partial.events for _, partial in distinct(records)) == events

    await deployment.until(is_worked)


async def route(deployment: Deployment, rows: list[tuple[int, bytes]]) -> int:
    """Writes events to their workers, and how far they are complete, in one transaction as the routers do."""
    settings = deployment.settings
    progress = Progress(END).encode()
    async with (
        clients.started(clients.producer(settings, transactional_id=f"{settings.application}-r")) as producer,
        producer.transaction(),
    ):
        for worker, key in rows:
            await producer.send(settings.routed_topic, b"{}", key, worker)
        tps = [TopicPartition(settings.events_topic, p) for p in range(PARTITIONS)]
        offsets = {tp: OffsetAndMetadata(len(rows), progress) for tp in tps}
        await producer.send_offsets_to_transaction(offsets, settings.group("router"))
    return len(rows)


async def test_of_several_replicas_one_observes_and_another_takes_over(deployment: Deployment) -> None:
    await begin(deployment, "observer-0", "observer-1")
    settings, chance, offsets = deployment.settings, random.Random(3), [0] * 4
    async with clients.started(clients.producer(settings, transactional_id=settings.application)) as producer:
        for number in range(3):
            async with producer.transaction():
                for time, key, value in chunk(chance, number, offsets, 4):
                    await producer.send(settings.partials_topic, value, key, partition_of(key, PARTITIONS), time)
            await when_seen(deployment, sum(offsets))
            if number == 0:
                deployment.stop("observer-0")
            elif number == 1:
                deployment.start("observer-0", **QUICK)
    check(await snapshots_of(deployment), await log_of(deployment, settings.partials_topic))
