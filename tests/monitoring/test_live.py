"""Every expression of rules and dashboards, asked of a real Prometheus: it is understood, and gives data.

Once it watches an exporter that shows all metrics there are, as Spark, Redis and faults would have them; once a live
pipeline, of which all must give data that asks for nothing but what the pipeline shows.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.monitoring import Prometheus, metrics_address
from keygrouping_local.process import spawn, terminate
from keygrouping_service.metrics import DEFINITIONS, PROCESS
from keygrouping_service.testing import until
from monitoring.alerts import ALERTS
from monitoring.boards import BOARDS
from monitoring.boards.kit import as_json
from monitoring.recordings import RECORDINGS, inlined
from monitoring.writing import prometheus_rules

JOB = '{"window": "1s", "lateness": "0s", "aggregates": [{"name": "events", "op": "count"}]}'
EXPORTER = Path(__file__).parent / "exporter.py"
HERE = {"namespace": "here"}
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
REGISTERED = {d.name + suffix for d in (*DEFINITIONS, *PROCESS) for suffix in SUFFIXES.get(d.kind, ("",))}
SCRAPES = 8


def asked(expr: str) -> str:
    """A panel's expression as Grafana would ask it."""
    return expr.replace("$namespace", "here").replace("$__rate_interval", "10s")


def dashboard_expressions() -> list[tuple[str, str]]:
    """Name and expression of all that dashboards ask, annotations included."""
    found = []
    for board in BOARDS:
        written = json.loads(as_json(board))
        for note in written["annotations"]["list"]:
            found.append((f"{board.uid}: {note['name']}", note["expr"].removesuffix(" > 0")))
        for panel in written["panels"]:
            for target in panel.get("targets", ()):
                found.append((f"{board.uid}: {panel['title']} {target['refId']}", target["expr"]))
    return found


def has_values(samples: list[Any]) -> bool:
    return any(math.isfinite(value) for _, points in samples for _, value in points)


async def keep_writing(deployment: Deployment) -> None:
    """100 events a second, half of them with one key."""
    for number in itertools.count():
        now = int(time.time() * 1000)
        keys = (b"hot" if n % 2 else b"key-%d" % (10 * number + n) for n in range(10))
        await deployment.write([Event(n % 2, key, b"{}", now) for n, key in enumerate(keys)])
        await asyncio.sleep(0.1)


@asynccontextmanager
async def pipeline(deployment: Deployment) -> AsyncIterator[list[str]]:
    """The native pipeline under load; gives the addresses of its metrics."""
    deployment.start("router-0", workers=2, grouping="w-choices", sharing="shared", interval=1, idle_timeout=1)
    router = await address_of(deployment.log("router-0"))
    for name in ("producer-0", "worker-0", "worker-1", "aggregator-0"):
        deployment.start(name)
    deployment.start("observer-0", interval=1, idle_timeout=0.5, router_url=f"http://{router}")
    writing = asyncio.create_task(keep_writing(deployment))
    try:
        yield [await address_of(deployment.log(name)) for name in deployment.names]
    finally:
        writing.cancel()
        await asyncio.wait([writing])


async def address_of(log: Path) -> str:
    await until(lambda: metrics_address(log), 180)
    address = metrics_address(log)
    assert address is not None
    return address


def watching(folder: Path, addresses: list[str]) -> Prometheus:
    (folder / "rules.yaml").write_text(prometheus_rules())
    targets = [(address, HERE) for address in addresses]
    return Prometheus(folder / "prometheus", targets, rules=folder / "rules.yaml", seconds=0.5)


def enough_scrapes(prometheus: Prometheus) -> bool:
    counts = prometheus.query("count_over_time(keygrouping_event_loop_lag_seconds_count[5m])")
    return bool(counts) and all(points[0][1] >= SCRAPES for _, points in counts)


def names_in(expr: str) -> set[str]:
    return set(re.findall(r"\b(?:keygrouping|process)_\w+|ALERTS", expr))


def check(prometheus: Prometheus) -> None:
    """Asks everything; what asks for nothing but metrics that are there must give data."""
    there = {labels["__name__"] for labels, _ in prometheus.query('{__name__=~".+"}')}
    assert {name for name in there if name.startswith(("keygrouping_", "process_"))} <= REGISTERED
    recorded = [(recording.name, inlined(recording.expr)) for recording in RECORDINGS]
    silent = [
        (name, expr)
        for name, expr in [*dashboard_expressions(), *recorded]
        if not has_values(prometheus.query(asked(expr))) and names_in(expr) <= there
    ]
    assert silent == []
    for alert in ALERTS:
        prometheus.query(inlined(alert.expr))
    rules = [rule for group in prometheus.get("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule["health"] for rule in rules if rule["health"] != "ok"} == {}
    assert len(rules) == len(RECORDINGS) + len(ALERTS)


@pytest.mark.usefixtures("prometheus")
async def test_every_expression_gives_data_where_all_metrics_are(tmp_path: Path) -> None:
    exporter = spawn([sys.executable, EXPORTER], tmp_path / "exporter.log")
    try:
        address = await address_of(tmp_path / "exporter.log")
        with watching(tmp_path, [address]) as prometheus:
            await until(lambda: enough_scrapes(prometheus), 120)
            await until(lambda: prometheus.query("ALERTS"), 120)
            there = {labels["__name__"] for labels, _ in prometheus.query('{__name__=~".+"}')}
            assert set().union(*(names_in(expr) for _, expr in dashboard_expressions())) <= there
            check(prometheus)
    finally:
        terminate(exporter, 5)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.usefixtures("prometheus")
async def test_every_expression_gives_data_of_a_live_pipeline(deploy: Deploy, tmp_path: Path) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    async with pipeline(deployment) as addresses:
        with watching(tmp_path, addresses) as prometheus:
            for expr in ("keygrouping_last_result_timestamp_seconds", "keygrouping_observer_latency_seconds_count > 2"):
                await until(partial(prometheus.query, expr), 120)
            await until(lambda: enough_scrapes(prometheus), 120)
            check(prometheus)
    assert deployment.dead() == {}
