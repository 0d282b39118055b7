"""D-Choices and W-Choices: who is of the head, how many workers it needs, and the balance that it brings."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from keygrouping.grouping import Explanation, create
from keygrouping.grouping.choices.d_choices import choices_needed
from keygrouping.grouping.choices.head import HeadGrouping
from keygrouping.grouping.choices.load_tree import first_leaf, loads_of, tree_of
from keygrouping.hashing import hash_key, hash_keys, worker_of
from keygrouping.workload import workload
from numpy.typing import NDArray

EVENTS = 300_000
KEYS = 10_000
HASHES = hash_keys([f"key{i}".encode() for i in range(KEYS)], (13, 17))
both = pytest.mark.parametrize("name", ["d-choices", "w-choices"])


def key_of(number: int) -> bytes:
    return f"key{number}".encode()


def zipf_shares(exponent: float) -> NDArray[np.float64]:
    popularity = np.arange(1, KEYS + 1) ** -exponent
    return np.asarray(popularity / popularity.sum(), np.float64)


def zipf(exponent: float, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).choice(KEYS, EVENTS, p=zipf_shares(exponent))


def made(name: str, workers: int, settings: dict[str, object] | None = None) -> HeadGrouping[Any]:
    grouping = create(name, workers, settings)
    assert isinstance(grouping, HeadGrouping)
    return grouping


def route(name: str, workers: int, keys: NDArray[np.int64]) -> NDArray[np.int32]:
    return create(name, workers).route_batch(HASHES[keys], None, 0.0)


def imbalance(workers: int, routed: NDArray[np.int32]) -> float:
    """The largest load above the mean, as a part of all events."""
    return float(np.bincount(routed, minlength=workers).max() / len(routed) - 1 / workers)


@pytest.mark.parametrize(
    ("workers", "exponent", "choices"),
    [
        (10, 1.0, 2), (10, 1.4, 10), (10, 2.0, 10),
        (50, 1.0, 6), (50, 1.4, 22), (50, 2.0, 49),
        (100, 0.8, 4), (100, 1.0, 12), (100, 1.4, 43), (100, 2.0, 97),
    ],
)  # fmt: skip
def test_the_published_number_of_choices(workers: int, exponent: float, choices: int) -> None:
    shares = zipf_shares(exponent)
    assert choices_needed(shares[shares >= 1 / (5 * workers)], workers, 1e-4) == choices


def test_a_key_of_the_head_never_has_fewer_choices_than_one_of_the_tail() -> None:
    """The public code gives one choice here, or none."""
    shares = zipf_shares(0.8)
    assert choices_needed(shares[shares >= 1 / 50], 10, 1e-4) == 2
    assert choices_needed(np.array([0.001]), 10, 0.5) == 2
    assert choices_needed(np.empty(0), 10, 0.0) == 2
    assert choices_needed(np.array([0.9]), 1, 0.0) == 1


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=6), st.integers(2, 40), st.sampled_from([0.0, 1e-4, 0.05]))
def test_the_number_of_choices_is_the_smallest_that_balances_every_prefix(
    sizes: list[float], workers: int, tolerance: float
) -> None:
    shares = np.sort(np.array(sizes) / max(1.0, sum(sizes)))[::-1]

    def balances(choices: int, rounding: float) -> bool:
        reached = 1 - (1 - 1 / workers) ** (choices * np.arange(1, len(shares) + 1))
        prefix = np.cumsum(shares)
        weight = prefix + reached**choices * (prefix[-1] - prefix) + reached**2 * (1 - prefix[-1])
        return bool(np.all(weight <= reached + tolerance + rounding))

    found = choices_needed(shares, workers, tolerance)
    assert found == workers or balances(found, 1e-12)
    assert not any(balances(choices, -1e-12) for choices in range(2, found))


class ExactWChoices:
    """W-Choices by exact counts of few keys, one event after the other."""

    def __init__(self, workers: int, threshold: float, spread: str) -> None:
        self.loads = [0.0] * workers
        self.enter, self.spread, self.turn = threshold / workers, spread, 0
        self.counts: dict[int, float] = {}
        self.head: set[int] = set()
        self.events = 0
        self.often = self.until_review = math.ceil(workers / threshold)

    def belongs(self, key: int) -> bool:
        count, total = self.counts[key], sum(self.counts.values())
        limit = 0.75 * self.enter if key in self.head else self.enter
        return count > 0 and count >= limit * total and count * self.events >= 8 * total

    def review(self) -> None:
        """Now and then what has become light without being seen leaves the head."""
        self.until_review -= 1
        if self.until_review <= 0:
            self.head = {key for key in self.head if self.belongs(key)}
            self.until_review = min(max(self.events // 8, self.often), 64 * self.often)

    def route(self, key: int, weight: float) -> int:
        self.counts[key] = self.counts.get(key, 0.0) + weight
        self.events += 1
        hot = self.belongs(key)
        (self.head.add if hot else self.head.discard)(key)
        self.review()
        workers = len(self.loads)
        first, second = (worker_of(hash_key(key_of(key), seed), workers) for seed in (13, 17))
        second = (second + 1) % workers if first == second else second
        if not hot:
            worker = second if self.loads[first] > self.loads[second] else first
        elif self.spread == "round-robin":
            worker = self.turn = (self.turn + 1) % workers
        else:
            worker = self.loads.index(min(self.loads))
        self.loads[worker] += weight
        return worker


@example([(0, 1.0)] * 20 + [(key, 2.0) for key in range(1, 11)] * 10, 3, "least-loaded")
@example([(0, 1.0)] * 8 + [(key, 1.0) for key in range(1, 9)] + [(9, 2.0), (10, 0.5), (11, 0.5)], 6, "round-robin")
@given(
    st.lists(st.tuples(st.sampled_from([0] * 6 + list(range(12))), st.sampled_from([1.0, 2.0, 0.5])), max_size=120),
    st.integers(3, 9),
    st.sampled_from(["least-loaded", "round-robin"]),
)
def test_decisions_are_those_of_exact_counts(stream: list[tuple[int, float]], workers: int, spread: str) -> None:
    grouping = made("w-choices", workers, {"threshold": 1.5, "spread": spread})
    exact = ExactWChoices(workers, 1.5, spread)
    expected = [exact.route(key, weight) for key, weight in stream]
    weights = np.array([weight for _, weight in stream], float)
    keys = np.array([key for key, _ in stream], int)
    assert grouping.route_batch(HASHES[keys], weights, 0.0).tolist() == expected
    assert {counter.hash for counter in grouping.hot(99)} == {int(HASHES[key, 0]) for key in exact.head}


@pytest.mark.parametrize(("exponent", "most"), [(1.0, 1e-4), (1.4, 1e-5)])
@both
def test_balance_where_two_choices_are_not_enough(name: str, exponent: float, most: float) -> None:
    keys = zipf(exponent)
    assert imbalance(50, route("pkg", 50, keys)) > 0.025
    assert imbalance(50, route(name, 50, keys)) < most


@both
@pytest.mark.parametrize("workers", [10, 50])
def test_balance_of_one_hot_country(name: str, workers: int) -> None:
    grouping = create(name, workers)
    stream = workload("country-skew-80", 100_000)
    names = hash_keys([stream.table.name(i) for i in range(len(stream.table))], grouping.seeds)
    loads = np.zeros(workers)
    for chunk in stream.chunks():
        loads += np.bincount(grouping.route_batch(names[chunk.keys], None, 0.0), minlength=workers)
    assert loads.max() / loads.mean() < 1.001


@pytest.mark.parametrize(("exponent", "published"), [(0.8, 0.16), (1.0, 0.39)])
def test_the_head_is_as_small_as_its_keys_are_few(exponent: float, published: float) -> None:
    """With 100 counters and counts that are too high by their errors all events are of the head."""
    grouping = made("w-choices", 50)
    grouping.route_batch(HASHES[zipf(exponent)], None, 0.0)
    shares = dict(zip(HASHES[:, 0].tolist(), zipf_shares(exponent).tolist(), strict=True))
    hot = grouping.hot(KEYS)
    assert sum(shares[key.hash] for key in hot) == pytest.approx(published, abs=0.03)
    assert all(key.share <= shares[key.hash] * 1.15 for key in hot)


def test_only_certain_weight_makes_a_key_hot() -> None:
    grouping = made("w-choices", 50)
    cold = np.arange(100, KEYS)
    keys = np.tile(cold, 20)
    keys[len(keys) // 2 :: 132] = 7
    grouping.route_batch(HASHES[keys], None, 0.0)
    lower, upper = grouping._keys.bounds(int(HASHES[7, 0]))
    true, threshold = np.count_nonzero(keys == 7), 0.2 / 50 * len(keys)
    assert lower <= true < threshold < 2 * upper - lower
    assert grouping.hot(9) == []


@both
def test_distinct_keys_alone_make_no_head(name: str) -> None:
    grouping = made(name, 50)
    grouping.route_batch(HASHES[np.arange(KEYS)], None, 0.0)
    assert grouping.hot(10) == [] and grouping.epoch == 0


def test_d_choices_uses_fewer_workers_per_key_than_w_choices() -> None:
    keys = zipf(1.0)
    pairs = {name: len(np.unique(keys * 50 + route(name, 50, keys))) for name in ("pkg", "d-choices", "w-choices")}
    assert pairs["pkg"] < pairs["d-choices"] < pairs["w-choices"]


def test_the_width_follows_a_new_hot_key_soon() -> None:
    grouping = made("d-choices", 50)
    cold = np.arange(KEYS)
    grouping.route_batch(HASHES[cold], None, 0.0)
    assert grouping.width == 2
    half_hot = np.where(cold % 2 == 0, 77, cold)
    grouping.route_batch(HASHES[half_hot], None, 0.0)
    share = grouping.hot(1)[0].share
    assert 0.2 < share < 0.26 and 0.8 * 50 * share < grouping.width < 50


def test_candidates_are_different_even_and_grow_with_the_width() -> None:
    workers = 12
    thirds = np.zeros(workers)
    for key in range(2400):
        hashed, second = HASHES[key].tolist()
        grown: tuple[int, ...] = ()
        grouping = made("d-choices", workers)
        for width in (2, 3, 7, 11):
            grouping._counts["width"] = width
            candidates = grouping._candidates(hashed, second, True)
            assert candidates[: len(grown)] == grown and len(set(candidates)) == len(candidates) == width
            grown = candidates
        assert grown[:2] == create("pkg", workers).explain(key_of(key)).candidates
        thirds[grown[2]] += 1
    assert np.all(np.abs(thirds - 200) < 4 * 200**0.5)


def test_yesterdays_hot_key_leaves_the_head() -> None:
    grouping = made("w-choices", 10, {"half_life": 10})
    cold = np.arange(1000)
    for second in range(400):
        hot = np.full(500, 1 if second < 200 else 2)
        grouping.route_batch(HASHES[np.concatenate((hot, cold[100:600]))], None, float(second))
        if second in (199, 399):
            assert [key.hash for key in grouping.hot(5)] == [int(HASHES[1 if second == 199 else 2, 0])]
    assert grouping.explain(key_of(1)).width == 2 and grouping.explain(key_of(2)).width == 10


def test_a_key_at_the_threshold_does_not_come_and_go() -> None:
    grouping = made("w-choices", 10, {"threshold": 0.5})
    random = np.random.default_rng(0)
    keys = np.where(random.random(EVENTS) < 0.05, 7, random.integers(1000, KEYS, EVENTS))
    grouping.route_batch(HASHES[keys], None, 0.0)
    assert grouping.epoch <= 3


def test_loads_and_counts_go_by_weight() -> None:
    grouping = made("w-choices", 4)
    keys = np.tile([1, 2, 3, 4, 5, 6], 400)
    weights = np.where(keys == 6, 500.0, 1.0)
    routed = grouping.route_batch(HASHES[keys], weights, 0.0)
    assert [key.hash for key in grouping.hot(9)] == [int(HASHES[6, 0])]
    loads = np.bincount(routed, weights, minlength=4)
    assert loads.max() / loads.mean() < 1.02


@both
def test_a_resize_keeps_what_is_known_of_keys(name: str) -> None:
    grouping = made(name, 40)
    grouping.route_batch(HASHES[zipf(1.4)], None, 0.0)
    before = grouping.hot(5)
    for workers in (8, 60):
        grouping.resize(workers)
        hot = grouping.hot(5)
        assert [key.hash for key in hot] == [key.hash for key in before]
        assert all(2 < key.width == grouping.width <= workers for key in hot)
        routed = grouping.route_batch(HASHES[zipf(1.4)], None, 0.0)
        assert imbalance(workers, routed) < 1e-3


@both
def test_a_resize_is_one_epoch_though_the_sketch_forgets_hot_keys(name: str) -> None:
    grouping = made(name, 12, {"threshold": 1.0})
    grouping.route_batch(HASHES[np.tile(np.arange(11), 20)], None, 0.0)
    assert len(grouping.hot(20)) == 11
    epoch = grouping.epoch
    grouping.resize(1)
    assert len(grouping.hot(20)) < 11
    assert grouping.epoch == epoch + 1


def test_explanations_tell_head_from_tail() -> None:
    grouping = made("w-choices", 10)
    grouping.route_batch(HASHES[np.tile([1, 1, 1, 2], 100)], None, 0.0)
    hot = grouping.explain(key_of(1))
    assert hot.home is not None and hot.candidates == tuple((hot.home + i) % 10 for i in range(10))
    assert hot == Explanation(
        hot.home, hot.candidates, 10, 0.75, None,
        "of the head (at least 75.00 % of the weight, threshold 2.00 %): the least loaded of 10 workers",
        "head", 0.0,
    )  # fmt: skip
    cold = grouping.explain(key_of(3))
    assert (cold.width, cold.share, cold.space, cold.hot_since) == (2, None, None, None)
    assert cold.why == "of the tail (not counted, threshold 2.00 %): the less loaded of its two choices"


@given(
    st.integers(1, 700), st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 1.0, 3.0])), max_size=60)
)
def test_the_tree_always_knows_the_first_of_the_least_loaded(workers: int, steps: list[tuple[int, float]]) -> None:
    from keygrouping.grouping.choices.load_tree_kernel import add_load, least_loaded

    loads = np.asarray(np.arange(workers) % 3 / 2, np.float64)
    tree = tree_of(loads)
    leaf = first_leaf(workers)
    for number, weight in steps:
        least = least_loaded(tree, leaf)
        assert least == int(np.argmin(loads))
        worker = least if number % 2 else number % workers
        loads[worker] += weight
        add_load(tree, leaf, worker, weight)
        assert loads_of(tree, workers).tolist() == loads.tolist()
    assert tree.tolist() == tree_of(loads).tolist()


@pytest.mark.parametrize("workers", [1, 100, 5000, 100_000])
def test_memory_stays_within_its_bound(workers: int) -> None:
    grouping = made("w-choices", workers)
    assert grouping._keys.counters.nbytes <= min(1024 * workers / 0.2, 17e6)
    assert grouping._tree.nbytes <= max(72 * workers, 128)
