"""Every expression of rules and dashboards, asked of a real Prometheus: it is understood, and gives data.

Once it watches an exporter that shows all metrics there are; then three live pipelines, each with late and unusable
events, lost ones and aborted transactions. One has a router and native stages; one has two routers that share a Redis,
and Spark for the stages; in one workers combine without a router. All must give data of each, but for what asks about
those alone that it does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.monitoring import Prometheus, metrics_address
from keygrouping_local.process import spawn, terminate
from keygrouping_local.records import read_results
from keygrouping_local.redis_server import RedisServer
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import Committed, commit_progress
from keygrouping_service.observability.metrics import DEFINITIONS, PROCESS, register_installed
from keygrouping_service.testing import Cluster, until
from monitoring.alerts import ALERTS
from monitoring.boards import BOARDS
from monitoring.boards.kit import as_json
from monitoring.recordings import RECORDINGS, inlined
from monitoring.writing import prometheus_rules

from ..app_metrics import NAMES as NAMES_OF_APPS
from .members import Members, keep_asking

JOB = (
    '{"window": "1s", "lateness": "0s", "aggregates": '
    '[{"name": "events", "op": "count"}, {"name": "total", "op": "sum", "field": "n"}]}'
)
EXPORTER = Path(__file__).parent / "exporter.py"
HERE = {"namespace": "here"}
register_installed()
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
SERVICE_OF = {d.name + suffix: d.service for d in (*DEFINITIONS, *PROCESS) for suffix in SUFFIXES.get(d.kind, ("",))}
SERVICE_OF |= dict.fromkeys(NAMES_OF_APPS, "app")
EXPORTERS = {"inspect"}
"""Of topics that nobody routes: test_keda.py and test_provoked.py have them."""
ROUTERS = {"router"}
WHAT_ROUTERS_TELL = (
    "keygrouping-overview: λ by key hash",
    "keygrouping-overview: λ through time B",
    "keygrouping-keyspace: Load by overrides",
    "keygrouping-router: Lag of the event loop",
    "keygrouping-router: Refused requests B",
    "keygrouping:imbalance_before",
    "keygrouping:overridden:",
)
"""Begins of the names of expressions that need routers, though they ask for metrics of others, too."""
NATIVE_STAGES = {"worker", "aggregator"}
SPARK_STAGES = {"spark"}
HELD = (
    "keygrouping_router_tracked_keys",
    "keygrouping_worker_groups",
    "keygrouping_aggregator_groups",
    "keygrouping_aggregator_open_windows",
    "keygrouping_spark_state_rows",
)
"""Of what is held in memory; while events flow it is not always nothing."""
SECONDS = 1.0
"""Between two scrapes."""
SCRAPES = 8
TIMEOUT = 300.0
"""Spark alone takes minutes to start where all cores are busy with other tests."""

Named = tuple[str, str]
"""What an expression is called, and the expression."""


def asked(expr: str) -> str:
    """A panel's expression as Grafana would ask it; what was five minutes ago lies before the test."""
    return expr.replace("$namespace", "here").replace("$__rate_interval", "10s").replace("offset 5m", "offset 2s")


def dashboard_expressions() -> list[Named]:
    """All that dashboards ask, annotations included."""
    found = []
    for board in BOARDS:
        written = json.loads(as_json(board))
        for note in written["annotations"]["list"]:
            found.append((f"{board.uid}: {note['name']}", note["expr"].removesuffix(" > 0")))
        for panel in written["panels"]:
            for target in panel.get("targets", ()):
                found.append((f"{board.uid}: {panel['title']} {target['refId']}", target["expr"]))
    return found


def expressions() -> list[Named]:
    """Those of dashboards and of recording rules."""
    recorded = [(" ".join((rule.name, *rule.labels.values())), inlined(rule.expr)) for rule in RECORDINGS]
    return [*dashboard_expressions(), *recorded]


def about(services: set[str]) -> set[Named]:
    """The expressions that ask for metrics of these services and of no others, or need their routers all the same."""
    found = set()
    for name, expr in expressions():
        whose = {SERVICE_OF.get(metric) for metric in re.findall(r"\bkeygrouping_\w+", expr)}
        if (whose and whose <= services) or ("router" in services and name.startswith(WHAT_ROUTERS_TELL)):
            found.add((name, expr))
    return found


def silent(prometheus: Prometheus) -> set[Named]:
    """The expressions that give no data now."""
    return {(name, expr) for name, expr in expressions() if not has_values(prometheus.query(asked(expr)))}


