"""Groupings by a routing table: statistics of intervals, plans that migrate keys, bounded memory."""

import json
from typing import Any

import numpy as np
import pytest
from keygrouping.grouping import Planned, create
from keygrouping.grouping.protocol import Hashes
from keygrouping.grouping.table.grouping import RoutingTableGrouping
from keygrouping.hashing import hash_keys

NAMES = ("llfd", "mintable", "minmig", "mixed", "mixed-bf", "readj")
WORKERS = 8
KEYS = [f"key{number}" for number in range(400)]
HASHES = hash_keys([key.encode() for key in KEYS])
every_name = pytest.mark.parametrize("name", NAMES)


def owned(name: str, workers: int = WORKERS, **settings: object) -> RoutingTableGrouping[Any]:
    """A grouping whose owner says when an interval ends."""
    grouping = create(name, workers, {"interval": None, **settings})
    assert isinstance(grouping, Planned) and isinstance(grouping, RoutingTableGrouping)
    return grouping


def events(seed: int, size: int = 4_000, skew: float = 0.8, swapped: int = 0) -> Hashes:
    """Events of Zipf keys, some of which have exchanged their frequencies."""
    random = np.random.default_rng(seed)
    rank = np.arange(len(KEYS))
    chosen = random.choice(len(KEYS), swapped, replace=False)
    rank[chosen] = rank[random.permutation(chosen)]
    share = 1 / (rank + 1.0) ** skew
    return HASHES[random.choice(len(KEYS), size, p=share / share.sum())]


def workers_of(grouping: RoutingTableGrouping[Any]) -> list[int]:
    """The present worker of each of the keys."""
    probe = type(grouping)(grouping.workers, grouping._settings)
    probe.restore(grouping.snapshot())
    return [int(worker) for worker in probe.route_batch(HASHES, None, 0.0)]


def loads_of(grouping: RoutingTableGrouping[Any], hashes: Hashes, now: float = 0.0) -> np.ndarray[Any, Any]:
    return np.bincount(grouping.route_batch(hashes, None, now), minlength=grouping.workers)


def through_json(data: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(data, allow_nan=False)))


def planned(grouping: RoutingTableGrouping[Any]) -> dict[str, Any]:
    """One plan by itself, applied."""
    plan = grouping.plan([grouping.statistics()])
    grouping.apply(plan)
    return plan


@every_name
def test_a_plan_balances_the_interval_it_was_made_of(name: str) -> None:
    grouping, hashes = owned(name), events(1)
    before = loads_of(grouping, hashes)
    plan = planned(grouping)
    after = loads_of(grouping, hashes)
    assert before.max() > 1.2 * before.mean() and plan["feasible"] and plan["refused"] == 0
    assert after.max() / after.mean() - 1 == pytest.approx(plan["max_overload"]) and plan["max_overload"] <= 0.08
    assert grouping.epoch == 1 and plan["changed"]


@every_name
def test_only_the_keys_of_the_plan_move(name: str) -> None:
    grouping = owned(name, window=2)
    for seed in range(6):
        hashes = events(seed, swapped=100)
        grouping.route_batch(hashes, None, 0.0)
        statistics = grouping.statistics()
        state = dict(zip(statistics["keys"], statistics["state"], strict=True))
        before = workers_of(grouping)
        plan = through_json(grouping.plan([statistics]))
        assert workers_of(grouping) == before
        grouping.apply(plan)
        after = workers_of(grouping)
        moved = [
            [int(HASHES[i, 0]), before[i], after[i]]
            for i in np.argsort(HASHES[:, 0])
            if before[i] != after[i] and int(HASHES[i, 0]) in state
        ]
        assert plan["moves"] == moved and plan["moved_keys"] == len(moved)
        assert plan["moved_state"] == pytest.approx(sum(state[hashed] for hashed, _, _ in moved))
        homes = [int(worker) for worker in create("key", WORKERS).route_batch(HASHES, None, 0.0)]
        away = {int(HASHES[i, 0]): after[i] for i in range(len(KEYS)) if after[i] != homes[i]}
        assert dict(plan["table"]) == away


@every_name
def test_one_plan_of_several_sources_is_that_of_one_that_has_seen_all(name: str) -> None:
    alone, sources = owned(name), [owned(name) for _ in range(3)]
    for seed in range(3):
        hashes = events(seed, swapped=100)
        alone.route_batch(hashes, None, 0.0)
        for number, source in enumerate(sources):
            source.route_batch(hashes[number::3], None, 0.0)
        statistics = [through_json(source.statistics()) for source in sources]
        plan = planned(alone)
        for source in sources:
            assert source.plan(statistics) == source.plan(statistics[::-1]) == plan
            source.apply(plan)
    probe = events(9)
    expected = alone.route_batch(probe, None, 0.0).tolist()
    assert all(source.route_batch(probe, None, 0.0).tolist() == expected for source in sources)


