"""DStream's predictor keeps the bounds that the paper proves, or what they should have been."""

import json
from math import exp
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.keyspace import HotKeyPredictor, PredictorRules
from numpy.typing import NDArray

SLOW_DECLINE = 1e-5
"""So slow that nothing is forgotten within a test."""


def random_hashes(keys: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, keys)


def zipf(events: int, keys: int, exponent: float) -> NDArray[np.int64]:
    popularity = np.arange(1, keys + 1) ** -exponent
    return np.random.default_rng(7).choice(random_hashes(keys), events, p=popularity / popularity.sum())


def announced(predictor: HotKeyPredictor) -> NDArray[np.int64]:
    candidates = predictor.strongest()
    hashes: NDArray[np.int64] = candidates["hash"][candidates["announced"] != 0]
    return hashes


def least_precision(c: int, r: int) -> float:
    """Lower bound of P(N >= 2 ** c) for an announced key: inequality (2) of theorem 1."""
    return (1 + 2.0 ** (c - r)) * exp(-(2.0 ** (c - r)))


def test_the_bound_is_that_of_the_papers_table() -> None:
    published = {128: 99.28, 256: 97.35, 512: 90.98, 1024: 73.53}
    for c, (count, per_cent) in enumerate(published.items(), start=7):
        assert count == 2**c and 100 * least_precision(c, 10) == pytest.approx(per_cent, abs=0.05)


@pytest.mark.parametrize("threshold", [0, 3, 6])
def test_an_update_takes_more_heads_than_the_threshold(threshold: int) -> None:
    events, updates = 1 << (threshold + 10), 1024 / 2
    predictor = HotKeyPredictor(PredictorRules(SLOW_DECLINE, threshold), seed=3)
    predictor.observe(random_hashes(events))
    assert len(predictor) == pytest.approx(updates, abs=4 * updates**0.5)
    bits = predictor.strongest()["bits"]
    for number in range(4):
        share = 2.0 ** -(number + 1)
        spread = 4 * (share / updates) ** 0.5
        assert np.mean(bits == 1 << number) == pytest.approx(share, abs=spread)


def test_the_longest_runs_share_the_last_bit() -> None:
    predictor = HotKeyPredictor(PredictorRules(SLOW_DECLINE, threshold=0, length=3))
    predictor.observe(random_hashes(4096))
    bits = predictor.strongest()["bits"].tolist()
    assert set(bits) == {1, 2, 4}
    assert bits.count(4) == pytest.approx(bits.count(2), rel=0.2)


@pytest.mark.parametrize("count", [8, 32, 64, 128, 256, 1024])
def test_a_key_is_announced_with_the_probability_of_lemma_1(count: int) -> None:
    r, keys = 6, 2000
    predictor = HotKeyPredictor(PredictorRules(SLOW_DECLINE, r), seed=count)
    predictor.observe(np.repeat(random_hashes(keys), count))
    least = (1 - exp(-count / 2 ** (r + 2))) ** 3
    most = 1 - (1 + (count - 1) / 2**r) * exp(-(count - 1) / 2**r)
    share = len(announced(predictor)) / keys
    assert least - 3 * (least / keys) ** 0.5 < share < most + 3 * (most / keys) ** 0.5


def test_an_announced_key_is_frequent_with_the_probability_of_theorem_1() -> None:
    """The theorem takes every number of events for equally likely."""
    r, keys = 6, 6000
    counts = np.random.default_rng(0).integers(1, 2 ** (r + 3), keys)
    hashes = random_hashes(keys)
    predictor = HotKeyPredictor(PredictorRules(SLOW_DECLINE, r))
    predictor.observe(np.repeat(hashes, counts))
    hot = counts[np.isin(hashes, announced(predictor))]
    assert len(hot) > keys / 4
    for c in range(r - 3, r + 1):
        assert np.mean(hot >= 2**c) > least_precision(c, r)


@pytest.mark.parametrize(("exponent", "size", "hot"), [(1.0, 145, 19), (0.8, 185, 12)])
def test_the_synopsis_is_as_large_as_published_rules_make_it(exponent: float, size: int, hot: int) -> None:
    """Theorem 3 says (H, 1 / p), but half of the new keys stay for more than 1 / p updates: it takes 2 / p."""
    p = 0.01
    predictor = HotKeyPredictor(PredictorRules(p), seed=1)
    sizes, numbers = [], []
    for part in np.split(zipf(400_000, 100_000, exponent), 100):
        predictor.observe(part)
        sizes.append(len(predictor))
        numbers.append(len(announced(predictor)))
    assert np.mean(sizes[25:]) == pytest.approx(size, rel=0.05)
    assert np.mean(numbers[25:]) == pytest.approx(hot, rel=0.4)
    popularity = np.arange(1, 100_001) ** -exponent
    above = np.count_nonzero(popularity / popularity.sum() > 2 * p)
    assert all(above < size < 2.5 / p for size in sizes[25:])


