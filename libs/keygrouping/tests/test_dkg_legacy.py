"""The legacy grouping decides as the public code does, and its runs measure what that code's runs measure."""

import hashlib
from dataclasses import dataclass
from functools import cache
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import create
from keygrouping.grouping.dkg.legacy import DkgLegacy, DkgLegacySettings, LegacyThresholds
from keygrouping.grouping.protocol import Workers
from keygrouping.hashing import hash_key, hash_keys
from keygrouping.keyspace import BABY, ITEM, OLD, TEENAGE
from keygrouping.keyspace.legacy import LegacyKeySpace
from keygrouping.measure import lambda_, std_dev
from numpy.typing import NDArray

Integers = NDArray[np.int64]

NAMES = [*(f"C{i}" for i in range(203)), "Turkey"]
TURKEY = len(NAMES) - 1
SOURCES = 10
RATE = 1_000
"""Events per second of all sources together; the clock of the measured runs stood still within a second."""


@dataclass
class Run:
    """Events per minute and worker of a run under a virtual clock, and which worker had which key."""

    minutes: Integers
    members: NDArray[np.bool_]

    def loads(self) -> Integers:
        loads: Integers = self.minutes.sum(axis=0)
        return loads

    def by_minute(self) -> list[float]:
        return [lambda_(loads) for loads in self.minutes]

    def dist_cost(self) -> float:
        return float(self.members.sum() / self.members.any(axis=1).sum())


@cache
def run(name: str, workers: int, skews: tuple[int, ...], sources: int = SOURCES) -> Run:
    """Route minutes of these per cents of Turkey, the others uniform over all names, sources round-robin."""
    settings = {"distinct_choices": False} if name == "pkg" else {}
    groupings = [create(name, workers, settings) for _ in range(sources)]
    hashes = hash_keys([key.encode() for key in NAMES], groupings[0].seeds)
    random = np.random.default_rng(1)
    minutes = np.zeros((len(skews), workers), np.int64)
    members = np.zeros((len(NAMES), workers), bool)
    routed = np.empty(RATE, np.int32)
    for second in range(60 * len(skews)):
        minute = second // 60
        keys = np.where(random.integers(0, 100, RATE) < skews[minute], TURKEY, random.integers(0, len(NAMES), RATE))
        hashed = hashes[keys]
        for source, grouping in enumerate(groupings):
            routed[source::sources] = grouping.route_batch(hashed[source::sources], None, float(second))
        minutes[minute] += np.bincount(routed, minlength=workers)
        members[keys, routed] = True
    return Run(minutes, members)


@pytest.mark.parametrize(
    ("workers", "skew", "duration", "balance", "deviation", "cost"),
    [
        (10, 0, 29, 1.10, 0.80, 1.98),
        (10, 10, 29, 1.28, 1.54, 1.95),
        (10, 20, 29, 1.36, 2.27, 2.15),
        (10, 30, 29, 1.37, 2.79, 2.31),
        (10, 40, 29, 1.36, 3.25, 2.54),
        (10, 60, 29, 1.36, 4.0, 2.57),
        (10, 80, 29, 1.32, 4.4, 2.6),
        (50, 80, 39, 1.98, 1.35, 2.84),
        (100, 80, 59, 2.96, 1.0, 2.32),
    ],
)
def test_runs_measure_what_the_public_code_measured(
    workers: int, skew: int, duration: int, balance: float, deviation: float, cost: float
) -> None:
    measured = run("dkg-legacy", workers, (skew,) * duration)
    assert lambda_(measured.loads()) == pytest.approx(balance, rel=0.03)
    assert std_dev(measured.loads()) == pytest.approx(deviation, rel=0.06)
    assert measured.dist_cost() == pytest.approx(cost, rel=0.08)


@pytest.mark.parametrize(
    ("name", "workers", "skew", "balance", "deviation", "cost"),
    [
        ("key", 10, 0, 1.37, 2.35, 1.0),
        ("key", 10, 20, 3.04, 7.0, 1.0),
        ("key", 10, 80, 8.25, 24.2, 1.0),
        ("pkg", 10, 0, 1.0, 0.0, 1.94),
        ("pkg", 10, 20, 1.20, 1.0, 1.64),
        ("pkg", 10, 80, 4.05, 15.2, 1.55),
        ("pkg", 50, 80, 20.0, 7.8, 1.88),
    ],
)
def test_so_do_the_two_it_was_compared_with(
    name: str, workers: int, skew: int, balance: float, deviation: float, cost: float
) -> None:
    measured = run(name, workers, (skew,) * 2)
    assert lambda_(measured.loads()) == pytest.approx(balance, rel=0.03)
    assert std_dev(measured.loads()) == pytest.approx(deviation, rel=0.03, abs=0.03)
    assert measured.dist_cost() == pytest.approx(cost, rel=0.05)


