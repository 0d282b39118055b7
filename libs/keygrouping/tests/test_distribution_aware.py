"""Distribution-aware Key Grouping places whole keys where they fit, by plans that several sources can share."""

import json
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import Planned, create
from keygrouping.grouping.distribution_aware import DistributionAware, DistributionAwareSettings
from keygrouping.grouping.protocol import Weights
from keygrouping.hashing import hash_key, hash_keys
from numpy.typing import NDArray

NAMES = [f"key{i}".encode() for i in range(5_000)]
HASHES = hash_keys(NAMES)


def owned(workers: int, **settings: Any) -> DistributionAware:
    """One whose owner plans."""
    return DistributionAware(workers, DistributionAwareSettings(interval=None, **settings))


def zipf(events: int, exponent: float, seed: int = 1) -> NDArray[np.int64]:
    shares = np.arange(1, len(NAMES) + 1, dtype=float) ** -exponent
    return np.searchsorted(np.cumsum(shares / shares.sum())[:-1], np.random.default_rng(seed).random(events))


def route(grouping: Any, keys: NDArray[np.int64], now: float = 0.0) -> Weights:
    """The load of each worker."""
    routed = grouping.route_batch(HASHES[keys], None, now)
    return np.bincount(routed, minlength=grouping.workers).astype(float)


def imbalance(loads: Weights) -> float:
    return float(loads.max() / loads.mean())


def planned(grouping: DistributionAware) -> dict[str, Any]:
    """The plan after one interval, as it comes over a network, in force."""
    plan: dict[str, Any] = json.loads(json.dumps(grouping.plan([grouping.statistics()]), allow_nan=False))
    grouping.apply(plan)
    return plan


def test_until_the_first_plan_it_is_key_grouping() -> None:
    grouping, key = DistributionAware(7), create("key", 7)
    assert [grouping.route(name) for name in NAMES[:99]] == [key.route(name) for name in NAMES[:99]]
    assert grouping.explain("Turkey").candidates == (hash_key("Turkey") % 7,)


def test_a_plan_puts_the_heaviest_first_onto_the_least_loaded() -> None:
    """Two workers with two buckets each; a and b are heavy, c and d are the light ones of two buckets."""
    grouping = owned(2, theta=0.3, buckets=2)
    light = [next(name for name in map(str, range(99)) if abs(hash_key(name)) % 4 == bucket) for bucket in (1, 3)]
    for key, weight in (("a", 6.0), ("b", 5.0), (light[0], 4.0), (light[1], 1.0)):
        grouping.route(key, weight)
    before = {key: grouping.route(key, 0.0) for key in ("a", "b", *light)}
    plan = planned(grouping)
    after = {key: grouping.route(key) for key in before}
    assert after == {"a": 0, "b": 1, light[0]: 1, light[1]: 0}
    moved = {key for key in before if after[key] != before[key]}
    assert plan["keys"] == sorted([hash_key("a"), hash_key("b")]) and plan["feasible"]
    assert (plan["moved_keys"], plan["moved_buckets"]) == (len(moved & {"a", "b"}), len(moved - {"a", "b"}))
    weights = {"a": 6.0, "b": 5.0, light[0]: 4.0, light[1]: 1.0}
    assert plan["moved_state"] == sum(weights[key] for key in moved)
    assert plan["max_overload"] == pytest.approx(9 / 8 - 1)
    assert grouping.explain("a").why.startswith("heavy") and grouping.explain(light[0]).why.startswith("not heavy")


@pytest.mark.parametrize(("workers", "exponent"), [(5, 0.8), (5, 1.0), (10, 0.8), (20, 0.5)])
def test_a_plan_balances_what_whole_keys_can(workers: int, exponent: float) -> None:
    grouping = owned(workers)
    at_first = imbalance(route(grouping, zipf(100_000, exponent)))
    plan = planned(grouping)
    after = imbalance(route(grouping, zipf(100_000, exponent, seed=2)))
    assert plan["feasible"] and plan["max_overload"] < 0.04
    assert after < 1.06 and after - 1 < (at_first - 1) / 2
    light = [key for key in range(2_000, 2_050) if not grouping.explain(NAMES[key]).why.startswith("heavy")]
    assert len(light) == 50


def test_more_buckets_balance_better_than_the_one_per_worker_of_the_public_code() -> None:
    coarse, fine = owned(10, buckets=1), owned(10, buckets=10)
    for grouping in (coarse, fine):
        route(grouping, zipf(100_000, 0.5))
    assert planned(fine)["max_overload"] < planned(coarse)["max_overload"] / 2


def test_a_key_that_is_too_much_for_a_worker_makes_it_infeasible() -> None:
    grouping = owned(10)
    keys = np.where(np.random.default_rng(1).random(50_000) < 0.8, 0, zipf(50_000, 0.0))
    route(grouping, keys)
    plan = planned(grouping)
    assert not plan["feasible"] and plan["max_overload"] == pytest.approx(7, rel=0.02)
    loads = route(grouping, keys)
    assert imbalance(loads) == pytest.approx(8, rel=0.02) and np.sort(loads)[-2] < 0.3 * loads.mean()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.sampled_from([1.0, 0.5, 4.0])), max_size=60))
