"""Laws of what a router counts of its keys: true bounds, true names, bounded memory."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.hashing import hash_key, hash_keys
from keygrouping.measure import KeySample
from keygrouping_router.knowledge.tracker import MOST_NAME_BYTES, PANES, Tracker

keys_of = st.lists(st.integers(0, 60), min_size=1, max_size=200)


def end_interval(tracker: Tracker) -> None:
    tracker.end_interval()
    for _ in tracker.forget():
        pass


def saw(tracker: Tracker, keys: list[bytes], now: float, weights: list[float] | None = None) -> None:
    given_weights = None if weights is None else np.array(weights)
    tracker.saw(keys, hash_keys(keys)[:, 0], given_weights, now)


@settings(max_examples=40, deadline=None)
@given(st.lists(keys_of, min_size=1, max_size=6), st.integers(1, 20))
def test_true_counts_lie_within_the_bounds(intervals: list[list[int]], capacity: int) -> None:
    tracker, truth = Tracker(capacity, 0.0), Counter[bytes]()
    for now, numbers in enumerate(intervals):
        keys = [b"%d" % number for number in numbers]
        saw(tracker, keys, float(now))
        truth.update(keys)
        if now < len(intervals) - 1:
            end_interval(tracker)
    counts = tracker.counts()
    assert counts.total == truth.total()
    for key, count in truth.items():
        lower, upper = counts.bounds(hash_key(key))
        assert lower <= count <= upper
    for hashed, sighting in tracker.sightings.items():
        assert sighting.name is not None and hash_key(sighting.name) == hashed, "its own name"
    if not counts.offset:
        assert set(tracker.sightings) == set(counts.known()["hash"].tolist())


def test_it_looks_back_on_so_many_intervals_and_forgets_older_ones() -> None:
    tracker = Tracker(10, 0.0)
    saw(tracker, [b"old"] * 5, 0.0, [2.0] * 5)
    for _ in range(PANES - 1):
        end_interval(tracker)
    saw(tracker, [b"new"], 50.0)
    assert tracker.counts().bounds(hash_key(b"old")) == (10.0, 10.0)
    saw(tracker, [b"old"], 60.0)
    assert tracker.last_seen(hash_key(b"old")) == pytest.approx(60.0, abs=0.1)
    for _ in range(PANES):
        assert tracker.last_seen(hash_key(b"old")) == pytest.approx(60.0, abs=0.1)
        saw(tracker, [b"new"], 70.0)
        end_interval(tracker)
    assert tracker.last_seen(hash_key(b"old")) == 0.0
    assert tracker.counts().bounds(hash_key(b"old")) == (0.0, 0.0)
    assert {seen.name for seen in tracker.sightings.values()} == {b"new"}


def test_times_are_those_of_the_first_and_the_newest_event() -> None:
    tracker = Tracker(10, 100.0)
    for now in (100.0, 107.3, 121.9):
        saw(tracker, [b"k"], now)
        end_interval(tracker)
    hashed = hash_key(b"k")
    assert tracker.sightings[hashed].first_seen == 100.0
    assert tracker.last_seen(hashed) == pytest.approx(121.9, abs=0.1)
    assert tracker.last_seen(hash_key(b"another")) == 0.0


def test_a_key_is_hot_since_it_became_so_last() -> None:
    tracker = Tracker(10, 0.0)
    tracker.note_hot([1, 2], 10.0)
    tracker.note_hot([2, 3], 20.0)
    tracker.note_hot([1, 2], 30.0)
    assert dict(tracker.hot_since) == {1: 30.0, 2: 10.0}


def test_names_stay_bounded_however_many_keys_come() -> None:
    tracker = Tracker(10, 0.0)
    for batch in range(60):
        saw(tracker, [b"%d-%d" % (batch, number) for number in range(100)], 0.0)
    assert len(tracker.sightings) <= 5 * PANES * 10
    assert len(tracker.counts()) <= 20


def test_a_key_is_named_at_once_or_where_too_many_come_with_its_second_event() -> None:
    tracker = Tracker(10, 0.0)
    saw(tracker, [b"early"], 0.0)
    assert tracker.sightings[hash_key(b"early")].name == b"early"
    saw(tracker, [b"%d" % number for number in range(100)], 1.0)
    saw(tracker, [b"once", b"twice"], 2.0)
    saw(tracker, [b"twice"], 3.0)
    assert hash_key(b"once") not in tracker.sightings
    assert tracker.sightings[hash_key(b"twice")].name == b"twice"
    assert tracker.last_seen(hash_key(b"once")) == pytest.approx(2.0, abs=0.1)


def test_of_a_long_key_only_the_hash_is_kept() -> None:
    tracker, long = Tracker(10, 0.0), b"x" * (MOST_NAME_BYTES + 1)
    saw(tracker, [long, long[1:]], 0.0)
    assert tracker.sightings[hash_key(long)].name is None
    assert tracker.sightings[hash_key(long[1:])].name == long[1:]


def sample_of(pairs: list[tuple[int, int]], most: int) -> KeySample:
    sample = KeySample(most)
    hashes = hash_keys([b"%d" % key for key, _ in pairs])[:, 0]
    sample.add(hashes, np.array([worker for _, worker in pairs], np.int32))
    return sample


pair_lists = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5)), max_size=300)


@settings(max_examples=40, deadline=None)
@given(pair_lists)
def test_a_sample_that_holds_all_pairs_is_exact(pairs: list[tuple[int, int]]) -> None:
    sample = sample_of(pairs, 4096)
    keys = len({key for key, _ in pairs})
    assert sample.keys == keys
    assert sample.dist_cost == (len(set(pairs)) / keys if keys else 1.0)


@settings(max_examples=40, deadline=None)
@given(pair_lists, pair_lists, st.sampled_from([16, 64, 4096]))
def test_samples_of_parts_merge_to_the_sample_of_the_whole(
    one: list[tuple[int, int]], other: list[tuple[int, int]], most: int
) -> None:
    whole, merged = sample_of(one + other, most), sample_of(one, most)
    merged.merge(sample_of(other, most))
    again = KeySample.from_data(merged.to_data(), most)
    for sample in (merged, again):
        assert (sample.keys, sample.dist_cost) == (whole.keys, whole.dist_cost)


def test_a_sample_estimates_what_it_cannot_hold() -> None:
    pairs = [(key, worker) for key in range(100_000) for worker in range(1 + key % 2)]
    sample = sample_of(pairs, 4096)
    assert sample.keys == pytest.approx(100_000, rel=0.1)
    assert sample.dist_cost == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize("broken", [{"level": 70}, {"hash": "AAAA"}, {"hash": 3}])
def test_a_broken_sample_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        KeySample.from_data({**KeySample().to_data(), **broken})
