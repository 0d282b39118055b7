"""Laws of an inspection: true bounds, evenly spread samples, bounded memory, and advice that follows the figures."""

from collections import Counter
from collections.abc import Generator
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.hashing import hash_key, hash_keys, worker_of
from keygrouping.inspection import (
    Batch,
    Extraction,
    Inspection,
    InspectionError,
    KeyNaming,
    advise,
    divided,
    groupings,
    spread,
)
from keygrouping.inspection.advice import EVEN, cautions
from keygrouping.inspection.top_keys import TopKeys
from keygrouping.inspection.trend import Point, Trend, thirds
from keygrouping.keyspace import SpaceSaving
from keygrouping.measure import lambda_

PLAIN = KeyNaming()
numbers = st.lists(st.integers(0, 30), min_size=1, max_size=300)


class Reading:
    """A topic of four partitions that was read."""

    kind = "topic"
    name = "events"
    partitions = 4
    sampled_of = None
    left_out: ClassVar[Counter[str]] = Counter()

    def batches(self) -> Generator[Batch, None, None]:
        yield from ()


def skewed(events: int, share: float, keys: int = 200) -> list[bytes]:
    """One key with this share, in turn with others."""
    rng = np.random.default_rng(7)
    others = rng.integers(0, keys, events)
    return [b"hot" if rng.random() < share else b"key-%d" % other for other in others]


# --- ranges -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**9), st.integers(0, 5000), st.integers(0, 6000), st.integers(1, 120))
def test_ranges_are_spread_evenly_and_hold_what_is_wanted(first: int, size: int, wanted: int, parts: int) -> None:
    ranges = spread(first, first + size, wanted, parts)
    assert len(ranges) == parts and sum(map(len, ranges)) == min(wanted, size)
    gaps = [later.start - earlier.stop for earlier, later in pairwise(ranges)]
    assert all(gap >= 0 for gap in gaps) and ranges[0].start >= first and ranges[-1].stop <= first + size
    lengths = [len(each) for each in ranges]
    assert max(lengths) - min(lengths) <= 1
    if gaps:
        assert max(gaps) - min(gaps) <= 1
        edges = ranges[0].start - first + first + size - ranges[-1].stop
        assert abs(edges - (size - sum(lengths)) / parts) <= 1
    if wanted >= size:
        assert not any(gaps)


@given(st.integers(0, 10_000), st.lists(st.integers(0, 1000), max_size=20))
def test_partitions_give_in_proportion_to_their_sizes(wanted: int, sizes: list[int]) -> None:
    given_by = divided(wanted, sizes)
    total = sum(sizes)
    assert len(given_by) == len(sizes) and sum(given_by) == min(wanted, total)
    for mine, size in zip(given_by, sizes, strict=True):
        assert 0 <= mine <= size and abs(mine - min(wanted, total) * size / max(total, 1)) <= 1


# --- keys -------------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(numbers, min_size=1, max_size=5), st.integers(1, 40), st.booleans())
def test_true_shares_lie_within_the_bounds(batches: list[list[int]], capacity: int, weighted: bool) -> None:
    keys, truth = TopKeys(PLAIN, capacity), Counter[str]()
    for batch in batches:
        names = [b"\xff%d" % number if number % 5 == 0 else b"k%d" % number for number in batch]
        weights = np.array([number % 4 for number in batch], np.float64) if weighted else None
        keys.add(names, hash_keys(names)[:, 0], weights)
        for name, number in zip(names, batch, strict=True):
            truth[PLAIN.name(name)] += number % 4 if weighted else 1
    total = truth.total()
    assert keys.total == total
    shown = keys.heaviest(1000)
    assert len(shown) <= 2 * capacity and (bool(shown) or total == 0)
    for key in shown:
        assert key.low - 1e-12 <= truth[key.name] / total <= key.high + 1e-12
        assert key.high - key.low <= 1 / (capacity + 1) + 1e-12
    heavy = {name for name, weight in truth.items() if weight > total / (capacity + 1)}
    assert heavy <= {key.name for key in shown}


