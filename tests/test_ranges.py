"""A range of a topic's events, routed by routers that are killed: its results are exact, final, and proven."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson
import pytest
from keygrouping_local.comparison import Comparison, compare, compare_left_out
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.oracle import Oracle
from keygrouping_local.records import dead_letters, read_all, read_results, reasons
from keygrouping_observer.audit.command import audit

pytestmark = [pytest.mark.kafka]

START = 1_357_000_000_000
JOB = orjson.dumps(
    {
        "window": "10s",
        "lateness": "2s",
        "aggregates": [{"name": "n", "op": "count"}, {"name": "x", "op": "sum", "field": "x"}],
    }
).decode()
PARTITIONS = 3
BEGINS, ENDS = START + 60_000, START + 240_000
ROUTERS = {"router-0": 1, "router-1": 2}


def stream(first: int, count: int) -> Iterator[Event]:
    """20 ms apart; some are late, some can't be used. The last partition ends before the range does."""
    chance = random.Random(7)
    for number in range(first, first + count):
        late = 5000 if chance.random() < 0.02 else 0
        value = b"{" if chance.random() < 0.01 else b'{"x": %d}' % chance.randrange(9)
        partition = number % PARTITIONS if number < 10_000 else number % (PARTITIONS - 1)
        yield Event(partition, b"key-%d" % int(chance.paretovariate(0.9)), value, START + number * 20 - late)


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def range_of(events: list[Event]) -> dict[int, tuple[int, int]]:
    """By partition the offset of the first event of BEGINS or later, and that of ENDS or later, else the end."""
    found = {}
    for partition in range(PARTITIONS):
        times = [event.time_ms for event in events if event.partition == partition]
        first, after = (
            next((offset for offset, time in enumerate(times) if time >= moment), len(times))
            for moment in (BEGINS, ENDS)
        )
        found[partition] = (first, after)
    return found


async def compared(deployment: Deployment, wanted: dict[int, tuple[int, int]]) -> Comparison:
    """What came of the range beside the oracle's view of just its events."""
    oracle = Oracle(deployment.job)
    async for records in read_all(deployment.settings, deployment.settings.events_topic):
        first, after = wanted[records.partition]
        oracle.add(records.where((records.offsets >= np.int64(first)) & (records.offsets < np.int64(after))))
    expected, settings = oracle.finish(), deployment.settings
    comparison = compare(expected, await read_results(settings))
    compare_left_out(expected, await reasons(settings, settings.late_topic), await dead_letters(settings), comparison)
    comparison.events = expected.read
    return comparison


async def test_a_backfill_is_exact_whatever_is_killed_ends_by_itself_and_is_proven(deploy: Deploy) -> None:
    deployment = await deploy(JOB, Shape(partitions=PARTITIONS, max_workers=4))
    events = list(stream(0, 15_000))
    await deployment.write(events)
    wanted = range_of(events)
    for name in ("worker-0", "worker-1", "aggregator-0"):
        deployment.start(name)
    for name in ROUTERS:
        deployment.start(name, workers=4, grouping="pkg", start=iso(BEGINS), until=iso(ENDS), max_batch=50, linger=0)
    await asyncio.gather(deployment.disturb(ROUTERS, (0.5, 2.0), 3), deployment.write(stream(15_000, 3_000)))

    async def routers_have_ended() -> bool:
        return all(deployment.exit_code(name) == 0 for name in ROUTERS)

    await deployment.until(routers_have_ended)
    await deployment.until(deployment.is_final)
    assert {p: entry.offset for p, entry in (await deployment.committed("router")).items()} == {
        partition: after for partition, (_, after) in wanted.items()
    }
    comparison = await compared(deployment, wanted)
    assert comparison.equal, comparison
    assert comparison.events == sum(after - first for first, after in wanted.values())
    report = await asyncio.to_thread(proof, deployment)
    assert report["ranges"] == []
    assert report["open"] == []
    assert {lane["partition"]: (lane["first"], lane["after"]) for lane in report["inputs"]} == wanted


def proof(deployment: Deployment) -> dict[str, Any]:
    """What the audit says of all that lies in Kafka."""
    names = {f"{kind}_topic": getattr(deployment.settings, f"{kind}_topic") for kind in KINDS}
    (report,) = audit(
        once=True,
        every=1.0,
        limit=1000,
        bootstrap_servers=deployment.settings.bootstrap_servers,
        application=deployment.settings.application,
        job=JOB,
        **names,
    )
    return report


KINDS = ("events", "routed", "partials", "results", "late", "dead_letters", "receipts", "positions")
