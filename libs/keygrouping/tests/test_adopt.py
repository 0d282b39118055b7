"""Other settings in mid-stream: what a grouping has learned under the old ones is kept."""

import numpy as np
import pytest
from keygrouping.grouping import Grouping, Planned, create, describe, names, shared_settings
from keygrouping.grouping.distribution_aware import DistributionAware
from keygrouping.grouping.protocol import Offline
from keygrouping.hashing import hash_keys

TABLE: dict[str, object] = {"theta_max": 0.01, "interval": 3.0, "window": 8, "tracked_keys": 40}
OTHER: dict[str, dict[str, object]] = {
    "pkg": {"choices": 3},
    "potc": {"remembered_keys": 30},
    "on-greedy": {"remembered_keys": 30},
    "dkg": {"distinct_keys": 40, "check_interval": 1.0, "half_life": 1.0, "teenage_interval": 0.5, "old_interval": 2.0},
    "d-choices": {"threshold": 1.5, "half_life": None, "tolerance": 0.01},
    "w-choices": {"threshold": 0.05, "half_life": 1.0},
    "dstream": {"decline": 0.1, "length": 4},
    "dkg-legacy": {"distinct_keys": 40, "check_interval": 1.0, "promotion_interval": 1.0},
    "llfd": TABLE, "mintable": TABLE, "minmig": {**TABLE, "window": 1}, "readj": {**TABLE, "interval": None},
    "mixed": {**TABLE, "table_size": 5}, "mixed-bf": {**TABLE, "table_size": 5},
    "distribution-aware": {"theta": 0.2, "interval": 2.0},
    "consistent": {"virtual_workers": 40, "capacities": [3.0, 1.0], "tolerance": 0.5},
    "dagreedy": {"slide": 2.0, "hot_keys": 5, "threshold": 0.5},
    "fish": {"epoch_events": 50, "counted_keys": 20, "capacities": [2.0]},
}  # fmt: skip
"""Settings with less room, shorter times or other limits than the defaults."""

KEYS = [f"key{number}".encode() for number in range(300)]
WORKERS = 5
every_grouping = pytest.mark.parametrize("name", names())


def stream(grouping: Grouping, start: int, stop: int) -> list[list[int]]:
    """Seconds of a stream in which the first key has 70 % of the events."""
    routed = []
    for step in range(start, stop):
        random = np.random.default_rng(step)
        keys = np.where(random.random(400) < 0.7, 0, random.integers(0, len(KEYS), 400))
        hashes = hash_keys([KEYS[key] for key in keys], grouping.seeds)
        routed.append(grouping.route_batch(hashes, None, float(step)).tolist())
    return routed


def learned(name: str, settings: dict[str, object] | None = None) -> Grouping:
    grouping = create(name, WORKERS, settings)
    if isinstance(grouping, Offline):
        grouping.learn(hash_keys(KEYS, grouping.seeds), np.arange(len(KEYS), 0.0, -1.0))
    stream(grouping, 100, 170)
    return grouping


def test_every_grouping_with_settings_is_tried() -> None:
    assert {name for name in names() if describe(name)} - OTHER.keys() <= {"level-fill"}


@every_grouping
@pytest.mark.parametrize("back", [False, True])
def test_what_was_learned_is_kept_under_other_settings(name: str, back: bool) -> None:
    settings = [OTHER.get(name), None] if back else [None, OTHER.get(name)]
    before, after = learned(name, settings[0]), create(name, WORKERS, settings[1])
    snapshot = before.snapshot()
    assert after.adopt(before) and before.snapshot() == snapshot
    assert after.epoch > before.epoch and after.workers == WORKERS
    was, now = before.explain(KEYS[0]), after.explain(KEYS[0])
    assert now.age == was.age
    if was.share is not None and name != "dstream":  # which guesses by its `decline`
        assert now.share == pytest.approx(was.share, rel=0.05)
    else:
        assert (now.share is None) == (was.share is None)
    assert {worker for step in stream(after, 170, 240) for worker in step} <= set(range(WORKERS))
    changed = create(name, WORKERS, settings[1])
    changed.restore(after.snapshot())
    assert stream(changed, 240, 243) == stream(after, 240, 243)


