"""DAGreedy and FISH follow what is hot now: against plain models of both, and on streams whose hot key moves."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import Grouping, create
from keygrouping.grouping._fish_kernel import hot_width
from keygrouping.grouping.dagreedy import DaGreedy, DaGreedySettings
from keygrouping.grouping.fish import Fish, FishSettings
from keygrouping.grouping.protocol import Weights
from keygrouping.hashing import hash_key, hash_keys
from numpy.typing import NDArray

NAMES = [f"key{i}".encode() for i in range(5_000)]
HASHES = hash_keys(NAMES, (13, 17))
Batches = list[tuple[float, list[tuple[int, float]]]]
weighted_keys = st.lists(st.tuples(st.sampled_from([0] * 6 + list(range(12))), st.sampled_from([1.0, 0.5, 4.0])))
batches = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0, 6.0]), weighted_keys), max_size=10)


def zipf(events: int, exponent: float, seed: int = 1, keys: int = 5_000) -> NDArray[np.int64]:
    shares = np.arange(1, keys + 1, dtype=float) ** -exponent
    return np.searchsorted(np.cumsum(shares / shares.sum())[:-1], np.random.default_rng(seed).random(events))


def with_hot_key(events: int, hot: int, share: float, seed: int) -> NDArray[np.int64]:
    random = np.random.default_rng(seed)
    return np.where(random.random(events) < share, hot, random.integers(0, len(NAMES), events))


def route(grouping: Grouping, keys: NDArray[np.int64], now: float) -> Weights:
    """The load of each worker."""
    routed = grouping.route_batch(np.ascontiguousarray(HASHES[keys, : len(grouping.seeds)]), None, now)
    return np.bincount(routed, minlength=grouping.workers).astype(float)


def imbalance(loads: Weights) -> float:
    return float(loads.max() / loads.mean())


def home(key: int, workers: int) -> int:
    return abs(hash_key(NAMES[key])) % workers


def routed_one_by_one(grouping: Grouping, stream: Batches) -> list[int]:
    now, routed = 100.0, []
    for passed, events in stream:
        now += passed
        routed += [grouping.route(NAMES[key], weight, now) for key, weight in events]
    return routed


def plain_dagreedy(stream: Batches, workers: int, threshold: float) -> list[int]:
    """DAGreedy as described, with exact counts and slides of 2 s."""
    now, began, slide = 100.0, None, 2
    counts: list[Counter[int]] = [Counter(), Counter()]
    loads = np.zeros((2, workers))
    visits: dict[int, dict[int, int]] = {}
    hot_until: dict[int, int] = {}
    routed = []
    for passed, events in stream:
        now += passed
        began = now if began is None and events else began
        while events and began is not None and now - began >= 2:
            began, slide = began + 2, slide + 1
            counts, loads = [counts[1], Counter()], np.array([loads[1], np.zeros(workers)])
            for key in [key for key, until in hot_until.items() if until < slide]:
                del hot_until[key], visits[key]
        for key, weight in events:
            counts[1][key] += weight  # type: ignore[assignment]
            before, total = sum(counts[0].values()), sum(counts[1].values())
            worker = home(key, workers)
            if before > 0 and counts[1][key] > threshold / workers * max(before, total):
                visits.setdefault(key, {worker: slide})
                hot_until[key] = slide + 1
            if key in visits:
                average = loads.sum() / workers
                has = [slide - visits[key].get(each, -9) <= 1 for each in range(workers)]
                scores = [average * has[each] - loads[:, each].sum() for each in range(workers)]
                worker = scores.index(max(scores))
                visits[key][worker] = slide
            loads[1, worker] += weight
            routed.append(worker)
    return routed


@given(batches, st.integers(1, 6), st.sampled_from([0.1, 0.7]))
def test_dagreedy_does_what_a_plain_model_does(stream: Batches, workers: int, threshold: float) -> None:
    grouping = DaGreedy(workers, DaGreedySettings(slide=2, threshold=threshold, hot_keys=50))
    assert routed_one_by_one(grouping, stream) == plain_dagreedy(stream, workers, threshold)


def test_dagreedy_is_key_grouping_in_its_first_slide_and_for_all_keys_that_are_not_hot() -> None:
    grouping, key = DaGreedy(10), create("key", 10)
    keys = with_hot_key(5_000, 0, 0.8, 1)
    assert np.array_equal(route(grouping, keys, 0.0), route(key, keys, 0.0))
    route(grouping, keys, 10.0)
    assert [hot.hash for hot in grouping.hot(9)] == [HASHES[0, 0]] and grouping.hot(1)[0].width > 3
    assert grouping.hot(1)[0].share == pytest.approx(0.8, abs=0.02)
    assert {grouping.explain(name).candidates for name in NAMES[1:9]} == {(home(i, 10),) for i in range(1, 9)}


@pytest.mark.parametrize("workers", [10, 50])
def test_dagreedy_keeps_the_loads_of_a_window_within_an_average_of_each_other(workers: int) -> None:
    """The score's exchange rate: having the key is worth one average load."""
    grouping, pkg = DaGreedy(workers), create("pkg", workers)
    slides = [route(grouping, with_hot_key(20_000, 0, 0.8, step), 10.0 * step) for step in range(6)]
    window = slides[-1] + slides[-2]
    assert window.max() - window.min() < 1.05 * window.mean()
    assert imbalance(window) < 2.1 < 3 < imbalance(route(pkg, with_hot_key(20_000, 0, 0.8, 2), 0.0))


