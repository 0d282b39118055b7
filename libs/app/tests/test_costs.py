"""What the calls of keys have cost of late."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from keygrouping_app.costs import WINDOW, Costs


def test_seconds_are_those_of_the_last_two_windows() -> None:
    costs = Costs(0.0)
    costs.add("a", 1.0, 1, 1.0)
    costs.add("b", 2.0, 1, WINDOW + 1)
    costs.add("a", 0.5, 0, WINDOW + 2)
    assert sorted(costs.by_key()) == [("a", 1.5, 1), ("b", 2.0, 1)]
    assert (costs.seconds, costs.events, costs.span(WINDOW + 2)) == (3.5, 2, WINDOW + 2)
    costs.add("c", 1.0, 1, 2 * WINDOW + 1)
    assert sorted(costs.by_key()) == [("a", 0.5, 0), ("b", 2.0, 1), ("c", 1.0, 1)]
    assert costs.span(2 * WINDOW + 1) == WINDOW
    assert costs.span(9 * WINDOW) == 0
    assert (list(costs.by_key()), costs.seconds, costs.events) == ([], 0, 0)


def test_idle_time_before_work_began_does_not_dilute_it() -> None:
    costs = Costs(0.0)
    for idle in range(3 * int(WINDOW)):
        costs.span(float(idle))  # as a member does that reports each second
    began = 3 * WINDOW + 5
    for second in range(1, 25):
        costs.add("a", 0.5, 1, began + second)
        assert costs.busy_span(began + second) == pytest.approx(max(10.0, second - 0.5))
    for second in range(25, 200):  # later both are the same: short pauses are a part of the work
        costs.add("a", 0.5, 1, began + second)
    assert costs.busy_span(began + 200) == costs.span(began + 200) >= WINDOW


def test_a_call_that_has_taken_long_counts_from_where_it_began() -> None:
    costs = Costs(0.0)
    for now in range(100):
        costs.span(float(now))
    costs.add_all(["a", "b"], [20.0, 2.0], [1, 1], 100.0)
    assert costs.busy_span(100.0) == pytest.approx(20.0)


def test_calls_that_are_told_together_count_as_they_would_one_by_one() -> None:
    together, single = Costs(0.0), Costs(0.0)
    for now in (1.0, WINDOW + 1, WINDOW + 2, 9 * WINDOW):
        keys: list[Hashable] = ["a", "b", "a"]
        seconds, events = [0.5, 2.0, 0.25], [1, 3, 2]
        together.add_all(keys, seconds, events, now)
        for each in zip(keys, seconds, events, strict=True):
            single.add(*each, now)
        assert sorted(together.by_key(), key=str) == sorted(single.by_key(), key=str)
        assert (together.seconds, together.events) == (single.seconds, single.events)


def test_many_keys_told_together_take_bounded_memory() -> None:
    costs = Costs(0.0)
    for first in range(0, 100_000, 500):
        costs.add_all(list(range(first, first + 500)), [0.001] * 500, [1] * 500, 1.0)
    assert len(list(costs.by_key())) <= 16_384
    assert costs.events == 100_000


def test_many_keys_take_bounded_memory_and_hot_ones_stay() -> None:
    costs = Costs(0.0)
    for number in range(100_000):
        costs.add(number, 0.001, 1, 1.0)
        costs.add(f"hot-{number % 3}", 0.002, 1, 1.0)
    found = {key: seconds for key, seconds, _ in costs.by_key()}
    assert len(found) <= 16_384
    assert [found[f"hot-{each}"] for each in range(3)] == [pytest.approx(66.67, rel=0.001)] * 3
    assert costs.seconds == pytest.approx(300)
    assert costs.events == 200_000
