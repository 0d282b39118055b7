"""Draws docs/images/dashboards: `python helm/dashboard_pictures.py [SECONDS [failing | apps]]`.

It starts an embedded broker, a pipeline with the native runner, one with Spark, and a Prometheus; after a third of the
time other keys become hot, after a half a setting changes. Panels of Spark show the second pipeline. With `failing` it
draws the same boards of a native pipeline in trouble: in the second third of the time a worker and the Redis of two
routers hang, a key that has half of all events is pinned to one worker, the source of one input partition falls behind,
events come that are late or have no key, and bodies that are no events. With `apps` it draws the board of apps, of one
app alone: in the second third of the time what its handler calls is down.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deployment, Event, Shape
from keygrouping_local.monitoring import Prometheus, metrics_address
from keygrouping_local.ports import free_ports
from keygrouping_local.process import spawn, terminate
from keygrouping_local.redis_server import RedisServer
from keygrouping_service.testing import Cluster, until
from monitoring.boards import BOARDS
from monitoring.boards.apps import APPS
from monitoring.boards.kit import Board, as_json
from monitoring.pictures import Series, draw
from monitoring.writing import prometheus_rules

IMAGES = Path(__file__).parents[1] / "docs" / "images" / "dashboards"
JOB = '{"window": "5s", "lateness": "1s", "aggregates": [{"name": "events", "op": "count"}]}'
NATIVE = ("worker-0", "worker-1", "worker-2", "worker-3", "aggregator-0")
SPARK = ("spark-0",)
_OWN = re.compile(r"\bkeygrouping_(\w+)")
_OF_SPARK = "with-spark"
_PIPELINES = tuple(board for board in BOARDS if board is not APPS)
_WARM = 20.0
"""Seconds before the time that is shown: what begins is behind for a moment."""
_HEARD = 4.0
"""Seconds until all routers follow a change."""
_STEP = 2
_PAUSE = 0.1
_RATE = 500


async def write(deployment: Deployment, seconds: float) -> None:
    """A skewed stream whose hot keys are others after a third and after two thirds of the time."""
    chance = random.Random(1)
    began = time.monotonic() + _WARM
    while (passed := time.monotonic() - began) < seconds:
        now, phase = int(time.time() * 1000), int(3 * max(0, passed) / seconds)
        keys = [
            f"{phase}-{min(int(chance.paretovariate(0.6 + 0.2 * phase)), 1000)}" for _ in range(int(_RATE * _PAUSE))
        ]
        await deployment.write([Event(zlib.crc32(key.encode()) % 4, key.encode(), b"{}", now) for key in keys])
        await asyncio.sleep(_PAUSE)


async def write_in_trouble(deployment: Deployment, seconds: float) -> None:
    """A skewed stream; in its second third a key has half of it, a source is behind, events are late or have no key."""
    chance = random.Random(1)
    began = time.monotonic() + _WARM
    while (passed := time.monotonic() - began) < seconds:
        now, trouble = int(time.time() * 1000), seconds / 3 < passed < 2 * seconds / 3
        behind = int(800 * (passed - seconds / 3)) if trouble else 0
        keys = [
            0 if trouble and chance.random() < 0.5 else min(int(chance.paretovariate(0.8)), 1000)
            for _ in range(int(_RATE * _PAUSE))
        ]
        events = [Event(n % 4, b"%d" % key, b"{}", now - (behind if n % 4 == 3 else 0)) for n, key in enumerate(keys)]
        if trouble:
            events += [Event(n % 3, b"late", b"{}", now - 120_000) for n in range(6)]
            events += [Event(n % 3, None, b"{}", now) for n in range(4)]
        await deployment.write(events)
        await asyncio.sleep(_PAUSE)


async def hang(deployment: Deployment, name: str, begin: float, end: float) -> None:
    """A process does nothing from one second to another."""
    await asyncio.sleep(_WARM + begin)
    os.kill(deployment.pid(name), signal.SIGSTOP)
    await asyncio.sleep(end - begin)
    os.kill(deployment.pid(name), signal.SIGCONT)


async def steer_in_trouble(redis: RedisServer, addresses: Sequence[str], begin: float, end: float) -> None:
    """From one second to another a key is pinned, the store hangs, and bodies come that are no events."""
    router, producer = addresses
    await asyncio.sleep(_WARM + begin)
    async with httpx.AsyncClient() as client:
        pin = {"action": "pin", "worker": 0, "seconds": end - begin}
        (await client.put(f"http://{router}/overrides/0", json=pin)).raise_for_status()
        await asyncio.sleep(_HEARD)
        redis.freeze()
        until_then = time.monotonic() + end - begin - _HEARD
        try:
            while time.monotonic() < until_then:
                await client.post(f"http://{producer}/events", json={"no": "key"})
                await asyncio.sleep(1)
        finally:
            redis.thaw()


async def change_a_setting(deployment: Deployment, seconds: float) -> None:
    """After this time."""
    await asyncio.sleep(_WARM + seconds)
    async with httpx.AsyncClient(base_url=f"http://{metrics_address(deployment.log('router-0'))}") as router:
        (await router.patch("/thresholds", json={"eps": 0.03})).raise_for_status()


async def address_of(log: Path) -> str:
    """Where a service shows its metrics, once it says so."""
    await until(partial(metrics_address, log), 180)
    return str(metrics_address(log))


async def start(deployment: Deployment, stages: Sequence[str], routers: int = 1, **store: str) -> list[str]:
    """All services; gives the addresses of their metrics."""
    for number in range(routers):
        deployment.start(f"router-{number}", workers=4, sharing="shared", interval=5, idle_timeout=5, **store)
    router = f"http://{await address_of(deployment.log('router-0'))}"
    for name in ("producer-0", *stages):
        deployment.start(name)
    deployment.start("observer-0", interval=5, idle_timeout=2, router_url=router, latency_samples=50)
    return [await address_of(deployment.log(name)) for name in deployment.names]


@asynccontextmanager
async def exporter(deployment: Deployment, folder: Path) -> AsyncIterator[str]:
    """One of the pipeline's input, as if nobody routed it; gives the address of its metrics."""
    given = ["--topic", deployment.settings.events_topic, "--window", "30", "--every", "2", "--metrics-port", "0"]
    address = ["--bootstrap-servers", deployment.settings.bootstrap_servers]
    process = spawn(
        [sys.executable, "-m", "keygrouping", "inspect", "--follow", *given, *address], folder / "exporter.log"
    )
    try:
        yield await address_of(folder / "exporter.log")
    finally:
        terminate(process, 20)


