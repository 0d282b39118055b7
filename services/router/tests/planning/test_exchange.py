"""Laws of what replicas tell each other inside of an interval."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest
from keygrouping.hashing import hash_key
from keygrouping_local.redis_server import RedisServer
from keygrouping_router import metrics
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import WorkersChange
from keygrouping_router.replica import new_replica
from keygrouping_service.store import Store, Unavailable, open_store
from keygrouping_service.store.memory import MemoryStore
from keygrouping_service.testing import until
from numpy.typing import NDArray

from ..planes import FakeTime, Unsteady, end_interval, new_plane, route, settings_of, skewed

TICKS = 32
WORKERS = 10
INTERVAL = 2.0
EQUAL = np.ones(WORKERS)


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest, application: str) -> AsyncIterator[Store]:
    if request.param == "memory":
        opened: Store = MemoryStore()
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        opened = open_store(settings_of(store_url=f"redis://{server.address}", application=application))
    yield opened
    await opened.close()


async def replicas(store: Store, time: FakeTime, count: int, **given: Any) -> list[ControlPlane]:
    values = {"grouping": "level-fill", "sharing": "shared", "workers": WORKERS, "interval": INTERVAL}
    planes = [new_plane(store, time, **{"replica": f"r{number}", **values, **given}) for number in range(count)]
    for plane in planes:
        await plane.replica.start()
    for plane in planes:
        await plane.replica.follow()
    return planes


def everybody(_number: int, _tick: int) -> bool:
    return True


def nobody(_number: int, _tick: int) -> bool:
    return False


async def an_interval(
    planes: Sequence[ControlPlane],
    time: FakeTime,
    seed: int,
    *,
    tell: Callable[[int, int], bool] = everybody,
    capacities: NDArray[np.float64] = EQUAL,
) -> tuple[float, float]:
    """λ and pairs per key of an interval of a topic that is partitioned by key; `tell`: whether one does, and when."""
    loads, pairs, keys = np.zeros(WORKERS), set(), set()
    for tick in range(1, TICKS + 1):
        time.passed += INTERVAL / TICKS
        for number, plane in enumerate(planes):
            mine = [key for key in skewed(1500, 0.6, TICKS * seed + tick) if hash_key(key) % len(planes) == number]
            workers = route(plane, mine, time.passed).workers
            loads += np.bincount(workers, minlength=WORKERS)
            pairs |= set(zip(mine, workers.tolist(), strict=True))
            keys |= set(mine)
        if tick < TICKS:
            telling = [plane for number, plane in enumerate(planes) if tell(number, tick)]
            await asyncio.gather(*(plane.replica.tell_loads() for plane in telling))
            await asyncio.gather(*(plane.replica.check(tick / TICKS) for plane in planes))
    await end_interval(planes, time)
    fair = capacities / capacities.sum()
    return float((loads / fair).max() / loads.sum()), len(pairs) / len(keys)


def together(planes: Sequence[ControlPlane]) -> bool:
    """Whether all of them level the whole stream; all or none do."""
    (found,) = {plane.replica.active.grouping._together for plane in planes}  # type: ignore[attr-defined]
    return bool(found)


async def test_replicas_with_other_keys_level_the_whole_stream(store: Store) -> None:
    time = FakeTime()
    planes = await replicas(store, time, 3)
    for seed in range(2):
        await an_interval(planes, time, seed)
    assert together(planes)
    figures = [await an_interval(planes, time, seed) for seed in range(2, 5)]  # One alone is up to 0.4 % off by chance.
    lambda_, cost = np.array(figures).mean(axis=0)
    assert lambda_ <= 1.01 and cost <= 1.02


async def test_replicas_that_can_t_tell_each_other_level_their_own_parts() -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(), time, 3)
    for seed in range(2):
        await an_interval(planes, time, seed, tell=nobody)
    assert not together(planes)
    assert (await an_interval(planes, time, 2, tell=nobody))[0] <= 1.02


async def test_a_replica_that_never_tells_leaves_each_with_its_own_part() -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(), time, 3)
    for seed in range(3):
        lambda_, _ = await an_interval(planes, time, seed, tell=lambda number, _: number != 0)
        assert not together(planes)
    assert lambda_ <= 1.02


@pytest.mark.parametrize(("at", "most"), [(1, 1.02), (16, 1.03)])
async def test_a_store_that_goes_away_inside_of_an_interval_costs_little_balance(at: int, most: float) -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(), time, 3)
    for seed in range(2):
        await an_interval(planes, time, seed)
    assert together(planes)
    lambda_, _ = await an_interval(planes, time, 2, tell=lambda _, tick: tick < at)
    assert lambda_ <= most


async def test_workers_of_several_speeds_get_loads_by_them_from_all_replicas_together() -> None:
    time, capacities = FakeTime(), np.array([3.0, 2.0] + [1.0] * 8)
    planes = await replicas(MemoryStore(), time, 3)
    change = WorkersChange(workers=WORKERS, capacities={"0": 3.0, "1": 2.0})
    await planes[0].set_workers(change, expected=None, by="api")
    for seed in range(3):
        await an_interval(planes, time, seed, capacities=capacities)
    assert together(planes)
    lambda_, cost = await an_interval(planes, time, 3, capacities=capacities)
    assert lambda_ <= 1.02 and cost <= 1.02


def name_of(plane: ControlPlane) -> str:
    """Where the reports of this interval stand in the store."""
    control = plane.replica.active.control
    return f"loads-{control.generation}-{control.grouped}-{plane.replica.number}"


async def told(plane: ControlPlane) -> float:
    """All weight that this replica knows of in this interval after the next exchange."""
    await plane.replica.tell_loads()
    return float(plane.replica.active.grouping._swing.all[-1])  # type: ignore[attr-defined]


async def test_a_report_that_a_later_one_overtakes_on_its_way_is_not_heard(store: Store) -> None:
    time = FakeTime()
    planes = await replicas(store, time, 2)
    await an_interval(planes, time, 0)
    name = name_of(planes[0])
    route(planes[1], [b"key-1"] * 5, time.passed)
    await planes[1].replica.tell_loads()
    ((member, late),) = (await store.published(name)).items()
    route(planes[1], [b"key-1"] * 5, time.passed)
    await planes[1].replica.tell_loads()
    assert await told(planes[0]) == 10
    await store.publish(name, member, late, 60)
    assert await told(planes[0]) == 10


async def test_what_a_replica_brought_before_it_began_again_counts_until_the_interval_is_over(store: Store) -> None:
    time = FakeTime()
    planes = await replicas(store, time, 2)
    await an_interval(planes, time, 0)
    route(planes[1], [b"key-1"] * 5, time.passed)
    await planes[1].replica.tell_loads()
    assert await told(planes[0]) == 5
    (again,) = await replicas(store, time, 1, replica="r1")
    route(again, [b"key-1"] * 2, time.passed)
    await again.replica.tell_loads()
    assert await told(planes[0]) == 7
    time.passed += INTERVAL
    await end_interval([planes[0], again], time)
    route(planes[0], [b"key-1"], time.passed)
    assert await told(planes[0]) == 1


async def test_a_replica_that_was_stopped_neither_tells_nor_hears_anything_of_another_interval(store: Store) -> None:
    time = FakeTime()
    planes = await replicas(store, time, 3)
    for seed in range(2):
        await an_interval(planes, time, seed)
    stopped, others = planes[2], planes[:2]
    route(stopped, [b"key-1"] * 100, time.passed)
    for seed in range(2, 4):
        await an_interval(others, time, seed)
    # It goes on where it was: in an interval that is over for the others.
    route(others[0], [b"key-2"], time.passed)
    assert await stopped.replica.tell_loads()
    assert await told(others[0]) == 1
    await end_interval(planes, time)
    for seed in range(4, 9):
        lambda_, _ = await an_interval(planes, time, seed)
    assert together(planes) and lambda_ <= 1.01


def counted() -> float:
    return float(metrics.BAD_STORE_VALUES.labels("loads")._value.get())


async def test_what_stands_in_the_store_and_is_no_report_is_told_and_left_out(store: Store) -> None:
    time = FakeTime()
    planes = await replicas(store, time, 2)
    await an_interval(planes, time, 0)
    name = name_of(planes[0])
    wrong: Any = {"loads": [1.0], "outside": [], "movable": 0}
    bad: Any
    for ghost, bad in enumerate([{}, [], None, {"number": 1, "report": wrong}, {"number": 1, "report": "many"}]):
        await store.publish(name, f"ghost-{ghost}", bad, 60)
    before = counted()
    for plane in planes:
        route(plane, [b"key-1", b"key-2"], time.passed)
    assert await asyncio.gather(*(plane.replica.tell_loads() for plane in planes)) == [True, True]
    assert counted() == before + 10
    swing = planes[0].replica.active.grouping._swing  # type: ignore[attr-defined]
    assert swing.all == (4.0,), "the other's events are known"


@pytest.mark.parametrize("change", ["workers", "interval"])
async def test_what_was_told_before_a_change_is_not_heard_after_it(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(), time, 2)
    await an_interval(planes, time, 0)
    replica, published = planes[0].replica, planes[0].replica.store.published

    async def slowly(*given: Any) -> Any:
        found = await published(*given)
        if change == "workers":
            await planes[0].set_workers(WorkersChange(workers=5), expected=None, by="api")
        else:
            replica.number += 1
        return found

    route(planes[0], [b"key-1"], time.passed)
    monkeypatch.setattr(replica.store, "published", slowly)
    assert not await replica.tell_loads()
    assert replica.active.grouping._swing.all == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", [{"sharing": "independent"}, {"grouping": "w-choices"}])
async def test_nothing_is_told_where_nobody_asks(given: dict[str, Any]) -> None:
    time, store = FakeTime(), MemoryStore()
    planes = await replicas(store, time, 2, **given)
    route(planes[0], [b"key-1"], time.passed)
    assert not await planes[0].replica.tell_loads()
    assert not any(name.startswith("loads-") for name in store._presences)


async def test_while_the_store_is_away_routing_goes_on_by_what_is_known() -> None:
    time = FakeTime()
    store = Unsteady(time)
    planes = await replicas(store, time, 2)
    await an_interval(planes, time, 0)
    store.away = True
    route(planes[0], [b"key-1"] * 10, time.passed)
    with pytest.raises(Unavailable):
        await planes[0].replica.tell_loads()
    assert len(route(planes[0], [b"key-1"] * 10, time.passed).workers) == 10


async def test_routers_that_run_tell_each_other() -> None:
    store, planes = MemoryStore(), []
    for number in range(2):
        given = settings_of(replica=f"r{number}", grouping="level-fill", sharing="shared", interval=2.0)
        planes.append(ControlPlane(new_replica(given, store, 64), 10_000))
        await planes[-1].replica.start()

    def heard() -> bool:
        for plane in planes:
            route(plane, skewed(50, 0.4, 1), asyncio.get_running_loop().time())
        swings = [plane.replica.active.grouping._swing for plane in planes]  # type: ignore[attr-defined]
        return all(swing.all and swing.all[-1] > swing.own[-1] for swing in swings)

    async with planes[0].replica.running(), planes[1].replica.running():
        await until(heard)


async def test_nothing_is_told_or_planned_of_an_interval_that_is_not_counted_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between its boundary and the moment at which the grouping begins to count it, the loop has its turns."""
    time, store = FakeTime(), MemoryStore()
    planes = await replicas(store, time, 2)
    await an_interval(planes, time, 0)
    replica, before = planes[0].replica, planes[0].replica.number
    route(planes[0], [b"key-1"] * 10, time.passed)
    monkeypatch.setattr(replica.active, "wants_plan", lambda *_: pytest.fail("a plan of the wrong interval"))
    time.passed += INTERVAL
    ending = asyncio.create_task(replica.end_interval(before + 1))
    await asyncio.sleep(0)
    assert replica.number == before + 1
    assert replica.active.grouping._arrays.mass == 10, "those of the interval before"  # type: ignore[attr-defined]
    heard, _ = await asyncio.gather(replica.tell_loads(), replica.check(1 / TICKS))
    assert not heard and not await store.published(name_of(planes[0]))
    await ending
    route(planes[0], [b"key-1"] * 3, time.passed)
    assert await told(planes[0]) == 3


