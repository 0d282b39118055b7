"""`keygrouping audit --recount` beside real stages: it names the faults that no sum of hashes can see.

As in `test_unprotected`, stages run with a fault by a `sitecustomize`, which Python imports before the service. The
command runs without it.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.topics import environment_of
from keygrouping_observer.audit import command
from keygrouping_observer.audit.recounting import Recounting
from keygrouping_service.kafka import clients
from keygrouping_service.testing import until

pytestmark = [pytest.mark.kafka]

START, WINDOW = 1_700_000_000_000, 10_000
LARGE = 2**53 + 1
"""The least integer that is no float."""

JOB = orjson.dumps(
    {
        "window": "10s",
        "lateness": "2s",
        "confirmations": 1,
        "time": {"field": "at", "unit": "iso"},
        "aggregates": [
            {"name": "n", "op": "count"},
            {"name": "x", "op": "sum", "field": "x"},
            {"name": "spread", "op": "variance", "field": "x"},
            {"name": "users", "op": "distinct", "field": "user"},
        ],
    }
).decode()
COUNT = 400

INTEGERS_ARE_FLOATS = """
import numpy as np
from keygrouping.job.field_columns import FieldColumn
from keygrouping.job.kinds import REAL, WHOLE
numbers = FieldColumn.numbers
def as_floats(member):
    found = numbers(member)
    kinds = np.where(found.kinds == WHOLE, np.uint8(REAL), found.kinds)
    return FieldColumn(kinds, found.floats().view(np.int64), found.texts)
FieldColumn.numbers = as_floats
"""
TIMES_ARE_ROUNDED = """
from datetime import datetime
from keygrouping import instants
def rounded(text):
    return round(datetime.fromisoformat(text[:26] + "+00:00").timestamp() * 1000)