def test_fractional_weights_of_several_sources_give_one_plan_in_any_order() -> None:
    random = np.random.default_rng(1)
    source = owned("mixed", theta_max=0.0, tracked_keys=200)
    statistics = []
    for seed in range(12):
        hashes = events(seed, 1_000)
        source.route_batch(hashes, random.random(len(hashes)) / 3, 0.0)
        statistics.append(source.statistics())
    plan = source.plan(statistics)
    for _ in range(10):
        assert source.plan([statistics[i] for i in random.permutation(12)]) == plan


def test_the_state_is_the_weight_of_the_window() -> None:
    grouping = owned("minmig", window=3)
    hashed = int(hash_keys([b"a"])[0, 0])
    seen = []
    for weight in (1.0, 2.0, 4.0, 8.0, 0.0, 0.0, 0.0):
        if weight:
            grouping.route("a", weight)
        grouping.route("b")
        told = grouping.statistics()
        columns = zip(told["keys"], told["cost"], told["state"], strict=True)
        seen.append([(cost, state) for key, cost, state in columns if key == hashed])
    assert seen == [[(1, 1)], [(2, 3)], [(4, 7)], [(8, 14)], [(0, 12)], [(0, 8)], []]


def test_a_balanced_interval_changes_nothing() -> None:
    grouping = owned("mintable")
    grouping.route_batch(events(1), None, 0.0)
    first = planned(grouping)
    grouping.route_batch(events(1), None, 0.0)
    second = grouping.plan([grouping.statistics()])
    assert first["table"] and second["table"] == first["table"] and second["moves"] == [] and second["feasible"]
    assert grouping.plan([])["table"] == first["table"]


def test_entries_without_state_are_dropped_by_the_next_table() -> None:
    grouping = owned("minmig", window=1)
    grouping.route_batch(events(1), None, 0.0)
    planned(grouping)
    away = [key for key in KEYS if grouping.explain(key).home is None]
    for number in range(40):
        grouping.route(f"other{number % 3}")
    plan = planned(grouping)
    assert away and not {int(hash_keys([key.encode()])[0, 0]) for key in away} & {row[0] for row in plan["table"]}
    assert all(grouping.explain(key).home == grouping.explain(key).candidates[0] for key in away)


@pytest.mark.parametrize("name", ["mixed", "mixed-bf"])
@pytest.mark.parametrize("compact", [None, 0])
def test_the_table_never_exceeds_its_size(name: str, compact: int | None) -> None:
    limited, free = owned(name, table_size=25, compact=compact), owned("minmig", compact=compact)
    sizes, free_sizes = [], []
    for seed in range(15):
        hashes = events(seed, swapped=200)
        limited.route_batch(hashes, None, 0.0)
        free.route_batch(hashes, None, 0.0)
        plan = planned(limited)
        sizes.append(len(plan["table"]))
        free_sizes.append(len(planned(free)["table"]))
        assert plan["feasible"]
    assert max(sizes) <= 25 < max(free_sizes)


def test_what_can_not_be_balanced_is_reported() -> None:
    grouping = owned("mixed", table_size=3)
    hashes = events(1, skew=1.6)
    grouping.route_batch(hashes, None, 0.0)
    plan = planned(grouping)
    assert not plan["feasible"] and plan["max_overload"] > 0.08 and plan["refused"] >= 1 and len(plan["table"]) <= 3
    assert loads_of(grouping, hashes).max() / (len(hashes) / WORKERS) - 1 == pytest.approx(plan["max_overload"])


def test_plans_come_by_themselves_when_the_interval_has_passed() -> None:
    grouping = create("mixed", WORKERS, {"interval": 10})
    hashes = events(1)
    imbalance = []
    for now in (100.0, 105.0, 109.9, 110.0, 115.0):
        routed = np.bincount(grouping.route_batch(hashes, None, now), minlength=WORKERS)
        imbalance.append(routed.max() / routed.mean())
    assert imbalance[:3] == [imbalance[0]] * 3 and imbalance[0] > 1.2
    assert imbalance[3] == imbalance[4] <= 1.08 and grouping.epoch == 1
    grouping.route_batch(hashes, None, 50.0)
    assert grouping.epoch == 1
    grouping.route("alone", now=1_000_000.0)
    assert [key.share for key in grouping.hot(5)] == [1.0]


def test_an_old_plan_is_ignored_and_a_wrong_one_refused() -> None:
    grouping = owned("llfd")
    grouping.route_batch(events(1), None, 0.0)
    plan = grouping.plan([grouping.statistics()])
    before = grouping.snapshot()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({**plan, "workers": WORKERS + 1}, "not a plan for 8 workers"),
        ({**plan, "table": [[1, WORKERS]]}, "not a plan for 8 workers"),
        ({**plan, "table": [[1, 2], [1, 3]]}, "two workers for one key"),
        ({**plan, "table": [[1, 2, 3]]}, "not a plan: "),
        ({"changed": True}, "not a plan: "),
    ]
    for given, message in wrong:
        with pytest.raises(ValueError, match=message):
            grouping.apply(given)
        assert grouping.snapshot() == before
    grouping.apply(plan)
    after = grouping.snapshot()
    grouping.apply({**plan, "changed": False})
    assert grouping.snapshot() == after


