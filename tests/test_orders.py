"""Orders to a running router change its routing in mid-stream, and not one result."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import orjson
import pytest
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.ports import free_ports
from keygrouping_local.records import dead_letters
from keygrouping_service.records.batches import QUARANTINED

pytestmark = pytest.mark.kafka

HOT_KEY = "hot"
START = 1_357_000_000_000
INTERVAL = 1.5
# Fewer events in an interval (the full load is 6,000) say nothing of balance; a busy machine may stand still for one.
ENOUGH = 1_000
JOB = orjson.dumps(
    {
        "window": "1m",
        "lateness": "5s",
        "aggregates": [{"name": "events", "op": "count"}, {"name": "total", "op": "sum", "field": "n"}],
    }
).decode()


def events(partitions: int = 2) -> Iterator[Event]:
    """A stream without end in which every third event has one key."""
    n = 0
    while True:
        key = b"hot" if n % 3 == 0 else b"key-%d" % (n * 7919 % 1500)
        yield Event(n % partitions, key, b'{"n":%d}' % (n % 1000), START + n * 5)
        n += 1


class Load:
    """Writes events until it is told to stop, some thousand a second."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._stop = asyncio.Event()

    async def __aenter__(self) -> "Load":
        self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._stop.set()
        await self._task

    async def _write(self) -> None:
        stream = events()
        while not self._stop.is_set():
            batch = [event for _, event in zip(range(400), stream, strict=False)]
            await asyncio.gather(self._deployment.write(batch), asyncio.sleep(0.1))


@asynccontextmanager
async def pipeline(
    deploy: Deploy, grouping: str, workers: int, **settings: object
) -> AsyncIterator[tuple[Deployment, httpx.AsyncClient]]:
    """A router, the stages behind it and its API, and events that come all the time."""
    deployment = await deploy(JOB, Shape(partitions=2, max_workers=50))
    (port,) = free_ports(1)
    deployment.start("router-0", grouping=grouping, workers=workers, interval=INTERVAL, http_port=port, **settings)
    for name in ("worker-0", "aggregator-0"):
        deployment.start(name)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as api:

        async def ready() -> bool:
            try:
                return (await api.get("/readyz")).is_success
            except httpx.TransportError:
                return False

        await deployment.until(ready)
        async with Load(deployment):
            yield deployment, api


async def intervals(api: httpx.AsyncClient, count: int) -> list[dict[str, object]]:
    """What the router tells at the ends of so many intervals with events, from now on."""
    found: list[dict[str, object]] = []
    async with api.stream("GET", "/events") as stream:
        kind = ""
        async for line in stream.aiter_lines():
            name, _, value = line.partition(": ")
            kind = value if name == "event" else kind
            if name == "data" and kind == "interval":
                found.append(orjson.loads(value))
                if len(_with_events(found)) == count:
                    break
    return _with_events(found)


def _with_events(told: list[dict[str, object]]) -> list[dict[str, object]]:
    """Without the first, which began before it was asked for."""
    return [interval for interval in told[1:] if sum(interval["loads"]) >= ENOUGH]  # type: ignore[call-overload]


async def order(api: httpx.AsyncClient, path: str, body: dict[str, object]) -> None:
    answer = await api.put(path, json=body)
    assert answer.is_success, answer.text


@pytest.mark.long
async def test_w_goes_from_10_to_50_to_7_and_follows_the_workers_under_load_and_results_are_exact(
    deploy: Deploy,
) -> None:
    async with pipeline(deploy, "w-choices", 10) as (deployment, api):
        await intervals(api, 1)
        for workers in (50, 7):
            await order(api, "/workers", {"workers": workers})
            _, second = await intervals(api, 2)
            assert second["workers"] == workers
            assert second["lambda"] <= 1.2, "within two intervals"  # type: ignore[operator]
        states = [item["state"] for item in (await api.get("/workers")).json()["items"]]
        assert states[:7] == ["active"] * 7 and "active" not in states[7:]
        await order(api, "/workers", {"workers": "auto"})

        async def followed() -> bool:
            report = (await api.get("/workers")).json()
            return report["workers"] == 1 and report["total_lag"] is not None

        await deployment.until(followed)
    comparison = await deployment.check()
    assert comparison.equal, comparison


async def test_the_grouping_goes_from_key_to_dkg_to_w_choices_under_load_and_results_are_exact(deploy: Deploy) -> None:
    async with pipeline(deploy, "key", 8) as (deployment, api):
        (by_key,) = await intervals(api, 1)
        for grouping in ("dkg", "w-choices"):
            await order(api, "/grouping", {"name": grouping})
            _, second = await intervals(api, 2)
            assert second["grouping"] == grouping
        assert second["lambda"] <= 1.2 < by_key["lambda"]  # type: ignore[operator]
        epochs = [entry["epoch"] for entry in (await api.get("/plan/history")).json()["entries"]]
        assert epochs == sorted(epochs, reverse=True)
    comparison = await deployment.check()
    assert comparison.equal, comparison


async def test_a_key_goes_where_people_say_under_load_and_results_are_exact(deploy: Deploy, tmp_path: Path) -> None:
    """Pinned, alone on a worker, out of the results, split, with an end that comes by itself, over a router's kill."""
    store = f"file://{tmp_path}/state.json"
    async with pipeline(deploy, "level-fill", 6, store_url=store, store_timeout=30) as (deployment, api):
        await intervals(api, 1)

        async def say(**given: object) -> None:
            await order(api, f"/overrides/{HOT_KEY}", {"seconds": 600.0, **given})

        async def routed_to() -> list[int]:
            """The workers of the key's events in the next whole interval."""
            return list((await api.get(f"/keyspace/{HOT_KEY}")).json()["workers"])

        await say(action="pin", worker=4)
        (loads,) = [interval["loads"] for interval in await intervals(api, 1)]
        assert await routed_to() == [4] and max(loads) == loads[4]  # type: ignore[call-overload, index]
        await say(action="quarantine-worker", worker=1)
        await intervals(api, 1)
        assert await routed_to() == [1]
        await say(action="quarantine-topic")
        await intervals(api, 1)
        deployment.kill("router-0")
        deployment.revive()

        async def back() -> bool:
            try:
                return (await api.get("/readyz")).is_success
            except httpx.TransportError:
                return False

        await deployment.until(back)
        assert (await api.get("/overrides")).json()["items"][0]["action"] == "quarantine-topic", "it is kept"
        await say(action="split", width=3)
        await intervals(api, 1)
        assert len(await routed_to()) == 3
        await say(action="quarantine-topic", seconds=2.0)

        async def ended() -> bool:
            newest = (await api.get("/thresholds/history")).json()["entries"][0]
            return bool(newest["by"] == "end time")

        await deployment.until(ended)
        assert (await api.get("/overrides")).json()["items"] == []
        await intervals(api, 1)
    comparison = await deployment.check()
    assert comparison.equal, comparison
    quarantined = await dead_letters(deployment.settings)
    assert set(quarantined.values()) == {QUARANTINED}