instants.ms_of_rfc3339 = rounded
"""

STAGES: dict[str, dict[str, Any]] = {
    "worker-0": {"flush_interval": 0.1},
    "worker-1": {"flush_interval": 0.1},
    "aggregator-0": {},
    "router-0": {"workers": 2, "max_batch": 50, "idle_timeout": 86_400},
}


def event(number: int, time_ms: int, x: int, more: str = "000") -> Event:
    """One whose time is a text, with `more` digits behind the milliseconds."""
    second, rest = divmod(time_ms, 1000)
    at = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}{more}Z"
    value = orjson.dumps({"at": at, "x": x, "user": f"u{number % 17}"})
    return Event(number % 2, b"k%d" % (number % 10), value, 0)


def backlog() -> Iterator[Event]:
    """Eight windows in two partitions; some events are late, some can't be used."""
    for number in range(COUNT):
        if number % 50 == 49:
            yield Event(number % 2, b"k", b"{", 0)
        late = 9000 if number % 40 == 33 else 0
        yield event(number, START + number * 8 * WINDOW // COUNT - late, number)


async def run(deployment: Deployment, events: Iterator[Event], folder: Path, fault: str, *faulty: str) -> None:
    """All of a run, to its last result; the `faulty` stages with the fault."""
    (folder / "sitecustomize.py").write_text(fault)
    await deployment.write(events)
    for name, settings in STAGES.items():
        service = name.partition("-")[0]
        deployment.start(name, {"PYTHONPATH": str(folder)} if service in faulty else {}, **settings)
    await deployment.finish()
    await deployment.until(deployment.is_final)


async def recount(deployment: Deployment, *arguments: str) -> tuple[int, Any]:
    """What `keygrouping audit --recount` says: exit code, and output (JSON unless there are arguments)."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "keygrouping", "audit", "--job", JOB, *(arguments or ("--recount", "--json"))),
        env={name: value for name, value in os.environ.items() if not name.startswith("KEYGROUPING_")}
        | environment_of(deployment.settings),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, wrong = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None and said, wrong.decode()
    return process.returncode, said.decode() if arguments else orjson.loads(said)


async def recount_while_deleted(deployment: Deployment, tp: TopicPartition, before: int) -> Any:
    """The same report where records before an offset are deleted once a recount has seen where a partition begins."""
    environment = environment_of(deployment.settings) | {"KEYGROUPING_JOB": JOB}
    begin, firsts_of, waiting = Recounting.recount, AIOKafkaConsumer.beginning_offsets, set[TopicPartition]()

    async def recount(self: Recounting, *given: Any) -> Any:
        waiting.add(tp)
        return await begin(self, *given)

    async def beginning_offsets(self: AIOKafkaConsumer, tps: Any) -> Any:
        firsts = await firsts_of(self, tps)
        if not waiting.isdisjoint(tps):
            waiting.clear()
            async with clients.started(clients.admin(deployment.settings)) as admin:
                await admin.delete_records({tp: RecordsToDelete(before)})
        return firsts

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(Recounting, "recount", recount)
        patch.setattr(AIOKafkaConsumer, "beginning_offsets", beginning_offsets)
        reports = command.audit(once=True, every=1, limit=100, share=1.0)
        (report,) = await asyncio.to_thread(list, reports)
    return report


def verdicts(report: Any) -> dict[int, str]:
    return {(window["start"] - START) // WINDOW: window["verdict"] for window in report["recount"]["windows"]}


async def test_a_sound_run_is_counted_again_and_what_is_deleted_is_told(deploy: Deploy, tmp_path: Path) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=2))
    await run(deployment, backlog(), tmp_path, "")
    code, report = await recount(deployment)
    found = report["recount"]
    assert (code, report["verdict"], found["equal"], found["not_recounted"]) == (0, "nothing differs", 8, {}), report
    assert [window["keys"] for window in found["windows"]] == [10] * 8
    late, dead = (sum(lane[name] for lane in report["inputs"]) for name in ("late", "dead_letters"))
    assert late >= 5 and dead == COUNT // 50

    code, report = await recount(deployment, "--json", "--recount", "0.5")
    sampled = {window["keys"] for window in orjson.loads(report)["recount"]["windows"]}
    assert code == 0 and len(sampled) == 1 and 0 < sampled.pop() < 10

    async with clients.started(clients.admin(deployment.settings)) as admin:
        first = TopicPartition(deployment.settings.events_topic, 0)
        await admin.delete_records({first: RecordsToDelete(before_offset=30)})
    code, report = await recount(deployment)
    gone = {number for number, verdict in verdicts(report).items() if verdict == "not recounted"}
    assert code == 0 and {0, 1} <= gone and 7 not in gone and gone == set(range(len(gone))), report
    assert list(report["recount"]["not_recounted"]) == ["some of its events are no longer in the topic"]

    report = await recount_while_deleted(deployment, first, 60)
    left, gone = gone, {number for number, verdict in verdicts(report).items() if verdict == "not recounted"}
    assert left < gone == set(range(len(gone))) and report["recount"]["differing"] == 0, report
    assert list(report["recount"]["not_recounted"]) == ["some of its events are no longer in the topic"]

    results = TopicPartition(deployment.settings.results_topic, 0)
    policy = {"cleanup.policy": "compact,delete"}
    async with clients.started(clients.admin(deployment.settings)) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, results.topic, configs=policy)])
        await until(lambda: admin.delete_records({results: RecordsToDelete(0)}))  # Refused until the broker has it.
    report = await recount_while_deleted(deployment, results, -1)
    counted = 8 - len(gone)
    assert (report["recount"]["differing"], report["recount"]["equal"]) == (0, 0), report
    assert (
        report["recount"]["not_recounted"]["results of it that the audit has found are no longer in the topic"]
        == counted
    )

    async with clients.started(clients.admin(deployment.settings)) as admin:
        all_of_them = {TopicPartition(first.topic, partition): RecordsToDelete(-1) for partition in (0, 1)}
        await admin.delete_records(all_of_them)
    code, report = await recount(deployment)
    assert (code, report["recount"]["equal"], sum(report["recount"]["not_recounted"].values())) == (2, 0, 8)


async def test_integers_that_are_summed_as_floats_are_named_with_both_sums(deploy: Deploy, tmp_path: Path) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=2))
    events = [event(number, START + number * 100, number) for number in range(300)]
    large = event(9, START + 15_000, LARGE)
    await run(deployment, iter([*events[:150], large, *events[150:]]), tmp_path, INTEGERS_ARE_FLOATS, "worker")
    code, report = await recount(deployment)
    assert code == 1 and (report["differing_windows"], report["differing_ranges"]) == (0, 0), "no receipt sees it"
    window = next(w for w in report["recount"]["windows"] if w["start"] == START + WINDOW)
    assert window["verdict"] == "differs"
    found = {one["key"]: one for one in window["differences"] if one["aggregate"] == "x"}["k9"]
    assert found["recounted"] == LARGE + sum(range(109, 200, 10))
    assert isinstance(found["found"], float) and found["found"] != found["recounted"]
    code, said = await recount(deployment, "--recount")
    assert code == 1 and f"key 'k9': x: counted {found['recounted']}, in results {found['found']}" in said
    assert "recount of 1 of the keys: 2 windows equal, 1 different, 0 not recounted" in said


async def test_a_time_that_router_and_worker_round_alike_is_named_in_both_windows(
    deploy: Deploy, tmp_path: Path
) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=2))
    events = [event(number, START + number * 100, 1) for number in range(300)]
    last = event(99, START + WINDOW - 1, 1, more="600")
    await run(deployment, iter([*events[:100], last, *events[100:]]), tmp_path, TIMES_ARE_ROUNDED, "router", "worker")
    code, report = await recount(deployment)
    assert code == 1 and (report["differing_windows"], report["differing_ranges"]) == (0, 0), "no receipt sees it"
    assert verdicts(report) == {0: "differs", 1: "differs", 2: "equal"}
    counts = {
        window["start"]: [
            (one["key"], one["recounted"], one["found"]) for one in window["differences"] if one["aggregate"] == "n"
        ]
        for window in report["recount"]["windows"]
    }
    assert counts[START] == [("k9", 11, 10)] and counts[START + WINDOW] == [("k9", 10, 11)]
