import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.aggregate import Aggregate
from keygrouping.job import JobSpec
from keygrouping.partial import Partial, RecordError, Result, encode_receipt
from keygrouping.receipt import MODULUS
from keygrouping_aggregator import windows as module
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_service.kafka.partials import CLOCKS_DIFFER_MS
from keygrouping_service.kafka.progress import END, MIN_TIME
from keygrouping_service.records.columns import Columns
from one_by_one import add

JOB = JobSpec.from_json(
    {
        "window": 100,
        "aggregates": [
            {"name": "n", "op": "count"},
            {"name": "total", "op": "sum", "field": "x"},
            {"name": "most", "op": "max", "field": "x"},
            {"name": "spread", "op": "variance", "field": "x"},
            {"name": "places", "op": "distinct", "field": "x"},
            {"name": "price", "op": "vwap", "field": "x", "weight": "x"},
            {"name": "top", "op": "top-k", "field": "x", "k": 2, "capacity": 3},
            {"name": "shape", "op": "histogram", "field": "x", "bins": 3},
            {"name": "classes", "op": "naive-bayes", "field": "x", "features": ["y"], "entries": 9},
        ],
    }
)
Row = tuple[bytes, int, int]  # key, window start, value
Log = list[tuple[bytes, Partial]]

rows = st.tuples(st.sampled_from([b"a", b"b", b"\xff"]), st.sampled_from([0, 100, 200]), st.integers(-9, 9))


