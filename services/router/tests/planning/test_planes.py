"""Laws of several control planes on one store: one hot set, one epoch, and each goes on when the store is away."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.hashing import hash_key
from keygrouping.measure import lambda_
from keygrouping_local.redis_server import RedisServer
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import GroupingChange, WorkersChange
from keygrouping_router.knowledge.format import knowledge_from_data, knowledge_to_data
from keygrouping_router.knowledge.keyspace import KeyQuery, KeySpaceView
from keygrouping_router.replica import new_replica
from keygrouping_service.store import Store, Unavailable, open_store
from keygrouping_service.store.memory import MemoryStore
from keygrouping_service.testing import until
from prometheus_client import REGISTRY

from ..planes import START, FakeTime, Unsteady, end_interval, new_plane, route, settings_of, skewed

REPLICAS = 3
QUICK_DKG = {"warm_up": 1.0, "teenage_interval": 5.0, "old_interval": 10.0, "check_interval": 5.0}


async def replicas(store: Store, time: FakeTime, **given: Any) -> list[ControlPlane]:
    planes = [new_plane(store, time, replica=f"r{number}", **given) for number in range(REPLICAS)]
    for plane in planes:
        await plane.replica.start()
    return planes


@pytest.fixture(params=["memory", "redis"])
def open_one(request: pytest.FixtureRequest, application: str) -> Iterator[Callable[[FakeTime], Store]]:
    if request.param == "memory":
        yield lambda time: MemoryStore(clock=lambda: time.passed)
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        given = settings_of(store_url=f"redis://{server.address}", application=application)
        yield lambda _: open_store(given)


@pytest.mark.parametrize(
    ("grouping", "given"), [("dkg", QUICK_DKG), ("w-choices", {}), ("mixed", {"tracked_keys": 2000})]
)
async def test_replicas_hold_the_same_plan_after_every_interval_of_a_million_events(
    open_one: Callable[[FakeTime], Store], grouping: str, given: dict[str, Any]
) -> None:
    time, intervals, batch = FakeTime(), 7, 5000
    store = open_one(time)
    planes = await replicas(store, time, grouping=grouping, grouping_settings=given, sharing="shared", interval=10.0)
    epochs, loads = [], np.zeros(10)
    for interval in range(intervals):
        for second in range(10):
            time.passed += 1.0
            for number, plane in enumerate(planes):
                # From the fifth interval on another key is hot; each replica sees traffic of its own.
                keys = skewed(batch, 0.3, 10 * (second % 3) + number, 900 + 100 * (interval // 4))
                workers = route(plane, keys, time.passed).workers
                if interval == intervals - 1:
                    loads += np.bincount(workers, minlength=10)
        await end_interval(planes, time)
        plans = [await plane.plan() for plane in planes]
        assert len({plane.replica.epoch for plane in planes}) == 1
        assert plans[0] == plans[1] == plans[2] or plans[0].round is None
        widths = [plane.replica.active.widths() for plane in planes]
        assert widths[0] == widths[1] == widths[2]
        explained = [
            [plane.replica.active.explain(b"key-%d" % key).candidates for key in range(40)] for plane in planes
        ]
        assert explained[0] == explained[1] == explained[2]
        epochs.append(planes[0].replica.epoch)
    assert epochs == sorted(epochs) and len(set(epochs)) > 1
    reports = [await plane.keyspace(KeyQuery(limit=0)) for plane in planes]
    assert {report.events for report in reports} == {REPLICAS * intervals * 10 * batch}
    assert reports[0].replicas == ["r0", "r1", "r2"]
    if grouping == "w-choices":
        assert lambda_(loads) < 1.05
    assert [entry.epoch for entry in (await planes[0].plans(99)).entries] == sorted(set(epochs[:]) - {0}, reverse=True)
    await store.close()


async def test_a_replica_that_joins_holds_the_plan_of_the_others() -> None:
    time = FakeTime()
    store = MemoryStore(clock=lambda: time.passed)
    planes = await replicas(store, time, grouping="w-choices", sharing="shared")
    for interval in range(2):
        time.passed += 10
        for plane in planes:
            route(plane, skewed(2000, 0.5, interval), time.passed)
        await end_interval(planes, time)
    late = new_plane(store, time, replica="late", grouping="w-choices", sharing="shared")
    await late.replica.start()
    assert late.replica.epoch == planes[0].replica.epoch
    assert late.replica.active.widths() == planes[0].replica.active.widths() != {}


@pytest.mark.parametrize("partition_first", [False, True])
async def test_a_router_that_was_alone_holds_its_plan_again_after_a_restart(partition_first: bool) -> None:
    time = FakeTime()
    store = Unsteady(time)
    before = new_plane(store, time, grouping="w-choices", sharing="shared")
    await before.replica.start()
    await an_interval([before], time, 500)
    await an_interval([before], time, 500)
    widths = before.replica.active.widths()
    assert widths
    time.passed += 60
    again = new_plane(store, time, grouping="w-choices", sharing="shared")
    store.away = partition_first
    await again.replica.start()
    store.away = False
    again.replica.not_below(before.replica.epoch)
    await again.replica.follow()
    assert (again.replica.epoch, again.replica.active.widths()) == (before.replica.epoch, widths)


async def test_independent_replicas_plan_alone() -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(clock=lambda: time.passed), time, grouping="w-choices", sharing="independent")
    time.passed += 10
    for number, plane in enumerate(planes):
        route(plane, [b"%d" % number] * 2000 + [b"%d" % key for key in range(2000)], time.passed)
    await end_interval(planes, time)
    assert len({tuple(plane.replica.active.widths()) for plane in planes}) == REPLICAS
    assert [entry.by for entry in (await planes[1].plans(5)).entries] == ["r1", "r1"]


orders = st.one_of(
    st.tuples(st.just("workers"), st.integers(1, 12)),
    st.tuples(st.just("grouping"), st.sampled_from(["key", "pkg", "dkg", "w-choices", "mixed", "shuffle"])),
    st.tuples(st.just("sharing"), st.sampled_from(["shared", "independent"])),
    st.tuples(st.just("observe"), st.booleans()),
    st.tuples(st.just("route"), st.integers(0, 1)),
    st.tuples(st.just("interval"), st.none()),
    st.tuples(st.just("restart"), st.integers(0, 1)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(orders, min_size=3, max_size=12))
def test_no_epoch_ever_goes_back_whatever_is_ordered(given_orders: list[tuple[str, Any]]) -> None:
    asyncio.run(check_epochs(given_orders))


async def check_epochs(given_orders: list[tuple[str, Any]]) -> None:
    time = FakeTime()
    store = MemoryStore(clock=lambda: time.passed)
    planes = [new_plane(store, time, replica=f"r{number}", grouping="w-choices") for number in range(2)]
    for plane in planes:
        await plane.replica.start()
    committed = [0, 0]
    for number, (order, value) in enumerate(given_orders):
        time.passed += 3.0
        if order == "route":
            route(planes[value], skewed(300, 0.5, number, 50), time.passed)
        elif order == "interval":
            await end_interval(planes, time)
        elif order == "restart":
            planes[value] = new_plane(store, time, replica=f"r{value}", grouping="w-choices")
            await planes[value].replica.start()
            planes[value].replica.not_below(committed[value])
        else:
            await give_order(planes[number % 2], order, value)
            await planes[1 - number % 2].replica.follow()
        epochs = [plane.replica.epoch for plane in planes]
        assert all(now >= before for now, before in zip(epochs, committed, strict=True)), (order, value)
        committed = epochs


async def give_order(plane: ControlPlane, order: str, value: Any) -> None:
    name = (await plane.grouping()).name
    changes = {
        "grouping": {"name": value},
        "sharing": {"name": name, "sharing": value},
        "observe": {"name": name, "observe_only": value},
    }
    if order == "workers":
        await plane.set_workers(WorkersChange(workers=value), expected=None, by="api")
    else:
        await plane.set_grouping(GroupingChange(**changes[order]), expected=None, by="api")


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**6)), min_size=1, max_size=12))
def test_what_replicas_know_merges_to_what_one_router_would_know(batches: list[tuple[int, int]]) -> None:
    asyncio.run(check_merging(batches))


async def check_merging(batches: list[tuple[int, int]]) -> None:
    time = FakeTime()
    whole = new_plane(MemoryStore(), time, grouping="key", tracked_keys=20)
    parts = [new_plane(MemoryStore(), time, grouping="key", tracked_keys=20) for _ in range(3)]
    truth: dict[bytes, int] = {}
    for part, seed in batches:
        keys = skewed(200, 0.2, seed, 100)
        for key in keys:
            truth[key] = truth.get(key, 0) + 1
        route(whole, keys, time.passed)
        route(parts[part], keys, time.passed)
    knowledge = [
        await knowledge_from_data(await knowledge_to_data(part.replica.overview.knowledge())) for part in parts
    ]
    merged = KeySpaceView(knowledge, whole.replica.active.explain, 1, {}, lambda: START)
    alone = KeySpaceView([whole.replica.overview.knowledge()], whole.replica.active.explain, 1, {}, lambda: START)
    assert (merged.events, merged.loads.tolist()) == (alone.events, alone.loads.tolist())
    assert (merged.total_keys, merged.dist_cost) == (alone.total_keys, alone.dist_cost) == (len(truth), 1.0)
    assert merged.lambda_before == alone.lambda_before == alone.lambda_
    entries, _ = await merged.page(KeyQuery(limit=1000))
    by_hash = {hash_key(key): count for key, count in truth.items()}
    for entry in entries:
        assert entry.count is not None and entry.error is not None
        true = by_hash[entry.hash] if entry.name is None else truth[entry.name]
        assert entry.count - entry.error <= true <= entry.count
        assert entry.error <= merged.counts.total / 21 * 3


async def an_interval(planes: list[ControlPlane], time: FakeTime, keys: int) -> None:
    for second in range(5):
        time.passed += 2
        for number, plane in enumerate(planes):
            route(plane, skewed(2000, 0.4, 10 * second + number, keys), time.passed)
    await asyncio.gather(*(suppressed(plane, time) for plane in planes))


async def suppressed(plane: ControlPlane, time: FakeTime) -> None:
    try:
        await end_interval([plane], time)
    except Unavailable:
        return


async def test_without_the_store_each_goes_on_with_its_plan_says_so_and_catches_up() -> None:
    time = FakeTime()
    store = Unsteady(time)
    planes = await replicas(store, time, grouping="w-choices", sharing="shared")
    await an_interval(planes, time, 500)
    await an_interval(planes, time, 500)
    epoch, widths = planes[0].replica.epoch, planes[0].replica.active.widths()
    assert epoch > 0 and widths
    store.away = True
    await an_interval(planes, time, 700)
    for plane in planes:
        assert (plane.replica.epoch, plane.replica.active.widths()) == (epoch, widths), "the last plan"
        state = plane.readiness().store
        assert (state.name, state.state, state.detail) == ("memory", "degraded", "it is away")
        assert (await plane.keyspace(KeyQuery())).events > 0
        assert (await plane.plans(5)).entries[0].epoch == epoch
    store.away = False
    for _ in range(2):
        await an_interval(planes, time, 700)
    assert {plane.readiness().store.state for plane in planes} == {"ok"}
    assert len({plane.replica.epoch for plane in planes}) == 1 and planes[0].replica.epoch > epoch
    assert planes[0].replica.active.widths() == planes[2].replica.active.widths() != widths


async def test_a_start_without_the_store_routes_by_the_environment_and_follows_later() -> None:
    time = FakeTime()
    store = Unsteady(time)
    first = new_plane(store, time, replica="r0", grouping="pkg")
    await first.replica.start()
    await first.set_workers(WorkersChange(workers=7), expected=None, by="api")
    store.away = True
    second = new_plane(store, time, replica="r1", grouping="pkg")
    await second.replica.start()
    assert set(route(second, [b"%d" % n for n in range(500)], 0.0).workers) == set(range(10))
    assert second.readiness().store.state == "degraded"
    store.away = False
    await second.replica.follow()
    assert set(route(second, [b"%d" % n for n in range(500)], 0.0).workers) == set(range(7))


async def turns_of_others(work: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """What the work gives, and how often others got a turn meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    try:
        return await work, turns
    finally:
        counting.cancel()