def test_names_are_few_however_many_keys_there_are() -> None:
    keys = TopKeys(PLAIN, 4)
    for begin in range(0, 60_000, 1000):
        names = [b"hot"] * 1000 + [b"%d" % number for number in range(begin, begin + 1000)]
        keys.add(names, hash_keys(names)[:, 0], None)
    assert keys.heaviest(1)[0].name == "hot"
    assert len(keys._names) <= 8 * 4096 + 8


def test_names_of_any_bytes() -> None:
    assert PLAIN.name("Türkei".encode()) == "Türkei"
    assert PLAIN.name(b"\xff\x00") == "base64url:_wA"
    assert PLAIN.name(b"") == ""
    assert PLAIN.name(("x" + "ü" * 200).encode()) == "x" + "ü" * 127 + "…"
    assert len(PLAIN.name(b"\xff" * 60_000)) < 400


def test_hashed_names_need_the_salt() -> None:
    salted, again, other = (KeyNaming(hashed=True, salt=salt) for salt in ("a", "a", "b"))
    unsalted, twin = KeyNaming(hashed=True), KeyNaming(hashed=True)
    assert salted.name(b"user") == again.name(b"user") != salted.name(b"users")
    assert len({naming.name(b"user") for naming in (salted, other, unsalted, twin)}) == 4
    assert "user" not in salted.name(b"user")


# --- where key and weight come from -----------------------------------------------------------------------------------


def test_extraction_is_that_of_a_job() -> None:
    job = Extraction.parsed("header=user", "field=/price/net").job()
    assert (job.key.kind, job.key.name, job.weight.kind, job.weight.name) == ("header", "user", "field", "/price/net")
    assert Extraction.parsed("record", "size").job().weight.kind == "size"
    assert Extraction.parsed("record", "1") == Extraction()


@pytest.mark.parametrize(("key", "weight"), [("user", "1"), ("header=", "1"), ("record", "2"), ("record", "header=x")])
def test_unknown_places_are_told_with_the_choices(key: str, weight: str) -> None:
    with pytest.raises(InspectionError, match="choose from"):
        Extraction.parsed(key, weight)


# --- trend ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), min_size=1, max_size=200), st.sampled_from([2, 8, 64]))
@settings(max_examples=20)
def test_a_trend_keeps_all_in_few_points(intervals: list[int], most: int) -> None:
    trend = Trend(most)
    for events in intervals:
        keys = SpaceSaving(256)
        keys.update(np.array([hash_key(b"key")], np.int64), np.array([float(events)]))
        trend.add(Point(events, [np.array([float(events), 1.0])], keys))
    points = trend.points
    assert len(points) < max(most, len(intervals) + 1) and len(points) <= most
    assert sum(point.events for point in points) == sum(intervals)
    assert sum(float(point.loads[0][0]) for point in points) == sum(intervals)
    assert sum(point.keys.total for point in points) == sum(intervals)
    ends = thirds(points)
    assert (ends is None) == (len(points) < 3)


