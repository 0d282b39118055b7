"""Consistent Grouping loads workers by their capacity, and moves as little as possible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import GroupingError, create
from keygrouping.grouping._virtual_workers import allotted, quotas
from keygrouping.grouping.consistent import Consistent, ConsistentSettings
from keygrouping.grouping.protocol import Hashes, Weights, Workers

HASHES = np.random.default_rng(11).integers(-(2**63), 2**63 - 1, (20_000, 1))


def zipf(events: int, exponent: float = 1.0, keys: int = 10_000, seed: int = 1) -> Hashes:
    shares = np.arange(1, keys + 1, dtype=float) ** -exponent
    chosen = np.searchsorted(np.cumsum(shares / shares.sum())[:-1], np.random.default_rng(seed).random(events))
    return HASHES[chosen]


def loads_of(grouping: Consistent, hashes: Hashes, now: float = 0.0) -> Weights:
    return np.bincount(grouping.route_batch(hashes, None, now), minlength=grouping.workers).astype(float)


def worst(loads: Weights, capacities: Weights) -> float:
    """The largest utilisation over the average one."""
    return float((loads / capacities).max() * capacities.sum() / loads.sum())


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.4, 2.0])
@pytest.mark.parametrize(
    ("given_capacities", "capacities"),
    [
        ((), [1.0] * 10),
        ((1.0, 1, 1, 1, 1, 2, 2, 2, 4, 4), [1.0, 1, 1, 1, 1, 2, 2, 2, 4, 4]),
        ((0.5, 3.0), [0.5, 3.0, 1, 1, 1, 1, 1, 1, 1, 1]),
        ((2.0,) * 12, [1.0] * 10),
    ],
    ids=["equal", "unequal", "missing ones are 1", "more than workers"],
)
def test_workers_are_loaded_by_their_capacity_whatever_the_skew(
    given_capacities: tuple[float, ...], capacities: list[float], exponent: float
) -> None:
    grouping = Consistent(10, ConsistentSettings(capacities=given_capacities, virtual_workers=64))
    assert worst(loads_of(grouping, zipf(200_000, exponent)), np.array(capacities)) < 1.12


def test_no_virtual_worker_exceeds_the_tolerance() -> None:
    for tolerance in (0.02, 0.3):
        grouping = Consistent(5, ConsistentSettings(tolerance=tolerance))
        grouping.route_batch(zipf(100_000, 1.2), None, 0.0)
        loads = np.array(grouping.snapshot()["state"]["loads"])
        assert loads.max() <= (1 + tolerance) * loads.mean() + 1
        assert loads.sum() == 100_000


def test_light_keys_stay_together_and_heavy_ones_are_split_as_far_as_need_be() -> None:
    grouping = Consistent(20)
    hashes = zipf(200_000, 1.2)
    routed = grouping.route_batch(hashes, None, 0.0)
    keys, inverse = np.unique(hashes, return_inverse=True)
    pairs = np.unique(inverse.ravel() * 20 + routed)
    widths = np.bincount(pairs // 20, minlength=len(keys))
    heaviest = widths[np.argsort(-np.bincount(inverse.ravel()))]
    assert heaviest[0] >= 5 and heaviest[:3].min() >= heaviest[100:].mean() + 1
    assert np.median(heaviest) == 1 and widths.mean() < 2.5


def test_weights_count_not_events() -> None:
    grouping = Consistent(4)
    grouping.route("a", 1000.0)
    assert grouping.explain("a").why.endswith(
        f"(1 before it are); worker {grouping.explain('a').candidates[-1]} owns it"
    )
    grouping.route("a", 1.0)
    assert sorted(grouping.snapshot()["state"]["loads"])[-3:] == [0, 1, 1000]


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=9),
    st.lists(st.integers(0, 9), min_size=16, max_size=64),
)
def test_virtual_workers_are_allotted_in_proportion_with_the_fewest_moves(
    capacities: list[float], before: list[int]
) -> None:
    given_capacities, owners = np.array(capacities), np.array(before, np.int32)
    counts = quotas(given_capacities, len(owners))
    assert counts.sum() == len(owners)
    assert np.all(np.abs(counts - given_capacities * len(owners) / given_capacities.sum()) < 1)
    after = allotted(owners, counts)
    assert np.bincount(after, minlength=len(counts)).tolist() == counts.tolist()
    held = np.bincount(np.minimum(owners, len(counts)), minlength=len(counts) + 1)[:-1]
    assert np.count_nonzero(after != owners) == np.maximum(counts - held, 0).sum()


def homes(grouping: Consistent) -> Workers:
    """The owner of the first virtual worker of each key."""
    return np.take(grouping.owners, HASHES[:, 0] & (len(grouping.owners) - 1))


def test_a_new_worker_takes_its_share_and_nothing_else_moves() -> None:
    grouping = Consistent(10)
    before = homes(grouping)
    grouping.resize(11)
    after = homes(grouping)
    moved = before != after
    assert set(after[moved]) == {10}
    assert moved.mean() == pytest.approx(1 / 11, rel=0.2)


def test_only_the_keys_of_a_worker_that_goes_move() -> None:
    grouping = Consistent(10)
    before = homes(grouping)
    grouping.resize(9)
    after = homes(grouping)
    assert np.array_equal(before != after, before == 9)
    assert np.bincount(after, minlength=9).std() < 0.2 * len(after) / 9


def test_many_more_workers_split_virtual_workers_and_still_share_alike() -> None:
    grouping = Consistent(2, ConsistentSettings(virtual_workers=8))
    before = homes(grouping)
    assert len(grouping.owners) == 16
    grouping.resize(40)
    after = homes(grouping)
    assert len(grouping.owners) == 512
    assert set(before[after < 2]) == {0, 1} and np.array_equal(before[after < 2], after[after < 2])
    assert worst(loads_of(grouping, zipf(100_000)), np.ones(40)) < 1.3
    grouping.resize(2)
    assert len(grouping.owners) == 512 and worst(loads_of(grouping, zipf(100_000)), np.ones(2)) < 1.1


def test_signals_of_overload_and_idleness_find_capacities_that_nobody_knew() -> None:
    """Binary signals after each interval: a worker that is more than 5 % above or below the average utilisation."""
    capacities = np.array([1.0, 1, 2, 3, 1])
    grouping = Consistent(5, ConsistentSettings(virtual_workers=64))
    history = []
    for step in range(100):
        loads = loads_of(grouping, zipf(20_000, 1.0, seed=step), float(step))
        history.append(worst(loads, capacities))
        utilisation = loads / capacities / (loads.sum() / capacities.sum())
        overloaded, idle = np.flatnonzero(utilisation > 1.05), np.flatnonzero(utilisation < 0.95)
        grouping.move(overloaded.tolist(), idle.tolist())
    assert history[0] > 1.5 and max(history[-10:]) < 1.15
    found = np.bincount(grouping.owners)
    grouping.resize(6)
    kept = np.bincount(grouping.owners)
    assert kept[:5] / kept[:5].sum() == pytest.approx(found / found.sum(), rel=0.1)


def test_a_move_is_a_new_epoch_and_leaves_a_worker_its_last_virtual_worker() -> None:
    grouping = Consistent(2, ConsistentSettings(virtual_workers=2))
    assert grouping.move([0], [1]) == 1 and grouping.epoch == 1
    assert np.bincount(grouping.owners).tolist() == [1, 3]
    assert grouping.move([0], [1]) == 0 and grouping.move([1], [1]) == 0 and grouping.epoch == 1
    with pytest.raises(ValueError, match="workers must be from 0 to 1"):
        grouping.move([0, 1], [1, 2])
    assert np.bincount(grouping.owners).tolist() == [1, 3]


def test_yesterday_leaves_no_room_for_a_hot_key_of_today() -> None:
    fading, lifetime = Consistent(10), Consistent(10, ConsistentSettings(half_life=None))
    for grouping in (fading, lifetime):
        grouping.route_batch(zipf(200_000, 0.0), None, 0.0)
    burst = np.repeat(HASHES[-1:], 5_000, axis=0)
    assert worst(loads_of(fading, burst, 3600.0), np.ones(10)) < 1.3
    assert worst(loads_of(lifetime, burst, 3600.0), np.ones(10)) > 1.3


@pytest.mark.parametrize("capacities", [[1, 0], [-1.0], [float("nan")]])
def test_capacities_are_above_zero(capacities: list[float]) -> None:
    with pytest.raises(GroupingError, match="capacities must be"):
        create("consistent", 3, {"capacities": capacities})


def plain(keys: list[int], weights: list[float], owners: list[int], tolerance: float) -> list[int]:
    """Consistent Grouping over one stretch of time, as its docstring has it."""
    loads = [0.0] * len(owners)
    routed = []
    for key, weight in zip(keys, weights, strict=True):
        number = key % 2**64
        place, step = number % len(owners), (number >> 32) | 1
        full = (1 + tolerance) * sum(loads) / len(owners)
        for _ in owners:
            if loads[place] <= full:
                break
            place = (place + step) % len(owners)
        loads[place] += weight
        routed.append(owners[place])
    return routed


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([1.0, 2.0, 0.5])), min_size=1, max_size=200),
    st.integers(1, 9),
    st.sampled_from([0.1, 0.5, 2.0]),
)
def test_it_does_what_a_plain_model_does(events: list[tuple[int, float]], workers: int, tolerance: float) -> None:
    grouping = Consistent(workers, ConsistentSettings(virtual_workers=4, tolerance=tolerance, half_life=None))
    hashes = HASHES[[number for number, _ in events]]
    weights = [weight for _, weight in events]
    owners = grouping.owners.tolist()
    routed = grouping.route_batch(hashes, np.array(weights), 0.0)
    assert routed.tolist() == plain(hashes[:, 0].tolist(), weights, owners, tolerance)
