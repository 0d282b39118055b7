"""Alerts that a real pipeline in trouble brings about, under rules that run 60 times as fast."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from keygrouping.partial import Result
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deployment, Event, Shape
from keygrouping_local.monitoring import Prometheus, metrics_address
from keygrouping_local.ports import free_ports
from keygrouping_local.process import spawn, terminate
from keygrouping_local.redis_server import RedisServer
from keygrouping_service.kafka import clients
from keygrouping_service.testing import Cluster, until
from monitoring.writing import prometheus_rules
from redis import Redis

from .members import Members, keep_asking

pytestmark = [pytest.mark.kafka, pytest.mark.fault]

JOB = '{"window": "1s", "lateness": "0s", "aggregates": [{"name": "total", "op": "sum", "field": "n"}]}'
SERVICES = ("router-0", "worker-0", "worker-1", "aggregator-0", "observer-0")
"""The router is the first, if there is one."""
PARTITIONS = 2
WORKERS = 4
TIMEOUT = 300.0


OF_THE_EVENTS = (
    "KeygroupingDeadLetters",
    "KeygroupingDeadLettersBurst",
    "KeygroupingFieldsSkipped",
    "KeygroupingEventsLate",
    "KeygroupingLatencyBudgetBurnFast",
    "KeygroupingLatencyBudgetBurnSlow",
    "KeygroupingResultsBudgetBurnFast",
    "KeygroupingResultsBudgetBurnSlow",
)
"""What `keep_writing` brings about: some events are of no use or late, all are old."""

LEAST_OVERFLOW = 32_768
"""Bytes that an app's `overflow` has to take at once."""


def hastened(rules: str) -> str:
    """The rules with a second for each minute."""

    def shorter(match: re.Match[str]) -> str:
        count, unit = int(match[2]), match[3]
        return f"{match[1]}{count * {'m': 1, 'h': 60, 'd': 1440}[unit]}s"

    quick = re.sub(r">\s+300 unless", "> 5 unless", rules)
    quick = re.sub(r"(\[|:|for: |offset\s+)(\d+)([mhd])(?=[\]:)\n])", shorter, quick)
    return (
        quick.replace("+ 120", "+ 2")
        .replace("> 180", "> 10")
        .replace("worker_delay:seconds > 300", "worker_delay:seconds > 5")
        .replace("worker_delay:seconds > 30", "worker_delay:seconds > 3")
        .replace("lag:seconds > 60", "lag:seconds > 3")
        .replace("lag:seconds > 300", "lag:seconds > 3")
        .replace("> 600", "> 15")
        .replace("> 900", "> 15")
    )


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that hangs: it lives and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def keep_writing_alike(deployment: Deployment, value: bytes) -> None:
    """A stream of events that all have this value."""
    for _ in itertools.count():
        now = int(time.time() * 1000)
        await deployment.write([Event(n % 2, b"key-%d" % n, value, now) for n in range(20)])
        await asyncio.sleep(0.1)


