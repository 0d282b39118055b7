"""Compact statistics: representatives, the bound of their errors, and what merging keeps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping.table.compact import MAX_EXPONENT, Groups, discretised

exponents = st.integers(0, MAX_EXPONENT)
costs = st.lists(st.floats(1, 5_000) | st.integers(1, 300).map(float), min_size=1, max_size=200)


def rounded(values: list[float], exponent: int) -> list[float]:
    return [float(value) for value in discretised(np.array(values), np.zeros(len(values), np.int64), exponent)]


def test_the_representatives_of_8_by_degree_4_are_8_4_2_1() -> None:
    assert rounded([8, 4, 2, 1], 2) == [8, 4, 2, 1]
    assert set(rounded([8, 7, 6, 5, 4, 3, 3, 2, 2, 1], 2)) == {8, 4, 2, 1}


def test_degree_1_keeps_every_integer() -> None:
    assert rounded([37, 36, 12, 5, 3, 2, 1, 1], 0) == [37, 36, 12, 5, 3, 2, 1, 1]


def test_a_deviation_so_far_is_made_good_by_the_larger_representative() -> None:
    """8 -> 8; 6 -> 4 leaves 2; each 3 -> 4 takes 1 of it: the course of the example in section 4.2."""
    assert rounded([1, 3, 8, 3, 6, 1], 2) == [1, 4, 8, 4, 4, 1]


def test_zeros_stay_and_values_below_1_give_the_unit() -> None:
    assert rounded([0, 0.25, 0.5, 1.0, 2.0, 0], 2) == [0, 0.25, 0.5, 1.0, 2.0, 0]
    assert rounded([0, 0], 3) == [0, 0]
    assert rounded([], 3) == []


@given(values=costs, exponent=exponents)
def test_every_value_gets_one_of_its_two_neighbours(values: list[float], exponent: int) -> None:
    degree = 2**exponent
    largest = math.ceil(max(values) / degree) * degree
    representatives = [float(degree * i) for i in range(largest // degree, 0, -1)]
    representatives += [2.0**i for i in range(exponent - 1, -1, -1)]
    assert len(representatives) == math.ceil(max(values) / degree) + exponent
    for value, chosen in zip(values, rounded(values, exponent), strict=True):
        lower = max(r for r in representatives if r <= value)
        upper = min((r for r in representatives if r > value), default=lower)
        assert chosen in (lower, upper)


@given(values=costs, exponent=exponents)
def test_no_sum_of_the_largest_values_is_off_by_more_than_the_degree(values: list[float], exponent: int) -> None:
    falling = sorted(values, reverse=True)
    missing = np.cumsum(np.array(falling) - np.array(rounded(falling, exponent)))
    assert np.abs(missing).max() <= 2**exponent * (1 + 1e-9)


@given(values=costs, others=costs, exponent=exponents)
def test_every_part_is_rounded_by_itself(values: list[float], others: list[float], exponent: int) -> None:
    parts = np.repeat([3, 1], [len(values), len(others)])
    both = discretised(np.array([*values, *others]), parts, exponent)
    assert both.tolist() == [*rounded(values, exponent), *rounded(others, exponent)]


@given(
    keys=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 2), st.integers(0, 2)), max_size=60),
    exponent=exponents,
)
def test_keys_with_equal_vectors_are_one_group(keys: list[tuple[int, int, int, int]], exponent: int) -> None:
    table = np.array(keys, np.int64).reshape(-1, 4)
    cost, state, home, worker = table[:, 0].astype(float), table[:, 1].astype(float), table[:, 2], table[:, 3]
    groups = Groups.compact(cost, state, home, worker, exponent)
    assert sorted(groups.members) == list(range(len(keys)))
    group = np.repeat(np.arange(len(groups.number)), groups.number)
    assert np.array_equal(groups.home[group], home[groups.members])
    assert np.array_equal(groups.worker[group], worker[groups.members])
    assert np.array_equal(groups.cost[group], discretised(cost, worker, exponent)[groups.members])
    assert np.array_equal(groups.state[group], discretised(state, worker, exponent)[groups.members])
    vectors = list(zip(groups.cost, groups.state, groups.home, groups.worker, strict=True))
    assert len(set(vectors)) == len(vectors)


@pytest.mark.parametrize("exponent", range(MAX_EXPONENT + 1))
def test_the_load_of_a_worker_is_estimated_within_the_published_one_per_cent(exponent: int) -> None:
    """Figure 11b: below 1 % for degrees 1 to 256. Here it is R over the load at most, 0.4 % for the largest."""
    share = 1 / np.arange(1, 10_001) ** 0.85
    random = np.random.default_rng(1)
    cost = random.multinomial(1_000_000, share / share.sum()).astype(float)
    worker = random.integers(0, 15, len(cost))
    groups = Groups.compact(cost, 5 * cost, worker, worker, exponent)
    actual = np.bincount(worker, cost)
    estimated = np.bincount(groups.worker, groups.cost * groups.number)
    assert np.abs(estimated / actual - 1).max() <= 2**exponent / actual.min() < 0.01
    assert exponent == 0 or len(groups.cost) < len(cost) / 2
