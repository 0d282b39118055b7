"""The audit beside real stages of both runners: a sound run is proven live, and results that come twice are named."""

import random
import re
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from keygrouping_local.comparison import check_run
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.records import read_all

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
COUNT = 4000


def backlog(seed: int) -> Iterator[Event]:
    """Skewed keys in two partitions; some events are late, some can't be used."""
    chance = random.Random(seed)
    for number in range(COUNT):
        late = 5000 if chance.random() < 0.02 else 0
        value = b"{" if chance.random() < 0.01 else b'{"x": %d}' % chance.randrange(9)
        yield Event(number % 2, b"key-%d" % int(chance.paretovariate(0.9)), value, START + number * 20 - late)


async def audit(deployment: Deployment) -> dict[str, Any]:
    addresses = re.findall(r"listening on (http://\S+)", deployment.log("observer-0").read_text())
    if not addresses:
        return {"state": "starting"}
    async with httpx.AsyncClient(base_url=addresses[-1]) as client:
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
    for name in RUNNERS[mixture]:
        start(deployment, name)
    deployment.start("observer-0", look_interval=0.2)
    deployment.start("router-0", workers=4, grouping="pkg", max_batch=300, idle_timeout=1)
    await deployment.write(backlog(1))
    await deployment.finish()
    await deployment.until(deployment.is_final, patience=400)
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


async def when(deployment: Deployment, condition: Any) -> dict[str, Any]:
    """The audit's report, once it is so."""

    async def is_so() -> bool:
        found = await audit(deployment)
        return found["state"] == "auditing" and bool(condition(found))

    await deployment.until(is_so)
    return await audit(deployment)


async def test_a_native_run_is_proven_and_then_each_fault_is_named_also_after_a_restart(deploy: Deploy) -> None:
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=4))
    await check(deployment, "native")
    settings = deployment.settings
    deployment.stop("observer-0")
    (again,) = [records[0] async for records in read_all(settings, settings.results_topic)][:1]
    await deployment.producer.send_and_wait(settings.results_topic, again.value, again.key, again.partition)
    receipts = [record async for records in read_all(settings, settings.receipts_topic) for record in records]
    twice = next(r for r in receipts if orjson.loads(r.value)["consumed"][0])
    await deployment.producer.send_and_wait(settings.receipts_topic, twice.value)
    deployment.log("observer-0").unlink()
    deployment.start("observer-0", look_interval=0.2)
    report = await when(deployment, lambda found: found["differing_windows"] and found["differing_ranges"])
    said = orjson.loads(twice.value)
    doubled = [found for found in report["ranges"] if found["kind"] == "doubled"]
    assert [(d["partition"], d["first"], d["after"], d["events"]) for d in doubled] == [
        (said["partition"], said["first"], said["after"], said["consumed"][0])
    ]
    result = orjson.loads(again.value)
    differing = {window["start"]: window for window in report["windows"] if window["verdict"] == "differs"}
    assert result["start"] in differing
    assert differing.keys() == {result["start"], *(window[0] for window in said["windows"])}
    assert await metric(deployment, 'keygrouping_observer_audit_differences{kind="window"}') == len(differing)
    assert (
        await metric(deployment, 'keygrouping_observer_audit_differences{kind="input"}') == report["differing_ranges"]
    )


async def metric(deployment: Deployment, name: str) -> float:
    (address,) = re.findall(r"listening on (http://\S+)", deployment.log("observer-0").read_text())
    async with httpx.AsyncClient(base_url=address) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


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
    differing = [window for window in report["windows"] if window["verdict"] == "differs"]
    assert sum(window["results"]["events"] - window["routed"]["events"] for window in differing) == 3
    assert {window["start"] for window in differing} == {deployment.job.window_of(r.timestamp) for r in newest}
    assert report["differing_ranges"] == 0


@pytest.mark.spark
@pytest.mark.parametrize(
    "mixture", ["spark", *(pytest.param(name, marks=pytest.mark.long) for name in list(RUNNERS)[2:])]
)
async def test_the_spark_job_is_proven_too(deploy: Deploy, mixture: str) -> None:
    await check(await deploy(JOB, Shape(partitions=2, max_workers=4)), mixture)
