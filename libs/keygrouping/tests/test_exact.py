"""Sums, means and extremes are exact: compared with Python's integers and fractions, whatever the split and order."""

import json
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from keygrouping.aggregate import Aggregate, parse_aggregates
from keygrouping.aggregate.exact import Total, parts_of, sum_of
from keygrouping.aggregate.expected import total as expected_total
from keygrouping.aggregate.expected import vwap_of
from keygrouping.job import Extracted, JobSpec, Rejection

LARGE = (1 << 63) - 1
integers = st.integers(-LARGE - 1, LARGE) | st.sampled_from([LARGE, -LARGE - 1, 10**17 + 1, 2**53 + 1, 1])
fractions = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.1, 2.5, 1e-300, -0.0, 1e308, 5e-324])
mixed = integers | fractions


def aggregate(op: str) -> Aggregate:
    return parse_aggregates([{"name": "a", "op": op, "field": "x"}])[0]


def travelled(it: Aggregate, state: Any) -> Any:
    return it.decode(json.loads(json.dumps(it.encode(state), allow_nan=False)))


def split(data: st.DataObject, op: str, values: list[Any]) -> Any:
    """The state of the values in any order, over any number of workers, in batches of any size."""
    it = aggregate(op)
    values = data.draw(st.permutations(values))
    workers = [it.initial() for _ in range(data.draw(st.integers(1, 4)))]
    while values:
        size, worker = data.draw(st.integers(1, len(values))), data.draw(st.integers(0, len(workers) - 1))
        workers[worker] = it.add_many(workers[worker], values[:size])
        values = values[size:]
    merged = it.initial()
    for state in workers:
        merged = it.merge(merged, travelled(it, state))
    return merged


def nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@given(st.data(), st.lists(integers, min_size=1, max_size=40))
def test_integers_are_added_up_as_integers(data: st.DataObject, values: list[int]) -> None:
    found = aggregate("sum").finish(split(data, "sum", values))
    assert type(found) is int
    assert found == sum(values)


@given(st.data(), st.lists(mixed.filter(lambda x: abs(x) < 1e300), min_size=1, max_size=40))
@example(None, [1, 2.5, 10**17 + 1])
@example(None, [10**17 + 1, 2.0, -2.0])
@example(None, [0.1] * 10)
@example(None, [1e300, 1, -1e300])
def test_a_sum_with_fractions_is_the_float_closest_to_the_exact_sum(data: Any, values: list[Any]) -> None:
    it = aggregate("sum")
    found = it.finish(split(data, "sum", values) if data else it.add_many(it.initial(), values))
    exact = sum(map(Fraction, values))
    assert found == (float(exact) if any(type(value) is float for value in values) else exact)
    assert type(found) is (float if any(type(value) is float for value in values) else int)


@given(st.data(), st.lists(mixed, min_size=1, max_size=20))
def test_any_split_gives_the_same_mean(data: st.DataObject, values: list[Any]) -> None:
    it = aggregate("mean")
    whole = it.finish(it.add_many(it.initial(), values))
    if abs(sum(map(Fraction, values), Fraction())) < Fraction(10**307) and all(abs(value) < 1e300 for value in values):
        assert it.finish(split(data, "mean", values)) == whole
        assert whole == float(sum_of(values)) / len(values)


@given(st.data(), st.lists(mixed, min_size=1, max_size=20), st.sampled_from([("min", min), ("max", max)]))
def test_extremes_are_the_numbers_that_came(data: st.DataObject, values: list[Any], op: Any) -> None:
    found = aggregate(op[0]).finish(split(data, op[0], values))
    assert found == op[1](values)
    assert type(found) is (int if any(type(value) is int and value == found for value in values) else float)


def test_extremes_of_large_integers_are_exact() -> None:
    it = aggregate("max")
    assert it.finish(it.add_many(it.initial(), [2**53, 2**53 + 1, float(2**53)])) == 2**53 + 1


@given(st.lists(fractions, min_size=1, max_size=30))
def test_parts_are_the_exact_sum_and_do_not_overlap(values: list[float]) -> None:
    exact, parts = sum(map(Fraction, values), Fraction()), parts_of(values)
    assert parts[0] == nearest(exact)
    if math.isfinite(parts[0]):
        assert sum(map(Fraction, parts)) == exact
        assert all(abs(low) <= math.ulp(high) / 2 for high, low in pairwise(parts))
        assert len(parts) <= 40


def test_a_sum_beyond_the_floats_is_infinite_and_stays_so() -> None:
    up, down = Total().plus([1e308, 1e308]), Total().plus([-1e308, -1e308])
    assert up.parts == (math.inf,)
    assert up.merged(Total(5)).rounded() == math.inf
    assert up.plus([1.0, 3]).rounded() == math.inf
    assert up.plus([1e308, 1e308]).rounded() == math.inf
    assert math.isnan(down.plus([math.inf, 1e308, 1e308]).rounded())
    assert math.isnan(up.merged(down).rounded())
    assert math.isnan(up.merged(down).merged(up).rounded())
    assert Total().plus([1e308, 1e308, -1e308]).rounded() == 1e308


JOB = JobSpec.from_json({"aggregates": [{"name": "s", "op": "sum", "field": "/a/x"}]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9223372036854775807", LARGE), ("-9223372036854775808", -LARGE - 1), ("1e20", 1e20), ("-1e300", -1e300),
        ("9223372036854775808", None), ("-9223372036854775809", None), ("18446744073709551616", None),
        ("1" * 5000, "invalid-json"), ("9223372036854775808.0", 2.0**63), ("1" * 300, None), ("-0", 0),
    ],
)  # fmt: skip
def test_an_integer_of_more_than_64_bits_is_refused_and_not_rounded(text: str, expected: Any) -> None:
    found = JOB.extract(b"k", f'{{"x": 1e30, "a": {{"x": {text}}}}}'.encode(), [], 0, 0)
    if expected is None or isinstance(expected, str):
        assert isinstance(found, Rejection)
        assert found.reason == (expected or "integer-too-large")
        assert "\n" not in found.detail
    else:
        assert isinstance(found, Extracted)
        assert found.fields == (expected,)
        assert type(found.fields[0]) is type(expected)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (np.array([1.5, 2.5]), 4.0),
        ([*np.array([3, 4])], 7),
        ([1, np.int64(5), 2.5], 8.5),
        ([Decimal("1.5"), 1], 2.5),
        ([np.float32(0.5), 2**70], float(2**70)),
    ],
)
def test_numbers_that_are_not_pythons_own_are_added_up(numbers: Any, expected: float) -> None:
    assert Total().plus(numbers).rounded() == expected


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError):
        Total().plus([1.5, "2"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1.79e308, 1.79e308, -1.79e308], 1.79e308),
        ([-1e308, -1e308, 1e308], -1e308),
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308, 5], -math.inf),
        ([math.inf, 1.0], math.inf),
        ([2**60, 0.5], float(2**60)),
    ],
)
def test_the_oracle_needs_no_sum_in_between(numbers: list[float], expected: float) -> None:
    assert expected_total(numbers) == expected


def test_the_oracle_has_no_answer_where_infinities_meet() -> None:
    assert math.isnan(expected_total([math.inf, -math.inf]))
    assert vwap_of([(1.79e308, 2.0), (-1.79e308, 2.0)]).accept(None)