def test_dagreedy_cools_a_key_after_the_slide_that_follows_its_last_hot_one() -> None:
    grouping = DaGreedy(10)
    for step in range(3):
        route(grouping, with_hot_key(5_000, 0, 0.8, step), 10.0 * step)
    assert grouping.explain(NAMES[0]).width > 5
    route(grouping, with_hot_key(5_000, 1, 0.8, 3), 30.0)
    assert grouping.explain(NAMES[0]).width > 1
    epoch = grouping.epoch
    route(grouping, with_hot_key(5_000, 1, 0.8, 4), 40.0)
    assert grouping.explain(NAMES[0]).candidates == (home(0, 10),) and grouping.explain(NAMES[1]).width > 5
    assert grouping.epoch > epoch


def test_a_quiet_slide_makes_nothing_hot_in_the_next() -> None:
    grouping = DaGreedy(10, DaGreedySettings(threshold=0.5))
    grouping.route("a", now=0.0)
    route(grouping, zipf(2_000, 0.0), 10.0)
    assert len(grouping.hot(5_000)) < 50
    route(grouping, zipf(2_000, 0.0), 1000.0)
    assert grouping.hot(5_000) == []


def test_a_resize_leaves_hot_keys_with_the_workers_that_stay() -> None:
    grouping = DaGreedy(10)
    for step in range(3):
        route(grouping, with_hot_key(5_000, 0, 0.8, step), 10.0 * step)
    before = set(grouping.explain(NAMES[0]).candidates)
    grouping.resize(6)
    assert set(grouping.explain(NAMES[0]).candidates) == {worker for worker in before if worker < 6}
    grouping.resize(8)
    assert grouping.explain(NAMES[0]).width <= 6
    assert imbalance(route(grouping, with_hot_key(5_000, 0, 0.8, 4), 25.0)) < 2


