"""The audit beside real stages of both runners: a sound run is proven live, and results that come twice are named."""

import asyncio
import os
import random
import re
import struct
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from keygrouping_local.comparison import check_run
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.records import read_all
from keygrouping_service.kafka import clients

pytestmark = [pytest.mark.kafka]

START = 1_357_000_000_000
JOB = orjson.dumps(
    {
        "window": "10s",
        "lateness": "2s",
        "aggregates": [{"name": "n", "op": "count"}, {"name": "x", "op": "sum", "field": "x"}],
    }
).decode()
RUNNERS = {
    "native": ["worker-0", "worker-1", "aggregator-0"],
    "spark": ["spark-0"],
    "spark worker, native aggregator": ["spark-worker", "aggregator-0"],
    "native worker, spark aggregator": ["worker-0", "spark-aggregator"],
}
COMBINING = "workers that read the events themselves"
COUNT = 4000
TOPICS = ("EVENTS", "ROUTED", "PARTIALS", "RESULTS", "LATE", "DEAD_LETTERS", "RECEIPTS", "POSITIONS")


def backlog(seed: int) -> Iterator[Event]:
    """Skewed keys in two partitions; some events are late, some can't be used."""
    chance = random.Random(seed)
    for number in range(COUNT):
        late = 5000 if chance.random() < 0.02 else 0
        value = b"{" if chance.random() < 0.01 else b'{"x": %d}' % chance.randrange(9)
        yield Event(number % 2, b"key-%d" % int(chance.paretovariate(0.9)), value, START + number * 20 - late)


def head(receipt: bytes | None) -> dict[str, Any]:
    """A receipt's line of JSON, without the rows behind it."""
    said: dict[str, Any] = orjson.loads((receipt or b"").partition(b"\n")[0])
    return said


def windows_of(receipt: bytes | None) -> list[int]:
    """The starts of the windows in the rows behind that line: 8 bytes for each worker, then 32 for each window."""
    packed = (receipt or b"").partition(b"\n")[2]
    return [start for start, *_ in struct.iter_unpack("<qqQQ", packed[8 * head(receipt)["shares"] :])]


async def audit(deployment: Deployment) -> dict[str, Any]:
    addresses = re.findall(r"listening on (http://\S+)", deployment.log("observer-0").read_text())
    if not addresses:
        return {"state": "starting"}
    async with httpx.AsyncClient(base_url=addresses[-1], timeout=60) as client:
        try:
            report: dict[str, Any] = (await client.get("/audit", params={"limit": 1000})).json()
        except httpx.TransportError:
            return {"state": "starting"}
        return report


def start(deployment: Deployment, name: str) -> None:
    service, _, stages = name.partition("-")
    if service == "spark":
        deployment.start("spark-0", stages="worker,aggregator" if stages == "0" else stages)
    else:
        deployment.start(name)


