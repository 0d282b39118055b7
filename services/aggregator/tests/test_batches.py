"""Batches of partials are merged as their partials one by one, whatever is in them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.aggregate import Aggregate
from keygrouping.job import JobSpec
from keygrouping.partial import Partial, RecordError, encode_receipt
from keygrouping_aggregator import metrics
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_aggregator.work import Closer
from keygrouping_service.kafka.progress import END, MIN_TIME, Committed, Progress
from keygrouping_service.records.columns import Columns, Row
from keygrouping_service.records.v2.batch import BufferBatch
from one_by_one import OneByOne


class Picky(Aggregate):
    """A sum that can't read 13, and can't be merged to 20 or more."""

    def initial(self) -> Any:
        return 0

    def add_many(self, state: Any, values: Any) -> Any:
        return state + len(list(values))

    def merge(self, left: Any, right: Any) -> Any:
        if left + right >= 20:
            raise ArithmeticError("too much")
        return left + right

    def decode(self, data: Any) -> Any:
        return {13: None}.get(data, data) + 0

    def finish(self, state: Any) -> Any:
        return state


OURS = JobSpec.from_json(
    {
        "window": 100,
        "aggregates": [
            {"name": "n", "op": "count"},
            {"name": "total", "op": "sum", "field": "x"},
            {"name": "least", "op": "min", "field": "x"},
            {"name": "most", "op": "max", "field": "x"},
            {"name": "spread", "op": "variance", "field": "x"},
            {"name": "price", "op": "vwap", "field": "x", "weight": "y"},
        ],
    }
)
OWN = JobSpec(window_ms=100, aggregates=(*OURS.aggregates[:2], Picky(name="own")))
NOTHING = JobSpec(window_ms=100, aggregates=())
CLOCK = 1000.0

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-9, 9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, 1e16, 1e300, 1.7e308, -1e-300, -0.0]),
)
odd: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [None, True, "", "7", "NaN", "/" * 22, [], {}, 1 << 63, 1 << 70, -1, 0, 13, 0.5, END, [1.0, 1.0], ["NaN"]]
    ),
    numbers,
)


@st.composite
def records(draw: st.DrawFn, job: JobSpec) -> tuple[bytes | None, bytes | None]:
    """Key and value of a partial; often of the same group, sometimes odd, damaged, or nothing at all."""
    values = draw(st.lists(numbers, min_size=1, max_size=3))
    states: dict[str, Any] = {}
    for aggregate in job.aggregates:
        given = [(value, value) for value in values] if len(aggregate.inputs) > 1 else values
        states[aggregate.name] = aggregate.encode(aggregate.add_many(aggregate.initial(), given))
        if isinstance(aggregate, Picky):
            states[aggregate.name] = draw(st.sampled_from([1, 2, 9, 13]))
    start, first = draw(st.sampled_from([0, 100, 200])), draw(st.integers(0, 5))
    partial = Partial(
        draw(st.integers(0, 1)),
        *(start, start + 100, len(values), draw(st.sampled_from([len(values), 0.25, 1 << 53])), first, first + 5, 0),
        states,
        topic=draw(st.sampled_from(["t" * 22, "u" * 22])),
        receipt=encode_receipt(draw(st.sampled_from([0, 1, (1 << 128) - 1]))),
    )
    members = orjson.loads(partial.encode())
    if draw(st.integers(0, 3)) == 0:
        inner = draw(st.sampled_from([members, members["aggregates"], *members["aggregates"].values()]))
        if isinstance(inner, dict) and inner:
            name = draw(st.sampled_from(sorted(inner)))
            inner[name] = draw(odd)
            if draw(st.integers(0, 4)) == 0:
                del inner[name]
    key = draw(st.sampled_from([b"a", b"a", b"b", b"\xff", b""]))
    value = json.dumps(members, sort_keys=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))).encode()
    if draw(st.integers(0, 9)) == 0:
        broken = re.sub(rb'"own": \d+', b'"own": {]', value)
        wrong = [(None, value), (b"k" * 1_000_001, value), (key, None), (key, value[:-1]), (key, broken)]
        return draw(st.sampled_from(wrong))
    return key, value


def outcomes_one_by_one(windows: OneByOne, rows: list[Row]) -> list[bool | str]:
    found: list[bool | str] = []
    for offset, _, key, value, _ in rows:
        try:
            found.append(windows.add(offset, key, value))
        except RecordError as error:
            found.append(str(error))
    return found


def in_batches(windows: OpenWindows, rows: list[Row], size: int, *, lists: bool) -> list[bool | str]:
    """What became of each row, as far as a batch says so: the refused ones, and how many were merged in each batch."""
    found: list[bool | str] = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        batch = Columns.of("partials", 0, part) if lists else BufferBatch.of("partials", 0, part)
        added = windows.add_all(batch)
        assert added.merged + added.passed_over + len(added.refused) == len(part)
        told = [True] * added.merged + [False] * added.passed_over
        refused = dict(added.refused)
        found += [refused[row] if row in refused else told.pop() for row in range(len(part))]
    return found


def summed(outcomes: list[bool | str], size: int) -> list[tuple[Counter[bool | str], list[str | None]]]:
    parts = [outcomes[start : start + size] for start in range(0, len(outcomes), size)]
    return [(Counter(part), [each if isinstance(each, str) else None for each in part]) for part in parts]


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from([OURS, OWN, NOTHING]), st.booleans(), st.integers(1, 40))
def test_a_batch_is_merged_as_its_partials_one_by_one(
    data: st.DataObject, job: JobSpec, lists: bool, size: int
) -> None:
    windows, others = OpenWindows(job, MIN_TIME, lambda: CLOCK), OneByOne(job, MIN_TIME, int(CLOCK * 1000))
    offset = 0
    for time in (100, 200, END):
        drawn = data.draw(st.lists(records(job), max_size=30))
        rows: list[Row] = [(offset + row, 1, key, value, ()) for row, (key, value) in enumerate(drawn)]
        offset += len(rows)
        expected = outcomes_one_by_one(others, rows)
        assert summed(in_batches(windows, rows, size, lists=lists), size) == summed(expected, size)
        assert (len(windows), windows.groups, windows.restart_offset(99)) == others.held(99)
        results, wanted = list(windows.close(time)), others.close(time)
        assert list(map(repr, results)) == list(map(repr, wanted))
        assert [each.encode() for each in results] == [each.encode() for each in wanted]
    assert windows.groups == 0


def plain(first: int, total: float, *, key: bytes = b"k", start: int = 0) -> tuple[bytes, bytes]:
    state = {"n": 1, "whole": "1", "parts": [total]}
    job = {"n": 1, "total": state}
    return key, Partial(0, start, start + 100, 1, 1, first, first, 0, job, topic="t" * 22).encode()


def test_sums_of_many_partials_are_exact() -> None:
    """The oracle is `math.fsum` over all events."""
    job = JobSpec(window_ms=100, aggregates=OURS.aggregates[:2])
    values = [1e16, 1.0, -1e16, 0.1, 3.7e-9] * 300
    rows = [plain(first, value, key=b"%d" % (first % 7)) for first, value in enumerate(values)]
    windows = OpenWindows(job, MIN_TIME, lambda: CLOCK)
    added = windows.add_all(Columns.of("partials", 0, [(row, 1, *each, ()) for row, each in enumerate(rows)]))
    assert added == (len(rows), 0, [])
    results = {result.key: dict(result.aggregates) for result in windows.close(END)}
    for key in range(7):
        mine = values[key::7]
        expected = {"n": len(mine), "total": math.fsum([*mine, len(mine)])}
        assert results[b"%d" % key] == expected


def test_states_of_late_partials_are_not_read_by_code_that_is_not_ours() -> None:
    class Watched(Picky):
        def decode(self, data: Any) -> Any:
            read.append(data)
            return super().decode(data)

    read: list[Any] = []
    windows = OpenWindows(JobSpec(window_ms=100, aggregates=(Watched(name="own"),)), MIN_TIME, lambda: CLOCK)
    rows: list[Row] = []
    for number, (start, state) in enumerate([(0, 1), (100, 2), (0, 3)]):
        partial = Partial(0, start, start + 100, 1, 1, number, number, 0, {"own": state}, topic="t" * 22)
        rows.append((number, 1, b"k", partial.encode(), ()))
    windows.add_all(Columns.of("partials", 0, rows[:1]))
    windows.close(100)
    assert windows.add_all(Columns.of("partials", 0, rows[1:])) == (1, 1, [])
    assert read == [1, 2]
    assert rows[2][3] is not None
    broken = rows[2][3].replace(b'{"own":3}', b'{"own":{]}')
    assert [row for row, _ in windows.add_all(Columns.of("partials", 0, [(9, 1, b"k", broken, ())])).refused] == [0]


def test_states_that_are_objects_go_when_their_windows_close() -> None:
    """Columns of closed windows stay until they are half of all; an object may be large."""
    windows = OpenWindows(JobSpec(window_ms=100, aggregates=(Picky(name="own"),)), MIN_TIME, lambda: CLOCK)
    rows: list[Row] = []
    for number in range(10):
        start = 100 * (number > 2)
        partial = Partial(0, start, start + 100, 1, 1, number, number, 0, {"own": 1}, topic="t" * 22)
        rows.append((number, 1, b"%d" % number, partial.encode(), ()))
    windows.add_all(Columns.of("partials", 0, rows))
    assert len(list(windows.close(100))) == 3
    assert [bool(own) for own in windows._groups._own] == [False] * 3 + [True] * 7
    assert len(list(windows.close(200))) == 7


class Owned:
    """A partition whose transactions succeed at once."""

    partition = 3
    topic_id = "t" * 22
    progress = Progress()
    position = 4000

    def __init__(self) -> None:
        self.committed = Committed(0, self.progress, self.topic_id)
        self.written: list[Any] = []

    def outbox(self) -> Owned:
        return self

    def append(self, topic: str, *record: Any) -> None:
        self.written.append((topic, *record))

    async def submit(self, *_: Any) -> None: ...


async def test_what_is_refused_of_a_large_batch_is_told_with_its_own_record() -> None:
    job = '{"window": 100, "aggregates": [{"name": "n", "op": "count"}, {"name": "total", "op": "sum", "field": "x"}]}'
    owned: Any = Owned()
    finals: Any = SimpleNamespace(written=lambda _: None)
    closer = Closer(AggregatorSettings(bootstrap_servers="127.0.0.1:1", job=job), owned, 1, finals)
    rows: list[Row] = [(10 + row, row, *plain(row, 0.5), ()) for row in range(2500)]
    bad = {7: b"no JSON", 1700: rows[1700][3].replace(b'"n":1', b'"n":2'), 2499: None}  # type: ignore[union-attr]
    for row, value in bad.items():
        rows[row] = (10 + row, row, b"bad-%d" % row, value, (("h", b"x"),))
    rows[2000] = (2010, 2000, *plain(0, 0.5), ())
    counters = [metrics.PARTIALS.labels("merged"), metrics.PARTIALS.labels("passed over")]
    counters.append(metrics.DEAD.labels("invalid-partial"))
    before = [counter._value.get() for counter in counters]
    await closer.take(BufferBatch.of("partials", 3, rows))
    assert [counter._value.get() - was for counter, was in zip(counters, before, strict=True)] == [2496, 1, 3]
    assert closer.windows.restart_offset(9999) == 10
    closer.windows.close(END)
    await closer.write(None)
    letters = [(record[3], record[2], dict(record[5])["keygrouping-offset"]) for record in owned.written]
    assert letters == [(b"bad-%d" % row, row, b"%d" % (10 + row)) for row in bad]
