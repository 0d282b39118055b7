"""A range of a topic's events, whoever reads it, and is killed: its results are exact, final, and proven."""

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
READERS = {"route": {"router-0": 1, "router-1": 2}, "combine": {"worker-0": 1, "worker-1": 2}}
"""Who reads the input, and how often each is killed."""


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


@pytest.mark.parametrize("stages", list(READERS))
async def test_a_backfill_is_exact_whatever_is_killed_ends_by_itself_and_is_proven(deploy: Deploy, stages: str) -> None:
    readers = READERS[stages]
    deployment = await deploy(JOB, Shape(partitions=PARTITIONS, max_workers=4))
    events = list(stream(0, 15_000))
    await deployment.write(events)
    wanted = range_of(events)
    start(deployment, stages)
    await asyncio.gather(deployment.disturb(readers, (0.5, 2.0), 3), deployment.write(stream(15_000, 3_000)))

    async def readers_have_ended() -> bool:
        return all(deployment.exit_code(name) == 0 for name in readers)

    await deployment.until(readers_have_ended)
    await deployment.until(deployment.is_final)
    assert {p: entry.offset for p, entry in (await deployment.committed("router")).items()} == {
        partition: after for partition, (_, after) in wanted.items()
    }
    comparison = await compared(deployment, wanted)
    assert comparison.equal, comparison
    assert comparison.events == sum(after - first for first, after in wanted.values())
    report = await asyncio.to_thread(proof, deployment, stages)
    assert report["ranges"] == []
    assert report["open"] == []
    assert {lane["partition"]: (lane["first"], lane["after"]) for lane in report["inputs"]} == wanted


def start(deployment: Deployment, stages: str) -> None:
    """Starts all; who reads the input reads the range, in small transactions."""
    own = {"start": iso(BEGINS), "until": iso(ENDS)}
    deployment.start("aggregator-0", stages=stages)
    if stages == "route":
        for name in ("worker-0", "worker-1"):
            deployment.start(name)
        own |= {"workers": "4", "grouping": "pkg", "max_batch": "50", "linger": "0"}
    else:
        own |= {"stages": stages, "batch_records": "50", "flush_interval": "0.01"}
    for name in READERS[stages]:
        deployment.start(name, **own)


def proof(deployment: Deployment, stages: str) -> dict[str, Any]:
    """What the audit says of all that lies in Kafka."""
    names = {f"{kind}_topic": getattr(deployment.settings, f"{kind}_topic") for kind in KINDS}
    (report,) = audit(
        once=True,
        every=1.0,
        limit=1000,
        share=1.0,
        bootstrap_servers=deployment.settings.bootstrap_servers,
        application=deployment.settings.application,
        job=JOB,
        stages=stages,
        **names,
    )
    return report


KINDS = ("events", "routed", "partials", "results", "late", "dead_letters", "receipts", "positions")
