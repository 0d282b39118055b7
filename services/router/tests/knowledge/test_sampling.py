"""Laws of the sample, of comparisons on it, and of trials with other settings."""

import math
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.grouping import create
from keygrouping.hashing import hash_keys
from keygrouping.measure import Distribution
from keygrouping_router.control.groupings import new_grouping
from keygrouping_router.control.orders import ShadowGrouping
from keygrouping_router.control.state import Control
from keygrouping_router.knowledge import trial
from keygrouping_router.knowledge.balance import Balance
from keygrouping_router.knowledge.sampling import (
    MOST_BYTES,
    MOST_EVENTS,
    MOST_PER_SECOND,
    MOST_SECONDS,
    Recent,
    Sampler,
    Slice,
)
from keygrouping_router.knowledge.shadow import Shadow, candidates
from keygrouping_router.knowledge.trial import Changes, InForce, compare

from ..planes import skewed

WORKERS = 5
ALIKE = np.ones(WORKERS)


def take(sampler: Sampler, keys: list[bytes], now: float = 0.0) -> Slice | None:
    return sampler.take(keys, hash_keys(keys)[:, 0], None, now)


def slices_of(keys: list[bytes], size: int = 1000, seconds: float = 60.0) -> list[Slice]:
    sampler, starts = Sampler(1.0), range(0, len(keys), size)
    taken = [take(sampler, keys[start : start + size], seconds * start / len(keys)) for start in starts]
    return [one for one in taken if one is not None]


def tried(before: Control, after: Control, slices: list[Slice]) -> Changes:
    return compare(InForce(before, new_grouping(before), 10.0, {}), after, slices)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.floats(0.01, 1))
def test_the_share_is_kept_and_so_is_the_order(sizes: list[int], share: float) -> None:
    sampler, taken, number = Sampler(share), 0, 0
    for size in sizes:
        batch = [b"%d" % (number + i) for i in range(size)]
        number += size
        found = take(sampler, batch)
        if found is not None:
            places = [batch.index(key) for key in found.keys]
            assert places == sorted(set(places))
            assert (found.hashes == hash_keys(found.keys)[:, 0]).all()
            taken += len(found.keys)
    assert abs(taken - share * number) <= 6 * math.sqrt(number * share * (1 - share)) + 1e-6


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.dictionaries(st.integers(0, 7), st.integers(1, 3000), min_size=2),
    order=st.lists(st.integers(0, 7), min_size=1, max_size=40),
    share=st.floats(0.02, 0.5),
)
def test_no_partition_is_favoured_whatever_the_size_and_the_order_of_its_batches(
    sizes: dict[int, int], order: list[int], share: float
) -> None:
    sampler, given, taken = Sampler(share), Counter[int](), Counter[int]()
    for partition in (order * 20)[:400]:
        if partition in sizes:
            given[partition] += sizes[partition]
            found = take(sampler, [b"key"] * sizes[partition])
            taken[partition] += len(found.keys) if found else 0
    for partition, events in given.items():
        assert abs(taken[partition] - share * events) <= 6 * math.sqrt(share * events) + 1, partition


def test_a_partition_with_large_batches_between_small_ones_has_its_share() -> None:
    sampler, seen = Sampler(0.1), Counter[bytes]()
    for _ in range(300):
        for key, size in ((b"large", 300), (b"small", 20)):
            found = take(sampler, [key] * size)
            seen.update(found.keys if found else ())
    assert seen[b"large"] / seen.total() == pytest.approx(300 / 320, abs=0.02)


def test_no_place_in_a_batch_is_favoured() -> None:
    sampler, batch = Sampler(0.1), [b"%d" % number for number in range(1000)]
    seen = np.zeros(1000)
    for _ in range(1000):
        found = take(sampler, batch)
        assert found is not None
        seen[[int(key) for key in found.keys]] += 1
    assert seen.min() > 0.5 * seen.mean() and seen.max() < 1.6 * seen.mean()


def test_of_much_traffic_less_is_sampled_and_each_event_stands_for_more() -> None:
    sampler, batch = Sampler(0.5), [b"key"] * 100_000
    shares = []
    for per_second in (0.0, MOST_PER_SECOND, 10.0 * MOST_PER_SECOND):
        sampler.expect(per_second)
        found = take(sampler, batch)
        assert found is not None and found.stands_for == 1 / sampler.share
        assert len(found.keys) * found.stands_for == pytest.approx(100_000, rel=0.05)
        assert found.traffic is not None and found.traffic.sum() == pytest.approx(100_000, rel=0.05)
        shares.append(sampler.share)
    assert shares == [0.5, 0.5, 0.1]


