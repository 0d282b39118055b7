"""Laws of keys that go where people say: all routers follow at an epoch, plans go on, and each override has an end."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest
from keygrouping.grouping import live_names
from keygrouping.hashing import hash_key, worker_of
from keygrouping_router.api import router_app
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import GroupingChange, OverrideChange, ShadowChange, ShadowGrouping, WorkersChange
from keygrouping_router.control import orders
from keygrouping_router.errors import Refused
from keygrouping_router.knowledge.keyspace import KeyQuery
from keygrouping_router.knowledge.shadow import candidates
from keygrouping_router.limits import MAX_OVERRIDES
from keygrouping_router.replica import BY_END
from keygrouping_service.store.memory import MemoryStore
from prometheus_client import REGISTRY

from ..planes import START, FakeTime, Unsteady, end_interval, new_plane, route, settings_of, skewed, usable_of

HOT = b"key-1000"
MINUTE = 60.0


def change_of(action: str, **given: Any) -> OverrideChange:
    return OverrideChange.model_validate({"action": action, "seconds": MINUTE, **given})


class Site:
    """Routers that share a store."""

    def __init__(self, count: int = 1, **given: Any) -> None:
        self.time = FakeTime()
        self.store = Unsteady(self.time)
        values = {"grouping": "level-fill", "sharing": "shared", "workers": 6, **given}
        self.planes = [new_plane(self.store, self.time, replica=f"r{n}", **values) for n in range(count)]
        self.plane = self.planes[0]

    async def start(self) -> Site:
        for plane in self.planes:
            await plane.replica.start()
        return self

    async def set(self, key: bytes, action: str, **given: Any) -> Any:
        report = await self.plane.set_override(key, change_of(action, **given), expected=None, by="api (me)")
        await self.follow()
        return report

    async def follow(self) -> None:
        await asyncio.gather(*(plane.replica.follow() for plane in self.planes))

    async def interval(self, seed: int = 1) -> None:
        for plane in self.planes:
            route(plane, skewed(2000, 0.4, seed), self.time.passed)
        self.time.passed += 10
        await end_interval(self.planes, self.time)

    def workers_of(self, key: bytes, plane: ControlPlane | None = None, seed: int = 2) -> list[int]:
        keys = skewed(2000, 0.4, seed)
        workers = route(plane or self.plane, keys, self.time.passed).workers.tolist()
        return sorted({worker for worker, name in zip(workers, keys, strict=True) if name == key})

    def workers_of_all_but(self, key: bytes) -> list[int]:
        keys = skewed(2000, 0.4, 3)
        workers = route(self.plane, keys, self.time.passed).workers.tolist()
        return sorted({worker for worker, name in zip(workers, keys, strict=True) if name != key})


@pytest.mark.parametrize("grouping", live_names())
async def test_every_grouping_routes_on_while_overrides_begin_and_end(grouping: str) -> None:
    site = await Site(grouping=grouping).start()
    await site.interval()
    before = site.plane.replica.epoch
    await site.set(HOT, "pin", worker=2)
    assert (site.workers_of(HOT), site.plane.replica.epoch > before) == ([2], True)
    await site.interval()
    assert site.workers_of(HOT) == [2]
    await site.set(HOT, "quarantine-worker", worker=1)
    for _ in range(2):
        assert (site.workers_of(HOT), site.workers_of_all_but(HOT)) == ([1], [0, 2, 3, 4, 5])
        await site.interval()
    await site.set(HOT, "split", width=3)
    home = worker_of(hash_key(HOT), 6)
    assert site.workers_of(HOT) == sorted((home + step) % 6 for step in range(3))
    await site.set(HOT, "whole")
    assert site.workers_of(HOT) == [home]
    await site.plane.end_override(HOT, expected=None, by="api (me)")
    await site.interval()
    assert (await site.plane.overrides()).items == []
    # Groupings that don't move a key without need leave the worker empty that was another one's alone.
    assert {1, 2, 3, 4} <= set(site.workers_of_all_but(HOT)) <= set(range(6))


async def test_all_routers_follow_at_one_epoch_and_a_new_one_too() -> None:
    site = await Site(2).start()
    for _ in range(2):
        await site.interval()
    await site.set(HOT, "quarantine-worker")
    late = new_plane(site.store, site.time, replica="late", grouping="level-fill", sharing="shared", workers=6)
    await late.replica.start()
    site.planes.append(late)
    for _ in range(3):
        await site.interval()
        assert len({plane.replica.epoch for plane in site.planes}) == 1, "one plan for all, for five workers"
        assert [site.workers_of(HOT, plane) for plane in site.planes] == [[5]] * 3
    plan = await site.plane.plan()
    assert plan.workers == 6 and plan.round is not None and plan.filling is not None
    assert [worker.worker for worker in plan.filling.workers] == [0, 1, 2, 3, 4]
    loads = (await site.plane.keyspace(KeyQuery())).loads
    assert max(loads[:5]) < 1.4 * min(loads[:5]) and loads[5] > 2 * max(loads[:5]), "the others are even"


async def test_numbers_of_workers_are_those_of_all_of_them_wherever_they_are_shown() -> None:
    site = await Site().start()
    await site.set(b"key-7", "quarantine-worker", worker=0)
    for _ in range(3):
        await site.interval()
    hot = await site.plane.key(HOT, None)
    assert hot.hot and set(hot.workers) == set(site.workers_of(HOT)) and 0 not in hot.workers
    (first, *_) = [key for key in (await site.plane.keyspace(KeyQuery())).keys if key.key == "key-1000"]
    assert set(first.workers) == set(hot.workers) and 0 not in hot.candidates
    filling = (await site.plane.plan()).filling
    assert filling is not None and {m.worker for key in filling.keys for m in key.members} <= {1, 2, 3, 4, 5}
    overridden = await site.plane.key(b"key-7", None)
    assert (overridden.workers, overridden.width) == ([0], 1)
    assert overridden.why.startswith("by its override quarantine-worker until 2023-11-14 22:14:20 UTC: to worker 0")


async def test_a_key_that_is_split_by_people_is_hot_and_a_whole_one_is_not() -> None:
    site = await Site().start()
    await site.set(b"key-9", "split", width=4)
    await site.set(HOT, "whole")
    for _ in range(2):
        await site.interval()
    split, whole = await site.plane.key(b"key-9", None), await site.plane.key(HOT, None)
    assert (split.width, split.hot, whole.width, whole.hot) == (4, True, 1, False)


async def test_an_override_ends_at_its_time_everywhere_and_the_history_tells() -> None:
    site = await Site(2).start()
    report = await site.set(HOT, "pin", worker=4, seconds=30.0)
    assert report.items[0].until == datetime.fromtimestamp(START + 30, UTC)
    assert report.done is not None and report.done.changed and report.done.epoch == site.plane.replica.epoch
    site.time.passed += 29.9
    for plane in site.planes:
        await plane.replica.end_overrides()
    assert [site.workers_of(HOT, plane) for plane in site.planes] == [[4], [4]]
    epoch, version = site.plane.replica.epoch, (await site.plane.overrides()).version
    site.time.passed += 0.2
    for plane in site.planes:
        await plane.replica.end_overrides()
    await site.follow()
    assert [(await plane.overrides()).items for plane in site.planes] == [[], []]
    assert {plane.replica.epoch for plane in site.planes} == {
        site.plane.replica.epoch
    } and site.plane.replica.epoch > epoch
    assert (await site.plane.overrides()).version == version + 1, "one of them has taken it out"
    newest, before, *_ = (await site.plane.history(5)).entries
    assert (newest.what, newest.by, newest.after) == ("overrides", BY_END, {})
    told: Any = before.after["key-1000"]
    assert (before.by, told["action"], told["worker"]) == ("api (me)", "pin", 4)
    assert newest.before == before.after


async def test_an_override_ends_without_the_store_and_for_a_router_that_was_away() -> None:
    site = await Site().start()
    await site.set(HOT, "quarantine-worker", worker=3, seconds=30.0)
    site.store.away = True
    site.time.passed += 31
    await site.plane.replica.end_overrides()
    assert site.plane.replica.active.grouping.workers == 6
    assert 3 in site.workers_of_all_but(HOT)
    site.store.away = False
    late = new_plane(site.store, site.time, replica="late", grouping="level-fill", sharing="shared", workers=6)
    await late.replica.start()
    assert (await late.overrides()).items == [] and late.replica.active.grouping.workers == 6
    await site.plane.replica.end_overrides()
    assert (await site.plane.history(1)).entries[0].by == BY_END


async def test_a_split_wider_than_the_workers_there_are_says_so() -> None:
    site = await Site(workers=4).start()
    wide = await site.set(HOT, "split", width=6)
    assert wide.done.notes == ["key-1000 is split over 4, not 6: there are no more workers for it"]
    fits = await site.plane.set_workers(WorkersChange(workers=6), expected=None, by="api")
    assert fits.done is not None and fits.done.notes == []
    alone = await site.set(b"key-2000", "quarantine-worker")
    assert alone.done.notes == ["key-1000 is split over 5, not 6: there are no more workers for it"]


async def test_with_fewer_workers_an_override_rests_and_comes_back_with_them() -> None:
    site = await Site(grouping="pkg").start()
    await site.set(HOT, "pin", worker=5)
    fewer = await site.plane.set_workers(WorkersChange(workers=4), expected=None, by="api")
    assert fewer.done is not None
    assert fewer.done.notes == ["the override of key-1000 rests: worker 5 is not in use: there are 4, numbered from 0"]
    (item,) = (await site.plane.overrides()).items
    assert (item.workers, item.resting) == ([], "worker 5 is not in use: there are 4, numbered from 0")
    assert max(site.workers_of(HOT)) < 4
    assert "its override pin rests" in (await site.plane.key(HOT, None)).why
    await site.plane.set_workers(WorkersChange(workers=8), expected=None, by="api")
    assert site.workers_of(HOT) == [5]


@pytest.mark.parametrize(
    ("action", "given", "fault"),
    [
        ("pin", {}, "pin needs a worker"),
        ("pin", {"worker": 6}, "worker 6 is not in use: there are 6"),
        ("pin", {"worker": 1, "width": 2}, "pin takes no width"),
        ("pin", {"worker": 2}, "worker 2 belongs to another key alone"),
        ("quarantine-worker", {"worker": 2}, "worker 2 belongs to another key alone"),
        ("whole", {"worker": 1}, "whole takes no worker"),
        ("quarantine-topic", {"worker": 1}, "quarantine-topic takes no worker"),
        ("whole", {"seconds": None}, "give its end: either until .* or seconds"),
        ("whole", {"until": datetime.fromtimestamp(START + 5, UTC)}, "give its end: either"),
        ("whole", {"seconds": None, "until": datetime.fromtimestamp(START - 1, UTC)}, "its end must be in the future"),
        ("whole", {"seconds": None, "until": datetime.max.replace(tzinfo=UTC)}, "within 366 days"),
    ],
)
async def test_what_cannot_be_is_refused_before_it_is_stored(action: str, given: dict[str, Any], fault: str) -> None:
    site = await Site(grouping="pkg").start()
    await site.set(b"other", "quarantine-worker", worker=2)
    before = await site.plane.overrides()
    with pytest.raises(Refused, match=fault):
        await site.set(HOT, action, **given)
    with pytest.raises(Refused, match="the key has 10001 bytes"):
        await site.set(b"x" * 10_001, "whole")
    assert (await site.plane.overrides()).items == before.items


async def test_a_hundred_keys_are_the_most() -> None:
    site = await Site(grouping="pkg").start()
    for number in range(100):
        await site.plane.set_override(b"%d" % number, change_of("whole"), expected=None, by="api")
    with pytest.raises(Refused, match="100 keys have an override, which is the most"):
        await site.set(HOT, "whole")
    await site.set(b"7", "split")


async def test_dry_runs_tell_what_overrides_would_do() -> None:
    site = await Site().start()
    await site.plane.set_shadow(ShadowChange(groupings=[], sample=1.0), expected=None, by="api")
    await site.interval()
    dry = await site.plane.try_override(HOT, change_of("pin", worker=0))
    assert (dry.changes.lambda_.after or 0) > 2 > (dry.changes.lambda_.before or 9)
    widths = {change.key: (change.before > 1, change.after) for change in dry.changes.widths}
    assert widths["key-1000"] == (True, 1)
    assert (await site.plane.overrides()).items == []
    await site.set(HOT, "pin", worker=0)
    await site.interval()
    ending = await site.plane.try_ending_override(HOT)
    assert (ending.changes.lambda_.before or 0) > 2 > (ending.changes.lambda_.after or 9)
    assert len((await site.plane.overrides()).items) == 1


async def test_what_is_compared_goes_by_the_overrides_too() -> None:
    site = await Site(grouping="key").start()
    await site.set(HOT, "quarantine-worker", worker=0)
    shadow = ShadowChange(groupings=[ShadowGrouping(name="shuffle"), ShadowGrouping(name="pkg")], sample=1.0)
    await site.plane.set_shadow(shadow, expected=None, by="api")
    for _ in range(2):
        await site.interval()
    found = (await site.plane.shadow()).run
    assert [result.lambda_ for result in found] == pytest.approx([found[0].lambda_] * 3, rel=0.05)
    tried = await site.plane.try_shadow(ShadowChange(groupings=[ShadowGrouping(name="w-choices")]))
    assert [(one.name, one.in_force) for one in tried.groupings] == [("key", True), ("w-choices", False)]
    assert tried.sampled_events > 0 and (await site.plane.shadow()).groupings[1].name == "shuffle", "nothing changed"


async def test_events_of_a_key_that_is_quarantined_to_a_topic_are_told_apart_by_their_keys() -> None:
    site = await Site(grouping="pkg").start()
    usable = usable_of([b"a", HOT, b"b", HOT])
    assert site.plane.replica.active.quarantined(usable.keys) is None
    await site.set(HOT, "quarantine-topic")
    chosen = site.plane.replica.active.quarantined(usable.keys)
    assert chosen is not None and np.flatnonzero(chosen).tolist() == [1, 3]
    assert site.plane.replica.active.quarantined([b"a", b"b"]) is None
    why = (await site.plane.key(HOT, None)).why
    assert why.endswith("to the quarantine topic, not to a worker")


@pytest.mark.parametrize("until", ["2099-01-01T00:00:00", -1.0, 1e300])
async def test_no_end_that_stands_in_the_store_stops_a_router(until: object) -> None:
    site = await Site(2).start()
    await site.set(HOT, "pin", worker=1)
    entry = await site.store.get("control")
    assert entry is not None
    (override,) = entry.value["overrides"]
    bad = {**entry.value, "overrides": [{**override, "until": until}]}
    await site.store.put("control", bad, expected=entry.version)
    late = new_plane(site.store, site.time, replica="late", grouping="level-fill", sharing="shared", workers=6)
    await late.replica.start()
    assert len(route(late, skewed(2000, 0.4, 1), 1.0).workers) == 2000
    await site.follow()
    assert site.workers_of(HOT) == [1]


async def test_a_router_that_has_set_an_override_follows_it_once_as_all_others_do() -> None:
    site = await Site(2).start()
    site.time.passed = 0.123456
    await site.plane.set_override(HOT, change_of("pin", worker=1), expected=None, by="api (me)")
    epoch = site.plane.replica.epoch
    await site.follow()
    assert [plane.replica.epoch for plane in site.planes] == [epoch, epoch]


async def test_capacities_stay_with_their_workers() -> None:
    site = await Site(grouping="level-fill").start()
    change = WorkersChange(workers=6, capacities={"0": 4.0, "3": 2.0})
    await site.plane.set_workers(change, expected=None, by="api")
    await site.set(HOT, "quarantine-worker", worker=0)
    assert site.plane.replica.active.control.routing_settings["capacities"] == [1.0, 1.0, 2.0]
    for _ in range(3):
        await site.interval()
    loads = (await site.plane.keyspace(KeyQuery())).loads
    assert loads[3] == pytest.approx(2 * loads[1], rel=0.15)


async def test_capacities_in_the_settings_of_a_grouping_stay_with_their_workers_too() -> None:
    site = await Site(grouping="level-fill").start()
    values = {"capacities": [4.0, 1.0, 1.0, 2.0]}
    await site.plane.set_thresholds(values, partial=True, expected=None, by="api")
    await site.plane.set_shadow(
        ShadowChange(groupings=[ShadowGrouping(name="level-fill", settings=values)]), expected=None, by="api"
    )
    await site.set(HOT, "quarantine-worker", worker=0)
    control = site.plane.replica.active.control
    assert control.routing_settings["capacities"] == control.compared[0].used["capacities"] == [1.0, 1.0, 2.0]
    capacities = [worker.capacity for worker in (await site.plane.workers()).items]
    assert capacities[:4] == [4.0, 1.0, 1.0, 2.0]


class Orders:
    """Calls of a router's API."""

    def __init__(self, site: Site) -> None:
        self._app = router_app(site.plane, settings_of(api_rate=0))

    async def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            content = None if body is None else json.dumps(body)
            return await client.request(method, path, content=content, headers={"content-type": "application/json"})