def plain_fish(stream: Batches, workers: int, settings: FishSettings) -> list[int]:
    """FISH as described, with exact counts."""
    now, events, routed = 0.0, 0, []
    counts: dict[int, float] = defaultdict(float)
    width: dict[int, int] = {}
    backlog, recent = np.zeros(workers), np.zeros(workers)
    service = np.full(workers, settings.service_time)
    service[: len(settings.capacities)] /= settings.capacities[:workers]
    time = 100.0
    for passed, batch in stream:
        time += passed
        if batch:
            backlog, now = np.maximum(backlog - (time - now) / service, 0.0), time
        for key, weight in batch:
            if events == settings.epoch_events:
                limit, top = settings.threshold / workers * sum(counts.values()), max(counts.values())
                for each, count in counts.items():
                    hot = count > limit or (each in width and count > limit / 2)
                    classes = int(np.floor(np.log2(top / count))) if hot else 0
                    wanted = max(min(2, workers), workers >> classes)
                    width = {**width, each: max(wanted, width.get(each, 0))} if hot else width
                    if not hot:
                        width.pop(each, None)
                counts = defaultdict(float, {each: count * settings.decay for each, count in counts.items()})
                recent, events = recent * settings.decay, 0
            events += 1
            counts[key] += weight
            first, second = (abs(hash_key(NAMES[key], seed)) % workers for seed in (13, 17))
            second = (second + 1) % workers if first == second else second
            ring = [first, second, *((first + i) % workers for i in range(workers))]
            chosen = list(dict.fromkeys(ring))[: max(2, width.get(key, 2))]
            worker = min(chosen, key=lambda each: (backlog[each] * service[each], recent[each] * service[each]))
            backlog[worker] += weight
            recent[worker] += weight
            routed.append(worker)
    return routed


@given(batches, st.integers(1, 6), st.sampled_from([0.5, 1.0]))
def test_fish_does_what_a_plain_model_does(stream: Batches, workers: int, decay: float) -> None:
    settings = FishSettings(
        epoch_events=8, decay=decay, threshold=0.5, counted_keys=50, service_time=0.25, capacities=(2.0, 0.5)
    )
    assert routed_one_by_one(Fish(workers, settings), stream) == plain_fish(stream, workers, settings)


@pytest.mark.parametrize(
    ("ratio", "width"), [(1, 64), (1.99, 64), (2, 32), (3.9, 32), (4, 16), (16, 4), (32, 2), (1000, 2)]
)
def test_hot_keys_get_a_half_a_quarter_of_the_workers_by_their_class(ratio: float, width: int) -> None:
    assert hot_width(1.0, ratio, 64) == width
    assert hot_width(1.0, ratio, 1) == 1


@pytest.mark.parametrize("exponent", [0.8, 1.4, 2.0])
@pytest.mark.parametrize("workers", [10, 50])
def test_fish_balances_any_skew_and_leaves_most_keys_on_two_workers(workers: int, exponent: float) -> None:
    grouping = Fish(workers)
    route(grouping, zipf(20_000, exponent), 0.0)
    loads = np.zeros(workers)
    for step in range(1, 10):
        loads += route(grouping, zipf(20_000, exponent, step), float(step))
    assert imbalance(loads) < 1.02
    widths = np.array([grouping.explain(name).width for name in NAMES[:500]])
    assert widths[0] == widths.max() and np.mean(widths == 2) > 0.95
    assert exponent < 1 or widths[0] == workers


def test_fish_where_nothing_is_hot_is_partial_key_grouping() -> None:
    fish, pkg = Fish(10, FishSettings(epoch_events=10_000)), create("pkg", 10)
    assert fish.explain("Turkey").candidates == pkg.explain("Turkey").candidates
    assert np.array_equal(route(fish, zipf(10_000, 0.0), 0.0), route(pkg, zipf(10_000, 0.0), 0.0))
    route(fish, zipf(10_000, 0.0), 0.0)
    assert fish.epoch == 0


def test_a_wider_key_keeps_the_workers_that_it_had() -> None:
    grouping = Fish(10)
    before = grouping.explain(NAMES[0]).candidates
    route(grouping, with_hot_key(20_001, 0, 0.8, 1), 0.0)
    after = grouping.explain(NAMES[0]).candidates
    assert after[:2] == before and sorted(after) == list(range(10))