def test_what_is_kept_of_the_sample_is_bounded() -> None:
    recent = Recent()
    for number in range(30):
        recent.add(Slice([b"k"] * 10_000, np.zeros(10_000, np.int64), None, number))
    kept = recent.slices()
    assert sum(len(one.keys) for one in kept) == MOST_EVENTS
    assert [one.now for one in kept] == list(range(10, 30)), "the newest"
    big = Slice([b"k" * (MOST_BYTES // 2)], np.zeros(1, np.int64), None, 0.0)
    for _ in range(4):
        recent.add(big)
    assert len(recent.slices()) == 2


def test_a_sample_of_the_present_traffic_holds_nothing_old() -> None:
    recent = Recent()
    for minute in range(31):
        recent.add(Slice([b"k"], np.zeros(1, np.int64), None, minute * 60.0))
    assert recent.slices()[0].now == 30 * 60 - MOST_SECONDS
    recent.add(Slice([b"k"], np.zeros(1, np.int64), None, 86_400.0))
    assert [one.now for one in recent.slices()] == [86_400.0]


def test_a_shadow_measures_what_the_library_measures() -> None:
    control = Control(grouping="key", workers=WORKERS, shadow=(ShadowGrouping(name="pkg"),))
    in_force = Balance(ALIKE)
    shadow = Shadow(control, candidates(control, []), in_force)
    truth = {name: (create(name, WORKERS), Distribution(WORKERS)) for name in ("key", "pkg")}
    for taken in slices_of(skewed(8000, 0.4, 1, 200)):
        shadow.feed(taken)
        for grouping, distribution in truth.values():
            workers = grouping.route_batch(hash_keys(taken.keys, grouping.seeds), None, taken.now)
            distribution.add_many(workers, taken.keys)
            if grouping.name == "key":
                in_force.current.add(taken.hashes, workers, None)
    in_force.end_interval()
    list(shadow.end_interval(10.0, 0))
    for results in (shadow.recent(), shadow.run()):
        assert [(result.name, result.in_force) for result in results] == [("key", True), ("pkg", False)]
        for result in results:
            measures = truth[result.name][1].run()
            assert result.events == measures.events == 8000
            assert (result.lambda_, result.std_dev) == (measures.lambda_, measures.std_dev)
            assert result.dist_cost == measures.dist_cost
    assert results[1].lambda_ < results[0].lambda_


def test_a_shadow_without_whole_interval_shows_what_there_is_and_then_the_last_one() -> None:
    control = Control(grouping="key", workers=WORKERS, shadow=(ShadowGrouping(name="pkg"),))
    shadow = Shadow(control, candidates(control, []), Balance(ALIKE))
    first, second = slices_of(skewed(2000, 0.4, 1))
    shadow.feed(first)
    assert shadow.recent()[1].events == 1000
    list(shadow.end_interval(10.0, 0))
    shadow.feed(second)
    assert (shadow.recent()[1].events, shadow.run()[1].events) == (1000, 2000)


def test_what_is_only_observed_is_compared_with_key_hashing() -> None:
    control = Control(grouping="w-choices", workers=WORKERS, observe_only=True)
    in_force, by_key = Balance(ALIKE), create("key", WORKERS)
    shadow = Shadow(control, candidates(control, []), in_force)
    for taken in slices_of(skewed(20_000, 0.5, 1)):
        in_force.current.add(taken.hashes, by_key.route_batch(taken.hashes.reshape(-1, 1), None, 0.0), None)
        shadow.feed(taken)
    routed, observed = shadow.run()
    assert (routed.name, observed.name) == ("key", "w-choices")
    assert observed.lambda_ < 1.2 < routed.lambda_
    assert observed.hot_keys > 0


def test_a_trial_tells_what_other_settings_bring() -> None:
    before = Control(grouping="w-choices", workers=WORKERS, settings={"threshold": 2.0})
    after = before.with_thresholds({"threshold": 0.1}, partial=True)
    changes = tried(before, after, slices_of(skewed(20_000, 0.5, 1)))
    assert changes.sampled_events == 20_000
    assert changes.hot_keys.before == 1 and (changes.hot_keys.after or 0) > 1
    assert {change.before for change in changes.widths} == {2} and {change.after for change in changes.widths} == {5}
    assert changes.widths[0].name == b"key-0", "the heaviest first"
    same = tried(before, before, slices_of(skewed(5000, 0.5, 1)))
    assert same.widths == [] and same.lambda_.before == same.lambda_.after


def test_a_trial_gives_time_to_what_depends_on_time() -> None:
    before = Control(grouping="dkg", workers=WORKERS)
    never = before.with_thresholds({"warm_up": 1e6}, partial=False)
    changes = tried(never, before, slices_of(skewed(20_000, 0.6, 1), seconds=1.0))
    assert changes.lambda_.before is not None and changes.lambda_.after is not None
    assert changes.lambda_.after < changes.lambda_.before - 0.1
    widened = {change.name: (change.before, change.after) for change in changes.widths}
    assert widened[b"key-1000"][0] == 2 < widened[b"key-1000"][1]


@pytest.mark.parametrize("slices", [[], slices_of([b"a"])])
def test_a_trial_on_little_or_nothing_is_no_fault(slices: list[Slice]) -> None:
    control = Control(grouping="dkg", workers=WORKERS)
    changes = tried(control, control, slices)
    assert changes.sampled_events == len(slices)
    assert (changes.lambda_.before is None) == (not slices)


def test_what_is_and_what_would_be_are_played_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the routing most of the time: one after the other they would take twice as long."""
    begun, play = threading.Barrier(2, timeout=300), trial._play

    def together(*given: Any) -> Any:
        begun.wait()
        return play(*given)

    monkeypatch.setattr(trial, "_play", together)
    control, slices = Control(grouping="pkg", workers=4), slices_of(skewed(5000, 0.5, 1))
    assert tried(control, replace(control, workers=5), slices).lambda_.after is not None
    shadows = replace(control, shadow=(ShadowGrouping(name="key"),))
    assert len(trial.side_by_side(InForce(control, new_grouping(control), 10.0, {}), shadows, slices)) == 2
