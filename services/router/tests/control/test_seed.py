"""Laws of the secret seed: one per deployment, drawn by the first router, kept, changed exactly, and never told."""

import json
from typing import Any

import numpy as np
import pytest
from keygrouping.measure import lambda_
from keygrouping.workload import workload
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import GroupingChange
from keygrouping_router.control.document import DOCUMENT
from keygrouping_router.control.seeds import MOST_SEED, drawn, fingerprint
from keygrouping_router.errors import Refused
from keygrouping_router.replica import new_replica
from keygrouping_service.store.memory import MemoryStore

from ..planes import FakeTime, Unsteady, end_interval, route, settings_of, skewed

SECRETS = (8_123_456_789_012_345, 4_987_654_321_098_765)
INTERVAL = 2.0


async def plane_in(store: MemoryStore, time: FakeTime, number: int = 0, **given: Any) -> ControlPlane:
    """A router that has drawn one of the secrets when it was started."""
    seed = given.pop("seed", SECRETS[number])
    settings = settings_of(
        **{"replica": f"r{number}", "grouping": "level-fill", "sharing": "shared", "interval": INTERVAL, **given}
    )
    plane = ControlPlane(new_replica(settings, store, 64, times=time.times(), seed=seed), settings.max_batch)
    await plane.replica.start()
    return plane


def seed_of(plane: ControlPlane) -> int:
    found: int = plane.replica.active.grouping._settings.seed  # type: ignore[attr-defined]
    return found


async def test_the_first_router_draws_it_for_all_and_it_survives_all_of_them() -> None:
    time = FakeTime()
    store = Unsteady(time)
    planes = [await plane_in(store, time, number) for number in range(2)]
    assert [seed_of(plane) for plane in planes] == [SECRETS[0]] * 2
    assert seed_of(await plane_in(store, time, 1, workers=7)) == SECRETS[0]
    store.away = True
    alone = await plane_in(store, time, 1)
    assert seed_of(alone) == SECRETS[1]
    store.away = False
    await alone.replica.follow()
    assert seed_of(alone) == SECRETS[0]


async def test_a_store_that_lost_it_gets_it_back() -> None:
    time, store = FakeTime(), MemoryStore()
    plane = await plane_in(store, time)
    store._state = type(store._state)()
    await plane.replica.follow()
    assert seed_of(await plane_in(store, time, 1)) == SECRETS[0]


async def test_a_deployment_that_knew_no_seeds_gets_one() -> None:
    time, store = FakeTime(), MemoryStore()
    old = await plane_in(store, time, seed=None)
    epoch = old.replica.epoch
    assert seed_of(old) == 0 and (await old.grouping()).seed is None
    new = await plane_in(store, time, 1)
    await new.replica.follow()
    await old.replica.follow()
    assert seed_of(old) == seed_of(new) == SECRETS[1] and old.replica.epoch > epoch


async def test_a_published_grouping_keeps_its_hashes() -> None:
    plane = await plane_in(MemoryStore(), FakeTime(), grouping="pkg")
    assert plane.replica.control.routing_settings == {}
    await plane.set_grouping(GroupingChange(name="level-fill"), expected=None, by="api")
    assert seed_of(plane) == SECRETS[0]


async def test_another_seed_begins_an_epoch_of_its_own_for_all_routers() -> None:
    time, store = FakeTime(), MemoryStore()
    planes = [await plane_in(store, time, number) for number in range(2)]
    for number in range(2):
        time.passed += INTERVAL
        for plane in planes:
            route(plane, skewed(4000, 0.4, number), time.passed)
        await end_interval(planes, time)
    epoch = max(plane.replica.epoch for plane in planes)
    change = GroupingChange(name="level-fill", seed="new")
    assert not isinstance(await planes[0].try_grouping(change), Exception) and seed_of(planes[0]) == SECRETS[0]
    report = await planes[0].set_grouping(change, expected=None, by="api")
    await planes[1].replica.follow()
    assert seed_of(planes[0]) == seed_of(planes[1]) not in (0, *SECRETS)
    assert report.seed == fingerprint(seed_of(planes[0])) != fingerprint(SECRETS[0])
    assert all(plane.replica.epoch > epoch for plane in planes)
    time.passed += INTERVAL
    for plane in planes:
        route(plane, skewed(4000, 0.4, 2), time.passed)
    await end_interval(planes, time)
    assert planes[0].replica.epoch == planes[1].replica.epoch
    plan = await planes[0].plan()
    assert plan.round == planes[0].replica.number
    assert f"{plan.details['fingerprint']:04x}" == report.seed, "no further bits of the seed are told"