def test_sources_plan_together_as_one_that_has_seen_all(events: list[tuple[int, int, float]]) -> None:
    sources = [owned(3, theta=0.1, buckets=2) for _ in range(3)]
    alone = owned(3, theta=0.1, buckets=2)
    for source, key, weight in events:
        sources[source].route(NAMES[key], weight)
        alone.route(NAMES[key], weight)
    plan = sources[0].plan([source.statistics() for source in sources])
    assert plan == alone.plan([alone.statistics()])
    for each in sources:
        each.apply(plan)
    assert len({tuple(each.route(name) for name in NAMES[:50]) for each in sources}) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.sampled_from([0.3, 0.1, 3.7])), max_size=150))
def test_whoever_plans_and_in_whatever_order_the_plan_is_the_same(events: list[tuple[int, int, float]]) -> None:
    """With weights whose sums depend on the order, and too many keys for exact counts."""
    sources = [owned(3, theta=0.5, buckets=2) for _ in range(3)]
    for source, key, weight in events:
        sources[source].route(NAMES[key], weight)
    statistics = [json.loads(json.dumps(source.statistics())) for source in sources]
    plans = [source.plan(order) for source, order in zip(sources * 2, permutations(statistics), strict=True)]
    assert all(plan == plans[0] for plan in plans)


def test_it_plans_by_itself_after_each_interval_and_follows_the_hot_keys() -> None:
    grouping = DistributionAware(10, DistributionAwareSettings(interval=5.0))
    random = np.random.default_rng(3)
    for step, first in enumerate((0, 0, 100, 100)):
        keys = np.where(
            random.random(20_000) < 0.6, random.integers(first, first + 10, 20_000), zipf(20_000, 0.3, step)
        )
        loads = route(grouping, keys, 5.0 * step)
        assert grouping.epoch == min(step, 3)
        if step in (1, 3):
            assert imbalance(loads) < 1.06
    assert imbalance(loads) < 1.06


def test_the_owner_of_the_interval_decides_when_to_plan() -> None:
    grouping = owned(4)
    for step in range(5):
        route(grouping, zipf(1_000, 1.0), 1000.0 * step)
    assert grouping.epoch == 0 and isinstance(grouping, Planned)


def test_a_plan_changes_nothing_until_it_is_applied() -> None:
    grouping = owned(4)
    route(grouping, zipf(10_000, 1.0))
    before = grouping.snapshot()
    statistics = owned(4).statistics()
    plan = grouping.plan([statistics])
    assert grouping.snapshot() == before
    grouping.apply({**plan, "changed": False})
    assert grouping.epoch == 0
    grouping.apply({**plan, "changed": True})
    assert grouping.epoch == 1
    grouping.resize(3)
    with pytest.raises(ValueError, match="not a plan for 3 workers"):
        grouping.apply(plan)
    assert grouping.epoch == 2


def test_an_interval_without_events_leaves_everything_where_it_is() -> None:
    grouping = owned(4)
    route(grouping, zipf(10_000, 1.0))
    first = planned(grouping)
    assert first["moved_keys"] + first["moved_buckets"] > 0 and first["moved_state"] > 0
    second = planned(grouping)
    assert second["keys"] == first["keys"] and second["bucket_workers"] == first["bucket_workers"]
    assert (second["moved_keys"], second["moved_buckets"], second["moved_state"], second["changed"]) == (0, 0, 0, False)
    assert grouping.plan([])["keys"] == first["keys"]


def test_a_bucket_without_events_stays_where_it_is() -> None:
    grouping = owned(4)
    route(grouping, zipf(10_000, 1.0))
    first = planned(grouping)
    seen = sorted({abs(hash_key(name)) % 40 for name in NAMES[:5]})
    route(grouping, np.arange(5))
    second = planned(grouping)
    changed = np.flatnonzero(np.array(first["bucket_workers"]) != second["bucket_workers"])
    assert set(changed) <= set(seen) and second["moved_buckets"] == 0 < second["moved_keys"]


@pytest.mark.parametrize(
    "damage",
    [
        {"keys": [2**70]},
        {"keys": [1, 1], "key_workers": [0, 0]},
        {"keys": [1], "key_workers": []},
        {"keys": [1], "key_workers": [3]},
        {"bucket_workers": [0]},
        {"bucket_workers": [-1] * 30},
    ],
)
def test_what_is_no_plan_for_these_workers_is_refused(damage: dict[str, Any]) -> None:
    grouping = owned(3)
    route(grouping, zipf(1_000, 1.0))
    plan = grouping.plan([grouping.statistics()])
    before = grouping.snapshot()
    with pytest.raises(ValueError, match="plan"):
        grouping.apply({**plan, **damage})
    assert grouping.snapshot() == before


def test_statistics_for_other_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="not statistics for 30 buckets"):
        owned(3).plan([owned(4).statistics()])


def test_endless_keys_leave_memory_bounded() -> None:
    grouping = DistributionAware(10, DistributionAwareSettings(interval=1.0, theta=0.05))
    random = np.random.default_rng(4)
    for step in range(10):
        hashes = random.integers(-(2**63), 2**63 - 1, (20_000, 1))
        hashes[::4] = HASHES[: len(hashes[::4]) // 625].repeat(625, axis=0)
        grouping.route_batch(hashes, None, float(step))
        state = grouping.snapshot()["state"]
        assert len(state["seen"]["sketch"]["hash"]) <= 80 and len(state["placement"]["keys"]) <= 20