def test_recently_hot_keys_replace_those_of_the_past() -> None:
    """An old hot key is one of many three epochs later; without decay it stays wide for long."""
    recent, lifetime = (Fish(20, FishSettings(epoch_events=10_000, decay=decay)) for decay in (0.2, 1.0))
    for step in range(10):
        for grouping in (recent, lifetime):
            route(grouping, with_hot_key(10_000, 0, 0.6, step), float(step))
    epoch = recent.epoch
    for step in range(10, 14):
        for grouping in (lifetime, recent):
            loads = route(grouping, with_hot_key(10_000, 1, 0.6, step), float(step))
        assert (imbalance(loads) < 1.05) == (step > 10)
    route(recent, zipf(1, 0.0), 14.0)
    assert (recent.explain(NAMES[0]).width, recent.explain(NAMES[1]).width) == (2, 20)
    assert lifetime.explain(NAMES[0]).width == 20
    hottest = recent.hot(1)[0]
    assert (hottest.hash, hottest.width) == (HASHES[1, 0], 20) and hottest.share == pytest.approx(0.6, abs=0.02)
    assert recent.epoch > epoch


@pytest.mark.parametrize(("shares", "widths"), [((0.08, 0.08), (2, 2)), ((0.15, 0.08), (5, 5)), ((0.15, 0.03), (5, 2))])
def test_a_key_becomes_hot_at_its_threshold_and_cools_at_half_of_it(
    shares: tuple[float, ...], widths: tuple[int, ...]
) -> None:
    """Ten workers, so above 10 %; beside a key of 40 %."""
    grouping = Fish(10, FishSettings(decay=0.0, epoch_events=1_000))
    found = []
    for share in shares:
        own = int(1000 * share)
        route(grouping, np.array([0] * own + [1] * 400 + list(range(2, 602 - own))), 0.0)
        following = Fish(10, FishSettings(decay=0.0, epoch_events=1_000))
        following.restore(grouping.snapshot())
        route(following, np.array([2]), 0.0)
        found.append(following.explain(NAMES[0]).width)
    assert tuple(found) == widths


def test_waiting_times_are_computed_from_what_was_sent_and_the_time_that_passed() -> None:
    grouping = Fish(2, FishSettings(service_time=0.01, capacities=(1.0, 4.0)))
    route(grouping, np.zeros(500, np.int64), 0.0)
    waits = grouping.waiting_times()
    assert waits == pytest.approx([1.0, 1.0], abs=0.01)
    grouping.route(NAMES[0], 0.0, 0.4)
    assert grouping.waiting_times() == pytest.approx(waits - 0.4)
    grouping.route(NAMES[0], 0.0, 0.3)
    assert grouping.waiting_times() == pytest.approx(waits - 0.4)
    grouping.route(NAMES[0], 0.0, 5.0)
    assert grouping.waiting_times().tolist() == [0.0, 0.0]


def test_busy_workers_of_unequal_capacity_are_loaded_by_it() -> None:
    capacities = (1.0, 1, 1, 2, 4)
    grouping = Fish(5, FishSettings(service_time=0.001, capacities=capacities))
    loads = np.zeros(5)
    for step in range(20):
        loads += route(grouping, zipf(2_000, 1.4, step), 0.2 * step)
    assert imbalance(loads / capacities) < 1.02


@pytest.mark.parametrize("name", ["fish", "dagreedy"])
def test_endless_keys_leave_memory_bounded_and_the_hot_key_known(name: str) -> None:
    grouping = create(name, 10)
    random = np.random.default_rng(4)
    sizes = set()
    for step in range(8):
        hashes = random.integers(-(2**63), 2**63 - 1, (20_000, len(grouping.seeds)))
        hashes[::3] = HASHES[0, : len(grouping.seeds)]
        grouping.route_batch(hashes, None, 5.0 * step)
        state = grouping.snapshot()["state"]
        assert len(state["sketch"]["hash"]) <= 2_000
        assert isinstance(grouping, Fish | DaGreedy)
        sizes.add(sum(array.nbytes for array in vars(grouping).values() if isinstance(array, np.ndarray)))
    assert len(sizes) == 1
    assert grouping.hot(1)[0].hash == HASHES[0, 0] and grouping.hot(1)[0].width > 2
