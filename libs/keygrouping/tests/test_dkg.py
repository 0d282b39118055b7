"""Dynamic Key Grouping widens what stays hot, within the paper's bounds, and forgets."""

import numpy as np
import pytest
from keygrouping.grouping.dkg import Dkg, DkgSettings, Thresholds
from keygrouping.grouping.protocol import Hashes
from keygrouping.hashing import hash_keys
from keygrouping.keyspace import OLD
from keygrouping.workload import COUNTRIES, HOT_COUNTRY

RANDOM = 5
HASHES = hash_keys([name.encode() for name in COUNTRIES])
HOT = COUNTRIES.index(HOT_COUNTRY)


def second(skew: float, step: int, events: int = 2_000) -> Hashes:
    """A second of the country workload."""
    random = np.random.default_rng([RANDOM, step])
    chosen = np.where(random.random(events) < skew, HOT, random.integers(0, len(COUNTRIES), events))
    return HASHES[chosen]


def run(grouping: Dkg, skew: float, start: int, stop: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Route the seconds from start to stop and return the events of each worker in the last 60 of them."""
    loads = np.zeros(grouping.workers, np.int64)
    for step in range(start, stop):
        routed = grouping.route_batch(second(skew, step), None, float(step))
        if step >= stop - 60:
            loads += np.bincount(routed, minlength=grouping.workers)
    return loads


def imbalance(loads: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    return float(loads.max() / loads.mean())


@pytest.mark.parametrize(
    ("workers", "ideal", "threshold", "widest"),
    [(5, 20, 24.47, 5), (10, 10, 13.16, 8), (20, 5, 7.24, 14), (50, 2, 3.41, 30), (100, 1, 2.0, 51)],
)
def test_thresholds_and_maxima_are_those_of_table_1(workers: int, ideal: float, threshold: float, widest: int) -> None:
    limits = Thresholds.of(workers)
    assert (round(100 * limits.scale_up, 2), limits.max_width) == (threshold, widest)
    assert 0 < limits.scale_down < ideal / 100 < limits.scale_up


@pytest.mark.parametrize("workers", [1, 2, 3, 57, 100, 262, 5_000])
def test_thresholds_make_sense_for_any_number_of_workers(workers: int) -> None:
    limits = Thresholds.of(workers)
    assert 0 < limits.scale_down < 1 / workers < limits.scale_up
    assert min(2, workers) <= limits.max_width <= workers


@pytest.mark.parametrize(("workers", "better_than"), [(10, 1.7), (50, 3.0)])
def test_a_hot_key_is_widened_until_the_load_is_fair(workers: int, better_than: float) -> None:
    grouping = Dkg(workers, DkgSettings(check_interval=10))
    at_first = imbalance(run(grouping, 0.8, 0, 60))
    later = imbalance(run(grouping, 0.8, 60, 600))
    assert at_first == pytest.approx(0.4 * workers, rel=0.1)
    assert later < better_than
    assert grouping.hot(1)[0].hash == HASHES[HOT, 0]
    assert 2 < grouping.explain(HOT_COUNTRY).width <= Thresholds.of(workers).max_width


def test_nothing_is_widened_without_skew() -> None:
    grouping = Dkg(10)
    assert imbalance(run(grouping, 0.0, 0, 300)) < 1.05
    assert grouping.epoch == 0 and {hot.width for hot in grouping.hot(50)} == {2}


def test_a_key_is_widened_only_when_old_and_the_system_warm_and_once_per_interval() -> None:
    grouping = Dkg(10)
    changes = []
    for step in range(250):
        grouping.route_batch(second(1.0, step), None, float(step))
        changes.append(grouping.explain(HOT_COUNTRY).width)
    assert changes[:60] == [2] * 60
    assert [changes[at] for at in (60, 119, 120, 179, 180, 240)] == [3, 3, 4, 4, 5, 6]
    item = grouping.keys.find(int(HASHES[HOT, 0]))
    assert item is not None and item["space"] == OLD


def test_the_warm_up_holds_back_even_old_keys() -> None:
    settings = DkgSettings(warm_up=500, check_interval=1)
    grouping = Dkg(10, settings)
    run(grouping, 1.0, 0, 500)
    assert grouping.epoch == 0
    run(grouping, 1.0, 500, 520)
    assert grouping.epoch > 0


def test_a_wide_key_shrinks_when_two_of_its_workers_are_idle() -> None:
    grouping = Dkg(10, DkgSettings(check_interval=5))
    run(grouping, 1.0, 0, 400)
    wide = grouping.explain(HOT_COUNTRY)
    assert wide.width == 8
    beside = (wide.candidates[-1] + 1) % 10
    for step in range(400, 800):
        others = np.random.default_rng(step).integers(1, 2**59, 2_000) * 10 + beside
        grouping.route_batch(np.append(others, HASHES[HOT, 0]).reshape(-1, 1), None, float(step))
    assert grouping.explain(HOT_COUNTRY).width == 2


@pytest.mark.parametrize(("workers", "widest"), [(5, 5), (10, 8), (20, 14), (50, 30), (100, 51)])
def test_widths_reach_the_maxima_of_table_1_and_stop_there(workers: int, widest: int) -> None:
    grouping = Dkg(workers, DkgSettings(check_interval=1, warm_up=1, teenage_interval=1, old_interval=2, half_life=5))
    widths = []
    for step in range(300):
        grouping.route_batch(second(1.0, step), None, float(step))
        widths.append(grouping.explain(HOT_COUNTRY).width)
    assert max(widths) == widest and min(widths[150:]) >= widest - 1


TEN_DAYS = 864_000


def test_ten_days_of_quiet_leave_no_trace() -> None:
    veteran, newcomer = Dkg(10), Dkg(10)
    run(veteran, 0.8, 0, 300)
    for step in range(400):
        hashes = second(0.8, step)
        aged = veteran.route_batch(hashes, None, float(TEN_DAYS + step))
        assert aged.tolist() == newcomer.route_batch(hashes, None, float(step)).tolist()
        assert veteran.explain(HOT_COUNTRY).width == newcomer.explain(HOT_COUNTRY).width
    assert veteran.explain(HOT_COUNTRY).width == 8


def test_ten_days_of_another_load_delay_nothing() -> None:
    veteran, newcomer = Dkg(10), Dkg(10)
    for now in range(0, TEN_DAYS, 600):
        veteran.route_batch(second(0.8 if now < TEN_DAYS / 2 else 0.0, now), None, float(now))
    for grouping, start in ((veteran, TEN_DAYS), (newcomer, 0)):
        run(grouping, 0.0, start, start + 300)
    for minute in range(5, 12):
        balance = []
        for grouping, start in ((veteran, TEN_DAYS), (newcomer, 0)):
            balance.append(imbalance(run(grouping, 0.8, start + 60 * minute, start + 60 * minute + 60)))
        assert abs(veteran.explain(HOT_COUNTRY).width - newcomer.explain(HOT_COUNTRY).width) <= 1
    assert balance[0] == pytest.approx(balance[1], rel=0.05)


def test_yesterday_does_not_matter() -> None:
    veteran = Dkg(10, DkgSettings(check_interval=10))
    run(veteran, 0.8, 0, 300)
    run(veteran, 0.0, 300 + 86_400, 300 + 86_400 + 120)
    explained = veteran.explain(HOT_COUNTRY)
    assert explained.share is not None and explained.share < 0.02
    assert imbalance(run(veteran, 0.0, 90_000, 90_060)) < 1.1


def test_a_new_hot_key_replaces_an_old_one() -> None:
    settings = DkgSettings(check_interval=10)
    grouping = Dkg(10, settings)
    run(grouping, 0.8, 0, 7200)
    newcomer = hash_keys([b"newcomer"])
    for step in range(7200, 7500):
        hashes = second(0.0, step)
        hashes[: len(hashes) * 8 // 10] = newcomer
        grouping.route_batch(hashes, None, float(step))
    assert grouping.explain("newcomer").width > 2
    assert grouping.hot(1)[0].hash == newcomer[0, 0]


def test_lifetime_counts_remember_everything() -> None:
    lifetime, fading = Dkg(10, DkgSettings(half_life=None)), Dkg(10)
    for grouping in (lifetime, fading):
        run(grouping, 1.0, 0, 100)
        run(grouping, 0.0, 100, 400)
    share = 100 / (100 + 300) + 300 / 400 / 204
    assert lifetime.explain(HOT_COUNTRY).share == pytest.approx(share, rel=0.02)
    assert fading.explain(HOT_COUNTRY).share == pytest.approx(1 / 204, rel=0.5)


def test_unseen_keys_are_forgotten_after_an_hour() -> None:
    grouping = Dkg(10)
    grouping.route("once", now=0.0)
    for step in range(0, 3_600, 10):
        grouping.route("always", now=float(step))
    assert grouping.explain("once").age == 3_590.0
    grouping.route("always", now=3_616.0)
    assert (grouping.explain("once").age, grouping.explain("once").share) == (None, None)
    assert grouping.explain("always").share == 1.0


def test_endless_new_keys_leave_memory_bounded_and_the_hot_key_known() -> None:
    grouping = Dkg(10, DkgSettings(check_interval=1))
    random = np.random.default_rng(1)
    size = grouping.keys.items.nbytes
    for step in range(100):
        hashes = random.integers(-(2**63), 2**63 - 1, (20_000, 1))
        hashes[::3] = HASHES[HOT]
        grouping.route_batch(hashes, None, float(step))
        assert len(grouping.keys) <= grouping.keys.limit
    assert grouping.keys.items.nbytes == size
    assert grouping.hot(1)[0].hash == HASHES[HOT, 0] and grouping.hot(1)[0].width > 2


def test_time_that_goes_back_stands_still() -> None:
    grouping = Dkg(4)
    grouping.route("a", now=100.0)
    grouping.route("b", now=50.0)
    assert grouping.explain("b").age == 0.0


def test_weights_count_not_events() -> None:
    grouping = Dkg(10)
    home = [grouping.route("a", weight, 0.0) for weight in (10.0, 1.0, 1.0)]
    assert home[1] == home[2] == (home[0] + 1) % 10
    assert grouping.explain("a").share == 1.0


def test_a_resize_keeps_keys_and_restarts_loads() -> None:
    grouping = Dkg(10, DkgSettings(check_interval=5))
    run(grouping, 0.8, 0, 200)
    before = grouping.explain(HOT_COUNTRY)
    grouping.resize(4)
    after = grouping.explain(HOT_COUNTRY)
    assert (after.width, after.share, after.age) == (min(before.width, 4), before.share, before.age)
    assert sum(grouping.snapshot()["state"]["loads"]) == 0
    assert imbalance(run(grouping, 0.8, 200, 320)) < 1.5
