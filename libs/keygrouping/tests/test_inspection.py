"""Laws of an inspection: true bounds, evenly spread samples, bounded memory, and advice that follows the figures."""

from collections import Counter
from collections.abc import Generator
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.cli.inspect_page import page
from keygrouping.cli.inspect_tables import headline, show
from keygrouping.hashing import hash_key, hash_keys, worker_of
from keygrouping.inspection import (
    Batch,
    Extraction,
    Inspection,
    InspectionError,
    KeyNaming,
    Report,
    Sample,
    Silence,
    advise,
    advise_stages,
    divided,
    groupings,
    spread,
)
from keygrouping.inspection.advice import EVEN, warnings
from keygrouping.inspection.span import Span, joined, moment, span_of
from keygrouping.inspection.stages import HOP
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
    left_out: ClassVar[Counter[str]] = Counter()

    def __init__(self, *, sample: Sample | None = None, followed: int = 0, silence: Silence | None = None) -> None:
        self.sample = sample
        self.followed = followed
        self.silence = silence

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
    for number, events in enumerate(intervals):
        keys = SpaceSaving(256)
        keys.update(np.array([hash_key(b"key")], np.int64), np.array([float(events)]))
        trend.add(Point(events, [np.array([float(events), 1.0])], keys, Span(number, number + 1) if number else None))
    points = trend.points
    assert joined(*(point.span for point in points)) == (Span(1, len(intervals)) if len(intervals) > 1 else None)
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
    times = np.arange(5000) * 1000
    times[0] = -1
    inspection = Inspection(groupings(["pkg", "level-fill", "shuffle"]), [4, 9], PLAIN, interval=1000)
    begin = 0
    for size in sizes:
        part = slice(begin, begin + size)
        inspection.add(Batch(keys[part], None, partitions[part], times[part]))
        begin += size
    report = inspection.report(Reading(), 3)
    whole = Inspection(groupings(["pkg", "level-fill", "shuffle"]), [4, 9], PLAIN, interval=1000)
    whole.add(Batch(keys, None, partitions, times))
    again = whole.report(Reading(), 3)
    assert report.source.span == Span(1000, 4_999_000)
    spans = [Span(begin * 1000, (begin + 999) * 1000) for begin in (0, 1000, 2000, 3000, 4000)]
    assert [point.span for point in report.trend] == [Span(1000, 999_000), *spans[1:]]
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
    assert advice.values == {"worker": {"replicas": 8}, "router": {"grouping": {"name": "level-fill"}}}
    assert warnings(report) == []

    alone = Inspection(groupings(["key"]), [8], PLAIN, interval=1000)
    alone.add(Batch(skewed(2000, 0.6)))
    (advice,) = advise(alone.report(Reading(), 5))
    assert advice.grouping == "key" and "try others" in advice.reason


def test_cheap_work_is_not_worth_a_hop_unless_a_partition_is_overfull() -> None:
    even = Inspection(groupings(["key"]), [4], PLAIN, interval=1000)
    overfull = Inspection(groupings(["key"]), [2, 8], PLAIN, interval=1000)
    for partition, keys in enumerate([3000, 1000, 1000, 1000]):
        even.add(Batch([b"k"] * 1000, partitions=np.full(1000, partition)))
        overfull.add(Batch([b"k"] * keys, partitions=np.full(keys, partition)))
    (advice,) = advise_stages(even.report(Reading(), 5))
    assert advice.least_work is None and "KEYGROUPING_STAGES=combine" in advice.text
    few, many = advise_stages(overfull.report(Reading(), 5))
    assert few.least_work is None, "half of all on one of two cores"
    assert many.least_work == pytest.approx(HOP / 3), "at this work both take as long:"
    by_router, at_source = 8 / (HOP + HOP / 3), 1 / (0.5 * HOP / 3)
    assert by_router == pytest.approx(at_source)
    assert many.to_data()["route_from_us"] == many.least_work
    assert advise_stages(Inspection(groupings(["key"]), [2], PLAIN, interval=1000).report(Reading(), 5)) == []


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


def test_warnings_tell_of_moving_keys_and_few_events() -> None:
    moving = Inspection(groupings(["key"]), [4], PLAIN, interval=100)
    for number in range(4):
        moving.add(Batch([b"key-%d" % number] * 100))
    told = " ".join(warnings(moving.report(Reading(), 5)))
    assert "in the 4 parts of the range, 4 different keys were the heaviest" in told and "Only 400 events" in told


