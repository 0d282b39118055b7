"""What the calls of keys have cost of late."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from keygrouping_app.costs import WINDOW, Costs, CostsOfWork


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


def worked(costs: CostsOfWork, load: float, since: float, until: float, lanes: int = 1) -> None:
    """One call per second in each lane, and a member that tells of it as often."""
    for second in range(int(until - since)):
        now = since + second + 1
        for _ in range(lanes if load else 0):
            costs.add("a", load, 1, now)
        costs.work_span(now)


@pytest.mark.parametrize("phase", range(0, 60, 5))
@pytest.mark.parametrize("pause", [30, 45, 60, 200])
def test_what_has_just_begun_is_as_much_as_it_is_whatever_was_before(phase: int, pause: int) -> None:
    costs = CostsOfWork(0.0, 1)
    worked(costs, 0.5, 0, 60 + phase)
    began = 60.0 + phase + pause
    worked(costs, 0.0, 60 + phase, began)
    for seconds in (10, 15, 20, 60):
        worked(costs, 0.6, began + (0 if seconds == 10 else {15: 10, 20: 15, 60: 20}[seconds]), began + seconds)
        assert costs.seconds / costs.work_span(began + seconds) == pytest.approx(0.6, rel=0.1)


@pytest.mark.parametrize("lanes", [1, 16])
def test_a_call_now_and_then_is_no_work(lanes: int) -> None:
    costs = CostsOfWork(0.0, lanes)
    for now in range(0, 500, 25):
        costs.add("rare", 0.06 * lanes, 1, float(now))
    worked(costs, 0.6, 500, 520, lanes)
    assert costs.seconds / costs.work_span(520) == pytest.approx(0.6 * lanes, rel=0.15)


def test_of_few_seconds_little_is_told() -> None:
    costs = CostsOfWork(0.0, 1)
    worked(costs, 0.0, 0, 100)
    worked(costs, 0.9, 100, 104)
    assert costs.seconds / costs.work_span(104) < 0.4


def test_long_calls_that_end_later_count_from_where_they_began() -> None:
    costs = CostsOfWork(0.0, 16)
    worked(costs, 0.0, 0, 190)
    costs.add("short", 1.0, 1, 190.0)
    for key in range(15):
        costs.add(key, 30.0, 1, 191.0)
    assert costs.seconds / costs.work_span(191.0) <= 16


def test_short_pauses_are_a_part_of_the_work() -> None:
    costs = CostsOfWork(0.0, 1)
    for turn in range(20):
        worked(costs, 0.8, 40 * turn, 40 * turn + 20)
        worked(costs, 0.0, 40 * turn + 20, 40 * turn + 40)
    assert costs.seconds / costs.work_span(800) == pytest.approx(0.4, rel=0.2)