async def check(deployment: Deployment, mixture: str) -> None:
    if mixture == COMBINING:
        deployment.start("observer-0", look_interval=0.2, stages="combine")
        deployment.start("worker-0", idle_timeout=1, flush_interval=0.1, stages="combine")
        deployment.start("aggregator-0", stages="combine")
    else:
        for name in RUNNERS[mixture]:
            start(deployment, name)
        deployment.start("observer-0", look_interval=0.2)
        deployment.start("router-0", workers=4, grouping="pkg", max_batch=300, idle_timeout=1)
    await deployment.write(backlog(1))
    await deployment.finish()
    await deployment.until(deployment.is_final, timeout=400)
    comparison = await check_run(deployment.settings, deployment.job)
    assert comparison.equal, comparison
    report = await when(deployment, lambda found: found["open_windows"] == 0 and found["windows"])
    assert report["verdict"] == "nothing differs", report
    assert {window["verdict"] for window in report["windows"]} == {"proven"}
    assert [lane["after"] - lane["first"] for lane in report["inputs"]] == [COUNT // 2] * 2
    events = sum(lane["events"] for lane in report["inputs"])
    late, dead = (sum(lane[name] for lane in report["inputs"]) for name in ("late", "dead_letters"))
    assert events == COUNT and late > 10 and dead > 10
    assert sum(window["results"]["events"] for window in report["windows"]) == COUNT - late - dead
    stages = "combine" if mixture == COMBINING else "route"
    code, said, wrong = await command(deployment, "--recount", "--json", stages=stages)
    assert code == 0, wrong
    recount = orjson.loads(said)["recount"]
    assert (code, recount["equal"], recount["not_recounted"]) == (0, len(report["windows"]), {}), recount


async def when(deployment: Deployment, condition: Any) -> dict[str, Any]:
    """The audit's report, once it is so."""
    found: dict[str, Any] = {}

    async def is_so() -> bool:
        nonlocal found
        found = await audit(deployment)
        return found["state"] == "auditing" and bool(condition(found))

    await deployment.until(is_so)
    return found


def differing(report: dict[str, Any]) -> set[int]:
    """The starts of the windows whose results are not those of their events."""
    return {window["start"] for window in report["windows"] if window["verdict"] == "differs"}


async def test_a_native_run_is_proven_and_then_each_fault_is_named_also_after_a_restart(deploy: Deploy) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    await check(deployment, "native")
    settings = deployment.settings
    deployment.stop("observer-0")
    (again,) = [records.record(0) async for records in read_all(settings, settings.results_topic)][:1]
    await deployment.producer.send_and_wait(settings.results_topic, again.value, again.key, again.partition)
    receipts = [record async for records in read_all(settings, settings.receipts_topic) for record in records]
    twice = next(r for r in receipts if head(r.value)["consumed"][0])
    await deployment.producer.send_and_wait(settings.receipts_topic, twice.value)
    deployment.log("observer-0").unlink()
    deployment.start("observer-0", look_interval=0.2)
    said, result = head(twice.value), orjson.loads(again.value or b"")
    # They lie in two topics, and either may be read first.
    report = await when(deployment, lambda found: found["differing_ranges"] and result["start"] in differing(found))
    doubled = [found for found in report["ranges"] if found["kind"] == "doubled"]
    assert [(d["partition"], d["first"], d["after"], d["events"]) for d in doubled] == [
        (said["partition"], said["first"], said["after"], said["consumed"][0])
    ]
    wrong = differing(report)
    assert wrong == {result["start"], *windows_of(twice.value)}
    assert await metric(deployment, 'keygrouping_observer_audit_differences{kind="window"}') == len(wrong)
    assert (
        await metric(deployment, 'keygrouping_observer_audit_differences{kind="input"}') == report["differing_ranges"]
    )


async def metric(deployment: Deployment, name: str) -> float:
    (address,) = re.findall(r"listening on (http://\S+)", deployment.log("observer-0").read_text())
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


async def command(deployment: Deployment, *arguments: str, stages: str = "route") -> tuple[int, str, str]:
    """What `keygrouping audit --once` says: exit code, output, errors."""
    settings = deployment.settings
    place = ("--bootstrap-servers", settings.bootstrap_servers, "--application", settings.application)
    given = {f"KEYGROUPING_{name}_TOPIC": getattr(settings, f"{name.lower()}_topic") for name in TOPICS}
    given["KEYGROUPING_STAGES"] = stages
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "keygrouping", "audit", "--once", *place, "--job", JOB, *arguments),
        env={name: value for name, value in os.environ.items() if not name.startswith("KEYGROUPING_")} | given,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, wrong = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return process.returncode, said.decode(), wrong.decode()