def test_keys_above_twice_the_decline_stay_and_leave_when_they_end() -> None:
    """Theorem 2: evicted within about (1 / p) * log2(share / p) updates."""
    p, share = 0.01, 0.08
    random = np.random.default_rng(5)
    rare, key = random_hashes(400_000), 42
    hot = np.where(random.random(len(rare)) < share, key, rare)
    predictor = HotKeyPredictor(PredictorRules(p), seed=2)
    predictor.observe(hot[:100_000])
    stays = []
    for part in np.split(hot[100_000:], 60):
        predictor.observe(part)
        stays.append(key in announced(predictor) and key in predictor.filter)
    assert np.mean(stays) > 0.9
    updates = 8 / p
    predictor.observe(rare[: int(4 * updates * 2**7)])
    assert predictor.find(key) is None and key not in predictor.filter


def test_the_share_is_about_right() -> None:
    shares = {1: 0.5, 2: 0.12, 3: 0.03}
    random = np.random.default_rng(0)
    rare = random_hashes(600_000)
    stream = random.choice([1, 2, 3, 0], len(rare), p=[*shares.values(), 0.35])
    stream = np.where(stream == 0, rare, stream)
    predictor = HotKeyPredictor(PredictorRules(0.01), seed=4)
    seen: dict[int, list[float]] = {key: [] for key in shares}
    for part in np.split(stream, 100):
        predictor.observe(part)
        for key in shares:
            candidate = predictor.find(key)
            seen[key].append(0.0 if candidate is None else predictor.share(candidate))
    for key, share in shares.items():
        assert share / 3 < np.median(seen[key][20:]) < 3 * share


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 30), max_size=200), max_size=5), st.integers(0, 2**64 - 1))
def test_the_filter_holds_what_was_announced_and_nothing_else(parts: list[list[int]], seed: int) -> None:
    rules = PredictorRules(0.3, threshold=0, length=4)
    predictor = HotKeyPredictor(rules, seed)
    hashes, before = random_hashes(31), 0
    for part in parts:
        changes = predictor.observe(hashes[part])
        hot = announced(predictor).tolist()
        rebuilt = HotKeyPredictor.from_data(rules, json.loads(json.dumps(predictor.to_data())))
        assert rebuilt.filter.counters.tolist() == predictor.filter.counters.tolist()
        assert all(key in predictor.filter for key in hot)
        assert abs(len(hot) - before) <= changes and (changes - len(hot) + before) % 2 == 0
        assert len(predictor) <= rules.capacity
        before = len(hot)
        predictor = rebuilt


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5])
def test_an_update_shifts_every_candidate_with_the_same_probability(p: float) -> None:
    rules, trials = PredictorRules(p, threshold=0), 3000
    candidates = np.zeros(7, HotKeyPredictor(rules).synopsis.dtype)
    candidates["hash"], candidates["bits"] = np.arange(7), 1 << 15
    shifted = np.zeros(7)
    for seed in range(trials):
        predictor = HotKeyPredictor(rules, seed)
        predictor.replace(candidates)
        predictor.observe(np.array([-1]))
        shifted += predictor.synopsis["bits"][:7] == 1 << 14
    every_second_event_is_one = p / 2
    assert np.all(np.abs(shifted / trials - every_second_event_is_one) < 4 * (p / 2 / trials) ** 0.5)


def test_a_full_synopsis_takes_no_more() -> None:
    rules = PredictorRules(SLOW_DECLINE, threshold=0)
    predictor = HotKeyPredictor(rules)
    hashes = random_hashes(rules.capacity)
    full = np.zeros(rules.capacity, predictor.synopsis.dtype)
    full["hash"], full["bits"] = hashes, 1 << 15
    predictor.replace(full)
    predictor.observe(random_hashes(100, seed=9))
    assert len(predictor) == rules.capacity
    assert np.all(predictor.strongest()["bits"] >= 1 << 14)


def test_the_strongest_come_first() -> None:
    predictor = HotKeyPredictor(PredictorRules(0.01))
    rows = [(1, 0b0001, 0), (2, 0b1000, 0), (3, 0b0111, 1), (4, 0b0011, 1), (5, 0b1011, 1)]
    predictor.replace(np.array(rows, predictor.synopsis.dtype))
    assert predictor.strongest()["hash"].tolist() == [3, 5, 4, 1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"decline": 0.0},
        {"decline": 0.6},
        {"decline": 0.1, "threshold": 33},
        {"decline": 0.1, "threshold": -1},
        {"decline": 0.1, "length": 1},
        {"decline": 0.1, "length": 33},
    ],
)
def test_rules_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be from"):
        PredictorRules(**wrong)


@pytest.mark.parametrize(
    "synopsis",
    [
        [[1, 1, 0]] * 2,
        [[1, 0, 0]],
        [[1, 1 << 16, 0]],
        [[2**63, 1, 0]],
        [[key, 1, 0] for key in range(41)],
        [[1, 1]],
        7,
    ],
)
def test_damaged_data_is_refused(synopsis: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        HotKeyPredictor.from_data(PredictorRules(0.1), {"random": 1, "synopsis": synopsis})
