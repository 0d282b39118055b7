"""Laws of the sample, of comparisons on it, and of trials with other settings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.grouping import create
from keygrouping.hashing import hash_keys
from keygrouping.measure import Distribution
from keygrouping_router.control import Control
from keygrouping_router.models import ShadowGrouping
from keygrouping_router.sampling import MOST_BYTES, MOST_EVENTS, Recent, Sampler, Slice
from keygrouping_router.shadow import Shadow, candidates
from keygrouping_router.trial import compare

from .planes import skewed

WORKERS = 5


def take(sampler: Sampler, keys: list[bytes], now: float = 0.0) -> Slice | None:
    hashes = hash_keys(keys)
    return sampler.take(keys, hashes[:, 0], None, create("key", WORKERS).route_batch(hashes, None, now), now)


def slices_of(keys: list[bytes], size: int = 1000, seconds: float = 60.0) -> list[Slice]:
    sampler, starts = Sampler(1.0), range(0, len(keys), size)
    taken = [take(sampler, keys[start : start + size], seconds * start / len(keys)) for start in starts]
    return [one for one in taken if one is not None]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.floats(0.01, 1))
def test_the_share_is_kept_in_slices_that_are_parts_of_their_batches(sizes: list[int], share: float) -> None:
    sampler, taken, number = Sampler(share), 0, 0
    for size in sizes:
        batch = [b"%d" % (number + i) for i in range(size)]
        number += size
        found = take(sampler, batch)
        if found is not None:
            at = batch.index(found.keys[0])
            assert batch[at : at + len(found.keys)] == found.keys
            assert (found.hashes == hash_keys(found.keys)[:, 0]).all()
            taken += len(found.keys)
    assert share * number - max(sizes) - 1 <= taken <= share * number + 1


def test_no_place_in_a_batch_is_favoured() -> None:
    sampler, batch = Sampler(0.1), [b"%d" % number for number in range(1000)]
    seen = np.zeros(1000)
    for _ in range(1000):
        found = take(sampler, batch)
        assert found is not None
        seen[[int(key) for key in found.keys]] += 1
    assert seen[100:900].min() > 0.7 * seen.mean()


def test_what_is_kept_of_the_sample_is_bounded() -> None:
    recent = Recent()
    for number in range(30):
        recent.add(Slice([b"k"] * 10_000, np.zeros(10_000, np.int64), None, np.zeros(10_000, np.int32), number))
    kept = recent.slices()
    assert sum(len(one.keys) for one in kept) == MOST_EVENTS
    assert [one.now for one in kept] == list(range(20, 30)), "the newest"
    big = Slice([b"k" * (MOST_BYTES // 2)], np.zeros(1, np.int64), None, np.zeros(1, np.int32), 0.0)
    for _ in range(4):
        recent.add(big)
    assert len(recent.slices()) == 2


def test_a_shadow_measures_what_the_library_measures() -> None:
    control = Control(grouping="key", workers=WORKERS, shadow=(ShadowGrouping(name="pkg"),))
    shadow = Shadow(control, candidates(control, []))
    truth = {name: (create(name, WORKERS), Distribution(WORKERS)) for name in ("key", "pkg")}
    for taken in slices_of(skewed(8000, 0.4, 1, 200)):
        shadow.feed(taken)
        for grouping, distribution in truth.values():
            workers = grouping.route_batch(hash_keys(taken.keys, grouping.seeds), None, taken.now)
            distribution.add_many(workers, taken.keys)
    shadow.end_interval(0)
    for results in (shadow.recent(), shadow.run()):
        assert [(result.name, result.in_force) for result in results] == [("key", True), ("pkg", False)]
        for result in results:
            measures = truth[result.name][1].run()
            assert result.events == measures.events == 8000
            assert (result.lambda_, result.std_dev) == (measures.lambda_, measures.std_dev)
            assert result.dist_cost == measures.dist_cost
    assert results[1].lambda_ < results[0].lambda_


def test_a_shadow_without_whole_interval_shows_what_there_is_and_then_the_last_one() -> None:
    control = Control(grouping="key", workers=WORKERS)
    shadow = Shadow(control, [])
    first, second = slices_of(skewed(2000, 0.4, 1))
    shadow.feed(first)
    assert shadow.recent()[0].events == 1000
    shadow.end_interval(0)
    shadow.feed(second)
    assert (shadow.recent()[0].events, shadow.run()[0].events) == (1000, 2000)


def test_what_is_only_observed_is_compared_with_key_hashing() -> None:
    control = Control(grouping="w-choices", workers=WORKERS, observe_only=True)
    shadow = Shadow(control, candidates(control, []))
    for taken in slices_of(skewed(20_000, 0.5, 1)):
        shadow.feed(taken)
    in_force, observed = shadow.run()
    assert (in_force.name, observed.name) == ("key", "w-choices")
    assert observed.lambda_ < 1.2 < in_force.lambda_
    assert observed.hot_keys > 0


def test_a_trial_tells_what_other_settings_bring() -> None:
    before = Control(grouping="w-choices", workers=WORKERS, settings={"threshold": 2.0})
    after = before.with_thresholds({"threshold": 0.1}, partial=True)
    changes = compare(before, after, slices_of(skewed(20_000, 0.5, 1)))
    assert changes.sampled_events == 20_000
    assert changes.hot_keys.before == 1 and (changes.hot_keys.after or 0) > 1
    assert {change.before for change in changes.widths} == {2} and {change.after for change in changes.widths} == {5}
    assert changes.widths[0].key == "key-0", "the heaviest first"
    same = compare(before, before, slices_of(skewed(5000, 0.5, 1)))
    assert same.widths == [] and same.lambda_.before == same.lambda_.after


def test_a_trial_gives_time_to_what_depends_on_time() -> None:
    before = Control(grouping="dkg", workers=WORKERS)
    never = before.with_thresholds({"warm_up": 1e6}, partial=False)
    changes = compare(never, before, slices_of(skewed(20_000, 0.6, 1), seconds=1.0))
    assert changes.lambda_.before is not None and changes.lambda_.after is not None
    assert changes.lambda_.after < changes.lambda_.before - 0.1
    widened = {change.key: (change.before, change.after) for change in changes.widths}
    assert widened["key-1000"][0] == 2 < widened["key-1000"][1]


@pytest.mark.parametrize("slices", [[], slices_of([b"a"])])
def test_a_trial_on_little_or_nothing_is_no_fault(slices: list[Slice]) -> None:
    control = Control(grouping="dkg", workers=WORKERS)
    changes = compare(control, control, slices)
    assert changes.sampled_events == len(slices)
    assert (changes.lambda_.before is None) == (not slices)
