"""Laws of level-fill in the router: plans inside of intervals, beside the routing, and after a restart."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from keygrouping.grouping.level_fill import LevelFill
from keygrouping.hashing import hash_keys
from keygrouping.measure import lambda_
from keygrouping_local.redis_server import RedisServer
from keygrouping_router import metrics
from keygrouping_router.api import router_app
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import WorkersChange
from keygrouping_router.control.checks import Checks, ticks_of
from keygrouping_router.data.usable import Usable
from keygrouping_router.errors import Refused
from keygrouping_router.knowledge.keyspace import KeyQuery
from keygrouping_router.planning.rounds import DOCUMENT
from keygrouping_router.replica import new_replica
from keygrouping_service.store import Conflict, Store, Unavailable, open_store
from keygrouping_service.store.memory import MemoryStore
from keygrouping_service.testing import until

from .. import planes as doubles
from ..planes import FakeTime, Unsteady, end_interval, new_plane, route, route_batch, settings_of, skewed, usable_of

TICKS = 32
_NO_KEYS = KeyQuery(limit=0)


async def replicas(store: Store, time: FakeTime, count: int, **given: Any) -> list[ControlPlane]:
    values = {"grouping": "level-fill", "sharing": "shared", **given}
    planes = [new_plane(store, time, replica=f"r{number}", **values) for number in range(count)]
    for plane in planes:
        await plane.replica.start()
    for plane in planes:
        await plane.replica.follow()
    return planes


async def a_tick(planes: Sequence[ControlPlane], time: FakeTime, number: int, keys: Sequence[bytes]) -> Any:
    """A 32nd part of an interval passes, in which each replica gets its part of the keys; the loads."""
    time.passed += 10 / TICKS
    loads = np.zeros(10)
    for index, plane in enumerate(planes):
        loads += np.bincount(route(plane, keys[index :: len(planes)], time.passed).workers, minlength=10)
    if number % TICKS:
        await asyncio.gather(*(plane.replica.check(number % TICKS / TICKS) for plane in planes))
    return loads


def seen_alike(planes: Sequence[ControlPlane]) -> bool:
    first = planes[0].replica.active
    return all(
        (plane.replica.epoch, plane.replica.active.widths()) == (first.epoch, first.widths())
        and [plane.replica.active.explain(b"key-%d" % key).candidates[:1] for key in range(30)]
        == [first.explain(b"key-%d" % key).candidates[:1] for key in range(30)]
        for plane in planes
    )


@pytest.mark.parametrize(("count", "sharing"), [(1, "independent"), (1, "shared"), (3, "shared")])
async def test_the_first_seconds_of_a_run_are_balanced_by_plans_inside_of_the_first_interval(
    count: int, sharing: str
) -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(clock=lambda: time.passed), time, count, sharing=sharing)
    await end_interval(planes, time)  # There may have been intervals without events before.
    time.passed = 4.0  # A run begins anywhere in an interval.
    loads = np.zeros(10)
    for number in range(13, TICKS):
        at = await a_tick(planes, time, number, skewed(3000, 0.4, number))
        loads += at
        if number == 18:
            assert lambda_(loads) < 1.05, "after two seconds"
    reports = (await planes[0].plans(20)).entries
    assert [report.part * TICKS for report in reversed(reports)] == [0, 14, 15, 17, 21, 29]
    assert seen_alike(planes)
    assert [(await plane.plans(20)).entries for plane in planes] == [reports] * count


async def test_one_replica_that_finds_a_plan_urgent_gets_one_of_what_all_have_seen() -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(clock=lambda: time.passed), time, 3)
    for number in range(2):
        time.passed += 10
        for place, plane in enumerate(planes):  # The same events at each would look like a stream that drifts.
            route(plane, skewed(6000, 0.0, 3 * number + place), time.passed)
        await end_interval(planes, time)
    before = planes[0].replica.epoch
    active = planes[1].replica.active
    cold = [b"cold-%d" % number for number in range(20_000)]
    owners = active.grouping._arrays.owners  # type: ignore[attr-defined]
    of_one_worker = [cold[i] for i in np.flatnonzero(owners[hash_keys(cold)[:, 0] & (len(owners) - 1)] == 0)]
    for plane in planes:
        route(plane, skewed(1500, 0.0, 1), time.passed)
    route(planes[1], of_one_worker, time.passed)
    time.passed += 10 / TICKS
    assert [plane.replica.active.grouping.urgent for plane in planes] == [False, True, False]  # type: ignore[attr-defined]
    await asyncio.gather(*(plane.replica.check(1 / TICKS) for plane in planes))
    assert planes[0].replica.epoch == before + 1 and seen_alike(planes)
    assert {(await plane.plan()).part for plane in planes} == {1 / TICKS}
    await asyncio.gather(*(plane.replica.check(1.5 / TICKS) for plane in planes))
    assert planes[0].replica.epoch == before + 1, "asked once after each of the checks"


async def test_a_plan_inside_of_an_interval_is_left_out_while_another_is_made_or_the_store_is_away() -> None:
    time = FakeTime()
    store = Unsteady(time)
    (plane,) = await replicas(store, time, 1)
    time.passed = 1.0
    route(plane, skewed(3000, 0.4, 1), 0.0)
    async with plane.replica._planning:
        await plane.replica.check(1 / 8)
    assert plane.replica.epoch == 0
    store.away = True
    with pytest.raises(Unavailable):
        await plane.replica.check(1 / 8)
    assert plane.replica.epoch == 0 and route(plane, skewed(3000, 0.4, 2), 1.0).workers.max() < 10
    store.away = False
    time.passed = 2.6
    await plane.replica.check(1 / 4)
    assert plane.replica.epoch == 1


@pytest.mark.parametrize("count", [1, 2])
async def test_while_the_store_is_away_a_router_plans_if_it_is_alone(count: int) -> None:
    time = FakeTime()
    store = Unsteady(time)
    planes = await replicas(store, time, count)
    for seed in range(3):
        await an_interval(planes, time, seed)
    before, lost, plane = planes[0].replica.epoch, metrics.LOST_ROUNDS._value.get(), planes[0]
    store.away = True
    for _ in range(3):
        time.passed += 10
        route(plane, [b"%d of another stream" % (key % 30) for key in range(5000)], time.passed)
        with contextlib.suppress(Unavailable):
            await plane.replica.end_interval(plane.replica.number + 1)
    made = 3 if count == 1 else 0
    plan, cold = await plane.plan(), owners_of_cold_keys(plane)
    assert plan.epoch == plane.replica.epoch == before + made and plan.round == plane.replica.number - 3 + made
    assert metrics.LOST_ROUNDS._value.get() == lost
    store.away = False
    await plane.replica.follow()
    assert plane.replica.epoch == before + made
    time.passed += 10
    route(plane, [b"%d of another stream" % (key % 30) for key in range(5000)], time.passed)
    await end_interval(planes, time)
    assert {(await each.plan()).epoch for each in planes} == {before + made + 1} and seen_alike(planes)
    assert count > 1 or np.mean(owners_of_cold_keys(plane) != cold) < 0.1, "goes on from the plan made meanwhile"


async def test_a_plan_that_another_one_has_overtaken_is_made_again_upon_that(monkeypatch: pytest.MonkeyPatch) -> None:
    time = FakeTime()
    (plane,) = await replicas(MemoryStore(clock=lambda: time.passed), time, 1, interval=1.0)
    put = plane.replica.store.put
    overtaken: list[str] = []

    async def overtakes(document: str, value: Any, **given: Any) -> Any:
        if not overtaken:
            overtaken.append(document)
            raise Conflict(document, None)
        return await put(document, value, **given)

    monkeypatch.setattr(plane.replica.store, "put", overtakes)
    route(plane, skewed(3000, 0.4, 1), 0.0)
    time.passed = 1.0
    await end_interval([plane], time)
    assert overtaken and plane.replica.epoch == 1


async def test_a_plan_that_takes_longer_than_the_round_is_followed_by_who_made_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = FakeTime()
    (plane,) = await replicas(MemoryStore(clock=lambda: time.passed), time, 1, interval=0.1)
    lead = plane.replica.rounds._lead

    async def slowly(*given: Any) -> None:
        await lead(*given)
        await asyncio.sleep(0.1)

    monkeypatch.setattr(plane.replica.rounds, "_lead", slowly)
    route(plane, skewed(3000, 0.4, 1), 0.0)
    time.passed = 0.05
    await plane.replica.check(0.5)
    assert plane.replica.epoch == 1


async def test_a_change_of_w_after_the_statistics_were_taken_costs_nobody_else_the_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(clock=lambda: time.passed), time, 2, interval=1.0)
    time.passed += 1
    for plane in planes:
        route(plane, skewed(3000, 0.4, 1), time.passed)
    await end_interval(planes, time)
    (first, second), number = (plane.replica for plane in planes), planes[0].replica.number + 1
    publish, stale, before = first.peers.publish, first.active.interim_statistics(), metrics.LOST_ROUNDS._value.get()

    async def meanwhile(*given: Any) -> None:
        await planes[0].set_workers(WorkersChange(workers=12), expected=None, by="auto")
        await second.follow()
        await publish(*given)

    monkeypatch.setattr(first.peers, "publish", meanwhile)
    await first.end_interval(number)
    route(planes[1], skewed(3000, 0.4, 2), time.passed)
    # A router of an older version publishes them all the same.
    name = second.rounds._name(second.active.control, number)
    await second.store.publish(name, "old", {"epoch": 0, "statistics": stale}, 1.0)
    await second.end_interval(number)
    await first.follow()
    plan = await planes[0].plan()
    assert (plan.round, plan.workers, plan.by) == (number, 12, "r1") and seen_alike(planes)
    assert metrics.LOST_ROUNDS._value.get() == before


async def an_interval(planes: Sequence[ControlPlane], time: FakeTime, seed: int) -> None:
    for second in range(5):
        time.passed += 2
        for plane in planes:
            route(plane, skewed(4000, 0.4, 5 * seed + second), time.passed)
    await end_interval(planes, time)


def owners_of_cold_keys(plane: ControlPlane) -> Any:
    owners = plane.replica.active.grouping._arrays.owners  # type: ignore[attr-defined]
    return owners[hash_keys([b"cold-%d" % number for number in range(20_000)])[:, 0] & (len(owners) - 1)]


async def test_other_settings_leave_cold_keys_where_they_are_and_what_was_learned_of_them() -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(clock=lambda: time.passed), time, 2)
    await an_interval(planes, time, 0)
    await planes[0].set_workers(WorkersChange(workers=20), expected=None, by="api")
    for seed in (1, 2):
        await an_interval(planes, time, seed)
    before = owners_of_cold_keys(planes[0])
    await planes[0].set_thresholds({"eps": 0.03}, partial=True, expected=None, by="api")
    await an_interval(planes, time, 3)
    after, plan = owners_of_cold_keys(planes[0]), await planes[0].plan()
    assert plan.round == planes[0].replica.number and seen_alike(planes)
    assert np.mean(after != before) < 0.1 and (plan.details["moved_buckets"] or np.array_equal(after, before))
    assert planes[0].replica.active.grouping._estimates.intervals == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changes",
    [
        [20, 30],
        [20, {"eps": 0.03}, 30],
        [20, 30, *({"eps": number / 100} for number in range(3, 40))],
        [20, 30, 12, 40, 17, 25, 33, 11, 38, 22],
    ],
)
async def test_routers_that_miss_changes_know_cold_keys_where_the_others_do(changes: list[Any]) -> None:
    time = FakeTime()
    store = MemoryStore(clock=lambda: time.passed)
    planes = await replicas(store, time, 2)
    await an_interval(planes, time, 0)
    for change in changes:
        if isinstance(change, int):
            await planes[0].set_workers(WorkersChange(workers=change), expected=None, by="api")
        else:
            await planes[0].set_thresholds(change, partial=True, expected=None, by="api")
    await planes[1].replica.follow()
    (late,) = await replicas(store, time, 1)
    first, second, third = (owners_of_cold_keys(plane) for plane in (*planes, late))
    assert planes[0].replica.active.grouping.workers in (30, 22)
    assert np.array_equal(first, second) and np.array_equal(first, third)


@pytest.mark.parametrize("grouping", ["level-fill", "pkg"])
async def test_a_router_that_has_not_seen_new_partitions_yet_goes_on_with_those_it_knows(grouping: str) -> None:
    time = FakeTime()
    store = MemoryStore(clock=lambda: time.passed)
    (sees,) = await replicas(store, time, 1, grouping=grouping)
    late = new_plane(store, time, 20, grouping=grouping, sharing="shared", replica="late")
    await late.replica.start()
    await sees.set_workers(WorkersChange(workers=30), expected=None, by="api")
    await late.replica.follow()
    assert route(late, skewed(4000, 0.4, 3), 0.0).workers.max() == 19


async def test_plans_are_made_after_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(clock=lambda: time.passed), time, 2)
    for seed in range(2):
        await an_interval(planes, time, seed)
    before = planes[0].replica.epoch
    monkeypatch.setattr(doubles, "START", doubles.START - 3600)
    for seed in range(2, 5):
        await an_interval(planes, time, seed)
        assert (await planes[0].plan()).round == planes[0].replica.number and seen_alike(planes)
    assert planes[0].replica.epoch == before + 3
    monkeypatch.setattr(doubles, "START", doubles.START + 3600)
    await an_interval(planes, time, 5)
    assert planes[0].replica.epoch == before + 4


@pytest.mark.parametrize("broken", ["content", "record"])
async def test_a_plan_in_the_store_that_is_of_no_use_is_told_once_and_the_next_one_takes_its_place(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    time = FakeTime()
    store = MemoryStore(clock=lambda: time.passed)
    (plane,) = await replicas(store, time, 1)
    await an_interval([plane], time, 0)
    entry = await store.get(DOCUMENT)
    assert entry is not None
    content = {**entry.value["content"], "members": [77]}
    bad = {**entry.value, "content": content, "record": {**entry.value["record"], "epoch": 1000}}
    del bad[broken]["moved_keys"]
    await store.put(DOCUMENT, bad, expected=entry.version)
    for _ in range(3):
        await plane.replica.rounds.adopt()
    await an_interval([plane], time, 1)
    told = [record.getMessage() for record in caplog.records]
    assert [
        text.partition(" (plan)")[0].partition(":")[0]
        for text in told
        if "cannot be" in text or "treated as missing" in text
    ] == [
        "the value in the store under 'plan' is invalid and treated as missing",
        *(
            ["the next plan is computed from scratch, as the previous one cannot be applied"]
            if broken == "content"
            else []
        ),
    ]
    assert (await plane.plan()).round == plane.replica.number and (await plane.plan()).hot_keys
    await an_interval([plane], time, 2)
    assert (await plane.plan()).round == plane.replica.number and len(caplog.records) == len(told)


async def test_a_plan_that_nobody_could_follow_is_not_put_into_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    time = FakeTime()
    store = MemoryStore(clock=lambda: time.passed)
    (plane,) = await replicas(store, time, 1)
    await an_interval([plane], time, 0)
    good, plan = await store.get(DOCUMENT), LevelFill.plan
    with monkeypatch.context() as patch:
        patch.setattr(LevelFill, "plan", lambda *given: {**plan(*given), "members": []})
        with pytest.raises(ValueError, match="columns"):
            await an_interval([plane], time, 1)
    assert await store.get(DOCUMENT) == good
    await an_interval([plane], time, 2)
    assert (await plane.plan()).round == plane.replica.number


@pytest.mark.parametrize("sharing", ["independent", "shared"])
async def test_plans_are_made_beside_the_routing(sharing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    plan = LevelFill.plan

    def noted(self: LevelFill, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        threads.add(threading.current_thread())
        return plan(self, statistics)

    time = FakeTime()
    (plane,) = await replicas(MemoryStore(clock=lambda: time.passed), time, 1, sharing=sharing)
    monkeypatch.setattr(LevelFill, "plan", noted)
    for number in range(1, 2 * TICKS):
        await a_tick([plane], time, number, skewed(1000, 0.4, number))
        if number == TICKS:
            await end_interval([plane], time)
    assert plane.replica.epoch >= 6
    assert threads and threading.main_thread() not in threads


@pytest.mark.parametrize("count", [1, 2])
async def test_routers_that_run_plan_inside_of_their_intervals(count: int) -> None:
    store, planes = MemoryStore(), []
    for number in range(count):
        given = settings_of(replica=f"r{number}", grouping="level-fill", sharing="shared", interval=3.0)
        planes.append(ControlPlane(new_replica(given, store, 64), 10_000))
        await planes[-1].replica.start()

    def planned_inside() -> bool:
        for plane in planes:
            route(plane, skewed(500, 0.4, 1), asyncio.get_running_loop().time())
        return (
            any(report.part for report in planes[0].replica.plans.newest_first())
            and len({plane.replica.epoch for plane in planes}) == 1
        )

    async with planes[0].replica.running(), planes[-1].replica.running():
        await until(planned_inside)


@pytest.fixture(params=["file", "redis"])
def reopened(request: pytest.FixtureRequest, application: str, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    if request.param == "file":
        url = (tmp_path / "router.json").as_uri()
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        url = f"redis://{server.address}"
    given = settings_of(store_url=url, application=application)
    yield lambda: open_store(given)


@pytest.mark.parametrize("sharing", ["shared", "independent"])
async def test_a_router_goes_on_with_its_plan_after_a_restart(reopened: Callable[[], Store], sharing: str) -> None:
    time = FakeTime()
    store = reopened()
    (before,) = await replicas(store, time, 1, sharing=sharing)
    for number in range(2):
        for second in range(5):
            time.passed += 2
            route(before, skewed(4000, 0.4, 5 * number + second), time.passed)
        await end_interval([before], time)
    expected = [before.replica.active.explain(b"key-%d" % key) for key in range(1001)]
    await store.close()
    time.passed += 60
    store = reopened()
    (again,) = await replicas(store, time, 1, sharing=sharing)
    found = [again.replica.active.explain(b"key-%d" % key) for key in range(1001)]
    planned = {key for key, entry in enumerate(expected) if entry.share is not None}
    assert again.replica.epoch == before.replica.epoch and planned >= {1000, 0, 1}
    for key in planned:
        assert found[key].candidates == expected[key].candidates and found[key].share == expected[key].share
    assert [each.home for each in found if each.share is None] == [
        expected[key].home for key in range(1001) if found[key].share is None
    ]
    assert not again.replica.active.grouping.urgent, "nothing is planned again"  # type: ignore[attr-defined]
    await store.close()


@pytest.mark.parametrize("changes", [{"workers": 20}, {"grouping_settings": {"eps": 0.03}}])
async def test_a_router_goes_on_from_its_plan_after_a_restart_with_other_settings(changes: dict[str, Any]) -> None:
    time = FakeTime()
    store = MemoryStore(clock=lambda: time.passed)
    (before,) = await replicas(store, time, 1)
    for seed in range(3):
        await an_interval([before], time, seed)
    hot = {key.hash for key in before.replica.active.grouping.hot(100) if key.width > 1}
    time.passed += 60
    again = new_plane(store, time, grouping="level-fill", sharing="shared", **changes)
    await again.replica.start()
    await before.replica.follow()
    owners = owners_of_cold_keys(again)
    assert np.array_equal(owners, owners_of_cold_keys(before)), "as one that was there all the time"
    assert {key.hash for key in again.replica.active.grouping.hot(100) if key.width > 1} >= hot and hot
    assert again.replica.epoch > (await before.plans(1)).entries[0].epoch
    await an_interval([again], time, 3)
    assert (await again.plan()).round == again.replica.number
    assert np.mean(owners_of_cold_keys(again) != owners) < 0.1


@pytest.mark.parametrize("hot", [0.0, 0.5, 0.9])
async def test_the_plan_of_a_single_worker_is_told(hot: float) -> None:
    time = FakeTime()
    (plane,) = await replicas(MemoryStore(clock=lambda: time.passed), time, 1, workers=1)
    transport = httpx.ASGITransport(router_app(plane, settings_of(api_rate=0)))
    light = []
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        for number in range(12):
            time.passed += 10
            route(plane, skewed(4000 if number % 3 else 300, hot, number), time.passed)
            await end_interval([plane], time)
            answer = await client.get("/plan")
            assert answer.status_code == 200
            light.append(answer.json()["filling"]["workers"][0]["light"])
    assert light == pytest.approx([1.0] * 12, abs=0.2) and max(light) > 1


async def test_weights_are_what_is_balanced() -> None:
    time = FakeTime()
    (plane,) = await replicas(MemoryStore(clock=lambda: time.passed), time, 1)
    random = np.random.default_rng(1)
    loads = np.zeros(10)
    for second in range(20):
        time.passed += 1
        usable = usable_of(skewed(5000, 0.3, second))
        weights = random.pareto(3, len(usable.keys)) * 1000
        routed = route_batch(plane, Usable(usable.batch, usable.keys, usable.times, weights), time.passed)
        loads += np.bincount(routed.workers, weights, 10) if second >= 10 else 0
        if second % 10 == 9:
            await end_interval([plane], time)
    assert lambda_(loads) < 1.03
    assert lambda_((await plane.keyspace(_NO_KEYS)).loads) < 1.03


async def test_faster_workers_get_more_from_the_next_plan_on() -> None:
    time = FakeTime()
    (plane,) = await replicas(MemoryStore(clock=lambda: time.passed), time, 1, workers=4)
    shares = []
    for interval in range(3):
        for second in range(10):
            time.passed += 1
            routed = route(plane, skewed(3000, 0.5, 10 * interval + second), time.passed)
        shares.append(np.bincount(routed.workers) / len(routed.workers))
        await end_interval([plane], time)
        if interval == 0:
            change = WorkersChange(workers=4, capacities={"0": 2.0, "2": 0.5, "3": 0.5})
            await plane.set_workers(change, expected=None, by="api")
    assert shares[0] == pytest.approx([0.25] * 4, rel=0.1)
    assert shares[2] == pytest.approx([0.5, 0.25, 0.125, 0.125], rel=0.1)
    assert [worker.load_of_ideal for worker in (await plane.workers()).items[:4]] == pytest.approx([1.0] * 4, abs=0.05)


async def test_the_interval_of_the_plans_can_be_set_like_other_thresholds() -> None:
    time = FakeTime()
    (plane,) = await replicas(MemoryStore(clock=lambda: time.passed), time, 1, interval=5.0)

    def shown(settings: Any) -> dict[str, Any]:
        return {setting.name: (setting.value, setting.default) for setting in settings}

    assert shown((await plane.thresholds()).settings)["interval"] == (5.0, 5.0)
    values: dict[str, Any] = {"interval": 2, "eps": 0.1, "split": "hot-only", "flexible": 0.2, "counters": 64}
    tried = await plane.try_thresholds(values, partial=True)
    assert shown(tried.settings)["interval"] == (2, 5.0) and plane.replica.interval == 5.0
    await plane.set_thresholds(values, partial=True, expected=None, by="api")
    assert plane.replica.interval == 2.0 == (await plane.keyspace(_NO_KEYS)).interval_seconds
    for wrong in (0.01, 4000, None):
        with pytest.raises(Refused, match="interval"):
            await plane.set_thresholds({"interval": wrong}, partial=True, expected=None, by="api")


def test_it_is_asked_once_after_each_part_since_the_first_event() -> None:
    checks = Checks()
    assert not checks.due(100.0, 10.0), "no events yet"
    checks.saw(100.0)
    checks.saw(104.0)
    due = [now for now in np.arange(100, 120, 0.3125).tolist() if checks.due(now, 10.0)]
    assert due == [100.3125, 100.625, 101.25, 102.5, 105.0]
    checks.begin()
    checks.saw(200.0)
    assert checks.due(209.0, 10.0) and not checks.due(209.5, 10.0)
    assert [ticks_of(interval) for interval in (10.0, 1.0, 0.1)] == [32, 10, 1]


async def test_the_store_holds_a_plan_for_each_router_that_plans_alone(
    application: str, redis_server: RedisServer
) -> None:
    time = FakeTime()
    store = open_store(settings_of(store_url=f"redis://{redis_server.address}", application=application))
    planes = await replicas(store, time, 2, sharing="independent")
    for number, plane in enumerate(planes):
        route(plane, skewed(4000, 0.2 + 0.4 * number, 1), 0.0)
    time.passed = 10.0
    await end_interval(planes, time)
    assert [(await plane.plan()).by for plane in planes] == ["r0", "r1"]
    widths = [json.dumps(plane.replica.active.widths()) for plane in planes]
    assert widths[0] != widths[1]
    await store.close()


async def test_plans_move_few_keys_of_a_steady_stream_and_of_one_that_flaps_but_changes_of_w_reshuffle() -> None:
    """What the alert KeygroupingPlanFlapping goes by: level-fill has a plan with an epoch of its own each interval."""
    time = FakeTime()
    (plane,) = await replicas(MemoryStore(clock=lambda: time.passed), time, 1)

    def counted() -> tuple[float, float]:
        return metrics.PLAN_CHANGES._value.get(), metrics.RESHUFFLES._value.get()

    async def figures_of(intervals: Sequence[Sequence[bytes]]) -> tuple[float, float]:
        before = counted()
        for keys in intervals:
            time.passed += 10
            route(plane, keys, time.passed)
            await end_interval([plane], time)
        plans, reshuffles = counted()
        return plans - before[0], reshuffles - before[1]

    assert await figures_of([skewed(6000, 0.1 * (seed % 2), seed) for seed in range(30)]) == (30, 0)
    to_and_fro = [[b"%d of %d" % (key % 20, number % 2) for key in range(6000)] for number in range(30)]
    plans, reshuffles = await figures_of(to_and_fro)
    assert plans == 30 and reshuffles <= 2, "keys keep their workers from the second interval on"
    before = counted()[1]
    for workers in (9, 10):
        await plane.set_workers(WorkersChange(workers=workers), expected=None, by="api")
    assert counted()[1] == before + 2