def has_values(samples: list[Any]) -> bool:
    return any(math.isfinite(value) for _, points in samples for _, value in points)


async def keep_writing(deployment: Deployment) -> None:
    """120 events a second, half of them with one key; one in twelve is late, and one has no key."""
    for number in itertools.count():
        now = int(time.time() * 1000)
        keys = (b"hot" if n % 2 else b"key-%d" % (10 * number + n) for n in range(10))
        events = [Event(n % 2, key, b"{}", now) for n, key in enumerate(keys)]
        await deployment.write([*events, Event(0, b"late", b"{}", now - 60_000), Event(1, None, b"{}", now)])
        await asyncio.sleep(0.1)


async def lose_an_event(deployment: Deployment) -> None:
    """Retention deletes an event that the routers, or the workers in their place, have yet to read."""
    settings, admin = deployment.settings, deployment.admin
    tp = TopicPartition(settings.events_topic, 0)
    await deployment.write([Event(0, b"lost", b"{}", int(time.time() * 1000))])
    async with clients.started(clients.reader(settings, group_id=settings.group("router"))) as consumer:
        consumer.assign([tp])
        await commit_progress(consumer, tp.topic, {tp.partition: Committed(0)})
    await admin.delete_records({tp: RecordsToDelete(before_offset=1)})


async def fence(deployment: Deployment) -> None:
    """A producer of another pipeline of the same name takes the transactional id of a router's."""
    settings = deployment.settings
    name = settings.transactional_id("router", 0)
    async with clients.started(clients.producer(settings, transactional_id=name)):
        await asyncio.sleep(0.2)


async def steer(router: str) -> None:
    """Has another grouping run in the shadow, after a request for one that there isn't, and pins a key for an hour."""
    async with httpx.AsyncClient(base_url=router, timeout=TIMEOUT) as client:
        for name, status in (("no-such", 422), ("pkg", 200)):
            answer = await client.put("/shadow", json={"groupings": [{"name": name}], "sample": 1.0})
            assert answer.status_code == status, answer.text
        answer = await client.put("/overrides/pinned", json={"action": "pin", "worker": 0, "seconds": 3600})
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def pipeline(
    deployment: Deployment, stages: Sequence[str], routers: int, store: Mapping[str, str]
) -> AsyncIterator[list[str]]:
    """A pipeline under load, with these processes for its stages; gives the addresses of its metrics.

    Without routers these combine.
    """
    await lose_an_event(deployment)
    for name in stages:
        combining = {"stages": "combine"} | ({"idle_timeout": 1} if name.startswith("worker") else {})
        deployment.start(name, **({} if routers else combining))
    names = [f"router-{number}" for number in range(routers)]
    for name in names:
        deployment.start(name, workers=4, grouping="w-choices", sharing="shared", interval=1, idle_timeout=1, **store)
    urls = [f"http://{await address_of(deployment.log(name))}" for name in names]
    deployment.start("producer-0")
    deployment.start("observer-0", interval=1, idle_timeout=0.5, **({"router_url": urls[0]} if urls else {}))
    writing = asyncio.create_task(keep_writing(deployment))
    try:
        for url in urls[:1]:
            await steer(url)
        yield [await address_of(deployment.log(name)) for name in deployment.names]
    finally:
        writing.cancel()
        await asyncio.wait([writing])


@asynccontextmanager
async def app_at_work(deployment: Deployment, folder: Path) -> AsyncIterator[str]:
    """An app of which one key is hot, beside the pipeline; gives the address of its metrics."""
    servers, prefix = deployment.settings.bootstrap_servers, deployment.settings.application
    orders, clicks, payments = f"{prefix}-orders", f"{prefix}-clicks", f"{prefix}-payments"
    rows = [(b"hot", b"0.1")] * 10 + [(b"cold", b"0"), (b"bad", b"reject")]
    async with Cluster(servers) as cluster:
        await cluster.create(**{orders: 2, clicks: 2, payments: 2, f"{prefix}-pictures": 1, f"{prefix}-dead": 1})
        members = Members(servers, prefix, folder / "members")
        members.start(0)
        paying = keep_asking(cluster, payments, [(b"paid", b"")])
        asking = keep_asking(cluster, orders, rows), keep_asking(cluster, clicks, rows), paying
        writing = asyncio.gather(*asking, members.keep_moving(0, "paid"))
        try:
            yield f"127.0.0.1:{members.ports[0]}"
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            members.end()


async def address_of(log: Path) -> str:
    await until(lambda: metrics_address(log), TIMEOUT)
    address = metrics_address(log)
    assert address is not None
    return address