async def keep_posting(producer: str, body: bytes) -> None:
    async with httpx.AsyncClient(base_url=producer, timeout=60) as client:
        while True:
            answer = await client.post("/events", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 422, answer.text
            await asyncio.sleep(0.2)


@asynccontextmanager
async def foreign_members(deployment: Deployment, stage: str) -> AsyncIterator[None]:
    """Other programs, one for each partition, that join a stage's group and are served before its processes."""
    settings = deployment.settings
    async with contextlib.AsyncExitStack() as stack:
        for number in range(PARTITIONS):
            consumer = AIOKafkaConsumer(
                settings.events_topic,
                **settings.kafka_options() | {"client_id": f"a-foreign-program-{number}"},
                group_id=settings.group(stage),
                partition_assignment_strategy=[RoundRobinPartitionAssignor],
                enable_auto_commit=False,
            )
            await stack.enter_async_context(clients.started(consumer))
        yield


VALUES = (b"{}",) * 8 + (b"no", b'{"n": "3"}')


async def keep_writing(deployment: Deployment, stamp_behind: float = 75) -> None:
    """A stream of old events (their age in seconds), most of one key; of ten one is no JSON, one has text as number."""
    for number in itertools.count():
        now = int((time.time() - stamp_behind) * 1000)
        events = [Event(n % 2, b"hot" if n % 10 else b"key-%d" % (number % 50), VALUES[n % 10], now) for n in range(50)]
        late = [Event(n % 2, b"late", b"{}", now - 60_000) for n in range(5)]
        await deployment.write([*events, *late])
        await asyncio.sleep(0.1)


class Watch:
    """A Prometheus and what it says."""

    prometheus: Prometheus

    async def fires(self, *alerts: str) -> None:
        """Waits until all these have been seen firing."""
        missing = set(alerts)

        def looked() -> bool:
            found = self.prometheus.query('ALERTS{alertstate="firing"}')
            missing.difference_update(labels["alertname"] for labels, _ in found)
            return not missing

        try:
            await until(looked, TIMEOUT)
        except AssertionError:
            raise AssertionError(f"does not fire: {sorted(missing)}") from None

    async def is_quiet(self, alert: str) -> None:
        """Waits until an alert does not fire and is not about to."""
        await until(lambda: not self.prometheus.query(f'ALERTS{{alertname="{alert}"}}'), TIMEOUT)


class Pipeline(Watch):
    """The native pipeline, its broker, its Redis, and the Prometheus that watches it."""

    def __init__(self, deployment: Deployment, broker: EmbeddedBroker, redis: RedisServer | None) -> None:
        self.deployment = deployment
        self.broker = broker
        self.redis = redis
        self.router: str


async def address_of(log: Path) -> str:
    await until(partial(metrics_address, log), TIMEOUT)
    return str(metrics_address(log))


@asynccontextmanager
async def watched(
    folder: Path,
    application: str,
    broker: EmbeddedBroker,
    redis: RedisServer,
    services: Sequence[str] = SERVICES,
    more: Sequence[str] = (),
) -> AsyncIterator[Pipeline]:
    """Without a router the others combine at the source. `more`: addresses that are watched before anybody listens."""
    deployment = Deployment(broker.bootstrap_servers, application, folder, JOB, shape=Shape(PARTITIONS, WORKERS))
    async with deployment:
        pipeline = Pipeline(deployment, broker, redis)
        if routes := "router-0" in services:
            store = f"redis://{redis.address}"
            deployment.start("router-0", workers=WORKERS, grouping="pkg", interval=1, store_url=store)
            pipeline.router = f"http://{await address_of(deployment.log('router-0'))}"
        for name in services[routes:]:
            stages = {} if routes else {"stages": "combine"}
            deployment.start(name, session_timeout=60, **own_settings(name), **stages)
        addresses = [await address_of(deployment.log(name)) for name in services]
        (folder / "rules.yaml").write_text(hastened(prometheus_rules()))
        targets = [(address, {"namespace": "here"}) for address in (*addresses, *more)]
        with Prometheus(folder / "prometheus", targets, rules=folder / "rules.yaml", seconds=0.5) as prometheus:
            pipeline.prometheus = prometheus
            yield pipeline


async def keep_changing_workers(router: str) -> None:
    async with httpx.AsyncClient(base_url=router, timeout=60) as client:
        for number in itertools.count():
            await client.put("/workers", json={"workers": WORKERS - number % 2})
            await asyncio.sleep(0.1)


def own_settings(name: str) -> dict[str, object]:
    if name.startswith("observer-"):
        return {"interval": 1, "idle_timeout": 0.5}
    # It keeps restarting, and Prometheus knows it by its address.
    return {"http_port": free_ports(1)[0]} if name.startswith("spark-") else {}


async def keep_fencing(deployment: Deployment) -> None:
    """Another pipeline of the same name: its producers take the transactional ids of the routers."""
    settings = deployment.settings
    for partition in itertools.cycle(range(PARTITIONS)):
        name = settings.transactional_id("router", partition)
        async with clients.started(clients.producer(settings, transactional_id=name)):
            await asyncio.sleep(0.2)


@contextmanager
def few_files(pid: int) -> Iterator[None]:
    """A process that may open hardly more files than it has open."""
    process = psutil.Process(pid)
    before = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (int(process.num_fds() / 0.85), before[1]))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, before)


