"""Receipts name each fault that stages are protected from: real ones run without the protection, and the audit sees it.

A stage is run without it by a `sitecustomize`, which Python imports before the service. What receipts can't see, a time
or a number that all stages read wrong alike, `test_recount` shows.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.proxy import Api, Proxy, Stray
from keygrouping_service.testing import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.fault]

START, WINDOW = 1_700_000_000_000, 1000
JOB = '{"window": 1000, "lateness": "1s", "confirmations": 1, "aggregates": [{"name": "n", "op": "count"}]}'
SHAPE = Shape(partitions=2, max_workers=2)

NO_COPIES_OF_OFFSETS = """
from keygrouping_service.kafka.positions import Positions
async def find(*_):
    return {}
Positions.find = find
"""
ANY_TOPIC_IS_THE_SAME = """
from keygrouping_service.kafka import starts
starts.same_topic = lambda *_: True
"""
COMMITS_ARE_SENT_AGAIN = """
from keygrouping_service import settings
from keygrouping_service.kafka.transactions import TransactionalProducer
settings.REQUEST_TIMEOUT_MS = 5000
TransactionalProducer.give_up = lambda *_: None
"""
STAGES: dict[str, dict[str, Any]] = {
    "router-0": {"workers": 2, "idle_timeout": 86_400, "max_batch": 100},
    "worker-0": {"purge": False, "flush_interval": 0.1},
    "aggregator-0": {"purge": False},
    "observer-0": {"look_interval": 0.2},
}


def events(number: int, count: int = 500) -> Iterator[Event]:
    """Some windows of events: those of each number lie behind those of the one before."""
    chance = random.Random(number)
    for step in range(count):
        time = START + 20 * WINDOW * number + 15 * WINDOW * step // count
        yield Event(step % 2, b"k%d" % min(9, int(chance.expovariate(0.4))), None, time)


def start(deployment: Deployment, *names: str, without: str = "", folder: Path = Path(), **environment: str) -> None:
    """Starts stages, `without` a protection if that is not empty."""
    if without:
        (folder / "sitecustomize.py").write_text(without)
        environment["PYTHONPATH"] = str(folder)
    for name in names:
        deployment.start(name, environment, **STAGES[name])


async def written(deployment: Deployment, number: int) -> None:
    """Sends events and waits until the stages have done all that they can with them."""
    await deployment.write(events(number))
    newest = START + 20 * WINDOW * number + 15 * WINDOW

    async def are_done() -> bool:
        return await deployment.is_routed() and await deployment.is_final(newest - 3 * WINDOW)

    await deployment.until(are_done)


async def audit(deployment: Deployment) -> dict[str, Any]:
    address = re.findall(r"listening on (http://\S+)", deployment.log("observer-0").read_text())[-1]
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        report: dict[str, Any] = (await client.get("/audit", params={"limit": 1000})).json()
    return report


async def differences(deployment: Deployment) -> dict[str, Any]:
    """The audit's report, once something differs."""

    async def is_seen() -> bool:
        report = await audit(deployment)
        return bool(report["differing_windows"] or report["differing_ranges"])

    await deployment.until(is_seen)
    return await audit(deployment)


async def nothing_differs_yet(deployment: Deployment) -> None:
    async def is_proven() -> bool:
        report = await audit(deployment)
        return report.get("verdict") == "nothing differs" and len(report["windows"]) >= 10

    await deployment.until(is_proven)


async def more_in_the_last_window(deployment: Deployment) -> None:
    """More events in the window of the newest one, which is open; waits until they are routed."""
    last = START + 14 * WINDOW
    await deployment.write([Event(step % 2, b"k%d" % (step % 10), None, last + step) for step in range(500)])
    await deployment.until(deployment.is_routed)


async def test_a_worker_that_begins_again_as_its_offsets_are_forgotten(deploy: Deploy, tmp_path: Path) -> None:
    deployment = await deploy(JOB, SHAPE)
    start(deployment, *STAGES)
    await written(deployment, 0)
    await nothing_differs_yet(deployment)
    assert deployment.stop("worker-0") == 0
    async with Cluster(deployment.settings.bootstrap_servers) as cluster:
        await cluster.forget(deployment.settings.group("worker"))
    # Its partial of each key there begins where the first one has, with more events: it is taken for that one again.
    await more_in_the_last_window(deployment)
    start(deployment, "worker-0", without=NO_COPIES_OF_OFFSETS, folder=tmp_path)
    await written(deployment, 1)
    report = await differences(deployment)
    assert report["differing_windows"]


@pytest.mark.parametrize("stage", ["router", "aggregator"])
async def test_a_stage_that_begins_again_as_its_offsets_are_forgotten(
    deploy: Deploy, tmp_path: Path, stage: str
) -> None:
    deployment = await deploy(JOB, SHAPE)
    start(deployment, *STAGES)
    await written(deployment, 0)
    await nothing_differs_yet(deployment)
    assert deployment.stop(f"{stage}-0") == 0
    async with Cluster(deployment.settings.bootstrap_servers) as cluster:
        await cluster.forget(deployment.settings.group(stage))
    start(deployment, f"{stage}-0", without=NO_COPIES_OF_OFFSETS, folder=tmp_path)
    report = await differences(deployment)
    if stage == "router":
        assert {found["kind"] for found in report["ranges"]} == {"doubled"}
    else:
        assert report["differing_windows"] >= 10


async def test_a_commit_that_is_sent_again_and_ends_the_next_transaction_half_way(
    deploy: Deploy, tmp_path: Path, proxy: Proxy
) -> None:
    deployment = await deploy(JOB, SHAPE)
    name = deployment.settings.transactional_id("router", 0)
    stray = Stray(proxy, lambda request: request.api is Api.END_TXN and request.transactional_id == name)
    held = stray.hold_in_next(Api.PRODUCE, answer=True)
    offsets = stray.hold_in_next(Api.TXN_OFFSET_COMMIT)
    await deployment.write(events(0))
    start(deployment, "worker-0", "aggregator-0", "observer-0")
    behind = {"KEYGROUPING_BOOTSTRAP_SERVERS": proxy.bootstrap_servers}
    start(deployment, "router-0", without=COMMITS_ARE_SENT_AGAIN, folder=tmp_path, **behind)
    await held.caught()
    await offsets.caught()
    await stray.deliver()
    held.release()
    offsets.release()
    await written(deployment, 1)
    report = await differences(deployment)
    assert report["differing_windows"] or report["differing_ranges"]


async def test_a_topic_that_is_taken_for_the_one_that_was_deleted(deploy: Deploy, tmp_path: Path) -> None:
    deployment = await deploy(JOB, SHAPE)
    start(deployment, *STAGES)
    await written(deployment, 0)
    await nothing_differs_yet(deployment)
    for name in ("router-0", "worker-0"):
        assert deployment.stop(name) == 0
    async with Cluster(deployment.settings.bootstrap_servers) as cluster:
        await cluster.recreate(deployment.settings.routed_topic, SHAPE.max_workers)
    start(deployment, "router-0")
    await deployment.write(events(1, 2000))
    await deployment.until(deployment.is_routed)
    start(deployment, "worker-0", without=ANY_TOPIC_IS_THE_SAME, folder=tmp_path)
    await written(deployment, 2)
    report = await differences(deployment)
    assert report["differing_windows"]
