"""The measures against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.measure import Distribution, dist_cost, efficiency, lambda_, std_dev

events = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 50)), max_size=60)


def test_worked_example() -> None:
    loads = [60, 20, 20, 0]
    assert lambda_(loads) == 2.4
    assert std_dev(loads) == pytest.approx(math.sqrt((35**2 + 5**2 + 5**2 + 25**2) / 4))
    assert dist_cost([("a", 0), ("a", 1), ("b", 0), ("a", 1)]) == 1.5
    assert efficiency(5_000, 10, 1_000) == 0.5


def test_nothing_is_perfectly_balanced() -> None:
    measures = Distribution(3).run()
    assert (measures.lambda_, measures.std_dev, measures.dist_cost) == (1.0, 0.0, 1.0)
    assert (measures.events, measures.keys, measures.loads) == (0, 0, (0.0, 0.0, 0.0))
    assert dist_cost([]) == 1.0


@pytest.mark.parametrize(("workers", "rate"), [(0, 1.0), (1, 0.0)])
def test_efficiency_needs_something_to_compare_with(workers: int, rate: float) -> None:
    with pytest.raises(ValueError, match="service rate"):
        efficiency(1.0, workers, rate)


@given(events)
def test_the_collector_agrees_with_the_formulas(triples: list[tuple[int, int, int]]) -> None:
    one_by_one, at_once = Distribution(5), Distribution(5)
    for worker, key, weight in triples:
        one_by_one.add(worker, key, weight)
    workers, keys, weights = (np.array([t[i] for t in triples], np.int64) for i in range(3))
    at_once.add_many(workers, keys.tolist(), weights)
    loads = np.bincount(workers, weights, minlength=5)
    measures = at_once.run()
    assert measures == one_by_one.run() == at_once.interval()
    assert (measures.lambda_, measures.std_dev) == (lambda_(loads), std_dev(loads))
    assert measures.dist_cost == dist_cost((key, worker) for worker, key, _ in triples)
    assert (measures.events, measures.keys) == (len(triples), len(set(keys.tolist())))


@given(events, events)
def test_intervals_add_up_to_the_run(first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]) -> None:
    collected = Distribution(5)
    intervals = []
    for part in (first, second):
        for worker, key, weight in part:
            collected.add(worker, key, weight)
        intervals.append(collected.interval())
    run = collected.run()
    assert run.events == sum(interval.events for interval in intervals)
    assert run.loads == tuple(np.sum([interval.loads for interval in intervals], axis=0))
    assert max(interval.keys for interval in intervals) <= run.keys


def test_workers_that_have_gone_count_where_they_had_events() -> None:
    collected = Distribution(2)
    collected.add(0, b"a", 3.0, events=3)
    collected.resize(1)
    assert collected.interval().loads == (3.0, 0.0)
    collected.add_many(np.array([0, 0]), [b"a", b"b"])
    assert collected.interval().loads == (2.0,)
    collected.resize(3)
    assert collected.run().loads == (5.0, 0.0, 0.0)