async def keep_poisoning(store: Redis, application: str) -> None:
    """Somebody else writes to what routers share."""
    while True:
        for key in store.scan_iter(f"*{application}*document*"):
            store.hset(key, "value", b"{")
        await asyncio.sleep(0.2)


async def write_stray_result(deployment: Deployment) -> None:
    """Somebody else writes to the results."""
    stray = Result(b"key", 0, 1000, 1, 1, True, {})
    await deployment.producer.send_and_wait(deployment.settings.results_topic, stray.encode(), stray.record_key)


async def retain(deployment: Deployment, milliseconds: int) -> None:
    topic = deployment.settings.events_topic
    await deployment.admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": str(milliseconds)})]
    )


async def keep_losing(deployment: Deployment, *readers: str) -> None:
    """Retention deletes events that who reads the input has not read while it hung."""
    tp = TopicPartition(deployment.settings.events_topic, 0)
    while True:
        with contextlib.ExitStack() as stack:
            for name in readers:
                stack.enter_context(stopped(deployment.pid(name)))
            # The first one still answers what it asked before.
            for _ in range(3):
                await deployment.write([Event(0, b"lost", b"{}", int(time.time() * 1000))])
                await asyncio.sleep(0.2)
            await deployment.admin.delete_records({tp: RecordsToDelete(before_offset=-1)})
        await asyncio.sleep(5)


def java_of(pid: int) -> int:
    """The JVM of a Spark driver."""
    (java,) = (child for child in psutil.Process(pid).children(recursive=True) if child.name() == "java")
    return int(java.pid)