async def test_what_takes_long_with_many_keys_lets_others_run_in_between() -> None:
    time = FakeTime()
    plane = new_plane(MemoryStore(), time, grouping="key", tracked_keys=5000)
    await plane.replica.start()
    route(plane, [b"key-%d" % number for number in range(5000)], 0.0)
    known = plane.replica.overview.knowledge()
    data, writing = await turns_of_others(knowledge_to_data(known))
    again, reading = await turns_of_others(knowledge_from_data(data))
    assert again.sightings == known.sightings and again.counts.to_data() == known.counts.to_data()
    assert [again.last_seen(hashed) for hashed in known.sightings] == [START] * 5000
    view = KeySpaceView([again], plane.replica.active.explain, 1, {}, lambda: START)
    (entries, total), looking = await turns_of_others(view.page(KeyQuery(limit=1, prefix=b"key-", sort="key")))
    assert (entries[0].name, total) == (b"key-0", 5000)
    assert min(writing, reading, looking) >= 4
    _, ending = await turns_of_others(plane.replica.end_interval(1))
    assert ending >= 2


def lost_rounds() -> float:
    return REGISTRY.get_sample_value("keygrouping_router_lost_rounds_total") or 0.0


async def test_a_leader_that_dies_costs_one_round_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    time, lost = FakeTime(), lost_rounds()
    store = MemoryStore(clock=lambda: time.passed)
    planes = await replicas(store, time, grouping="w-choices", sharing="shared", interval=10.0)

    async def dies(*_: object) -> None:
        raise Unavailable("it dies")

    for plane in planes:
        route(plane, skewed(2000, 0.5, 1), time.passed)
    with monkeypatch.context() as patch:
        for plane in planes:
            patch.setattr(plane.replica.rounds, "_lead", dies)
        time.passed += 10
        await asyncio.gather(*(suppressed(plane, time) for plane in planes))
    assert {plane.replica.epoch for plane in planes} == {0}
    assert lost_rounds() == lost + REPLICAS
    told = [record.getMessage() for record in caplog.records if "no plan arrived in time" in record.getMessage()]
    assert len(told) == REPLICAS - 1, "the leader itself tells that the store can't be used"
    time.passed += 10
    await end_interval(planes, time)
    assert {plane.replica.epoch for plane in planes} == {1} and lost_rounds() == lost + REPLICAS


