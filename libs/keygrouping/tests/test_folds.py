"""Folds say of whole columns what the aggregates say of each group's values, to the last bit."""

import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from keygrouping.aggregate import Aggregate, State, Sum, parse_aggregates
from keygrouping.aggregate.exact import Total, sum_of
from keygrouping.folds import Batch, Fold, Totals, fold_of
from keygrouping.grouped import Groups
from keygrouping.job.field_columns import FieldColumn
from keygrouping.slices import Slices

LARGE = (1 << 63) - 1
TINY = 5e-324
integers = st.integers(-LARGE - 1, LARGE) | st.integers(-3, 3) | st.sampled_from([LARGE, -LARGE - 1, 2**53 + 1])
fractions = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.1, 2.5, -0.0, 0.0, 1.0, 3.0, 1e16, -1e16, 1e-300, TINY, 1e300, -1e300, 1e308, 2.0**900, 2.0**63]
)
prices = st.integers(0, 10**6).map(lambda cents: cents / 100)
numbers = st.none() | integers | fractions | prices
Row = tuple[int, Any, Any]
events = st.lists(st.tuples(st.integers(0, 3), numbers, numbers), max_size=40)
OPS: list[dict[str, str]] = [
    {"op": "count"},
    {"op": "count", "field": "x"},
    {"op": "sum", "field": "x"},
    {"op": "mean", "field": "x"},
    {"op": "min", "field": "x"},
    {"op": "max", "field": "x"},
    {"op": "vwap", "field": "x", "weight": "y"},
]


def aggregate(**declared: str) -> Aggregate:
    return parse_aggregates([{"name": "a", **declared}])[0]


def positions(it: Aggregate) -> tuple[int, ...]:
    return tuple("xy".index(given.field) for given in it.inputs)


def values_of(it: Aggregate, rows: Iterable[Row]) -> list[Any]:
    """What `add_many` is given of some events."""
    picked = [tuple(row[1 + position] for position in positions(it)) for row in rows]
    return [fields[0] if len(fields) == 1 else fields for fields in picked]


def batches(groups: Groups, rows: Sequence[Row], size: int) -> Iterable[tuple[Batch, Sequence[Row]]]:
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        runs = groups.add(Slices.of([b"%d" % row[0] for row in part]), np.zeros(len(part), np.int64))
        yield Batch(runs, [FieldColumn.of([row[i] for row in part]) for i in (1, 2)], len(groups)), part


def folded(it: Aggregate, rows: Sequence[Row], size: int) -> dict[int, Any]:
    """The fold's states by group, of batches of this size."""
    fold, groups = fold_of(it), Groups()
    for batch, _ in batches(groups, rows, size):
        fold.add(batch, positions(it))
    return by_key(groups, fold)


def by_key(groups: Groups, fold: Fold) -> dict[int, Any]:
    keys = [int(key or b"") for key in groups.keys]
    return dict(zip(keys, fold.encoded(), strict=True))