@pytest.mark.parametrize(
    "statistics",
    [
        {},
        {"keys": [], "cost": [], "state": [], "background": [0.0]},
        {"keys": [1], "cost": [2.0], "state": [], "background": [0.0] * WORKERS},
        {"keys": [2**64], "cost": [1.0], "state": [1.0], "background": [0.0] * WORKERS},
        {"keys": [1], "cost": [-1.0], "state": [1.0], "background": [0.0] * WORKERS},
        {"keys": [1], "cost": [float("nan")], "state": [1.0], "background": [0.0] * WORKERS},
    ],
)
def test_wrong_statistics_are_refused(statistics: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="statistics"):
        owned("mixed").plan([statistics])


@every_name
def test_a_resize_drops_the_entries_of_workers_that_are_gone(name: str) -> None:
    grouping = owned(name)
    grouping.route_batch(events(1), None, 0.0)
    before = dict(planned(grouping)["table"])
    grouping.route_batch(events(2), None, 0.0)
    grouping.resize(WORKERS - 3)
    homes = create("key", WORKERS - 3).route_batch(HASHES, None, 0.0).tolist()
    for key, hashed, home in zip(KEYS, HASHES[:, 0].tolist(), homes, strict=True):
        kept = before.get(hashed, WORKERS) < WORKERS - 3
        assert grouping.explain(key).candidates == (before[hashed] if kept else home,)
    plan = planned(grouping)
    assert plan["feasible"] and loads_of(grouping, events(2)).max() <= 1.08001 * 4_000 / 5


def test_endless_new_keys_leave_memory_bounded_and_heavy_keys_planned() -> None:
    grouping = owned("mixed", tracked_keys=500, window=5)
    random = np.random.default_rng(1)
    heavy = hash_keys([b"heavy"])[0, 0]
    neighbours = HASHES[create("key", WORKERS).route_batch(HASHES, None, 0.0) == grouping.route("heavy")][:3, 0]
    tracked, infeasible = [], 0
    for step in range(12):
        hashes = random.integers(-(2**63), 2**63 - 1, (20_000, 1))
        if step >= 6:
            hashes[::100, 0] = heavy
            hashes[1::100, 0] = neighbours[step % 3]
        grouping.route_batch(hashes, None, 0.0)
        tracked.append(len(grouping.snapshot()["state"]["keys"]))
        infeasible += not planned(grouping)["feasible"]
    assert max(tracked) <= 1_000 and heavy in [key.hash for key in grouping.hot(2)]
    assert infeasible <= 1
    share = grouping.explain("heavy").share
    assert share is not None and share == pytest.approx(0.01, rel=0.05)


def test_keys_that_are_not_tracked_weigh_on_their_homes() -> None:
    grouping = owned("mixed", tracked_keys=2)
    for key in KEYS[:50]:
        grouping.route(key, 2.0)
    statistics = grouping.statistics()
    expected = np.bincount(create("key", WORKERS).route_batch(HASHES[2:50], None, 0.0), minlength=WORKERS) * 2.0
    assert len(statistics["keys"]) == 2 and statistics["background"] == expected.tolist()


def test_a_plan_never_has_more_entries_than_keys_are_tracked() -> None:
    grouping, source = owned("minmig", tracked_keys=4, theta_max=0), owned("minmig")
    source.route_batch(events(1, skew=0.5), None, 0.0)
    plan = grouping.plan([source.statistics()])
    assert len(plan["table"]) == 4


def test_explanations_tell_table_share_and_age() -> None:
    grouping = owned("llfd", 2)
    for key in ("a", "b", "c", "d"):
        grouping.route(key, 3.0, now=7.0)
    grouping.route("a", 0.0, now=9.0)
    homes = {key: grouping.explain(key).home for key in "abcd"}
    explained = grouping.explain("a")
    assert (explained.share, explained.age, explained.width) == (0.25, 2.0, 1) and "not in the table" in explained.why
    hashed = int(hash_keys([b"a"])[0, 0])
    grouping.apply({"changed": True, "workers": 2, "table": [[hashed, 1 - (homes["a"] or 0)]]})
    explained = grouping.explain("a")
    assert explained.home is None and explained.candidates == (1 - (homes["a"] or 0),) and grouping.epoch == 1
    assert f"not its home {homes['a']}" in explained.why
    unknown = grouping.explain("new")
    assert (unknown.home,) == unknown.candidates and unknown.share is unknown.age is None
    assert "not known" in unknown.why
    assert [key.share for key in grouping.hot(9)] == [0.25] * 4 and grouping.hot(0) == []