async def test_no_plan_inside_of_an_interval_is_made_of_the_counts_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    time = FakeTime()
    planes = await replicas(MemoryStore(), time, 2)
    await an_interval(planes, time, 0)
    replica = planes[0].replica

    async def called_late(*_: Any) -> bool:
        replica.number += 1
        return True

    monkeypatch.setattr(replica.rounds, "_is_called", called_late)
    monkeypatch.setattr(replica.active, "interim_statistics", lambda: pytest.fail("those of the next interval"))
    route(planes[0], [b"key-1"], time.passed)
    await replica.check((TICKS - 1) / TICKS)


async def test_a_member_whose_reports_are_none_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    time, store = FakeTime(), MemoryStore()
    planes = await replicas(store, time, 2)
    for _ in range(2):
        time.passed += INTERVAL
        await end_interval(planes, time)
        await store.publish(name_of(planes[0]), "ghost", {"number": 1, "report": {"loads": [1.0]}}, 60)
        before = counted()
        assert await planes[0].replica.tell_loads()
        assert counted() == before + 1
    assert [record.getMessage() for record in caplog.records if "ghost" in record.getMessage()] == [
        "the value in the store under 'loads/ghost' is invalid and treated as missing (loads): "
        "no loads of as many workers; the next write replaces it"
    ]