async def test_overrides_of_any_key_by_the_api() -> None:
    site = await Site(grouping="pkg").start()
    orders = Orders(site)
    for key in ("%FF%00", "a%2F..%2Fb%3F", "base64url:", "%0A"):
        body = {"action": "pin", "worker": 1, "seconds": 60}
        answer = await orders.send("PUT", f"/overrides/{key}", body)
        assert answer.status_code == 200, answer.text
        (item,) = answer.json()["items"]
        assert (item["action"], item["workers"], item["until"]) == ("pin", [1], "2023-11-14T22:14:20.000Z")
        assert (await orders.send("GET", f"/keyspace/{item['id']}")).json()["candidates"] == [1]
        again = (await orders.send("PUT", f"/overrides/{key}", body)).json()["done"]
        assert (again["changed"], again["notes"]) == (False, ["all was so already: nothing was stored"])
        ended = await orders.send("DELETE", f"/overrides/{item['id']}")
        assert (ended.json()["items"], ended.json()["done"]["changed"]) == ([], True)
        assert ended.json()["done"]["before"].keys() == {item["id"]}


async def test_the_grouping_in_force_keeps_its_thresholds_and_the_answer_tells_what_was_done() -> None:
    site = await Site(grouping_settings={"eps": 0.1}).start()
    orders = Orders(site)

    async def done(path: str, body: Any) -> Any:
        answer = await orders.send("PUT", path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()["done"]

    kept = await done("/grouping", {"name": "level-fill", "observe_only": True})
    assert (await site.plane.grouping()).settings == {"eps": 0.1}
    assert kept["before"] == {"observe_only": False} and kept["after"] == {"observe_only": True}
    assert kept["notes"] == [
        "the settings of level-fill are kept: eps=0.1",
        "events go by key hash; level-fill is only observed",
    ]
    assert kept["epoch"] == site.plane.replica.epoch
    other = await done("/grouping", {"name": "pkg", "observe_only": False})
    assert other["notes"] == [
        "the settings of level-fill are given up: eps=0.1",
        "pkg makes no plans that routers could share: each routes by its own",
    ]
    back = await done("/grouping", {"name": "level-fill", "settings": {"eps": 0.2}})
    assert back["notes"] == []
    emptied = await done("/grouping", {"name": "level-fill", "settings": {}})
    assert (emptied["before"], emptied["after"]) == ({"settings": {"eps": 0.2}}, {"settings": {}})
    await done("/grouping", {"name": "pkg"})
    assert (await done("/workers", {"workers": 6, "capacities": {"0": 2.0}}))["notes"] == [
        "pkg takes no account of capacities"
    ]
    assert (await done("/workers", {"workers": 6}))["changed"] is False
    assert (await orders.send("GET", "/workers")).json()["done"] is None


@pytest.mark.parametrize(
    ("path", "body"),
    [("/grouping", {"name": "off-greedy"}), ("/shadow", {"groupings": [{"name": "off-greedy"}]})],
)
async def test_a_grouping_that_cannot_work_live_is_refused(path: str, body: Any) -> None:
    site = await Site().start()
    for dry_run in ("", "?dry_run=true"):
        answer = await Orders(site).send("PUT", path + dry_run, body)
        assert answer.status_code == 422
        assert "off-greedy has to know the whole stream beforehand" in answer.json()["detail"]
    assert "off-greedy" not in [one.name for one in (await site.plane.grouping()).available]
    with pytest.raises(ValueError, match="KEYGROUPING_ROUTER_GROUPING: off-greedy has to know"):
        settings_of(grouping="off-greedy")


async def test_groupings_are_tried_before_they_are_stored() -> None:
    site = await Site(grouping="key").start()
    await site.plane.set_shadow(ShadowChange(groupings=[], sample=1.0), expected=None, by="api")
    await site.interval()
    before = await site.plane.grouping()
    dry = await site.plane.try_grouping(GroupingChange(name="level-fill"))
    assert (dry.changes.lambda_.before or 0) > 2 > (dry.changes.lambda_.after or 9)
    assert {setting.name for setting in dry.settings} >= {"eps"}
    observed = await site.plane.try_grouping(GroupingChange(name="level-fill", observe_only=True))
    assert observed.changes.lambda_.before == observed.changes.lambda_.after
    assert await site.plane.grouping() == before


@pytest.mark.parametrize("digits", ["A", "!", "AA=="[:1] * 20_000, "hash"])
async def test_no_key_that_is_none_comes_from_the_store(digits: str) -> None:
    store, time = MemoryStore(), FakeTime()
    first = new_plane(store, time)
    await first.replica.start()
    entry = await store.get("control")
    assert entry is not None
    until = (datetime.fromtimestamp(START, UTC) + timedelta(days=1)).isoformat()
    override = {"key_base64": digits, "action": "pin", "worker": 1, "until": until}
    await store.put("control", {**entry.value, "overrides": [override, override]}, expected=entry.version)
    later = new_plane(store, time, replica="later")
    await later.replica.start()
    assert len(route(later, [b"a", b"b"], 0.0).workers) == 2
    await first.replica.follow()


async def test_a_comparison_goes_on_unharmed_while_the_next_one_is_made_ready() -> None:
    """A worker that comes back takes up the override that rested: the grouping has as many workers as before."""
    site = await Site(workers=7).start()
    await site.plane.set_shadow(ShadowChange(groupings=[ShadowGrouping(name="pkg")]), expected=None, by="api")
    await site.set(HOT, "quarantine-worker", worker=6)
    await site.plane.set_workers(WorkersChange(workers=6), expected=None, by="api")
    traffic, control = site.plane.replica.traffic, site.plane.replica.active.control
    ready = candidates(control.with_workers(orders.WorkersChange(7), 7), traffic.shadow.candidates)
    assert ready[0].rehearsal.grouping is traffic.shadow.candidates[0].rehearsal.grouping, "what was learned is kept"
    await site.interval()
    assert len((await site.plane.keyspace(KeyQuery())).loads) == 6


def metric(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"keygrouping_{name}", labels)


async def test_metrics_tell_what_overrides_there_are_when_they_end_and_what_they_send() -> None:
    site = await Site(workers=4).start()
    await site.set(HOT, "pin", worker=3)
    await site.set(b"key-2000", "pin", worker=1, seconds=2 * MINUTE)
    await site.set(b"key-3000", "quarantine-worker")
    assert metric("router_overrides", action="pin") == 2 and metric("router_overrides", action="quarantine-worker") == 1
    assert metric("router_overrides", action="split") == metric("router_resting_overrides") == 0
    assert metric("router_override_end_timestamp_seconds", action="pin") == START + MINUTE
    assert metric("router_override_end_timestamp_seconds", action="split") is None
    before = metric("router_overridden_total", worker="3") or 0.0
    keys = skewed(2000, 0.4, 1)
    route(site.plane, keys, site.time.passed)
    assert (metric("router_overridden_total", worker="3") or 0.0) - before == keys.count(HOT)
    await site.plane.set_workers(WorkersChange(workers=3), expected=None, by="me")
    assert metric("router_resting_overrides") == 1, "of the key that was pinned to worker 3"
    await site.plane.end_override(HOT, expected=None, by="me")
    assert metric("router_override_end_timestamp_seconds", action="pin") == START + 2 * MINUTE
    await site.plane.end_override(b"key-2000", expected=None, by="me")
    assert (
        metric("router_override_end_timestamp_seconds", action="pin") is None
        and metric("router_overrides", action="pin") == 0
    )


async def test_plans_of_all_routers_fill_around_a_pinned_key() -> None:
    site = await Site(2).start()
    await site.set(HOT, "pin", worker=5)
    for seed in range(1, 5):
        await site.interval(seed)
    plan = await site.plane.plan()
    assert plan.filling is not None
    pinned, others = plan.filling.workers[5], plan.filling.workers[:5]
    assert pinned.light == pytest.approx(0.4, abs=0.03) and max(worker.light for worker in others) < 0.2
    report = await site.plane.workers()
    assert report.lambda_ == pytest.approx(6 * 0.4, rel=0.05), "what the pinned key makes of it, and no more"


async def test_settings_that_are_read_and_written_back_leave_capacities_in_force() -> None:
    site = await Site(grouping="level-fill").start()
    await site.plane.set_workers(WorkersChange(workers=6, capacities={"0": 4.0}), expected=None, by="api")
    read = {setting.name: setting.value for setting in (await site.plane.thresholds()).settings}
    assert read["capacities"] == []
    await site.plane.set_thresholds(read, partial=False, expected=None, by="api")
    assert site.plane.replica.active.control.routing_settings["capacities"] == [4.0]


async def test_capacities_that_others_outweigh_are_told_of() -> None:
    site = await Site(grouping="level-fill").start()
    await site.plane.set_thresholds({"capacities": [1.0, 2.0]}, partial=True, expected=None, by="api")
    report = await site.plane.set_workers(WorkersChange(workers=6, capacities={"0": 4.0}), expected=None, by="api")
    assert report.done is not None
    assert report.done.notes == ["the capacities among the thresholds count instead: set them to [] there"]


async def test_overrides_that_have_ended_leave_room_for_others_at_once() -> None:
    site = await Site(grouping="level-fill").start()
    for number in range(MAX_OVERRIDES):
        await site.plane.set_override(
            b"key-%d" % number, change_of("pin", worker=1, seconds=10), expected=None, by="api (me)"
        )
    with pytest.raises(Refused, match="which is the most"):
        await site.plane.set_override(b"new", change_of("pin", worker=1), expected=None, by="api (me)")
    site.time.passed += 11
    report = await site.plane.set_override(b"new", change_of("pin", worker=1), expected=None, by="api (me)")
    assert [item.key for item in report.items] == ["new"]


async def test_the_interval_of_routers_is_told_with_their_bounds() -> None:
    site = await Site(grouping="level-fill").start()
    (told,) = (each for each in (await site.plane.thresholds()).settings if each.name == "interval")
    assert (told.kind, told.range) == ("a number", "from 0.1 to 3600")
    for wrong, why in ((0.01, "from 0.1 to 3600"), (None, "interval must be a number of seconds")):
        with pytest.raises(Refused, match=why):
            await site.plane.set_thresholds({"interval": wrong}, partial=True, expected=None, by="api")