@pytest.fixture
def own_redis(redis_server: RedisServer, tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that may be killed."""
    del redis_server  # only to be skipped where there is none
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture
async def running(application: str, own_redis: RedisServer) -> AsyncIterator[list[ControlPlane]]:
    """Three planes that run by themselves on a real Redis, with intervals of half a second."""
    async with RunningPlanes(own_redis, application) as planes:
        yield planes


class RunningPlanes:
    """Opens stores and planes of the same application, and closes them."""

    def __init__(self, server: RedisServer, application: str) -> None:
        self._settings = {"store_url": f"redis://{server.address}", "application": application, "store_timeout": 0.3}

    async def __aenter__(self) -> list[ControlPlane]:
        self._stack = AsyncExitStack()
        planes = []
        for number in range(REPLICAS):
            given = settings_of(replica=f"r{number}", grouping="w-choices", interval=0.5, **self._settings)
            store = open_store(given)
            self._stack.push_async_callback(store.close)
            planes.append(ControlPlane(new_replica(given, store, 64), 10_000))
            await planes[-1].replica.start()
            await self._stack.enter_async_context(planes[-1].replica.running())
        return planes

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()


@pytest.mark.long
async def test_a_redis_that_is_killed_frozen_and_started_again_never_blocks_the_routing(
    running: list[ControlPlane], own_redis: RedisServer
) -> None:
    async def keep_routing() -> None:
        for seed in itertools.cycle(range(7)):
            for plane in running:
                route(plane, skewed(500, 0.4, seed, 300), asyncio.get_running_loop().time())
            await asyncio.sleep(0.005)

    def same_plan() -> bool:
        epochs = {plane.replica.epoch for plane in running}
        widths = [plane.replica.active.widths() for plane in running]
        return len(epochs) == 1 and epochs != {0} and widths[0] == widths[1] == widths[2] != {}

    def all_in(state: str) -> bool:
        return all(plane.readiness().store.state == state for plane in running)

    routing = asyncio.create_task(keep_routing())
    try:
        await until(same_plan)
        own_redis.freeze()
        await until(lambda: all_in("degraded"))
        events = running[0].replica.traffic.events
        await until(lambda: running[0].replica.traffic.events > events + 5000)
        own_redis.kill()
        own_redis.start()
        await until(lambda: all_in("ok"))
        await running[0].set_workers(WorkersChange(workers=6), expected=None, by="api")
        await until(lambda: all(plane.replica.active.control.workers == 6 for plane in running))
        await until(same_plan)
    finally:
        routing.cancel()