async def run(folder: Path, seconds: float) -> None:
    """The pipelines under a Prometheus for this long, then the pictures."""
    with EmbeddedBroker(folder / "broker") as broker:
        native = Deployment(broker.bootstrap_servers, "native", folder / "native", JOB, shape=Shape(4, 4))
        spark = Deployment(broker.bootstrap_servers, "spark", folder / "spark", JOB, shape=Shape(4, 4))
        async with native, spark, exporter(native, folder) as inspected:
            targets = [(address, {"namespace": "streams"}) for address in [inspected, *await start(native, NATIVE)]]
            targets += [(address, {"namespace": _OF_SPARK}) for address in await start(spark, SPARK)]
            (folder / "rules.yaml").write_text(prometheus_rules())
            with Prometheus(folder / "prometheus", targets, rules=folder / "rules.yaml") as prometheus:
                began = time.time() + _WARM
                await asyncio.gather(
                    write(native, seconds), write(spark, seconds), change_a_setting(native, seconds / 2)
                )
                picture(prometheus, began, time.time())


async def run_in_trouble(folder: Path, seconds: float) -> None:
    """A native pipeline with two routers that fails for a third of the time, then its pictures."""
    begin, end = seconds / 3, 2 * seconds / 3
    with EmbeddedBroker(folder / "broker") as broker, RedisServer(folder / "redis") as redis:
        native = Deployment(broker.bootstrap_servers, "native", folder / "native", JOB, shape=Shape(4, 4))
        async with native, exporter(native, folder) as inspected:
            addresses = await start(native, NATIVE, 2, store_url=f"redis://{redis.address}")
            steered = [str(metrics_address(native.log(name))) for name in ("router-0", "producer-0")]
            targets = [(address, {"namespace": "streams"}) for address in [inspected, *addresses]]
            (folder / "rules.yaml").write_text(prometheus_rules())
            with Prometheus(folder / "prometheus", targets, rules=folder / "rules.yaml") as prometheus:
                began = time.time() + _WARM
                await asyncio.gather(
                    write_in_trouble(native, seconds),
                    hang(native, "worker-1", begin, end),
                    steer_in_trouble(redis, steered, begin, end),
                )
                picture(prometheus, began, time.time(), prefix="failing-")