def test_a_newcomer_gets_the_whole_hot_key_until_its_lifetime_load_has_caught_up() -> None:
    by_minute = run("dkg-legacy", 10, (80,) * 29).by_minute()
    assert by_minute[0] == pytest.approx(4.1, rel=0.03) and max(by_minute) == pytest.approx(6.7, rel=0.03)
    assert by_minute[:6] == sorted(by_minute[:6]) and max(by_minute[7:]) < 4
    assert 65 < max(run("dkg-legacy", 100, (80,) * 59).by_minute()) < 75


def test_after_the_skew_is_gone_equal_lifetime_loads_keep_the_current_ones_unequal() -> None:
    afterwards = run("dkg-legacy", 10, (80,) * 20 + (0,) * 20, sources=1).by_minute()[29:39]
    assert np.median(afterwards) == pytest.approx(1.46, rel=0.05)


@pytest.mark.parametrize(
    ("workers", "up", "down"),
    [(5, 24, 15), (10, 13, 6), (20, 7, 2), (50, 3, 0), (100, 2, 0), (200, 1, 0), (261, 1, 0), (262, 0, 0)],
)
def test_thresholds_are_cut_to_integers(workers: int, up: int, down: int) -> None:
    assert LegacyThresholds.of(workers) == LegacyThresholds(up, down)


def scrambled(numbers: Integers) -> Integers:
    """31 bits that look random, by the mixing function of splitmix64."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).astype(np.int64) & 0x7FFFFFFF


def hot_keys_in_turn() -> tuple[Integers, Integers]:
    """Keys and milliseconds of 80 minutes: one key after the other is hot for ever longer, 500 are cold."""
    events = np.arange(240_000)
    ends = np.cumsum(np.arange(10, 30))
    hot = np.searchsorted(ends * events.size // ends[-1], events, side="right") * 97 % 500
    drawn = scrambled(events)
    return np.where(drawn % 16 < 11, hot, (drawn >> 8) % 500), events * 80 * 60_000 // events.size // 1000 * 1000


def a_hot_key_that_is_forgotten() -> tuple[Integers, Integers]:
    """Key 0 is hot for 300 s, then 14 others for 30 s each with far more events, then key 0 again; 40 are cold."""
    keys: list[int] = []
    times: list[int] = []
    second = 0
    for key, duration, rate in [(0, 300, 20), *((1 + i, 30, 600) for i in range(14)), (0, 200, 20)]:
        for _ in range(duration):
            keys += [key] * (rate * 4 // 5) + [20 + (second * 7 + i) % 40 for i in range(rate // 5)]
            times += [1000 * second] * (rate * 4 // 5 + rate // 5)
            second += 1
    return np.array(keys), np.array(times)


def routed_by(sources: list[DkgLegacy], keys: Integers, times: Integers) -> Workers:
    """The decisions of sources that get the events in turn."""
    hashes = hash_keys([f"key{i}".encode() for i in range(int(keys.max()) + 1)])
    routed = np.empty(keys.size, np.int32)
    for first, grouping in enumerate(sources):
        own = np.arange(first, keys.size, len(sources))
        for batch in np.split(own, np.flatnonzero(np.diff(times[own])) + 1):
            routed[batch] = grouping.route_batch(hashes[keys[batch]], None, times[batch[0]] / 1000)
    return routed


def digest(routed: Workers) -> str:
    return hashlib.sha256(routed.astype("<i4").tobytes()).hexdigest()[:16]


@pytest.mark.parametrize(("workers", "golden"), [(5, "289c05ad934fb3b3"), (16, "b2ce76db2a1c8c1c")])
def test_every_decision_is_that_of_the_public_code(workers: int, golden: str) -> None:
    """The digests are of what its classes decided on these events, under a clock set by the events' times."""
    sources = [DkgLegacy(workers, DkgLegacySettings(distinct_keys=20)) for _ in range(2)]
    assert digest(routed_by(sources, *hot_keys_in_turn())) == golden


def test_a_forgotten_key_keeps_its_width_as_in_the_public_code() -> None:
    grouping = DkgLegacy(10, DkgLegacySettings(distinct_keys=10))
    keys, times = a_hot_key_that_is_forgotten()
    before = times < 700_000
    routed = [routed_by([grouping], keys[before], times[before])]
    forgotten = grouping.explain("key0")
    assert (forgotten.share, forgotten.age, forgotten.width) == (None, None, 6)
    assert hash_key("key0") not in {hot.hash for hot in grouping.hot(100)}
    routed.append(routed_by([grouping], keys[~before], times[~before]))
    assert digest(np.concatenate(routed)) == "68f21088a42fcd4d"


def test_the_second_event_uses_up_the_first_check() -> None:
    grouping = DkgLegacy(10)
    widths = [(grouping.route("hot", now=float(now)), grouping.explain("hot").width)[1] for now in range(200)]
    assert [(width, len(list(seconds))) for width, seconds in groupby(widths)] == [(2, 62), (3, 61), (4, 61), (5, 16)]