def watching(folder: Path, addresses: list[str]) -> Prometheus:
    (folder / "rules.yaml").write_text(prometheus_rules())
    targets = [(address, HERE) for address in addresses]
    return Prometheus(folder / "prometheus", targets, rules=folder / "rules.yaml", seconds=SECONDS)


def enough_scrapes(prometheus: Prometheus) -> bool:
    counts = prometheus.query("count_over_time(keygrouping_event_loop_lag_seconds_count[5m])")
    return bool(counts) and all(points[0][1] >= SCRAPES for _, points in counts)


async def check(prometheus: Prometheus, lacks: set[str]) -> None:
    """Waits until all have given data but those about services that there are not; all rules are well."""
    expected, found = about(lacks), set(expressions())

    async def looked() -> bool:
        await asyncio.sleep(SECONDS)
        found.intersection_update(await asyncio.to_thread(silent, prometheus))
        return found == expected

    await until(lambda: enough_scrapes(prometheus), TIMEOUT)
    with contextlib.suppress(AssertionError):
        await until(looked, TIMEOUT)
    assert found == expected
    there = {labels["__name__"] for labels, _ in prometheus.query('{__name__=~"(keygrouping|process)_.+"}')}
    assert there <= SERVICE_OF.keys()
    for alert in ALERTS:
        prometheus.query(inlined(alert.expr))
    rules = [rule for group in prometheus.get("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule["health"] for rule in rules if rule["health"] != "ok"} == {}
    assert len(rules) == len(RECORDINGS) + len(ALERTS)


async def check_live(
    deployment: Deployment, folder: Path, stages: Sequence[str], lacks: set[str], routers: int = 1, **store: str
) -> None:
    """Watches a pipeline until it has given results and its routers see each other, and checks."""
    async with pipeline(deployment, stages, routers, store) as addresses, AsyncExitStack() as beside:
        await until(partial(read_results, deployment.settings), TIMEOUT)  # Spark needs the cores until then
        member = await beside.enter_async_context(app_at_work(deployment, folder))
        with watching(folder, [*addresses, member]) as prometheus:

            async def aborted() -> bool:
                await fence(deployment)
                return bool(prometheus.query("keygrouping_transaction_aborts_total > 0"))

            await until(aborted, TIMEOUT)
            held = [f"max(max_over_time({metric}[5m])) > 0" for metric in HELD if SERVICE_OF[metric] not in lacks]
            all_there = [f"min(keygrouping_router_replicas) == {routers}"] * bool(routers)
            for sign in ("keygrouping:results:rate5m > 0", *all_there, *held):
                await until(partial(prometheus.query, sign), TIMEOUT)
            await check(prometheus, lacks)
    assert deployment.dead() == {}


def test_what_one_live_pipeline_lacks_the_other_has() -> None:
    assert about(NATIVE_STAGES) & about(SPARK_STAGES) == set()


@pytest.mark.usefixtures("prometheus")
async def test_every_expression_gives_data_where_all_metrics_are(tmp_path: Path) -> None:
    exporter = spawn([sys.executable, EXPORTER], tmp_path / "exporter.log")
    try:
        address = await address_of(tmp_path / "exporter.log")
        with watching(tmp_path, [address]) as prometheus:
            await until(lambda: prometheus.query("ALERTS"), TIMEOUT)
            await check(prometheus, lacks=set())
    finally:
        terminate(exporter, 5)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("prometheus")
async def test_every_expression_gives_data_of_a_live_native_pipeline(deploy: Deploy, tmp_path: Path) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    await check_live(deployment, tmp_path, ["worker-0", "worker-1", "aggregator-0"], lacks=SPARK_STAGES | EXPORTERS)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("prometheus")
async def test_every_expression_gives_data_of_a_live_pipeline_without_a_router(deploy: Deploy, tmp_path: Path) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    lacks = ROUTERS | SPARK_STAGES | EXPORTERS
    await check_live(deployment, tmp_path, ["worker-0", "worker-1", "aggregator-0"], lacks, routers=0)


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("prometheus")
@pytest.mark.timeout(600)
async def test_every_expression_gives_data_of_a_live_pipeline_with_spark_and_redis(
    deploy: Deploy, redis_server: RedisServer, tmp_path: Path
) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    store = f"redis://{redis_server.address}"
    await check_live(deployment, tmp_path, ["spark-0"], lacks=NATIVE_STAGES | EXPORTERS, routers=2, store_url=store)
