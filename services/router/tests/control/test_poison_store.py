"""Whatever stands in the store: a router starts, routes, says what is wrong, and heals with the next good value."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import math
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from keygrouping_local.redis_server import RedisServer
from keygrouping_router import metrics
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import WorkersChange
from keygrouping_router.errors import Refused
from keygrouping_router.knowledge.keyspace import KeyQuery
from keygrouping_router.limits import MOST_EPOCH
from keygrouping_router.scaling.worker_pods import WorkerPods
from keygrouping_service.store import Store, open_store
from redis import Redis

from ..planes import START, FakeTime, end_interval, new_plane, route, settings_of, skewed
from ..scaling.test_worker_pods import FakePods

DEEP = b"[" * 400 + b"]" * 400
RAW = [
    b"",
    b"{",
    b"null",
    b"true",
    b"-7",
    b'"text"',
    b"[]",
    b"{}",
    b"[null]",
    b'{"epoch": {}}',
    b"[" * 100_000,
    DEEP,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b"1e999",
    b"NaN",
    b"123456789012345678901234567890",
    b"\xff\xfe\x00",
    b'"\\ud800"',
    b'{"value": "' + b"x" * 9_000_000 + b'"}',
]
"""Values that are none of any kind."""
BAD: list[Any] = [None, "x", -1, 2**63, 1e300, [], {}, [[1]], [1e300], {"a": {"b": []}}]
"""In place of any member of a good value."""

WRONG_TYPES = (
    ("SET", "text"),
    ("RPUSH", "item"),
    ("SADD", "member"),
    ("ZADD", "1", "member"),
    ("HSET", "field", "text"),
)


def mutated(good: Any) -> Iterator[bytes]:
    """A good value with one of its members gone, or something else in its place."""
    for name in good if isinstance(good, dict) else ():
        yield json.dumps({other: good[other] for other in good if other != name}).encode()
        for bad in BAD:
            yield json.dumps({**good, name: bad}).encode()


class Poisoner:
    """A Redis, and hands that write anything into it."""

    def __init__(self, server: RedisServer) -> None:
        self.prefix = f"t-{uuid.uuid4().hex}"
        self.settings = {"store_url": f"redis://{server.address}", "store_prefix": self.prefix}
        self.redis: Redis = Redis(port=server.port)

    def key(self, kind: str, name: str) -> str:
        return f"{{{self.prefix}}}:{kind}:{name}"

    def document(self, name: str, raw: bytes, version: str | None = None) -> None:
        key = self.key("document", name)
        self.redis.hset(key, "value", raw)
        if version is not None:
            self.redis.hset(key, "version", version)

    def good(self, name: str) -> Any:
        return json.loads(self.redis.hget(self.key("document", name), "value"))  # type: ignore[arg-type]

    def member(self, presence: str, raw: bytes, name: str = "ghost") -> None:
        self.redis.hset(self.key("presence", presence), name, raw)
        now = self.redis.time()
        self.redis.zadd(self.key("presence-ends", presence), {name: (now[0] + 60) * 1000})

    def wrong(self, key: str, command: tuple[str, ...]) -> None:
        self.redis.delete(key)
        name, *rest = command
        self.redis.execute_command(name, key, *rest)  # type: ignore[no-untyped-call]


@pytest.fixture
async def poisoner(redis_server: RedisServer) -> AsyncIterator[Poisoner]:
    poisoner = Poisoner(redis_server)
    yield poisoner
    poisoner.redis.close()


class Running:
    """A router whose time is turned by hand, on the real store."""

    def __init__(self, poisoner: Poisoner, **given: Any) -> None:
        values = {"grouping": "level-fill", "sharing": "shared", "workers": 4, **given}
        self.time = FakeTime()
        self.store: Store = open_store(settings_of(**poisoner.settings))
        self.plane: ControlPlane = new_plane(self.store, self.time, **values)

    async def interval(self, seed: int = 0) -> None:
        routed = route(self.plane, skewed(1000, 0.4, seed), self.time.passed).workers
        assert routed.min() >= 0 and routed.max() < self.plane.replica.active.control.workers
        self.time.passed += 10
        await end_interval([self.plane], self.time)

    async def close(self) -> None:
        await self.store.close()


@pytest.fixture
async def router(poisoner: Poisoner) -> AsyncIterator[Running]:
    """One that has all its values in the store."""
    running = Running(poisoner)
    await running.plane.replica.start()
    for seed in range(2):
        await running.interval(seed)
    await running.plane.set_workers(WorkersChange(workers=5), expected=None, by="api")
    await running.interval(2)
    yield running
    await running.close()


def counted(kind: str) -> float:
    return float(metrics.BAD_STORE_VALUES.labels(kind)._value.get())


async def starts(poisoner: Poisoner, **given: Any) -> ControlPlane:
    """A new router, beside the others, starts and routes."""
    fresh = Running(poisoner, replica=f"new-{uuid.uuid4().hex}", **given)
    await fresh.plane.replica.start()
    assert len(route(fresh.plane, skewed(300, 0.4, 3), 0.0).workers) == 300
    await fresh.plane.replica.peers.leave()
    await fresh.close()
    return fresh.plane


def told(caplog: pytest.LogCaptureFixture, name: str) -> int:
    return sum(f"in the store under '{name}" in record.getMessage() for record in caplog.records)


@pytest.mark.usefixtures("router")
async def test_a_router_starts_whatever_the_control_document_is(
    poisoner: Poisoner, caplog: pytest.LogCaptureFixture
) -> None:
    good = poisoner.good("control")
    poisons = [*RAW, *mutated(good)]
    unusable = 0
    for raw in poisons:
        poisoner.document("control", raw, version="9")
        before = counted("control")
        plane = await starts(poisoner, workers=3, grouping="key")
        if counted("control") > before:
            unusable += 1
            assert plane.replica.active.control.workers == 3, "the environment counts"
    assert unusable > len(poisons) / 2
    assert told(caplog, "control") == unusable, "each by one line"


@pytest.mark.parametrize("version", ["", "x", "-4", "1.5", "1e400", "99999999999999999999", None])
async def test_a_document_without_a_version_is_overwritten(poisoner: Poisoner, version: str | None) -> None:
    poisoner.document("control", b'{"grouping": "pkg", "workers": 2}', version=version)
    plane = await starts(poisoner, workers=3)
    await plane.replica.store._store.close()
    running = Running(poisoner, workers=3)
    await running.plane.replica.start()
    await running.plane.set_workers(WorkersChange(workers=6), expected=None, by="api")
    assert poisoner.good("control")["workers"] == 6
    await running.close()


async def test_a_router_that_knows_the_control_document_puts_it_back_in_place_of_a_bad_one(
    poisoner: Poisoner, router: Running
) -> None:
    for number, raw in enumerate(RAW):
        poisoner.document("control", raw)
        await router.plane.replica.follow()
        assert poisoner.good("control")["workers"] == 5
        await router.interval(number % 3)
    later = await starts(poisoner)
    assert later.replica.active.control.workers == 5, "and whoever comes follows it"


@pytest.mark.parametrize("raw", RAW[:4])
async def test_any_change_replaces_a_bad_control_document(poisoner: Poisoner, raw: bytes) -> None:
    poisoner.document("control", raw, version="41")
    running = Running(poisoner, workers=3)
    await running.plane.replica.start()
    version = (await running.plane.workers()).version
    with pytest.raises(Refused):
        await running.plane.set_workers(WorkersChange(workers=1000), expected=version, by="api")
    assert poisoner.redis.hget(poisoner.key("document", "control"), "value") == raw, "a refused one does not"
    await running.plane.set_workers(WorkersChange(workers=6), expected=version, by="api")
    assert poisoner.good("control")["workers"] == 6
    assert (await running.plane.workers()).version > 41
    await running.close()


async def test_a_bad_plan_is_gone_with_the_next_round(
    poisoner: Poisoner, router: Running, caplog: pytest.LogCaptureFixture
) -> None:
    good = poisoner.good("plan")
    for number, raw in enumerate([*RAW, *mutated(good)]):
        poisoner.document("plan", raw)
        if number % 10 == 0:
            await starts(poisoner)
    assert counted("plan") and told(caplog, "plan")
    epoch = router.plane.replica.epoch
    for column in (
        "owner",
        "home",
        "hashes",
        "shares",
        "width",
        "known",
        "members",
        "taken",
        "room",
        "loads",
        "estimates",
    ):
        for bad in (*BAD, good["content"][column][:-1] if isinstance(good["content"][column], list) else 7):
            content = {**good["content"], column: bad}
            record = {**good["record"], "epoch": epoch + 100}
            poisoner.document("plan", json.dumps({**good, "content": content, "record": record}).encode())
            await router.plane.replica.rounds.adopt()
            assert router.plane.replica.epoch < epoch + 100, (column, bad)
    await router.interval()
    assert poisoner.good("plan")["record"]["by"] == router.plane.replica.name
    assert (await router.plane.plan()).round == router.plane.replica.number


@pytest.mark.parametrize("epoch", [2**53 - 1, MOST_EPOCH + 1])
async def test_an_epoch_that_nobody_has_counted_to_is_refused_wherever_it_stands(
    poisoner: Poisoner, router: Running, caplog: pytest.LogCaptureFixture, epoch: int
) -> None:
    """Routers that went on from it would soon write epochs that no aggregator takes."""
    good = poisoner.good("plan")
    record = {**good["record"], "epoch": epoch}
    poisoner.document("plan", json.dumps({**good, "record": record}).encode())
    poisoner.member("replicas", b'{"epoch": %d}' % epoch, "ghost")
    await router.plane.replica.rounds.adopt()
    await router.plane.replica.peers.look()
    await router.interval()
    assert router.plane.replica.epoch < 1000
    assert router.plane.replica.peers.highest_epoch() < 1000
    assert told(caplog, "plan") and told(caplog, "replicas/ghost")


@pytest.mark.parametrize("presence", ["replicas", "keyspace", "starts"])
async def test_what_a_peer_tells_that_is_none_is_left_out(
    poisoner: Poisoner, router: Running, presence: str, caplog: pytest.LogCaptureFixture
) -> None:
    await router.plane.replica.peers.publish(router.plane.replica.overview.knowledge(), 60)
    raw = poisoner.redis.hget(poisoner.key("presence", presence), router.plane.replica.name)
    good = json.loads(raw)  # type: ignore[arg-type]
    if isinstance(good, dict) and "replica" in good:
        good["replica"] = "ghost"
    poisoner.member("replicas", b'{"epoch": 1}', "other")
    for number, bad in enumerate([*RAW, *mutated(good)]):
        poisoner.member(presence, bad)
        await router.plane.replica.peers.look()
        await router.plane.replica.peers.listen()
        report = await router.plane.keyspace(KeyQuery())
        assert report.model_dump_json() and router.plane.replica.epoch < 2**53
        if number % 10 == 0:
            await starts(poisoner)
    if presence != "starts":
        assert counted(presence) > 10 and told(caplog, f"{presence}/ghost")
    poisoner.member(presence, json.dumps(good).encode())
    await router.plane.replica.peers.look()
    await router.plane.replica.peers.listen()
    if presence == "replicas":
        assert "ghost" in router.plane.replica.peers.alive()
    if presence == "keyspace":
        poisoner.member("replicas", b'{"epoch": 1}')
        await router.plane.replica.peers.look()
        await router.plane.replica.peers.listen()
        assert "ghost" in router.plane.replica.peers.knowledge, "and a good one is taken"


async def test_statistics_of_a_peer_that_are_none_do_not_keep_the_others_from_planning(
    poisoner: Poisoner, router: Running, caplog: pytest.LogCaptureFixture
) -> None:
    control = router.plane.replica.active.control
    good = copy.deepcopy(router.plane.replica.active.interim_statistics())
    assert good is not None
    bad = [b'{"epoch": 0, "statistics": %s}' % raw for raw in mutated(good)]
    bad += mutated({"epoch": 0, "statistics": good})
    for number, raw in enumerate([*RAW, *bad[::5]]):
        following = math.floor((START + router.time.passed + 10) / router.plane.replica.interval)
        poisoner.member(f"round-{control.generation}-{control.workers}-{following}", raw)
        await router.interval(number % 3)
        assert (await router.plane.plan()).round == following, raw[:100]
    assert counted("round") >= len(RAW) - 1
    assert told(caplog, "round-")


@pytest.mark.parametrize("log", ["control-history", "plan-history"])
async def test_bad_entries_of_a_history_are_left_out(poisoner: Poisoner, router: Running, log: str) -> None:
    key = poisoner.key("log", log)
    good = json.loads(poisoner.redis.lindex(key, 0))  # type: ignore[arg-type]
    before = poisoner.redis.llen(key)

    async def shown() -> int:
        if log == "plan-history":
            return len((await router.plane.plans(1000)).entries)
        return len((await router.plane.history(1000)).entries)

    sound = await shown()
    for raw in [*RAW, *mutated(good)]:
        poisoner.redis.lpush(key, raw)
    assert await shown() >= sound == before
    assert counted(log) > len(RAW)
    for command in WRONG_TYPES:
        if command[0] != "RPUSH":
            poisoner.wrong(key, command)
            assert await shown() == 0
            await router.interval()
            other = 9 - router.plane.replica.active.control.workers
            await router.plane.set_workers(WorkersChange(workers=other), expected=None, by="api")
            await router.interval()
    assert await shown() > 0, "and what was of another type gives way to what is written"


async def test_keys_of_another_type_count_as_missing_and_give_way(
    poisoner: Poisoner, router: Running, caplog: pytest.LogCaptureFixture
) -> None:
    control = router.plane.replica.active.control
    for command in WRONG_TYPES:
        following = math.floor((START + router.time.passed + 10) / router.plane.replica.interval)
        presence = f"round-{control.generation}-{control.workers}-{following}"
        for kind, name in (
            ("document", "control"),
            ("document", "plan"),
            ("log", "plan-history"),
            ("presence", "replicas"),
            ("presence-ends", "replicas"),
            ("presence", "starts"),
            ("presence", presence),
            ("presence-ends", presence),
            ("lease", f"{presence}-lead"),
        ):
            poisoner.wrong(poisoner.key(kind, name), command)
        await starts(poisoner)
        await router.plane.replica.follow()
        await router.interval()
        assert router.plane.replica.store.state.ok
        assert poisoner.good("control")["workers"] == 5
        assert (await router.plane.plan()).round == router.plane.replica.number
        assert router.plane.replica.name in router.plane.replica.peers.alive()
    assert told(caplog, "control") >= 1


async def test_what_pods_and_workers_agreed_on_may_be_anything(poisoner: Poisoner, router: Running) -> None:
    pods = FakePods(5)
    keeper = WorkerPods(router.plane.replica, pods, router.plane.replica.store)
    await keeper.look()
    good = poisoner.good("worker-pods")
    for raw in [*RAW, *mutated(good)]:
        poisoner.document("worker-pods", raw)
        await keeper.look()
        assert poisoner.good("worker-pods") == {"uid": "first", "pods": 5, "workers": 5}
    pods.number = 3
    await keeper.look()
    assert (await router.plane.workers()).workers == 3


async def test_the_same_bad_value_is_told_once_and_counted_each_time(
    poisoner: Poisoner, router: Running, caplog: pytest.LogCaptureFixture
) -> None:
    poisoner.member("replicas", b"{}")
    before = counted("replicas")
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            await router.plane.replica.peers.look()
            await asyncio.sleep(0)
    assert counted("replicas") == before + 5
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "the value in the store under 'replicas/ghost' is invalid and treated as missing (replicas): "
        "epoch: Field required; the next write replaces it"
    )
