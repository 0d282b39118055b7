"""Laws of the control plane: what it tells is true, and what is ordered happens between two batches."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from time import sleep
from typing import Any

import numpy as np
import pytest
from keygrouping.grouping import create, live_names
from keygrouping.hashing import hash_keys
from keygrouping.measure import lambda_
from keygrouping_router import metrics
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import (
    GroupingChange,
    IntervalReport,
    OverrideChange,
    ServerEvent,
    ShadowChange,
    ShadowGrouping,
    WorkersChange,
)
from keygrouping_router.control.feed import FeedEvent
from keygrouping_router.errors import Degraded, Refused, Stale, Unknown
from keygrouping_router.knowledge import trial
from keygrouping_router.knowledge.keyspace import KeyQuery
from keygrouping_router.replica import BY_AUTO, new_replica
from keygrouping_router.scaling.worker_stage import WorkerStage
from keygrouping_service.store.memory import MemoryStore

from .planes import (
    START,
    FakeTime,
    Unsteady,
    end_interval,
    new_plane,
    route,
    route_batch,
    settings_of,
    skewed,
    usable_of,
)


async def started(time: FakeTime | None = None, **settings: Any) -> ControlPlane:
    plane = new_plane(MemoryStore(), time or FakeTime(), **settings)
    await plane.replica.start()
    return plane


async def test_how_even_loads_are_is_not_known_before_there_are_any() -> None:
    time = FakeTime()
    plane = new_plane(MemoryStore(), time, workers=3, grouping="key")
    await plane.replica.start()
    for _ in range(2):
        workers, report = await plane.workers(), await plane.keyspace(KeyQuery())
        assert workers.model_dump(by_alias=True)["lambda"] is None
        assert (report.lambda_, report.std_dev, report.lambda_before) == (None, None, None)
        assert report.least_share is None and workers.least_share is None
        await end_interval([plane], time)
    route(plane, [b"one"] * 9, time.passed)
    await end_interval([plane], time)
    assert (await plane.workers()).lambda_ == (await plane.keyspace(KeyQuery())).lambda_ == 3.0
    assert (await plane.workers()).least_share == (await plane.keyspace(KeyQuery())).least_share == 0.0


async def test_the_keyspace_tells_the_truth_of_the_last_interval() -> None:
    time = FakeTime()
    plane = await started(time, grouping="w-choices", workers=5)
    keys = skewed(20_000, 0.5, 1, 300)
    time.passed = 3.0
    workers = route(plane, keys, time.passed).workers
    time.passed = 10.0
    await end_interval([plane], time)
    loads = np.bincount(workers, minlength=5)
    before = np.bincount(create("key", 5).route_batch(hash_keys(keys), None, 0.0), minlength=5)
    report = await plane.keyspace(KeyQuery(limit=5))
    assert (report.grouping, report.workers, report.events, report.replicas) == ("w-choices", 5, 20_000, ["r0"])
    assert report.loads == loads.tolist()
    assert (report.lambda_, report.lambda_before) == (lambda_(loads), lambda_(before))
    assert report.total_keys == report.tracked_keys == report.total == len(set(keys))
    assert report.dist_cost == len(set(zip(keys, workers.tolist(), strict=True))) / len(set(keys))
    assert [entry.count for entry in report.keys] == sorted(map(keys.count, set(keys)), reverse=True)[:5]
    top = report.keys[0]
    assert (top.key, top.width, top.hot, sorted(top.workers)) == ("key-300", 5, True, [0, 1, 2, 3, 4])
    assert top.first_seen is not None and top.first_seen.timestamp() == START + 3
    assert top.hot_since is not None and top.hot_since.timestamp() == START + 3
    assert report.model_dump_json(), "what is built without checks is of the shape"
    assert type(report).model_validate_json(report.model_dump_json()) == report


async def test_it_is_known_since_when_a_key_is_hot_that_became_so_inside_of_an_interval() -> None:
    time = FakeTime()
    plane = await started(time, grouping="level-fill", workers=5)
    time.passed = 3.0
    route(plane, skewed(20_000, 0.5, 1, 300), time.passed)
    for time.passed in (3.0, 4.5):
        (top,) = (await plane.keyspace(KeyQuery(limit=1))).keys
        assert top.hot and top.hot_since is not None and top.hot_since.timestamp() == START + 3


async def test_all_that_is_told_of_a_key_agrees_on_its_age() -> None:
    time = FakeTime()
    plane = await started(time, grouping="level-fill", workers=5)
    time.passed = 3.0
    route(plane, skewed(20_000, 0.5, 1, 300), time.passed)
    time.passed = 8.0
    route(plane, [b"another"], time.passed)
    key = await plane.key(b"key-300", None)
    (top,) = (await plane.keyspace(KeyQuery(limit=1))).keys
    assert "widened 5.0 s ago" in key.why
    assert key.hot_since == top.hot_since and key.hot_since is not None and key.hot_since.timestamp() == START + 3


async def test_keys_are_found_by_prefix_space_and_order() -> None:
    time = FakeTime()
    plane = await started(time, grouping="w-choices", workers=5)
    for number in range(30):
        time.passed += 1
        route(plane, [b"key-%d" % number] * (10 + number) + [b"\xff\x00", b"hot"] * 50, time.passed)

    async def found(**query: Any) -> list[str | None]:
        return [entry.key for entry in (await plane.keyspace(KeyQuery(**query))).keys]

    assert await found(limit=3, prefix=b"key-") == ["key-29", "key-28", "key-27"]
    assert await found(limit=2, offset=2, prefix=b"key-") == ["key-27", "key-26"]
    assert await found(limit=2, prefix=b"key-", sort="key") == ["key-0", "key-1"]
    assert await found(limit=2, prefix=b"key-", sort="first_seen") == ["key-29", "key-28"]
    assert await found(limit=3, sort="last_seen", prefix=b"key-") == ["key-29", "key-28", "key-27"]
    assert set(await found(limit=2, sort="width")) == {"hot", None}
    assert set(await found(space="head")) == {"hot", None}
    assert await found(prefix=b"\xff") == [None]
    assert (await plane.keyspace(KeyQuery(limit=0, prefix=b"key-"))).total == 30


async def test_a_key_is_explained_whether_it_was_seen_or_not() -> None:
    plane = await started(grouping="pkg", workers=5)
    route(plane, [b"a"] * 10, 0.0)
    seen, unseen = await plane.key(b"a", None), await plane.key(b"\xfe", None)
    assert (seen.count, seen.width, seen.hot, len(seen.candidates)) == (10, 2, False, 2)
    assert (unseen.count, unseen.share, unseen.first_seen, unseen.key_base64) == (None, None, None, "_g")
    assert "least loaded" in unseen.why
    assert (await plane.key(b"a", "r0")).count == 10
    with pytest.raises(Unknown, match="no router is called 'r9'; known are r0"):
        await plane.key(b"a", "r9")


async def test_a_grouping_that_looks_at_no_key_is_counted_all_the_same() -> None:
    plane = await started(grouping="shuffle", workers=3)
    route(plane, [b"a"] * 6, 0.0)
    report = await plane.keyspace(KeyQuery())
    assert report.loads == [2, 2, 2] and report.lambda_before == 3.0
    assert [(entry.key, entry.width, entry.hot) for entry in report.keys] == [("a", 3, False)]


async def test_an_order_holds_from_the_next_batch_on_and_is_in_the_history() -> None:
    plane, keys = await started(grouping="key"), skewed(5000, 0.5, 1)
    route(plane, keys, 0.0)
    await plane.set_workers(WorkersChange(workers=3), expected=1, by="api")
    assert set(route(plane, keys, 1.0).workers) == {0, 1, 2}
    grouping = await plane.set_grouping(GroupingChange(name="w-choices"), expected=None, by="api")
    loads = np.bincount(route(plane, keys * 4, 2.0).workers)
    assert lambda_(loads) < 1.1
    thresholds = await plane.set_thresholds({"threshold": 0.5}, partial=True, expected=grouping.version, by="api")
    assert {entry.name: entry.value for entry in thresholds.settings}["threshold"] == 0.5
    assert plane.replica.active.explain(b"key-1000").width == 3, "what was learned is kept"
    assert [entry.what for entry in (await plane.history(9)).entries] == ["thresholds", "grouping", "workers"]
    epochs = [entry.epoch for entry in (await plane.plans(9)).entries]
    assert epochs == sorted(epochs, reverse=True) and len(epochs) == 4
    assert (await plane.plan()).epoch == plane.replica.epoch == epochs[0]


async def test_the_plan_in_force_has_the_epoch_in_force_whatever_that_came_by() -> None:
    store, time = MemoryStore(), FakeTime()
    plane = new_plane(store, time, grouping="w-choices", sharing="shared")
    await plane.replica.start()
    route(plane, skewed(2000, 0.5, 1), 0.0)
    time.passed = 10.0
    await end_interval([plane], time)
    made = await plane.plan()
    assert made.epoch == plane.replica.epoch and made.round is not None
    plane.replica.not_below(made.epoch + 7)
    assert await plane.plan() == made.model_copy(update={"epoch": made.epoch + 7})
    again = new_plane(store, time, grouping="w-choices", sharing="shared")
    again.replica.not_below(made.epoch)
    assert ((await again.plan()).epoch, (await again.plan()).round) == (made.epoch, None)
    await again.replica.start()
    assert (await again.plan(), again.replica.epoch) == (made, made.epoch), "the plan came after its epoch"
    again.replica.not_below(made.epoch - 1)
    assert await again.plan() == made
    await again.set_workers(WorkersChange(workers=5), expected=None, by="api")
    assert ((await again.plan()).epoch, (await again.plan()).round) == (again.replica.epoch, None), (
        "that was for other workers"
    )


async def test_orders_that_cannot_be_carried_out_change_nothing() -> None:
    time = FakeTime()
    store = Unsteady(time)
    plane = new_plane(store, time, most_workers=12)
    await plane.replica.start()
    before = (await plane.grouping(), await plane.workers(), await plane.thresholds())
    with pytest.raises(Refused, match="at most 12"):
        await plane.set_workers(WorkersChange(workers=13), expected=None, by="api")
    with pytest.raises(Refused):
        await plane.try_thresholds({"warm_up": "soon"}, partial=True)
    with pytest.raises(Stale):
        await plane.set_grouping(GroupingChange(name="key"), expected=7, by="api")
    store.away = True
    with pytest.raises(Degraded):
        await plane.set_shadow(ShadowChange(groupings=[]), expected=None, by="api")
    assert (await plane.grouping(), await plane.workers(), await plane.thresholds()) == before


async def test_every_grouping_is_described_and_can_be_switched_to() -> None:
    plane = await started(grouping="key", workers=4)
    for available in (await plane.grouping()).available:
        assert available.meaning and "\n" not in available.meaning
        report = await plane.set_grouping(GroupingChange(name=available.name), expected=None, by="api")
        assert report.name == available.name
        assert len(route(plane, skewed(300, 0.5, 1, 50), 0.0).workers) == 300
        assert (await plane.keyspace(KeyQuery())).model_dump_json()
        assert (await plane.key(b"key-1", None)).model_dump_json()
        assert (await plane.thresholds()).model_dump_json()


async def test_what_is_only_observed_is_routed_by_key_hash() -> None:
    plane, keys = await started(grouping="w-choices", observe_only=True, workers=4), skewed(4000, 0.5, 1)
    await plane.set_shadow(ShadowChange(groupings=[ShadowGrouping(name="pkg")], sample=1.0), expected=None, by="api")
    workers = route(plane, keys, 0.0).workers
    assert (workers == create("key", 4).route_batch(hash_keys(keys), None, 0.0)).all()
    report = await plane.shadow()
    assert [(result.name, result.in_force) for result in report.run] == [
        ("key", True),
        ("w-choices", False),
        ("pkg", False),
    ]
    assert report.sampled_events == 4000 and report.run[1].lambda_ < 1.3 < report.run[0].lambda_
    assert (await plane.grouping()).observe_only and (await plane.grouping()).name == "w-choices"


async def test_a_dry_run_tells_and_changes_nothing() -> None:
    plane = await started(grouping="w-choices", workers=4, grouping_settings={"threshold": 2.0})
    await plane.set_shadow(ShadowChange(groupings=[], sample=1.0), expected=None, by="api")
    route(plane, skewed(20_000, 0.3, 1), 0.0)
    dry = await plane.try_thresholds({"threshold": 0.05}, partial=True)
    assert (dry.changes.hot_keys.after or 0) > (dry.changes.hot_keys.before or 0)
    assert {entry.name: entry.value for entry in dry.settings}["threshold"] == 0.05
    wider = await plane.try_workers(WorkersChange(workers=20))
    assert (wider.changes.lambda_.after or 0) > (wider.changes.lambda_.before or 0)
    assert (await plane.workers()).workers == 4
    assert {entry.name: entry.value for entry in (await plane.thresholds()).settings}["threshold"] == 2.0


async def test_dry_runs_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, under_way, seen = await started(), threading.Lock(), []
    compare = trial.compare

    def alone(*given: Any) -> trial.Changes:
        seen.append(under_way.acquire(blocking=False))
        try:
            sleep(0.01)
            return compare(*given)
        finally:
            under_way.release()

    monkeypatch.setattr(trial, "compare", alone)
    await asyncio.gather(*(plane.try_workers(WorkersChange(workers=workers)) for workers in (2, 3, 4)))
    assert seen == [True] * 3


async def test_a_comparison_that_has_ended_leaves_no_metric() -> None:
    time = FakeTime()
    plane = await started(time)
    await plane.set_shadow(ShadowChange(groupings=[ShadowGrouping(name="pkg")], sample=1.0), expected=None, by="api")
    route(plane, skewed(2000, 0.5, 1), 0.0)
    time.passed = 10.0
    await end_interval([plane], time)

    def shown() -> list[str]:
        (metric,) = metrics.SHADOW_IMBALANCE.collect()
        return [sample.labels["grouping"] for sample in metric.samples]

    assert shown() == ["pkg"]
    twins = [ShadowGrouping(name="pkg", settings={"choices": choices}) for choices in (2, 3)]
    await plane.set_shadow(ShadowChange(groupings=twins), expected=None, by="api")
    route(plane, skewed(2000, 0.5, 1), 10.0)
    time.passed = 20.0
    await end_interval([plane], time)
    assert shown() == ["pkg", "pkg-2"]
    await plane.set_shadow(ShadowChange(groupings=[]), expected=None, by="api")
    assert shown() == []


async def test_an_interval_ends_once_however_early_it_is_woken_and_whatever_the_clock_is_set_to() -> None:
    time = FakeTime()
    core = (await started(time)).replica
    first = core.number
    time.passed = 9.9999
    await core._end()
    assert core.number == first and 0 < core._until_boundary() < 0.001
    for now, number in ((10.0, first + 1), (-3600.0, first - 360)):
        time.passed = now
        assert core._until_boundary() == 0
        await core._end()
        assert core.number == number and core._until_boundary() == pytest.approx(10)


class Stage:
    """A worker stage that says what it is told to."""

    def __init__(self) -> None:
        self.lags: Mapping[int, int] = {}
        self.members = 0
        self.away = False

    async def look(self) -> WorkerStage:
        if self.away:
            raise TimeoutError("the broker is away")
        return WorkerStage(self.lags, self.members)

    async def close(self) -> None:
        pass


async def plane_with(stage: Stage, time: FakeTime, **settings: Any) -> ControlPlane:
    plane = ControlPlane(
        new_replica(settings_of(**settings), MemoryStore(), 8, stage=stage, times=time.times()), 10_000
    )
    await plane.replica.start()
    return plane


async def test_workers_drain_and_lags_are_told() -> None:
    stage, time = Stage(), FakeTime()
    plane = await plane_with(stage, time, workers=3, grouping="shuffle")
    assert (await plane.workers()).total_lag is None
    stage.lags = {**dict.fromkeys(range(8), 0), 1: 5, 4: 7}
    await plane.replica.watch_workers()
    route(plane, [b"k"] * 300, 0.0)
    change = WorkersChange(workers=3, capacities={"0": 2.0})
    await plane.set_workers(change, expected=None, by="api")
    route(plane, [b"k"] * 300, 0.0)
    time.passed += 1
    report = await plane.workers()
    assert (report.workers, report.mode, report.max_workers, report.total_lag) == (3, "fixed", 8, 12)
    assert [item.state for item in report.items] == ["active"] * 3 + ["unused", "draining"] + ["unused"] * 3
    assert [item.lag for item in report.items] == [0, 5, 0, 0, 7, 0, 0, 0]
    assert [item.load_of_ideal for item in report.items[:3]] == pytest.approx([2 / 3, 4 / 3, 4 / 3])
    stage.away = True
    await plane.replica.watch_workers()
    assert {item.lag for item in (await plane.workers()).items} == {None}


async def test_with_auto_w_follows_more_workers_at_once_and_fewer_after_the_stabilization_window() -> None:
    stage, time = Stage(), FakeTime()
    plane = await plane_with(stage, time, workers=3, auto_grace=30)

    async def look(members: int, seconds: float) -> int:
        time.passed += seconds
        stage.members = members
        await plane.replica.watch_workers()
        return (await plane.workers()).workers

    assert await look(5, 0) == 3, "fixed"
    await plane.set_workers(WorkersChange(workers="auto"), expected=None, by="api")
    assert [await look(members, 2) for members in (5, 6, 4, 5, 6)] == [5, 6, 6, 6, 6], "a restart of one after another"
    assert [await look(members, 14) for members in (4, 5, 4, 4)] == [6, 6, 6, 5], "the most there were meanwhile"
    assert [await look(0, 20) for _ in range(4)] == [4, 4, 4, 4], "none: it is not a group that runs them"
    assert await look(99, 2) == 8
    assert {entry.by for entry in (await plane.history(2)).entries} == {BY_AUTO}
    await plane.set_workers(WorkersChange(workers=2), expected=None, by="api")
    assert [await look(6, 2) for _ in range(2)] == [2, 2], "fixed again"


async def test_partitions_that_are_added_are_noticed() -> None:
    stage, time, store = Stage(), FakeTime(), MemoryStore()
    wider = new_plane(store, time, workers=8)
    await wider.replica.start()
    await wider.set_workers(WorkersChange(workers=12), expected=None, by="api")
    plane = ControlPlane(new_replica(settings_of(workers=8), store, 8, stage=stage, times=time.times()), 10_000)
    await plane.replica.start()
    assert ((await plane.workers()).workers, (await plane.workers()).max_workers) == (8, 8)
    stage.lags = dict.fromkeys(range(10), 0)
    await plane.replica.watch_workers()
    report = await plane.workers()
    assert (report.workers, report.max_workers, len(report.items)) == (10, 10, 10), "as many as were wanted, or nearly"
    assert set(route(plane, skewed(2000, 0.0, 1), 0.0).workers) == set(range(10))
    stage.lags = dict.fromkeys(range(16), 0)
    await plane.replica.watch_workers()
    assert (await plane.workers()).workers == 12
    await plane.set_workers(WorkersChange(workers=16), expected=None, by="api")


async def test_capacities_renew_what_heeds_them_and_nothing_else() -> None:
    plane = await started(grouping="w-choices", workers=4)
    groupings = [ShadowGrouping(name="consistent"), ShadowGrouping(name="pkg")]
    await plane.set_shadow(ShadowChange(groupings=groupings, sample=1.0), expected=None, by="api")
    route(plane, skewed(2000, 0.5, 1), 0.0)
    core = plane.replica
    routing, (heeds, other), epoch = core.active.grouping, core.traffic.shadow.candidates, plane.replica.epoch
    await plane.set_workers(WorkersChange(workers=4, capacities={"0": 2.0}), expected=None, by="api")
    assert (core.active.grouping, plane.replica.epoch) == (routing, epoch)
    renewed, kept = core.traffic.shadow.candidates
    assert kept is other and renewed.rehearsal is not heeds.rehearsal and renewed.used == {"capacities": [2.0]}
    await plane.set_shadow(ShadowChange(groupings=groupings[1:]), expected=None, by="api")
    comparison = core.traffic.shadow
    await plane.set_workers(WorkersChange(workers=4, capacities={"0": 3.0}), expected=None, by="api")
    assert core.traffic.shadow is not comparison, "loads are judged by other capacities from now on"
    assert core.traffic.shadow.candidates == [kept]
    await plane.set_grouping(GroupingChange(name="consistent"), expected=None, by="api")
    epoch = plane.replica.epoch
    await plane.set_workers(WorkersChange(workers=4, capacities={}), expected=None, by="api")
    assert plane.replica.epoch > epoch and core.active.control.routing_settings == {}


@pytest.mark.parametrize(
    ("grouping", "order"),
    [
        ("level-fill", {"capacities": {"0": 4.0}}),
        ("level-fill", {"thresholds": {"capacities": [4.0]}}),
        ("key", {"capacities": {"0": 4.0}}),
    ],
)
async def test_loads_are_judged_by_capacity_wherever_they_are_told(grouping: str, order: dict[str, Any]) -> None:
    time = FakeTime()
    plane = await started(time, grouping=grouping, workers=4)
    shadows = [ShadowGrouping(name="level-fill"), ShadowGrouping(name="shuffle")]
    await plane.set_shadow(ShadowChange(groupings=shadows), expected=None, by="api")
    if "capacities" in order:
        await plane.set_workers(WorkersChange(workers=4, capacities=order["capacities"]), expected=None, by="api")
    else:
        await plane.set_thresholds(order["thresholds"], partial=True, expected=None, by="api")
    for number in range(40):
        time.passed += 1
        route(plane, skewed(4000, 0.2, number), time.passed)
        if number % 10 == 9:
            await end_interval([plane], time)
    report, workers = await plane.keyspace(KeyQuery()), await plane.workers()
    due = np.array([4, 1, 1, 1]) / 7
    expected = max(np.array(report.loads) / sum(report.loads) / due)
    assert report.lambda_ == pytest.approx(expected) == workers.lambda_
    assert workers.lambda_ == pytest.approx(max(item.load_of_ideal for item in workers.items[:4]))
    assert [item.capacity for item in workers.items[:4]] == [4, 1, 1, 1]
    assert shown(metrics.IMBALANCE) == pytest.approx(expected)
    least = pytest.approx(min(item.load_of_ideal for item in workers.items[:4]))
    assert report.least_share == least == workers.least_share
    assert shown(metrics.LEAST_SHARE) == least
    last = [key for number in range(30, 40) for key in skewed(4000, 0.2, number)]
    before = create("key", 4).route_batch(hash_keys(last), None, 0.0)
    assert report.lambda_before == pytest.approx(lambda_(np.bincount(before, minlength=4), [4, 1, 1, 1]))
    assert shown(metrics.IMBALANCE_BEFORE) == pytest.approx(report.lambda_before)
    in_force, level, even = (await plane.shadow()).groupings
    assert in_force.lambda_ == pytest.approx(expected)
    assert even.lambda_ == pytest.approx(7 / 4, rel=0.01), "a quarter each, and so too much for three of them"
    if grouping == "level-fill":
        assert (report.lambda_ or 9) < 1.05 and (report.std_dev or 9) < 1.5
    if "capacities" in order:
        assert level.lambda_ < 1.05
    dry = await plane.try_workers(WorkersChange(workers=4, capacities=dict.fromkeys("0123", 1.0)))
    assert dry.changes.lambda_.before == pytest.approx(report.lambda_, rel=0.03)


def shown(metric: Any) -> float:
    return float(metric._value.get())


async def test_events_tell_of_intervals_plans_and_changes_and_of_what_was_missed() -> None:
    time = FakeTime()
    plane = await started(time, grouping="w-choices")
    feed = plane.events(None)
    first = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0)
    for _ in range(2):
        time.passed += 10
        route(plane, skewed(2000, 0.5, 1), time.passed)
        await end_interval([plane], time)
    await plane.set_workers(WorkersChange(workers=5), expected=None, by="me")
    events = [await first] + [await anext(feed) for _ in range(4)]
    assert [event.kind for event in events] == ["plan", "interval", "interval", "plan", "control"]
    report = events[1].data
    assert isinstance(report, IntervalReport) and report.hot[0].key == "key-1000" and report.events == 2000
    assert all(event.data.model_dump_json() for event in events)
    again = plane.events(events[1].id)
    assert [await anext(again) for _ in range(3)] == events[2:]
    changed = plane.events(events[2].id)
    assert [(await anext(changed)).kind for _ in range(2)] == ["plan", "control"]
    newest = await anext(plane.events(None))
    assert (newest.kind, newest.id) == ("interval", events[2].id)


async def collected(events: AsyncIterator[ServerEvent]) -> list[ServerEvent]:
    return [event async for event in events]


async def test_a_listener_that_is_too_slow_is_cut_off_and_nobody_else() -> None:
    plane = await started()
    slow, quick = plane.events(None), plane.events(None)
    slow_task, quick_task = asyncio.ensure_future(anext(slow)), asyncio.create_task(collected(quick))
    await asyncio.sleep(0)
    for number in range(150):
        plane.replica.feed.publish(FeedEvent("plan", plane.replica.plans.newest(), number))
        await asyncio.sleep(0)
    await slow_task
    assert len(await collected(slow)) < 150
    plane.replica.feed.close()
    assert len(await quick_task) == 150


class Partitions:
    """Input partitions that are as they are told to be."""

    def __init__(self, ready: bool, lags: Mapping[int, int | None]) -> None:
        self.ready = ready
        self.lags = lags


async def test_readiness_is_about_the_partitions_and_not_the_store() -> None:
    plane = await started(max_batch=100)
    assert plane.readiness().status == "starting"
    plane.watch(Partitions(True, {1: 60, 0: 50}))
    ready = plane.readiness()
    assert (ready.status, ready.assigned, ready.caught_up, ready.lag) == ("ready", [0, 1], False, 110)
    plane.watch(Partitions(True, {0: 0, 1: None}))
    assert (plane.readiness().caught_up, plane.readiness().lag) == (False, None), "one has not been looked at yet"
    plane.watch(Partitions(True, {}))
    assert plane.readiness().caught_up and plane.readiness().store.state == "ok"


async def test_weights_count() -> None:
    plane = await started(grouping="key", workers=2)
    usable = usable_of([b"a", b"b", b"a"])
    usable.weights = np.array([2.5, 1.0, 3.0])
    route_batch(plane, usable, 0.0)
    report = await plane.keyspace(KeyQuery())
    assert {entry.key: entry.count for entry in report.keys} == {"a": 5.5, "b": 1.0}
    assert sum(report.loads) == 6.5


@pytest.mark.parametrize("grouping", live_names())
async def test_spaces_are_parts_of_the_tracked_keys_and_as_large_as_what_is_listed_of_them(grouping: str) -> None:
    time = FakeTime()
    plane = await started(time, grouping=grouping, workers=6, tracked_keys=50)
    for seed in range(3):
        route(plane, skewed(3000, 0.4, seed), time.passed)
        time.passed += 10
        await end_interval([plane], time)
    route(plane, skewed(3000, 0.4, 9), time.passed)
    time.passed += 1
    change = OverrideChange.model_validate({"action": "whole", "seconds": 60})
    await plane.set_override(b"key-1000", change, expected=None, by="me")
    report = await plane.keyspace(KeyQuery(limit=1000))
    assert sum(space.size for space in report.spaces) <= report.tracked_keys == report.total
    assert [key.space for key in report.keys if key.key == "key-1000"] == [None], "where it goes is said by people"
    for space in report.spaces:
        listed = await plane.keyspace(KeyQuery(space=space.name, limit=1000))
        assert listed.total == space.size == sum(key.space == space.name for key in report.keys)
        assert {key.space for key in listed.keys} <= {space.name}
    assert (await plane.keyspace(KeyQuery(space="nowhere"))).total == 0