@asynccontextmanager
async def meanwhile(task: asyncio.Task[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_rules_are_hastened_and_their_names_are_not() -> None:
    quick = hastened("expr: x:rate5m[1h:1m] > max(a[10m]) + max(b offset\n 10m) + 120\n  for: 5m\n")
    assert quick == "expr: x:rate5m[60s:1s] > max(a[10s]) + max(b offset\n 10s) + 2\n  for: 5s\n"


@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(1800)
async def test_a_pipeline_in_trouble_is_told_of(application: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with EmbeddedBroker(tmp_path / "broker") as broker, RedisServer(tmp_path / "redis") as redis:
        async with watched(tmp_path, application, broker, redis, more=[f"127.0.0.1:{port}"]) as pipeline:
            deployment = pipeline.deployment
            async with meanwhile(asyncio.create_task(keep_writing(deployment))):
                # Two workers share nearly all events, some are of no use or late, all are old.
                await pipeline.fires("KeygroupingUnbalanced", *OF_THE_EVENTS)
                async with httpx.AsyncClient(base_url=pipeline.router, timeout=60) as client:
                    change = {"action": "pin", "worker": 0, "seconds": 800}
                    (await client.put("/overrides/hot", json=change)).raise_for_status()
                    await pipeline.fires("KeygroupingOverrideOverloads", "KeygroupingOverrideEnds")
                    (await client.delete("/overrides/hot")).raise_for_status()
                await write_stray_result(deployment)
                await pipeline.fires("KeygroupingEventsUnaccounted")
                redis.freeze()
                await pipeline.fires("KeygroupingStoreDegraded")
                redis.thaw()
                # A second router has another store, and hears of no change.
                apart = f"redis://{redis.address}/1"
                deployment.start(
                    "router-1", workers=WORKERS, grouping="pkg", interval=1, store_url=apart, http_port=port
                )
                await address_of(deployment.log("router-1"))
                async with meanwhile(asyncio.create_task(keep_changing_workers(pipeline.router))):
                    await pipeline.fires("KeygroupingPlanFlapping", "KeygroupingRoutersApart")
                deployment.stop("router-1")
                with few_files(deployment.pid("observer-0")):
                    await pipeline.fires("KeygroupingFileDescriptorsLow")
                with stopped(deployment.pid("worker-0")):
                    await pipeline.fires("KeygroupingWorkerSaturated", "KeygroupingNoResults", "KeygroupingTargetDown")
                    with stopped(deployment.pid("worker-1")):
                        await pipeline.fires("KeygroupingWorkersBehind")
                with Redis(port=redis.port) as store:
                    async with meanwhile(asyncio.create_task(keep_poisoning(store, application))):
                        await pipeline.fires("KeygroupingStoreBadValues")
                await deployment.admin.delete_topics([f"{application}.observer-{kind}" for kind in ("audit", "state")])
                await pipeline.fires("KeygroupingAuditStalled", "KeygroupingObserverBlind")
                deployment.stop("observer-0")
                await pipeline.fires("KeygroupingExporterMissing")


@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(1800)
async def test_a_pipeline_that_keeps_up_and_has_no_broker_any_more_is_told_of(application: str, tmp_path: Path) -> None:
    forgetful = EmbeddedBroker(tmp_path / "broker", properties={"offsets.retention.minutes": "1440"})
    with forgetful as broker, RedisServer(tmp_path / "redis") as redis:
        async with watched(tmp_path, application, broker, redis) as pipeline:
            await pipeline.fires("KeygroupingPremiseViolated")
            query = pipeline.prometheus.query
            async with meanwhile(asyncio.create_task(keep_writing(pipeline.deployment))):
                await until(lambda: query("keygrouping:results:rate5m > 0"), TIMEOUT)
            await until(lambda: query("sum(max_over_time(keygrouping_lag_records[5s])) == 0"), TIMEOUT)
            async with meanwhile(asyncio.create_task(keep_losing(pipeline.deployment, "router-0"))):
                await pipeline.fires("KeygroupingEventsLost")
            await pipeline.is_quiet("KeygroupingKafkaUnreachable")
            assert broker.pid is not None
            with stopped(broker.pid):
                await pipeline.fires("KeygroupingKafkaUnreachable", "KeygroupingKafkaCutOff")
                groups = {labels["group"] for labels, _ in query('ALERTS{alertname="KeygroupingKafkaCutOff"}')}
                assert groups == {
                    f"{application}-{stage}" for stage in ("router", "worker", "aggregator", "observer", "audit")
                }
            await pipeline.is_quiet("KeygroupingKafkaUnreachable")


@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(1800)
async def test_a_pipeline_that_gets_nothing_of_use_or_nothing_at_all_is_told_of(
    application: str, tmp_path: Path
) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker, RedisServer(tmp_path / "redis") as redis:
        async with watched(tmp_path, application, broker, redis, ["router-0", "producer-0"]) as pipeline:
            deployment = pipeline.deployment
            producer = f"http://{await address_of(deployment.log('producer-0'))}"
            async with meanwhile(asyncio.create_task(keep_posting(producer, b"no JSON"))):
                await pipeline.fires("KeygroupingRequestsRefused")
            async with meanwhile(asyncio.create_task(keep_writing_alike(deployment, b"no JSON"))):
                await pipeline.fires("KeygroupingEventsExcluded")
            async with meanwhile(asyncio.create_task(keep_writing_alike(deployment, b'{"n": "3"}'))):
                await pipeline.fires("KeygroupingFieldLost")
            await pipeline.is_quiet("KeygroupingNothingAssigned")
            async with foreign_members(deployment, "router"):
                await pipeline.fires("KeygroupingNothingAssigned")
            await pipeline.is_quiet("KeygroupingNothingAssigned")


@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(1800)
async def test_a_router_that_is_too_slow_or_has_no_broker_is_told_of(application: str, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker, RedisServer(tmp_path / "redis") as redis:
        async with watched(tmp_path, application, broker, redis) as pipeline:
            deployment = pipeline.deployment
            deployment.stop("router-0")
            # One event a transaction: it can't keep up.
            port = pipeline.router.rpartition(":")[2]
            deployment.start(
                "router-0", workers=WORKERS, max_batch=1, http_port=port, store_url=f"redis://{redis.address}"
            )
            async with meanwhile(asyncio.create_task(keep_writing(deployment))):
                await retain(deployment, 90_000)
                await pipeline.fires("KeygroupingLagGrowing", "KeygroupingLagSteady", "KeygroupingEventsExpiring")
                await retain(deployment, -1)
                async with meanwhile(asyncio.create_task(keep_fencing(deployment))):
                    await pipeline.fires("KeygroupingTransactionAborts", "KeygroupingPartitionRestarting")
                await pipeline.is_quiet("KeygroupingTransactionAborts")
            assert broker.pid is not None
            with stopped(broker.pid):
                await pipeline.fires("KeygroupingStageStalled")


@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(1800)
async def test_workers_that_combine_at_the_source_are_told_of_alike(application: str, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker, RedisServer(tmp_path / "redis") as redis:
        async with watched(tmp_path, application, broker, redis, SERVICES[1:]) as pipeline:
            deployment = pipeline.deployment
            async with meanwhile(asyncio.create_task(keep_writing(deployment))):
                await pipeline.fires(*OF_THE_EVENTS)
                await write_stray_result(deployment)
                await pipeline.fires("KeygroupingEventsUnaccounted")
                with stopped(deployment.pid("worker-0")):
                    await pipeline.fires("KeygroupingNoResults", "KeygroupingTargetDown")
                # One event a transaction: they can't keep up.
                for name in SERVICES[1:3]:
                    port = (await address_of(deployment.log(name))).rpartition(":")[2]
                    deployment.stop(name)
                    slow = {"batch_records": 1, "flush_groups": 1, "http_port": port}
                    deployment.start(name, session_timeout=60, stages="combine", **slow)
                await pipeline.fires("KeygroupingWorkersBehind", "KeygroupingLagGrowing")
                async with foreign_members(deployment, "router"):
                    await pipeline.fires("KeygroupingNothingAssigned")
            async with meanwhile(asyncio.create_task(keep_losing(deployment, "worker-0", "worker-1"))):
                await pipeline.fires("KeygroupingEventsLost")
            async with meanwhile(asyncio.create_task(keep_writing_alike(deployment, b"no JSON"))):
                await pipeline.fires("KeygroupingEventsExcluded")


@pytest.mark.spark
@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(1800)
async def test_a_spark_job_that_hangs_or_ends_is_told_of(application: str, tmp_path: Path) -> None:
    services = ("router-0", "spark-0")
    with EmbeddedBroker(tmp_path / "broker") as broker, RedisServer(tmp_path / "redis") as redis:
        async with watched(tmp_path, application, broker, redis, services) as pipeline:
            deployment = pipeline.deployment
            async with meanwhile(asyncio.create_task(keep_writing(deployment))):
                batches = "min by (namespace) (increase(keygrouping_spark_batch_seconds_count[5s])) > 0"
                await until(lambda: pipeline.prometheus.query(batches), TIMEOUT)
                await pipeline.is_quiet("KeygroupingSparkQueryStalled")
                with stopped(java_of(deployment.pid("spark-0"))):
                    await pipeline.fires("KeygroupingSparkQueryStalled")
                begun = "changes(keygrouping:spark_start:time[5m])"
                for times in range(1, 4):
                    deployment.kill("spark-0")
                    deployment.revive()
                    await until(partial(pipeline.prometheus.query, f"{begun} >= {times}"), TIMEOUT)
                await pipeline.fires("KeygroupingSparkDriverRestarting")


@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(900)
async def test_a_topic_that_nobody_routes_and_that_does_not_scale_is_told_of(application: str, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        deployment = Deployment(broker.bootstrap_servers, application, tmp_path, JOB, shape=Shape(8, WORKERS))
        async with deployment:
            topic, log = deployment.settings.events_topic, tmp_path / "exporter.log"
            command = [sys.executable, "-m", "keygrouping", "inspect", "--topic", topic, "--follow"]
            options = ["--metrics-port", "0", "--every", "1", "--window", "20"]
            address = ["--bootstrap-servers", broker.bootstrap_servers]
            exporter = spawn([*command, *options, *address], log)
            try:
                (tmp_path / "rules.yaml").write_text(hastened(prometheus_rules()))
                targets = [(await address_of(log), {"namespace": "here"})]
                with Prometheus(tmp_path / "prometheus", targets, rules=tmp_path / "rules.yaml") as prometheus:
                    watched = Pipeline(deployment, broker, None)
                    watched.prometheus = prometheus
                    async with meanwhile(asyncio.create_task(keep_writing(deployment))):
                        await watched.fires("KeygroupingScalingCeiling")
                        await watched.is_quiet("KeygroupingInspectBlind")
                    assert broker.pid is not None
                    with stopped(broker.pid):
                        await watched.fires("KeygroupingInspectBlind")
                        await watched.is_quiet("KeygroupingScalingCeiling")
                    await watched.is_quiet("KeygroupingInspectBlind")
            finally:
                terminate(exporter, 20)


async def keep_crashing(members: Members, watch: Watch) -> None:
    """The first member is killed as soon as it has shown itself."""
    for times in itertools.count():
        started = f'changes(process_start_time_seconds{{instance="127.0.0.1:{members.ports[0]}"}}[10m])'
        await until(partial(watch.prometheus.query, f"{started} >= {times}"), TIMEOUT)
        members.kill(0)
        members.start(0)


@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(1800)
async def test_an_app_in_trouble_is_told_of(application: str, tmp_path: Path) -> None:
    """It runs by itself, without chart and pipeline."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        async with Cluster(broker.bootstrap_servers) as cluster:
            orders, pictures = f"{application}-orders", f"{application}-pictures"
            clicks, payments = f"{application}-clicks", f"{application}-payments"
            await cluster.create(**{orders: 2, pictures: 1, clicks: 2, payments: 1, f"{application}-dead": 1})
            await cluster.create_small(f"{application}-app.overflow", LEAST_OVERFLOW, partitions=2)
            members, watch = Members(broker.bootstrap_servers, application, tmp_path), Watch()
            (tmp_path / "rules.yaml").write_text(hastened(prometheus_rules()))
            targets = [(f"127.0.0.1:{port}", {"namespace": "here"}) for port in members.ports]
            try:
                with Prometheus(tmp_path / "prometheus", targets, rules=tmp_path / "rules.yaml", seconds=0.5) as found:
                    watch.prometheus = found
                    await trouble(members, watch, cluster, orders, pictures)
                    await not_to_be_shared(watch, cluster, clicks)
                    await not_restored(members, watch, cluster, f"{application}-app", payments)
                    await held(members, watch, cluster, payments)
                    await not_planned(watch, cluster, f"{application}-app", payments)
                    await refused(watch, cluster, f"{application}-app", payments)
                    assert broker.pid is not None
                    with stopped(broker.pid):
                        await watch.fires("KeygroupingKafkaCutOff")
                    members.end()
                    await watch.fires("KeygroupingAppMissing")
            finally:
                members.end()


async def trouble(members: Members, watch: Watch, cluster: Cluster, orders: str, pictures: str) -> None:
    """One after another, what an app and what it calls can have."""
    ready = "sum(keygrouping_app_ready) == {}"
    members.start(0)
    async with meanwhile(asyncio.create_task(keep_crashing(members, watch))):
        await watch.fires("KeygroupingAppRestarting")
    await until(partial(watch.prometheus.query, ready.format(1)), TIMEOUT)
    await cluster.write(orders, [(b"key-%d" % n, b"reject") for n in range(200)])
    await cluster.write(pictures, [(b"key-%d" % n, b"die") for n in range(3)])
    await watch.fires("KeygroupingAppDeadLetters", "KeygroupingAppProcessesDying")
    members.go_down()
    await cluster.write(orders, [(b"key-%d" % n, b"") for n in range(20)])
    await watch.fires("KeygroupingAppBreakerOpen")
    members.come_back()
    await watch.is_quiet("KeygroupingAppBreakerOpen")
    slow = [(b"key-%d" % n, b"0.5") for n in range(40)]
    async with meanwhile(asyncio.create_task(keep_asking(cluster, orders, slow))):
        await watch.fires("KeygroupingAppLagSteady")
    await watch.is_quiet("KeygroupingAppLagSteady")
    await cluster.write(orders, [(b"hung", b"3600"), (b"hung", b""), *((b"key", b"") for _ in range(26_000))], 1)
    await watch.fires("KeygroupingAppKeyBlocked", "KeygroupingAppGapFull")
    with stopped(members.pid(0)):
        members.start(1)
        await watch.fires("KeygroupingAppNotReady", "KeygroupingTargetDown")
    await until(partial(watch.prometheus.query, ready.format(2)), TIMEOUT)


async def not_restored(members: Members, watch: Watch, cluster: Cluster, app: str, payments: str) -> None:
    """Another program has a transaction open in the changelog, so what was written behind it can't be read."""
    tp = TopicPartition(payments, 0)

    async def has_committed(offset: int) -> bool:
        found = await cluster.admin.list_consumer_group_offsets(app, partitions=[tp])
        return tp in found and bool(found[tp].offset == offset)

    await cluster.write(payments, [(b"first", b"")])
    await until(partial(has_committed, 1), TIMEOUT)
    foreign = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=app, transaction_timeout_ms=600_000
    )
    async with foreign:
        await foreign.begin_transaction()
        await foreign.send_and_wait(f"{app}.{payments}.states", b"", b"foreign", 0)
        await cluster.write(payments, [(b"second", b"")])
        await until(partial(has_committed, 2), TIMEOUT)
        for number in range(2):
            members.kill(number)
        for number in range(2):
            members.start(number)
        await watch.fires("KeygroupingAppRestoring")
        await foreign.abort_transaction()
    await watch.is_quiet("KeygroupingAppRestoring")


async def held(members: Members, watch: Watch, cluster: Cluster, payments: str) -> None:
    """A key whose call does not end is to go to another member."""
    await cluster.write(payments, [(b"held", b""), (b"held", b"")])

    async def is_ordered() -> bool:
        return any([await asyncio.to_thread(members.order, number, "held", 0) for number in range(2)])

    await cluster.write(payments, [(b"held", b"3600")])
    await until(is_ordered, TIMEOUT)
    await watch.fires("KeygroupingAppKeyHeld")


async def not_planned(watch: Watch, cluster: Cluster, app: str, payments: str) -> None:
    """The topic of reports is gone, while a call runs."""
    now = 'keygrouping_app_imbalance_ratio{keys="now"}'
    await until(partial(watch.prometheus.query, now), TIMEOUT)
    await watch.is_quiet("KeygroupingAppNotPlanned")
    await cluster.admin.delete_topics([f"{app}.{payments}.planning"])
    await watch.fires("KeygroupingAppNotPlanned")


async def refused(watch: Watch, cluster: Cluster, app: str, payments: str) -> None:
    """The changelog is gone."""
    await cluster.admin.delete_topics([f"{app}.{payments}.states"])
    await cluster.write(payments, [(b"last", b"")])
    await watch.fires("KeygroupingAppRefused")


async def not_to_be_shared(watch: Watch, cluster: Cluster, clicks: str) -> None:
    """Events of a hot key that are too large to be given to the second member, then others."""
    large, small = [(b"hot", b" " * LEAST_OVERFLOW)] * 30, [(b"hot", b"")] * 30
    async with meanwhile(asyncio.create_task(keep_asking(cluster, clicks, large))):
        await watch.fires("KeygroupingAppNotShared")
    async with meanwhile(asyncio.create_task(keep_asking(cluster, clicks, small))):
        await watch.is_quiet("KeygroupingAppNotShared")
