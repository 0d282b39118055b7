"""The measures against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping import measure
from keygrouping.measure import Collector, Distribution, IndexedDistribution, Measures

Event = tuple[int, int, int]  # worker, key, weight
WORKERS = 5

events = st.lists(st.tuples(st.integers(0, WORKERS - 1), st.integers(0, 9), st.integers(0, 50)), max_size=60)
streams = st.lists(events, min_size=1, max_size=5)


def arrays(part: list[Event]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    workers, keys, weights = (np.array([event[i] for event in part], np.int64) for i in range(3))
    return workers.astype(np.int32), keys, weights.astype(float)


def measured(collector: Collector, part: list[Event]) -> Measures:
    workers, keys, weights = arrays(part)
    if isinstance(collector, IndexedDistribution):
        collector.add_many(workers, keys, weights)
    else:
        assert isinstance(collector, Distribution)
        collector.add_many(workers, keys.tolist(), weights)
    return collector.interval()


def by_definition(part: list[Event], before: list[list[Event]], partials: int | None = None) -> Measures:
    """All counts out of sets of pairs; `before`: the intervals that came first."""
    pairs = {(key, worker) for worker, key, _ in part}
    earlier = {(key, worker) for interval in before for worker, key, _ in interval}
    seen, changes = set(earlier), 0
    for worker, key, _ in part:
        known = any((key, other) in seen for other in range(WORKERS))
        changes += known and (key, worker) not in seen
        seen.add((key, worker))
    width = {key: sum((key, worker) in pairs for worker in range(WORKERS)) for _, key, _ in part}
    return Measures(
        events=len(part),
        keys=len(width),
        pairs=len(pairs),
        partials=len(pairs) if partials is None else partials,
        copies=sum(width[key] for _, key, _ in part),
        width_changes=changes,
        moved_keys=0,
        moved_state=0.0,
        loads=tuple(float(sum(weight for worker, _, weight in part if worker == w)) for w in range(WORKERS)),
    )


def test_worked_example() -> None:
    loads = [60, 20, 20, 0]
    assert measure.lambda_(loads) == 2.4
    assert measure.imbalance(loads) == 35
    assert measure.imbalance_fraction(loads) == 0.35
    assert measure.std_dev(loads) == pytest.approx(math.sqrt((35**2 + 5**2 + 5**2 + 25**2) / 4))
    assert measure.cv(loads) == pytest.approx(math.sqrt((35**2 + 5**2 + 5**2 + 25**2) / 4) / 25)
    assert measure.dist_cost(3, 2) == 1.5
    assert measure.efficiency(5_000, 10, 1_000) == 0.5


def test_loads_are_judged_by_capacities() -> None:
    assert measure.lambda_([40, 10, 10, 10], [4, 1, 1, 1]) == pytest.approx(1)
    assert measure.std_dev([40, 10, 10, 10], [4, 1, 1, 1]) == pytest.approx(0)
    assert measure.lambda_([10, 10, 10, 10], [4, 1, 1, 1]) == pytest.approx(7 / 4)
    assert measure.lambda_([35, 0, 0, 0], [4, 1, 1, 1]) == pytest.approx(7 / 4)
    assert measure.least_share([40, 10, 5, 10], [4, 1, 1, 1]) == pytest.approx(5 / (65 / 7))
    assert measure.least_share([0, 0]) == 1 and measure.least_share([3, 0]) == 0
    assert measure.lambda_([0, 0], [4, 1]) == 1 and measure.std_dev([0, 0], [4, 1]) == 0
    loads = [60, 20, 20, 0]
    assert measure.lambda_(loads, [3] * 4) == measure.lambda_(loads)
    assert measure.std_dev(loads, [3] * 4) == pytest.approx(measure.std_dev(loads))


def test_measures_follow_from_what_was_counted() -> None:
    collected = Distribution(4)
    for worker, key in [(0, "a"), (1, "a"), (0, "a"), (2, "b")]:
        collected.add(worker, key, 2.0)
    run = collected.run()
    assert (run.weight, run.lambda_, run.imbalance, run.imbalance_fraction) == (8.0, 2.0, 2.0, 0.25)
    assert run.dist_cost == 3 / 2  # a: workers 0 and 1, b: worker 2
    assert run.replication == (3 * 2 + 1) / 4  # a's three events count two workers each
    assert run.merges_per_event == 3 / 4
    assert run.width_changes == 1  # a came to worker 1


@pytest.mark.parametrize("kind", [Distribution, IndexedDistribution])
def test_nothing_is_perfectly_balanced(kind: type[Collector]) -> None:
    measures = kind(3).run()
    assert (measures.lambda_, measures.std_dev, measures.cv, measures.dist_cost) == (1.0, 0.0, 0.0, 1.0)
    assert (measures.imbalance, measures.imbalance_fraction) == (0.0, 0.0)
    assert (measures.replication, measures.merges_per_event) == (1.0, 0.0)
    assert (measures.events, measures.keys, measures.loads) == (0, 0, (0.0, 0.0, 0.0))


@pytest.mark.parametrize(("workers", "rate"), [(0, 1.0), (1, 0.0)])
def test_efficiency_needs_something_to_compare_with(workers: int, rate: float) -> None:
    with pytest.raises(ValueError, match="service rate"):
        measure.efficiency(1.0, workers, rate)


def test_adaptation_counts_intervals_from_the_change_on() -> None:
    lambdas = [1.0, 4.0, 3.0, 1.1, 2.0]
    assert measure.adaptation(lambdas, 1, 1.2) == 2
    assert measure.adaptation(lambdas, 0, 1.2) == 0
    assert measure.adaptation(lambdas, 4, 1.2) is None


@pytest.mark.parametrize("kind", [Distribution, IndexedDistribution])
@given(stream=streams)
def test_collectors_agree_with_the_definitions(kind: type[Collector], stream: list[list[Event]]) -> None:
    collected = kind(WORKERS)
    intervals = [measured(collected, part) for part in stream]
    assert intervals == [by_definition(part, stream[:i]) for i, part in enumerate(stream)]
    whole = [event for part in stream for event in part]
    assert collected.run() == by_definition(whole, [], partials=sum(interval.pairs for interval in intervals))


@given(events)
def test_one_by_one_is_all_at_once(part: list[Event]) -> None:
    one_by_one = Distribution(WORKERS)
    for worker, key, weight in part:
        one_by_one.add(worker, key, weight)
    assert one_by_one.interval() == measured(Distribution(WORKERS), part)


@given(events, st.integers(1, 4))
def test_equal_events_can_come_together(part: list[Event], times: int) -> None:
    together = Distribution(WORKERS)
    for worker, key, weight in part:
        together.add(worker, key, weight * times, times)
    assert together.run() == measured(Distribution(WORKERS), part * times)


def test_tables_grow_with_keys_and_pairs() -> None:
    random = np.random.default_rng(0)
    keys, workers = random.integers(0, 50_000, 200_000), random.integers(0, 1000, 200_000).astype(np.int32)
    collected = IndexedDistribution(1000)
    for part in np.array_split(np.arange(200_000), 3):
        collected.add_many(workers[part], keys[part])
    run, interval = collected.run(), collected.interval()
    assert run.pairs == interval.pairs == len(np.unique(keys * 1000 + workers))
    assert run.keys == len(np.unique(keys))
    assert run.width_changes == run.pairs - run.keys
    assert run.loads == tuple(np.bincount(workers, minlength=1000).tolist())


def test_migrations_count_in_their_interval_and_in_the_run() -> None:
    collected = IndexedDistribution(2)
    collected.moved(3, 40.5)
    first, second = collected.interval(), collected.interval()
    assert (first.moved_keys, first.moved_state) == (3, 40.5)
    assert (second.moved_keys, second.moved_state) == (0, 0.0)
    collected.moved(1, 1.0)
    assert (collected.run().moved_keys, collected.run().moved_state) == (4, 41.5)


def test_workers_that_have_gone_count_where_they_had_events() -> None:
    collected = Distribution(2)
    collected.add(0, b"a", 3.0, events=3)
    collected.resize(1)
    assert collected.interval().loads == (3.0, 0.0)
    collected.add_many(np.array([0, 0]), [b"a", b"b"])
    assert collected.interval().loads == (2.0,)
    collected.resize(3)
    assert collected.run().loads == (5.0, 0.0, 0.0)