def receipt_of(values: list[int]) -> int:
    """A sum that stands for these values."""
    return sum((value + 10) * (MODULUS // 3) for value in values) % MODULUS


def values_for(aggregate: Aggregate, values: list[int]) -> list[Any]:
    return [(value, value) for value in values] if len(aggregate.inputs) > 1 else values


def over(aggregate: Aggregate, values: list[int]) -> Any:
    return aggregate.add_many(aggregate.initial(), values_for(aggregate, values))


def partial(worker: int, first: int, start: int, values: list[int]) -> Partial:
    states = {a.name: a.encode(over(a, values)) for a in JOB.aggregates}
    last = first + len(values) - 1
    receipt = receipt_of(values)
    return Partial(
        worker, start, start + 100, len(values), len(values), first, last, 0, states, receipt=encode_receipt(receipt)
    )


def split(events: list[tuple[Row, int, int]]) -> Log:
    """Partials of events of (row, worker, flush): one per key, window, worker and flush."""
    groups: dict[tuple[bytes, int, int, int], list[int]] = defaultdict(list)
    firsts: dict[tuple[bytes, int, int, int], int] = {}
    for offset, ((key, start, value), worker, flush) in enumerate(sorted(events, key=lambda event: event[2])):
        groups[key, start, worker, flush].append(value)
        firsts.setdefault((key, start, worker, flush), offset)
    return [(place[0], partial(place[2], firsts[place], place[1], values)) for place, values in groups.items()]


def truth(events: list[Row]) -> dict[tuple[bytes, int], list[int]]:
    """The values of each key and window."""
    groups: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for key, start, value in events:
        groups[key, start].append(value)
    return groups


def same(found: list[Result], expected: dict[tuple[bytes, int], list[int]]) -> None:
    assert sorted((r.key, r.start) for r in found) == sorted(expected)
    for result in found:
        values = expected[result.key, result.start]
        assert (result.end, result.events, result.weight) == (result.start + 100, len(values), len(values))
        assert result.receipt == receipt_of(values)
        for aggregate in JOB.aggregates:
            assert is_right(aggregate, result.aggregates[aggregate.name], values), aggregate.name


def is_right(aggregate: Aggregate, found: Any, values: list[int]) -> bool:
    return aggregate.expected(values_for(aggregate, values)).accept(found)


@settings(max_examples=60)
@given(st.data(), st.lists(st.tuples(rows, st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_every_split_over_workers_and_flushes_merges_back_to_the_whole_in_any_order_with_duplicates(
    data: st.DataObject, events: list[tuple[Row, int, int]]
) -> None:
    log = split(events)
    log += data.draw(st.lists(st.sampled_from(log), max_size=5)) if log else []
    windows = OpenWindows(JOB, MIN_TIME)
    written = [(key, p.encode()) for key, p in data.draw(st.permutations(log))]
    for start, stop in pairwise([0, *sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=3))), len(log)]):
        rows = [(offset, 0, *written[offset], ()) for offset in range(start, stop)]
        assert windows.add_all(Columns.of("partials", 0, rows)).refused == []
    same(list(windows.close(END)), truth([row for row, _, _ in events]))
    assert len(windows) == windows.groups == 0


def test_offsets_of_a_topic_that_was_created_again_are_no_repetitions_of_the_old_ones() -> None:
    """The same workers, keys, windows and first offsets, but other events."""
    windows = OpenWindows(JOB, MIN_TIME)
    events = []
    for topic, count in (("o" * 22, 100), ("n" * 22, 500)):
        rows: list[Row] = [(b"a", 0, number % 7) for number in range(count)]
        events += rows
        for offset, (key, p) in enumerate(split([(row, 0, 0) for row in rows])):
            for _ in range(2):
                add(windows, offset, key, replace(p, topic=topic).encode())
    same(list(windows.close(END)), truth(events))


def test_a_flood_of_foreign_topics_is_refused_and_forgotten_with_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WORKERS", 3)
    windows = OpenWindows(JOB, MIN_TIME)
    for start in (0, 100):
        for number in range(3):
            assert add(windows, number, b"a", replace(partial(0, 0, start, [1]), topic=f"{number}" * 22).encode())
        with pytest.raises(RecordError, match="different topics"):
            add(windows, 3, b"a", replace(partial(0, 0, start, [1]), topic="x" * 22).encode())
        assert not add(windows, 4, b"a", replace(partial(0, 0, start, [1]), topic="2" * 22).encode())
        assert len(windows._lanes) == 3
        (result,) = windows.close(start + 100)
        assert result.events == 3


class Aggregator:
    """A process over a log: it may die at any step, and starts again from what it has committed."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.committed = (0, MIN_TIME)
        self.results: list[Result] = []
        self.restart()

    def restart(self) -> None:
        self.position, closed = self.committed
        self.windows = OpenWindows(JOB, closed)

    def read(self) -> None:
        key, p = self.log[self.position]
        add(self.windows, self.position, key, p.encode())
        self.position += 1

    def close(self, time: int, *, dies: bool) -> None:
        results = list(self.windows.close(time))
        if dies:
            self.restart()
            return
        self.results += results
        self.committed = (self.windows.restart_offset(self.position), self.windows.closed)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(rows, st.integers(0, 3), st.integers(0, 5)), max_size=30),
    st.lists(st.sampled_from(["read", "read", "close", "die", "die in commit"]), max_size=40),
)
def test_a_restart_at_any_point_gives_each_result_exactly_once(
    events: list[tuple[Row, int, int]], steps: list[str]
) -> None:
    log = split(events)
    aggregator = Aggregator(log)
    for step in steps:
        if step == "die":
            aggregator.restart()
        elif step == "read" and aggregator.position < len(log):
            aggregator.read()
        elif step.startswith(("close", "die in")):
            # What is behind this position no partial to come belongs to: the promise of the workers.
            to_come = min((p.start for _, p in log[aggregator.position :]), default=END)
            aggregator.close(to_come, dies=step != "close")
    while aggregator.position < len(log):
        aggregator.read()
    aggregator.close(END, dies=False)
    same(aggregator.results, truth([row for row, _, _ in events]))
    assert aggregator.committed == (len(log), END)


def test_a_window_is_final_when_its_end_is_reached_and_not_a_moment_before() -> None:
    windows = OpenWindows(JOB, MIN_TIME)
    add(windows, 0, b"k", partial(0, 0, 0, [1]).encode())
    assert list(windows.close(99)) == []
    assert [r.key for r in windows.close(100)] == [b"k"]


def test_partials_of_a_final_window_are_passed_over() -> None:
    windows = OpenWindows(JOB, closed=100)
    assert not add(windows, 7, b"k", partial(0, 0, 0, [1]).encode())
    assert add(windows, 8, b"k", partial(0, 1, 100, [1]).encode())
    assert windows.restart_offset(9) == 8


def test_progress_never_goes_back() -> None:
    windows = OpenWindows(JOB, closed=500)
    assert list(windows.close(100)) == []
    assert windows.closed == 500


def test_nothing_open_means_a_restart_where_we_are() -> None:
    assert OpenWindows(JOB, MIN_TIME).restart_offset(42) == 42


GOOD = partial(1, 5, 0, [1, 2])
POISON = "CgEHBAAIBwKIndq+l5qxQAAAAAAAgKc/AAAAAAAAAAACAAAAAAAAACMBI43P2REw"
"""A sketch that DataSketches decodes and that ends the process when it is merged."""


def written(wrong: Partial) -> bytes:
    """What stands in the topic, numbers of any size too."""
    return json.dumps({"v": 1, **{name: getattr(wrong, name) for name in Partial.__slots__}}).encode()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (replace(GOOD, worker=-1), "worker"),
        (replace(GOOD, worker=1 << 16), "worker"),
        (replace(GOOD, first=-1), "offsets"),
        (replace(GOOD, first=7), "offsets"),
        (replace(GOOD, last=1 << 50), "offsets"),
        (replace(GOOD, worker=1 << 70), "worker"),
        (replace(GOOD, epoch=1 << 64), "epoch"),
        (replace(GOOD, epoch=-1), "epoch"),
        (replace(GOOD, end=0), "window"),
        (replace(GOOD, start=1, end=101), "window"),
        (replace(GOOD, end=200), "window"),
        (replace(GOOD, start=-100, end=0), "window"),
        (replace(GOOD, end=2**63 - 1), "window"),
        (replace(GOOD, events=-7), "events"),
        (replace(GOOD, events=3), "events"),
        (replace(GOOD, events=1 << 64), "events"),
        (replace(GOOD, events=1 << 41, last=1 << 46), "events"),
        (replace(GOOD, weight=3e18), "weight"),
        (replace(GOOD, weight=10**300), "weight"),
        (replace(GOOD, end=END + 1), "window"),
        (replace(GOOD, events=0), "events"),
        (replace(GOOD, weight=-1), "weight"),
        (replace(GOOD, aggregates={}), "not the job's"),
        (replace(GOOD, aggregates={**GOOD.aggregates, "foreign": 1}), "foreign"),
        (replace(GOOD, aggregates={**GOOD.aggregates, "n": 3}), "'n' has seen 3 events, the partial 2"),
        (replace(GOOD, aggregates={**GOOD.aggregates, "n": 1 << 64}), "'n'"),
        (replace(GOOD, aggregates={**GOOD.aggregates, "places": POISON}), "'places'"),
        (replace(GOOD, aggregates={**GOOD.aggregates, "n": "2"}), "'n'"),
        (replace(GOOD, aggregates={**GOOD.aggregates, "places": "%%"}), "'places'"),
    ],
)
def test_a_partial_that_no_worker_writes_is_refused_and_leaves_nothing_behind(wrong: Partial, says: str) -> None:
    windows = OpenWindows(JOB, MIN_TIME)
    with pytest.raises(RecordError, match=says):
        add(windows, 0, b"k", written(wrong))
    assert len(windows) == 0


@pytest.mark.parametrize("ahead", [CLOCKS_DIFFER_MS, CLOCKS_DIFFER_MS + 100])
def test_a_forged_partial_holds_its_window_open_for_a_day_and_max_future_at_most(ahead: int) -> None:
    now = 1_700_000_000_000
    windows = OpenWindows(JOB, MIN_TIME, lambda: now / 1000)
    start = now + JOB.max_future_ms + ahead
    forged = replace(GOOD, start=start, end=start + JOB.window_ms)
    if ahead <= CLOCKS_DIFFER_MS:
        assert add(windows, 0, b"k", written(forged))
        return
    with pytest.raises(RecordError, match=f"not lie more than {start - now - 100} ms ahead of the clock"):
        add(windows, 0, b"k", written(forged))
    assert windows.restart_offset(42) == 42


def test_a_partial_without_key_is_refused() -> None:
    with pytest.raises(RecordError, match="key"):
        add(OpenWindows(JOB, MIN_TIME), 0, None, GOOD.encode())


@given(st.binary(max_size=60))
def test_foreign_bytes_are_refused_and_never_anything_else(value: bytes) -> None:
    with pytest.raises(RecordError):
        add(OpenWindows(JOB, MIN_TIME), 0, b"k", value)