async def test_the_command_proves_or_names_the_same_without_an_observer_and_leaves_no_trace(deploy: Deploy) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    settings = deployment.settings
    code, _, wrong = await command(deployment)
    assert code == 2 and "holds no receipts" in wrong
    for name in RUNNERS["native"]:
        start(deployment, name)
    deployment.start("router-0", workers=4, grouping="pkg", max_batch=300, idle_timeout=1)
    await deployment.write(backlog(3))
    await deployment.until(deployment.is_routed)
    code, said, _ = await command(deployment, "--json")
    assert code == 0 and orjson.loads(said)["open_windows"] > 0
    await deployment.finish()
    await deployment.until(deployment.is_final)
    for name in RUNNERS["native"]:
        deployment.stop(name)
    async with clients.started(clients.admin(settings)) as admin:
        before = await admin.list_topics(), await admin.list_consumer_groups()
        code, said, _ = await command(deployment, "--json", "--limit", "1000")
        report = orjson.loads(said)
        assert (code, report["verdict"], report["open_windows"], report["open"]) == (0, "nothing differs", 0, [])
        assert {window["verdict"] for window in report["windows"]} == {"proven"}
        assert sum(lane["events"] for lane in report["inputs"]) == COUNT

        await deployment.producer.send_and_wait(settings.events_topic, b"{}", b"k", 1)
        (again,) = [records.record(0) async for records in read_all(settings, settings.results_topic)][:1]
        await deployment.producer.send_and_wait(settings.results_topic, again.value, again.key, again.partition)
        receipts = [record async for records in read_all(settings, settings.receipts_topic) for record in records]
        told = [head(receipt.value) for receipt in receipts]
        # Not of the last one's partition: once only that one is left, a receipt of what lies before it is a double.
        others = (n for n, one in enumerate(told) if one["consumed"][0] and one["partition"] != told[-1]["partition"])
        twice = receipts[next(others)]
        await deployment.producer.send_and_wait(settings.receipts_topic, twice.value)
        code, said, _ = await command(deployment)
        receipt, result = head(twice.value), orjson.loads(again.value or b"")
        place = f"partition {receipt['partition']}, offsets [{receipt['first']}, {receipt['after']})"
        assert code == 1
        assert f"differs  input {place}: doubled, {receipt['consumed'][0]} events" in said
        assert f"differs  window [{result['start']}, " in said
        assert "open     input" not in said, "what is written behind the end of the input is awaited by nobody"

        await admin.delete_records({TopicPartition(settings.receipts_topic, 0): RecordsToDelete(receipts[-1].offset)})
        code, said, _ = await command(deployment, "--json", "--limit", "1000")
        report = orjson.loads(said)
        verdicts = {window["verdict"] for window in report["windows"]}
        assert (code, verdicts - {"proven"}, report["differing_windows"]) == (0, {"unknown"}, 0), report
        assert report["proven_since"]
        assert (await admin.list_topics(), await admin.list_consumer_groups()) == before


async def test_events_that_came_into_routed_past_the_routers_are_named(deploy: Deploy) -> None:
    """As a commit that was delayed leaves half of a transaction that is then routed again."""
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    for name in ("worker-0", "aggregator-0"):
        deployment.start(name)
    deployment.start("observer-0", look_interval=0.2)
    deployment.start("router-0", workers=4, grouping="pkg", max_batch=300, idle_timeout=1)
    events = [event for event in backlog(2) if event.value != b"{"]
    await deployment.write(events)
    await deployment.until(deployment.is_routed)
    settings = deployment.settings
    routed = [record async for records in read_all(settings, settings.routed_topic) for record in records]
    newest = sorted(routed, key=lambda record: record.timestamp)[-3:]
    for record in newest:
        await deployment.producer.send_and_wait(
            settings.routed_topic, record.value, record.key, record.partition, record.timestamp
        )
    await deployment.finish()
    await deployment.until(deployment.is_final)
    report = await when(deployment, lambda found: found["open_windows"] == 0 and found["windows"])
    wrong = [window for window in report["windows"] if window["verdict"] == "differs"]
    assert sum(window["results"]["events"] - window["routed"]["events"] for window in wrong) == 3
    assert differing(report) == {deployment.job.window_of(r.timestamp) for r in newest}
    assert report["differing_ranges"] == 0


async def test_a_run_without_a_router_is_proven_too(deploy: Deploy) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    await deployment.admin.delete_topics([deployment.settings.routed_topic])
    await check(deployment, COMBINING)


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "mixture", ["spark", *(pytest.param(name, marks=pytest.mark.long) for name in list(RUNNERS)[2:])]
)
async def test_the_spark_job_is_proven_too(deploy: Deploy, mixture: str) -> None:
    await check(await deploy(JOB, Shape(partitions=2, max_workers=4)), mixture)