def test_the_first_promotion_to_the_old_space_is_at_45_seconds() -> None:
    grouping = DkgLegacy(10)
    old_at = [
        now for now in range(50) if (grouping.route("a", now=float(now)), "in old" in grouping.explain("a").why)[1]
    ]
    assert old_at == [45, 46, 47, 48, 49]


def test_nothing_is_widened_while_the_warm_up_lasts() -> None:
    grouping = DkgLegacy(10, DkgLegacySettings(warm_up=123))
    widths = [(grouping.route("hot", now=float(now)), grouping.explain("hot").width)[1] for now in range(200)]
    assert widths == [2] * 184 + [3] * 16


def test_weights_play_no_part() -> None:
    heavy, light = DkgLegacy(10), DkgLegacy(10)
    assert [heavy.route("a", 1000.0) for _ in range(4)] == [light.route("a") for _ in range(4)]


def test_another_number_of_workers_is_a_new_start() -> None:
    grouping = DkgLegacy(10)
    for now in range(130):
        grouping.route("hot", now=float(now))
    assert grouping.epoch == 2
    grouping.resize(7)
    assert (grouping.epoch, grouping.explain("hot").width, grouping.explain("hot").age) == (3, 2, None)
    fresh = DkgLegacy(7)
    later = [grouping.route(f"key{i % 9}", now=130.0 + i) for i in range(300)]
    assert later == [fresh.route(f"key{i % 9}", now=130.0 + i) for i in range(300)]


class CodeSpaces:
    """Promotion of the public code to the letter, on lists of (hash, count)."""

    def __init__(self, spaces: dict[int, list[tuple[int, int]]]) -> None:
        self.spaces = spaces

    def promote(self, source: int, target: int, capacity: int, truncate: int | None = None) -> None:
        young = sorted(sorted(self.spaces[source]), key=lambda item: -item[1])[:truncate]
        grown = sorted(sorted(self.spaces[target]), key=lambda item: -item[1])
        loop = 0
        while len(grown) < capacity and young:
            grown.insert(0, young.pop(0))
            loop += 1
        while loop < capacity and young and young[0][1] > grown[-1][1]:
            young.append(grown.pop())
            grown.insert(0, young.pop(0))
            loop += 1
        self.spaces[source], self.spaces[target] = young, grown


some_counts = st.lists(st.integers(1, 9), max_size=9)


@given(st.lists(st.integers(1, 9), max_size=14), some_counts, some_counts, st.integers(0, 4), st.integers(0, 9))
def test_promotion_is_that_of_the_public_code(
    babies: list[int], teenagers: list[int], grown: list[int], done: int, passes: int
) -> None:
    table = LegacyKeySpace(20)
    given_items = {BABY: babies, TEENAGE: teenagers[:8], OLD: grown[:2]}
    code = CodeSpaces({s: [(10 * i + s, count) for i, count in enumerate(c)] for s, c in given_items.items()})
    table.replace(
        np.array([(h, count, 0, 0, 0, 0, 2, space) for space, items in code.spaces.items() for h, count in items], ITEM)
    )
    table.catch_up(done, done + passes)
    for number in range(done + 1, done + passes + 1):
        code.promote(BABY, TEENAGE, 8, truncate=10)
        if number % 4 == 0:
            code.promote(TEENAGE, OLD, 2)
    known = table.known()
    for space, items in code.spaces.items():
        assert sorted(known["hash"][known["space"] == space].tolist()) == sorted(h for h, _ in items)


def test_a_flood_of_new_keys_between_passes_is_kept_up_to_the_limit_and_then_forgotten() -> None:
    grouping = DkgLegacy(10)
    flood = np.arange(70_000, dtype=np.int64).reshape(-1, 1) * 7_919
    for _ in range(2):
        assert set(grouping.route_batch(flood, None, 1.0).tolist()) == set(range(10))
        assert len(grouping.keys) == grouping.keys.limit == 65_536
    assert grouping.keys.items.nbytes <= 12_600_000
    grouping.route_batch(flood[:1], None, 16.0)
    assert [len(grouping.keys), *grouping.hot(1)] == [50, (0, 2, 3 / 140_001)]


def test_forgotten_widths_are_dropped_beyond_half_of_the_table_the_longest_unseen_first() -> None:
    grouping = DkgLegacy(10)
    grouping.route("a", now=0.0)
    snapshot = grouping.snapshot()
    snapshot["state"]["keys"] = [[i, 0.0, 0.0, float(i), 0.0, 0.0, 3, BABY] for i in range(40_000)]
    snapshot["state"]["keys"] += [[-i, 1.0, 0.0, 0.0, 0.0, 0.0, 2, BABY] for i in range(1, 100)]
    grouping.restore(snapshot)
    grouping.route("a", now=20.0)
    widths = {item[0]: item[6] for item in grouping.snapshot()["state"]["keys"] if item[1] == 0}
    assert widths == dict.fromkeys(range(40_000 - 32_768, 40_000), 3)
    assert grouping.epoch == 40_000 - 32_768
