"""SpaceSaving against exact counts: never an error beyond the stated bound, and nothing heavy is missed."""

import json
import math
from typing import Any

import datasketches
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from keygrouping.hashing import hash_keys
from keygrouping.keyspace import SpaceSaving, WindowedSpaceSaving
from numpy.typing import NDArray

KEYS = 40
CAPACITY = 4
HASHES = hash_keys([f"key{i}".encode() for i in range(KEYS)])[:, 0]
ROUNDING = 1e-9

weights = st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, 7.25, 1e6])
events = st.lists(st.tuples(st.sampled_from([0] * 8 + list(range(KEYS))), weights), max_size=80)
Events = list[tuple[int, float]]


def columns(stream: Events) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    return HASHES[[key for key, _ in stream]].astype(np.int64), np.array([weight for _, weight in stream], float)


def exact(stream: Events) -> NDArray[np.float64]:
    return np.bincount([key for key, _ in stream], [weight for _, weight in stream], KEYS).astype(float)


def zipf(events: int, keys: int, exponent: float, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keys of a Zipf stream, and the hash of each key."""
    popularity = np.arange(1, keys + 1) ** -exponent
    random = np.random.default_rng(seed)
    drawn = random.choice(keys, events, p=popularity / popularity.sum())
    return drawn, random.integers(-(2**63), 2**63 - 1, keys)


def assert_bounds(sketch: SpaceSaving | WindowedSpaceSaving, true: NDArray[np.float64], capacity: int) -> None:
    """Every true weight lies within its bounds, and no bounds are wider than they may be."""
    slack = ROUNDING * (1 + true.sum())
    assert sketch.total == pytest.approx(true.sum())
    for key in range(KEYS):
        lower, upper = sketch.bounds(int(HASHES[key]))
        assert lower - slack <= true[key] <= upper + slack
        assert upper - lower <= true.sum() / (capacity + 1) + slack


class Operations(RuleBasedStateMachine):
    """Whatever is added, faded and merged in whatever order."""

    def __init__(self) -> None:
        super().__init__()
        self.sketch = SpaceSaving(CAPACITY)
        self.true = np.zeros(KEYS)

    @rule(stream=events)
    def add(self, stream: Events) -> None:
        self.sketch.update(*columns(stream))
        self.true += exact(stream)

    @rule(factor=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    def fade(self, factor: float) -> None:
        self.sketch.decay(factor)
        self.true *= factor

    @rule(stream=events, factor=st.sampled_from([0.3, 1.0]))
    def merge(self, stream: Events, factor: float) -> None:
        other = SpaceSaving(CAPACITY)
        other.update(*columns(stream))
        other.decay(factor)
        before = other.to_data()
        self.sketch.merge(other)
        assert other.to_data() == before
        self.true += exact(stream) * factor

    @rule()
    def go_on_in_another_process(self) -> None:
        self.sketch = SpaceSaving.from_data(CAPACITY, json.loads(json.dumps(self.sketch.to_data(), allow_nan=False)))

    @invariant()
    def within_bounds(self) -> None:
        assert_bounds(self.sketch, self.true, CAPACITY)
        known = self.sketch.known()
        assert len(known) == len(self.sketch) <= 2 * CAPACITY
        assert len(self.sketch.counters) > 4 * CAPACITY
        assert {int(h) for h in known["hash"]} <= {int(h) for h in HASHES}


def test_bounds_hold_after_any_operations() -> None:
    run_state_machine_as_test(Operations, settings=settings(max_examples=25, stateful_step_count=20))


@given(st.lists(events, max_size=8), st.integers(1, 3))
def test_bounds_hold_within_a_sliding_window(panes: list[Events], size: int) -> None:
    sketch = WindowedSpaceSaving(CAPACITY, size)
    for number, stream in enumerate(panes):
        sketch.update(*columns(stream))
        within = sum((exact(pane) for pane in panes[max(0, number + 1 - size) : number + 1]), np.zeros(KEYS))
        assert_bounds(sketch, within, CAPACITY)
        assert_bounds(sketch.merged(), within, CAPACITY)
        sketch.slide()
        sketch = WindowedSpaceSaving.from_data(CAPACITY, size, json.loads(json.dumps(sketch.to_data())))


@given(events)
def test_an_event_at_a_time_is_all_at_once(stream: Events) -> None:
    single, batched = SpaceSaving(CAPACITY), SpaceSaving(CAPACITY)
    hashes, values = columns(stream)
    batched.update(hashes, values)
    for i in range(len(stream)):
        single.update(hashes[i : i + 1], values[i : i + 1])
    assert single.to_data() == batched.to_data()


@given(events, events)
def test_a_restored_sketch_goes_on_as_the_original(before: Events, after: Events) -> None:
    original = SpaceSaving(CAPACITY)
    original.update(*columns(before))
    restored = SpaceSaving.from_data(CAPACITY, original.to_data())
    for sketch in (original, restored):
        sketch.update(*columns(after))
    assert restored.to_data() == original.to_data()


@given(events, events, st.integers(1, 9))
def test_bounds_hold_under_another_capacity(before: Events, after: Events, capacity: int) -> None:
    original = SpaceSaving(CAPACITY)
    original.update(*columns(before))
    sketch = original.with_capacity(capacity)
    assert sketch.capacity == capacity and len(sketch) <= 2 * capacity
    assert sketch.tags_dropped == 0
    if capacity <= CAPACITY:
        assert_bounds(sketch, exact(before), capacity)
    else:
        assert sketch.known().tolist() == original.known().tolist()
    sketch.update(*columns(after))
    assert_bounds(sketch, exact([*before, *after]), min(capacity, CAPACITY))


def test_less_capacity_keeps_the_heaviest_and_counts_lost_tags() -> None:
    sketch = SpaceSaving(4)
    sketch.update(HASHES[[key for key in range(8) for _ in range(key + 1)]])
    sketch.counters["tag"] = sketch.counters["used"]
    smaller = sketch.with_capacity(2)
    assert smaller.known()["hash"].tolist() == HASHES[[7, 6]].tolist()
    assert (smaller.offset, smaller.tags_dropped) == (6, 6)
    assert len(sketch) == 8


def test_few_keys_are_counted_exactly() -> None:
    sketch = SpaceSaving(CAPACITY)
    sketch.update(HASHES[[0, 1, 1, 2, 2, 2]])
    assert [sketch.bounds(int(HASHES[key])) for key in range(4)] == [(1, 1), (2, 2), (3, 3), (0, 0)]
    assert sketch.known()["hash"].tolist() == HASHES[[2, 1, 0]].tolist()


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_all_heavy_hitters_of_a_long_stream_are_found_as_by_datasketches(exponent: float) -> None:
    keys, capacity = 50_000, 200
    drawn, hashes = zipf(300_000, keys, exponent)
    sketch, peer = SpaceSaving(capacity), datasketches.frequent_items_sketch(9)
    sketch.update(hashes[drawn])
    for key in drawn[:50_000].tolist():
        peer.update(key)
    true = np.bincount(drawn, minlength=keys)
    ranked = np.argsort(-true)[:400].tolist()
    limit = len(drawn) / (capacity + 1)
    for key in ranked:
        lower, upper = sketch.bounds(int(hashes[key]))
        assert lower <= true[key] <= upper <= lower + limit
        assert true[key] <= limit or lower > 0
    early = SpaceSaving(capacity)
    early.update(hashes[drawn[:50_000]])
    for key in ranked:
        lower, upper = early.bounds(int(hashes[key]))
        assert lower <= peer.get_upper_bound(key) and peer.get_lower_bound(key) <= upper


def test_merging_sources_is_as_good_as_seeing_all() -> None:
    drawn, hashes = zipf(200_000, 20_000, 1.0)
    merged = SpaceSaving(100)
    for source in range(5):
        part = SpaceSaving(100)
        part.update(hashes[drawn[source::5]])
        merged.merge(part)
    true = np.bincount(drawn)
    assert merged.total == len(drawn) and merged.offset <= len(drawn) / 101
    for key in range(200):
        lower, upper = merged.bounds(int(hashes[key]))
        assert lower <= true[key] <= upper <= lower + merged.offset


def test_tags_go_along_and_losing_one_is_counted() -> None:
    sketch = SpaceSaving(2)
    sketch.update(HASHES[[0, 0, 0, 1]])
    for key in (0, 1):
        counter = sketch.find(int(HASHES[key]))
        assert counter is not None
        counter["tag"] = key + 1
    sketch.update(HASHES[[2, 3, 4]])
    known = sketch.known()
    assert dict(zip(known["hash"].tolist(), known["tag"].tolist(), strict=True)) == {
        int(HASHES[0]): 1,
        int(HASHES[4]): 0,
    }
    assert sketch.tags_dropped == 1


@pytest.mark.parametrize("capacity", [1, 7, 1000, 100_000])
def test_memory_stays_within_its_bound(capacity: int) -> None:
    assert SpaceSaving(capacity).counters.nbytes <= 32 * 8 * capacity


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, 10**9])
def test_capacities_and_panes_are_checked(wrong: Any) -> None:
    with pytest.raises(ValueError, match="capacity must be an integer"):
        SpaceSaving(wrong)
    with pytest.raises(ValueError, match="must be"):
        WindowedSpaceSaving(wrong, wrong)


@pytest.mark.parametrize(
    "damage",
    [
        {"hash": [1, 1]},
        {"hash": [1, 2**63]},
        {"hash": [1]},
        {"count": [1.0, -1.0]},
        {"count": [1.0, float("nan")]},
        {"error": [0.0, 9.0]},
        {"total": float("inf")},
        {"offset": None},
        {"hash": list(range(9)), "count": [1.0] * 9, "error": [0.0] * 9, "tag": [0] * 9},
    ],
)
def test_damaged_data_is_refused(damage: dict[str, Any]) -> None:
    sketch = SpaceSaving(CAPACITY)
    sketch.update(HASHES[[3, 3, 5]])
    with pytest.raises((KeyError, TypeError, ValueError)):
        SpaceSaving.from_data(CAPACITY, {**sketch.to_data(), **damage})


@pytest.mark.parametrize("weight", [math.nan, math.inf, -1.0])
def test_weights_that_are_none_are_refused(weight: float) -> None:
    sketch = SpaceSaving(CAPACITY)
    with pytest.raises(ValueError, match="weights must be finite and not negative; event 1 of the batch has"):
        sketch.update(HASHES[[3, 5]], np.array([1.0, weight]))
    assert not sketch.to_data()["hash"]


def test_sketches_of_other_capacities_and_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="capacity 5"):
        SpaceSaving(CAPACITY).merge(SpaceSaving(5))
    with pytest.raises(ValueError, match="same shape"):
        SpaceSaving(CAPACITY).update(HASHES, np.ones(3))
    with pytest.raises(ValueError, match="factor"):
        SpaceSaving(CAPACITY).decay(1.5)
    with pytest.raises(ValueError, match="needs 2 panes"):
        WindowedSpaceSaving.from_data(CAPACITY, 2, [])