async def test_it_can_be_given_or_none_and_stays_so() -> None:
    time, store = FakeTime(), MemoryStore()
    plane = await plane_in(store, time)
    for seed in (99, 0):
        await plane.set_grouping(GroupingChange(name="level-fill", seed=seed), expected=None, by="api")
        await plane.replica.follow()
        assert seed_of(plane) == seed == seed_of(await plane_in(store, time, 1))


async def test_nobody_is_told_the_seed() -> None:
    time, store = FakeTime(), MemoryStore()
    plane = await plane_in(store, time)
    changed = await plane.set_grouping(GroupingChange(name="level-fill", seed=SECRETS[1]), expected=None, by="api")
    tried = await plane.try_grouping(GroupingChange(name="level-fill", seed=SECRETS[0]))
    told = [changed, tried, await plane.grouping(), await plane.thresholds(), await plane.history(10)]
    text = "".join(report.model_dump_json() for report in told) + repr(plane.replica.control)
    assert not any(str(secret) in text for secret in SECRETS)
    assert '"seed"' not in (await plane.thresholds()).model_dump_json()
    history = await store.tail("control-history", 10)
    stored = json.dumps((await store.get(DOCUMENT)).value)  # type: ignore[union-attr]
    assert str(SECRETS[1]) in stored and str(SECRETS[0]) not in stored
    assert not any(str(secret) in json.dumps(history) for secret in SECRETS)


async def test_it_is_no_threshold_and_no_setting() -> None:
    plane = await plane_in(MemoryStore(), FakeTime())
    with pytest.raises(Refused, match="unknown setting seed"):
        await plane.set_thresholds({"seed": 5}, partial=True, expected=None, by="api")
    with pytest.raises(Refused, match="seed is a secret of all routers"):
        await plane.set_grouping(GroupingChange(name="level-fill", settings={"seed": 5}), expected=None, by="api")


def test_draws_differ_and_are_in_range() -> None:
    seeds = {drawn() for _ in range(100)}
    assert len(seeds) == 100 and min(seeds) > 0 and max(seeds) <= MOST_SEED


async def lambdas_under_attack(seed: int | None) -> list[float]:
    """λ of both routers together, in each interval of 20,000 events of twenty keys that collide without a seed."""
    time, store = FakeTime(), MemoryStore()
    planes = [await plane_in(store, time, number, seed=seed) for number in range(2)]
    source = workload("colliding", 160_000)
    keys = np.concatenate([chunk.keys for chunk in source.chunks()])
    names, found = source.table.names(0, len(source.table)), []
    for chunk in np.array_split(keys, 8):
        loads = np.zeros(10)
        for number, batch in enumerate(np.array_split(chunk, 20)):
            time.passed += INTERVAL / 20
            routed = route(planes[number % 2], [names[key] for key in batch.tolist()], time.passed)
            loads += np.bincount(routed.workers, minlength=10)
        await end_interval(planes, time)
        found.append(lambda_(loads))
    return found


async def test_keys_that_were_chosen_to_collide_are_even_on_a_deployment() -> None:
    assert min((await lambdas_under_attack(None))[2:]) > 2
    for _ in range(3):
        assert max((await lambdas_under_attack(drawn()))[2:]) <= 1.1