# --- the whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[5000], [1, 999, 7, 3993], [0, 2500, 2500]])
def test_figures_do_not_depend_on_how_it_is_read(sizes: list[int]) -> None:
    keys = skewed(5000, 0.5)
    partitions = np.array([number % 3 for number in range(5000)])
    inspection = Inspection(groupings(["pkg", "level-fill", "shuffle"]), [4, 9], PLAIN, interval=1000)
    begin = 0
    for size in sizes:
        part = slice(begin, begin + size)
        inspection.add(Batch(keys[part], None, partitions[part], 1000 + begin, 2000 + begin))
        begin += size
    report = inspection.report(Reading(), 3)
    whole = Inspection(groupings(["pkg", "level-fill", "shuffle"]), [4, 9], PLAIN, interval=1000)
    whole.add(Batch(keys, None, partitions, 1000, 1000 + max(sizes) if len(sizes) == 1 else None))
    again = whole.report(Reading(), 3)
    assert report.outcomes == again.outcomes and report.trend == again.trend and report.top == again.top
    for workers in (4, 9):
        loads = np.bincount([worker_of(hash_key(key), workers) for key in keys], minlength=workers)
        assert report.by_key(workers).run.lambda_ == pytest.approx(lambda_(loads))
        assert report.by_key(workers).lambda_ >= report.by_key(workers).run.lambda_ - 1e-9
        assert report.by_key(workers).dist_cost == 1
    shuffled = report.outcomes[-1]
    assert (shuffled.grouping, shuffled.workers) == ("shuffle", 9)
    assert shuffled.lambda_ == pytest.approx(1, abs=0.01)
    assert report.keys == len(set(keys)) and len(report.trend) == 5
    assert [each.events for each in report.partitions] == [1667, 1667, 1666, 0]
    assert report.partition_lambda == pytest.approx(4 * 1667 / 5000)
    assert report.top[0].name == "hot" and report.top[0].low == keys.count(b"hot") / 5000
    assert report.top[0].first_third == pytest.approx(0.5, abs=0.05)


def test_advice_splits_only_where_that_helps() -> None:
    even = Inspection(groupings(["shuffle", "level-fill"]), [2], PLAIN, interval=1000)
    even.add(Batch([b"%d" % (number % 1000) for number in range(4000)]))
    (advice,) = advise(even.report(Reading(), 5))
    assert advice.grouping == "key" and "nothing to gain" in advice.reason

    hot = Inspection(groupings(["shuffle", "level-fill"]), [8], PLAIN, interval=1000)
    hot.add(Batch(skewed(20_000, 0.6)))
    report = hot.report(Reading(), 5)
    (advice,) = advise(report)
    chosen = next(each for each in report.outcomes if each.grouping == "level-fill")
    assert advice.grouping == "level-fill" and chosen.lambda_ <= EVEN < report.by_key(8).lambda_
    assert "hot alone has 59.3%" in advice.reason and "the work of 1.7 at most" in advice.reason
    assert advice.environment["KEYGROUPING_ROUTER_GROUPING"] == "level-fill"
    assert cautions(report) == []

    alone = Inspection(groupings(["key"]), [8], PLAIN, interval=1000)
    alone.add(Batch(skewed(2000, 0.6)))
    (advice,) = advise(alone.report(Reading(), 5))
    assert advice.grouping == "key" and "try others" in advice.reason


def test_a_hot_key_that_moves_is_no_even_load() -> None:
    moving = Inspection(groupings(["shuffle"]), [2], PLAIN, interval=100)
    homes = [worker_of(hash_key(b"%d" % number), 2) for number in range(50)]
    for home in (0, 1):
        moving.add(Batch([b"%d" % homes.index(home)] * 100))
    report = moving.report(Reading(), 5)
    assert (report.by_key(2).lambda_, report.by_key(2).run.lambda_) == (2, 1)
    shuffled = report.outcomes[-1]
    assert (shuffled.dist_cost, shuffled.run.dist_cost) == (2, 2)
    assert advise(report)[0].grouping == "shuffle"


def test_cautions_tell_of_moving_keys_and_few_events() -> None:
    moving = Inspection(groupings(["key"]), [4], PLAIN, interval=100)
    for number in range(4):
        moving.add(Batch([b"key-%d" % number] * 100))
    told = " ".join(cautions(moving.report(Reading(), 5)))
    assert "4 keys are it in 4 parts" in told and "Only 400 events" in told


def test_groupings_that_need_the_future_are_no_choice() -> None:
    with pytest.raises(InspectionError, match=r"off-greedy: choose from shuffle, .*, or all"):
        groupings(["off-greedy"])
    names = [name for name, _ in groupings(["all"])]
    assert names[0] == "key" and names.count("key") == 1 and "off-greedy" not in names and "dkg" in names
