"""Level-fill's runs: events of a key one after the other go on at one worker for a while, and cost few pairs."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from keygrouping.grouping import create
from keygrouping.grouping.level_fill import LevelFill
from keygrouping.grouping.protocol import Hashes, Workers
from keygrouping.hashing import hash_keys

INTERVAL, RUN = 40_000, 400
HASHES = hash_keys([b"key%d" % number for number in range(5_000)])


def sources(count: int, workers: int = 10, **given: object) -> list[LevelFill]:
    made = [create("level-fill", workers, {"interval": None, **given}) for _ in range(count)]
    assert all(isinstance(each, LevelFill) for each in made)
    return made  # type: ignore[return-value]


def runs(seed: int, length: int = RUN) -> Hashes:
    """An interval of runs of keys that are drawn by Zipf's law."""
    weights = 1 / np.arange(1, len(HASHES) + 1)
    chosen = np.random.default_rng(seed).choice(len(HASHES), INTERVAL // length, p=weights / weights.sum())
    found: Hashes = HASHES[np.repeat(chosen, length)]
    return found


def routed(all_: Sequence[LevelFill], events: Hashes) -> Workers:
    """Where an interval's events go, dealt by key; the next one has a plan of it."""
    owner, chosen = (events[:, 0] >> 7) % len(all_), np.zeros(len(events), np.int32)
    for number, source in enumerate(all_):
        chosen[owner == number] = source.route_batch(events[owner == number], None, 0.0)
    plan = json.loads(json.dumps(all_[0].plan([each.statistics() for each in all_])))
    for each in all_:
        each.apply(plan)
    return chosen


def lambda_of(chosen: Workers, workers: int) -> float:
    return float(np.bincount(chosen, minlength=workers).max() * workers / len(chosen))


def pairs_per_key(events: Hashes, chosen: Workers) -> float:
    keys = np.unique(events[:, 0], return_inverse=True)[1]
    return len(np.unique(keys * 1_000 + chosen)) / len(np.unique(keys))


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize(("workers", "count", "pairs"), [(10, 1, 2.6), (10, 5, 4.8), (50, 1, 9.2)])
def test_a_run_goes_on_at_one_worker_for_a_while(workers: int, count: int, pairs: float, planned: bool) -> None:
    """Without that there were 6.8, 8 and 24 pairs per key."""
    made = sources(count, workers, planned=planned)
    figures = []
    for seed in range(6):
        events = runs(seed)
        chosen = routed(made, events)
        figures.append((lambda_of(chosen, workers), pairs_per_key(events, chosen)))
    lambdas, costs = np.array(figures[2:]).T
    assert costs.mean() <= pairs
    assert lambdas.mean() <= (1.05 if count == 1 else 1.07)


def test_what_runs_fill_too_far_is_even_at_the_end_of_the_interval() -> None:
    """Inside of it a worker may be further above the level, or runs would change their workers more often."""
    made, inside, ends = sources(1), [], []
    for seed in range(6):
        chosen = routed(made, runs(seed))
        half = np.bincount(chosen[: INTERVAL // 2], minlength=10)
        inside.append(float(half.max() - half.mean()) * 10 / INTERVAL)
        ends.append(lambda_of(chosen, 10) - 1.0)
    assert np.mean(inside[2:]) >= 0.035
    assert np.mean(ends[2:]) <= 0.03


@pytest.mark.parametrize(("known", "begin"), [(True, 5), (False, 2)])
def test_a_key_with_most_of_all_events_is_in_no_run(known: bool, begin: int) -> None:
    """It comes many times in a row, but has all workers anyway; if no plan knows it, after a quarter of an interval."""
    made = sources(1)
    for seed in range(4):
        random = np.random.default_rng(seed)
        events = HASHES[random.integers(1, 2_000, INTERVAL)]
        events[random.random(INTERVAL) < 0.999] = HASHES[0 if known else 3_000 + seed]
        chosen = routed(made, events)[: INTERVAL // begin]
    assert lambda_of(chosen, 10) <= 1.01


def test_balance_first_lets_no_run_go_on_above_the_level() -> None:
    made, deviations = sources(1, eps=0.0, noise=0.25, slack=1.0), []
    for seed in range(5):
        half = np.bincount(routed(made, runs(seed))[: INTERVAL // 2], minlength=10)
        deviations.append(float(half.std() / half.mean()))
    assert np.median(deviations[1:]) <= 0.02


def test_light_keys_that_may_not_be_split_stay_whole_in_runs() -> None:
    made, count = sources(1, split="hot-only"), INTERVAL // RUN
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(count)
        events = HASHES[np.repeat(order, RUN)]
        chosen = routed(made, events)
    begun = count // 4  # Before that, a run is too much of the interval for a light key.
    assert [len(np.unique(run)) for run in chosen.reshape(count, RUN)[begun:]] == [1] * (count - begun)


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_run_is_the_same_in_batches_of_any_size(size: int) -> None:
    one, other = sources(1), sources(1)
    for seed in range(2):
        routed(one, runs(seed))
        routed(other, runs(seed))
    events = runs(3)[:8_000]
    whole = one[0].route_batch(events, None, 0.0)
    parts = [other[0].route_batch(events[at : at + size], None, 0.0) for at in range(0, len(events), size)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_run_goes_on_after_a_restart_also_with_a_snapshot_of_a_version_that_knew_none() -> None:
    made = sources(1)
    for seed in range(2):
        routed(made, runs(seed))
    events = runs(3)
    made[0].route_batch(events[:8_100], None, 0.0)
    snapshot = json.loads(json.dumps(made[0].snapshot()))
    following = made[0].route_batch(events[8_100:12_000], None, 0.0)
    again, older = sources(2)
    again.restore(snapshot)
    np.testing.assert_array_equal(again.route_batch(events[8_100:12_000], None, 0.0), following)
    snapshot["state"]["numbers"] = snapshot["state"]["numbers"][:19]
    older.restore(snapshot)
    chosen = older.route_batch(events[8_100:], None, 0.0)
    assert len(chosen) == INTERVAL - 8_100
    assert pairs_per_key(events[8_100:], chosen) <= 3.0