async def order(cluster: Cluster, topic: str, seconds: float) -> None:
    """A skewed stream of 400 orders a second."""
    chance = random.Random(1)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        keys = [b"%d" % min(int(chance.paretovariate(0.7)), 5000) for _ in range(40)]
        for partition in range(4):
            rows = [(key, b"1") for key in keys if zlib.crc32(key) % 4 == partition]
            await cluster.write(topic, rows, partition)
        await asyncio.sleep(_PAUSE)


async def be_down(file: Path, begin: float, end: float) -> None:
    """What the handler calls is down from one second to another."""
    await asyncio.sleep(begin)
    await asyncio.to_thread(file.touch)
    await asyncio.sleep(end - begin)
    await asyncio.to_thread(file.unlink)


async def run_app(folder: Path, seconds: float) -> None:
    """One app under a Prometheus for this long, then the picture of its board."""
    down, (port,) = folder / "down", free_ports(1)
    with EmbeddedBroker(folder / "broker") as broker:
        servers = broker.bootstrap_servers
        async with Cluster(servers) as cluster:
            await cluster.create(**{"billing-orders": 4, "billing-dead-letters": 1})
            program: list[str | Path] = [sys.executable, Path(__file__).with_name("pictured_app.py")]
            app = spawn([*program, servers, "billing", str(port), str(down)], folder / "app.log")
            targets = [(f"127.0.0.1:{port}", {"namespace": "streams"})]
            try:
                with Prometheus(folder / "prometheus", targets) as prometheus:
                    await until(partial(prometheus.query, "keygrouping_app_ready == 1"))
                    began = time.time()
                    await asyncio.gather(
                        order(cluster, "billing-orders", seconds), be_down(down, seconds / 3, 2 * seconds / 3)
                    )
                    picture(prometheus, began, time.time(), (APPS,))
            finally:
                terminate(app, 20)


def namespace_of(expr: str) -> str:
    """Of the pipeline that a panel shows: the one with Spark, if it asks for nothing but metrics of Spark."""
    names = _OWN.findall(expr)
    return _OF_SPARK if names and all(name.startswith("spark_") for name in names) else "streams"


def picture(
    prometheus: Prometheus, began: float, ended: float, boards: Sequence[Board] = _PIPELINES, prefix: str = ""
) -> None:
    """Dashboards from what Prometheus knows of this time, in files that begin with a prefix."""

    def ask(expr: str) -> list[Series]:
        asked = expr.replace("$namespace", namespace_of(expr)).replace("$__rate_interval", "10s")
        found = prometheus.query_range(asked, began, ended, _STEP)
        return [(labels, [(moment - began, value) for moment, value in points]) for labels, points in found]

    IMAGES.mkdir(parents=True, exist_ok=True)
    for board in boards:
        draw(json.loads(as_json(board)), ask, IMAGES / f"{prefix}{board.uid}.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        carry_out = {"failing": run_in_trouble, "apps": run_app}.get(" ".join(sys.argv[2:]), run)
        asyncio.run(carry_out(Path(name), float(sys.argv[1]) if len(sys.argv) > 1 else 300))