def grouped_rows(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def bits(state: Any) -> str:
    """All of a state: 0.0 and -0.0 differ, and 1 and 1.0."""
    return json.dumps(state)


@pytest.mark.parametrize("declared", OPS, ids=lambda declared: "-".join(declared.values()))
@given(rows=events, size=st.integers(1, 40))
@example(rows=[(0, 1e16, 1), (0, 1.0, 1), (0, -1e16, 1), (0, 1e-16, 1), (0, 1e-40, 1)], size=2)
@example(rows=[(0, 1e308, 2), (0, 1e308, 1), (0, -1e308, 1)], size=40)
@example(rows=[(0, 2**53, 1), (0, float(2**53), 1), (0, 2**53 + 1, 1)], size=1)
@example(rows=[(0, LARGE, 1), (0, LARGE, 1), (1, -LARGE - 1, 1), (1, -LARGE - 1, 1)], size=3)
def test_a_fold_says_what_the_aggregate_says_of_all_values_at_once(
    declared: dict[str, str], rows: list[Row], size: int
) -> None:
    it = aggregate(**declared)
    found = folded(it, rows, size)
    expected = {
        key: it.encode(it.add_many(it.initial(), values_of(it, members))) for key, members in grouped_rows(rows).items()
    }
    assert bits(found) == bits(expected)


@given(events, st.integers(1, 40))
def test_a_variance_is_that_of_the_same_batches(rows: list[Row], size: int) -> None:
    it = aggregate(op="variance", field="x")
    expected: dict[int, State] = {}
    for start in range(0, len(rows), size):
        for key, members in grouped_rows(rows[start : start + size]).items():
            state = it.add_many(expected.get(key, it.initial()), values_of(it, members))
            expected[key] = state
    assert bits(folded(it, rows, size)) == bits({key: it.encode(state) for key, state in expected.items()})


@given(st.lists(st.tuples(st.integers(0, 3), integers | fractions, st.none()), max_size=40), st.integers(1, 40))
def test_weights_are_rounded_once(rows: list[Row], size: int) -> None:
    totals, groups = Totals(), Groups()
    for batch, _ in batches(groups, rows, size):
        totals.add_column(batch, batch.fields[0])
    expected = [sum_of([row[1] for row in members]) for members in grouped_rows(rows).values()]
    assert bits(totals.rounded()) == bits(expected)


def test_sums_of_numbers_of_all_sizes_are_exact() -> None:
    """Far more of them have no room in three floats than are held at once."""
    chance = random.Random(1)
    values = [math.ldexp(chance.uniform(-1, 1), chance.randrange(-1000, 890)) for _ in range(3000)]
    it = aggregate(op="sum", field="x")
    (found,) = folded(it, [(0, value, None) for value in values], 100).values()
    assert found == it.encode(it.add_many(it.initial(), values))
    assert len(found["parts"]) > 20


def test_a_sum_beyond_the_floats_stays_infinite() -> None:
    it = aggregate(op="sum", field="x")
    (found,) = folded(it, [(0, 1e308, None)] * 200, 10).values()
    assert found == {"n": 200, "whole": "0", "parts": ["Infinity"]}
    assert it.decode(found)[1] == Total(0, (math.inf,))


@pytest.mark.parametrize("size", [7, 64, 139])
def test_a_sum_that_is_beyond_the_floats_only_in_between_is_exact(size: int) -> None:
    it = aggregate(op="sum", field="x")
    (found,) = folded(it, [(0, 1e308, None)] * 70 + [(0, -1e308, None)] * 69, size).values()
    assert it.decode(found)[1] == Total(0, (1e308,))


@pytest.mark.parametrize("spread", [5, 100, 10**6])
@pytest.mark.parametrize("mean", [0, 10**9, 1_750_000_000_000, 1_750_000_000_000_000])
@pytest.mark.parametrize("size", [10, 100, 5000])
def test_a_variance_far_from_zero_is_off_by_what_its_means_are_rounded_by(mean: int, spread: int, size: int) -> None:
    chance = random.Random(size)
    values = [mean + chance.randrange(spread) for _ in range(5000)]
    it = aggregate(op="variance", field="x")
    (state,) = folded(it, [(0, value, None) for value in values], size).values()
    exact = statistics.variance(values)
    bound = 0.5 * math.ulp(mean) / exact**0.5 if size < len(values) else 0
    assert it.finish(it.decode(state)) == pytest.approx(exact, rel=bound + 1e-14)


class EvenSum(Sum):
    """One that takes even numbers only."""

    def add_many(self, state: State, values: Iterable[Any]) -> State:
        return super().add_many(state, [value for value in values if value % 2 == 0])


def test_a_class_that_derives_from_one_of_ours_adds_in_its_own_way() -> None:
    found = folded(EvenSum(name="a", field="x"), [(0, 1, None), (0, 2, None), (0, 4, None)], 2)
    assert found == {0: {"n": 2, "whole": "6", "parts": []}}


def test_groups_of_later_batches_follow_those_of_earlier_ones() -> None:
    it = aggregate(op="sum", field="x")
    rows = [(key, key, None) for round_ in range(3) for key in range(100 * (round_ + 1))]
    assert {key: int(state["whole"]) for key, state in folded(it, rows, 70).items()} == {
        key: key * (3 - key // 100) for key in range(300)
    }