@every_grouping
def test_the_same_settings_change_nothing_but_the_epoch(name: str) -> None:
    before, after = learned(name, OTHER.get(name)), create(name, WORKERS, OTHER.get(name))
    assert after.adopt(before)
    reviewed = name in ("d-choices", "w-choices")
    assert reviewed or stream(after, 170, 180) == stream(before, 170, 180)


@every_grouping
def test_another_number_of_workers_is_a_resize(name: str) -> None:
    for workers in (3, 9):
        before, after = learned(name), create(name, workers)
        assert after.adopt(before)
        assert after.workers == workers and after.epoch > before.epoch
        routed = {worker for step in stream(after, 170, 200) for worker in step}
        assert routed <= set(range(workers))


@every_grouping
def test_settings_that_were_taken_over_are_in_force(name: str) -> None:
    """Whoever adopts behaves in the long run as one that had these settings from the beginning."""
    adopted, always = create(name, WORKERS, OTHER.get(name)), learned(name, OTHER.get(name))
    adopted.adopt(learned(name))
    for grouping in (adopted, always):
        stream(grouping, 170, 330)
    assert abs(adopted.explain(KEYS[0]).width - always.explain(KEYS[0]).width) <= 1
    assert [space.capacity for space in adopted.spaces()] == [space.capacity for space in always.spaces()]


def test_of_too_many_keys_the_heaviest_stay_known_and_no_weight_is_lost() -> None:
    before, after = create("mixed", WORKERS, TABLE), create("mixed", WORKERS, {**TABLE, "tracked_keys": 3})
    assert isinstance(before, Planned) and isinstance(after, Planned)
    hashes = hash_keys(KEYS[:10], before.seeds)
    before.route_batch(hashes, np.arange(10.0, 0.0, -1.0), 1.0)
    after.adopt(before)
    statistics = after.statistics()
    assert sorted(statistics["keys"]) == sorted(hashes[:3, 0].tolist())
    assert sum(statistics["cost"]) == 27 and sum(statistics["background"]) == 28
    home = create("key", WORKERS).route_batch(hashes, None, 1.0)
    assert statistics["background"] == np.bincount(home[3:], np.arange(7.0, 0.0, -1.0), WORKERS).tolist()


def test_another_grouping_has_nothing_to_give() -> None:
    with pytest.raises(ValueError, match="'pkg' can't go on with what 'key' has learned"):
        create("pkg", 3).adopt(create("key", 3))


def test_buckets_of_another_number_are_other_keys() -> None:
    before, after = learned("distribution-aware"), create("distribution-aware", WORKERS, {"buckets": 3})
    assert not after.adopt(before) and after.epoch > before.epoch
    assert isinstance(after, DistributionAware) and after.hot(9) == []
    stream(after, 170, 200)


@pytest.mark.parametrize("name", ["dkg", "d-choices", "w-choices"])
def test_sharing_begins_with_the_first_plan_and_ends_with_own_counts(name: str) -> None:
    alone, shared = learned(name), create(name, WORKERS, shared_settings(name))
    assert isinstance(shared, Planned) and shared.adopt(alone)
    cold = shared.explain(KEYS[0])
    assert cold.width == 2 and cold.share == alone.explain(KEYS[0]).share and shared.hot(9) == []
    for second in range(170, 240):
        stream(shared, second, second + 1)
        plan = shared.plan([shared.statistics(second + 0.5)])
        shared.apply(plan)
    assert shared.explain(KEYS[0]).width > 2 and shared.epoch > alone.epoch
    again = create(name, WORKERS)
    assert again.adopt(shared) and again.epoch > shared.epoch
    stream(again, 240, 400)
    assert again.explain(KEYS[0]).width > 2


def test_a_shorter_half_life_forgets_nothing_at_once() -> None:
    before, after = learned("dkg"), create("dkg", WORKERS, {"half_life": 0.5, "teenage_interval": 0.1})
    after.adopt(before)
    after.route(KEYS[1], now=169.2)
    share = after.explain(KEYS[0]).share
    assert share is not None and share > 0.4