def seen(reading: Reading, events: int = 500) -> Report:
    """The report on so many events of one key."""
    inspection = Inspection(groupings(["key"]), [4], PLAIN, interval=100)
    inspection.add(Batch([b"key"] * events))
    return inspection.report(reading, 5)


@pytest.mark.parametrize(
    ("reading", "told", "noted"),
    [
        (Reading(), "500 events, 1 keys", []),
        (Reading(followed=500), "500 events (500 that came since), 1 keys", []),
        (Reading(followed=200), "500 events (300 that were there, 200 that came since), 1 keys", []),
        (
            Reading(sample=Sample(300, 3_000_000, 300)),
            "500 events (500 of a sample of 300 of 3,000,000 offsets), 1 keys",
            ["A sample of 300 of the 3,000,000 offsets"],
        ),
        (
            Reading(sample=Sample(300, 3_000_000, 280), followed=220),
            "500 events (280 of a sample of 300 of 3,000,000 offsets, 220 that came since), 1 keys",
            ["A sample of 300 of the 3,000,000 offsets", "The 300 offsets of the sample hold 280 records"],
        ),
        (
            Reading(sample=Sample(0, 3_000_000, 0), followed=500),
            "500 events (500 that came since), 1 keys",
            ["What the topic held, 3,000,000 offsets, was not read"],
        ),
    ],
)
def test_what_was_there_is_told_from_what_came_since(reading: Reading, told: str, noted: list[str]) -> None:
    report = seen(reading)
    assert headline(report) == f"topic events: {told}"
    others = [each for each in warnings(report) if not each.startswith("Only 500 events")]
    assert [each.startswith(note) for each, note in zip(others, noted, strict=True)] == [True] * len(noted)
    assert report.to_data()["source"]["sample"] == (reading.sample and reading.sample._asdict())


def test_silence_is_told_first(capsys: pytest.CaptureFixture[str]) -> None:
    report = seen(Reading(followed=500, silence=Silence(1_700_000_000_000, 1, 4)))
    line = "No answer from Kafka for 1 of 4 partitions since 2023-11-14 22:13:20 UTC"
    assert warnings(report)[0].startswith(line)
    show(report, again=False)
    assert line in capsys.readouterr().out and line in page(report)
    assert report.to_data()["source"]["silence"] == {"since_ms": 1_700_000_000_000, "partitions": 1, "of": 4}


# --- times ------------------------------------------------------------------------------------------------------------


def timed(step_ms: int) -> Report:
    """The report on 200 events, so far apart, in two parts."""
    inspection = Inspection(groupings(["key"]), [4], PLAIN, interval=100)
    times = 1_700_000_000_000 + step_ms * np.arange(200)
    inspection.add(Batch([b"key"] * 200, times=times))
    return inspection.report(Reading(), 5)


@pytest.mark.parametrize(
    ("step_ms", "shown"),
    [(1000, ["22:13:20", "22:14:59", "22:15:00", "22:16:39"]), (3_600_000, ["2023-11-14 22:13", "2023-11-19 01:13"])],
)
def test_parts_of_the_trend_have_times(step_ms: int, shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    report = timed(step_ms)
    show(report, again=False)
    printed = capsys.readouterr().out
    assert all(time in printed.partition("trend; times are UTC")[2] and time in page(report) for time in shown)
    first, last = report.to_data()["trend"]
    assert (first["earliest_ms"], last["latest_ms"]) == (1_700_000_000_000, 1_700_000_000_000 + 199 * step_ms)


def test_without_times_nothing_is_said_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    report = seen(Reading())
    show(report, again=False)
    assert "UTC" not in capsys.readouterr().out + page(report)
    assert {point["earliest_ms"] for point in report.to_data()["trend"]} == {None}


@given(st.lists(st.lists(st.integers(-1, 50), max_size=5), max_size=5))
def test_spans_cover_all_known_times(parts: list[list[int]]) -> None:
    known = [time for part in parts for time in part if time >= 0]
    span = joined(*(span_of(np.array(part, np.int64)) for part in parts))
    assert span == (Span(min(known), max(known)) if known else None)


def test_any_time_can_be_shown() -> None:
    assert (moment(0), moment(2**62)) == ("1970-01-01 00:00:00", f"{2**62} ms")


def test_groupings_that_need_the_future_are_no_choice() -> None:
    with pytest.raises(InspectionError, match=r"off-greedy: choose from shuffle, .*, or all"):
        groupings(["off-greedy"])
    names = [name for name, _ in groupings(["all"])]
    assert names[0] == "key" and names.count("key") == 1 and "off-greedy" not in names and "dkg" in names
