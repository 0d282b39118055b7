import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.accumulator import Accumulator
from keygrouping.identity import partition_seeds, tally
from keygrouping.job import JobSpec, Source
from keygrouping.partial import Partial
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import Record

TOPIC = "x" * 22
JOB = JobSpec.from_json(
    {
        "window": 100,
        "weight": {"field": "w"},
        "aggregates": [
            {"name": "n", "op": "count"},
            {"name": "known", "op": "count", "field": "x"},
            {"name": "total", "op": "sum", "field": "x"},
            {"name": "least", "op": "min", "field": "x"},
            {"name": "spread", "op": "variance", "field": "x"},
            {"name": "places", "op": "distinct", "field": "p"},
            {"name": "price", "op": "vwap", "field": "x", "weight": "w"},
            {"name": "top", "op": "top-k", "field": "p", "k": 2},
            {"name": "shape", "op": "histogram", "field": "x", "bins": 200},
            {"name": "classes", "op": "naive-bayes", "field": "p", "features": ["x", "w"]},
        ],
    }
)
COUNT = JobSpec.from_json({"window": 100, "aggregates": [{"name": "n", "op": "count"}]})


def event(offset: int, timestamp: int, key: bytes | None, value: bytes | None = None) -> Record:
    return Record("routed", 3, offset, timestamp, key, value)


def columns(events: Sequence[Record]) -> Columns:
    return Columns.of("routed", 3, [event[2:] for event in events])


def value(x: int | None, place: str | None, weight: int) -> bytes:
    return orjson.dumps({"x": x, "p": place, "w": weight})


rows = st.tuples(
    st.integers(0, 350),
    st.sampled_from([b"", b"a", b"b", b"\xff"]),
    st.builds(value, st.none() | st.integers(-50, 50), st.none() | st.sampled_from("pqr"), st.integers(0, 9)),
)


SEEDS = partition_seeds(TOPIC, 3)


def taken(job: JobSpec, events: list[Record], batch: int = 1000) -> Accumulator:
    accumulator = Accumulator(job, worker=3, topic=TOPIC)
    for start in range(0, len(events), batch):
        assert accumulator.add(columns(events[start : start + batch])) == []
    return accumulator


@given(st.lists(rows, max_size=40), st.integers(1, 40))
def test_partials_say_what_a_plain_group_by_says(raw: list[tuple[int, bytes, bytes]], batch: int) -> None:
    events = [event(offset, *row) for offset, row in enumerate(raw)]
    expected: dict[tuple[bytes, int], list[Record]] = defaultdict(list)
    for each in events:
        expected[each.key or b"", each.timestamp // 100 * 100].append(each)
    partials = {(key, p.start): p for key, p in taken(JOB, events, batch).partials(epoch=7)}
    assert partials.keys() == expected.keys()
    for place, members in expected.items():
        check(partials[place], members)


def weight(documents: list[dict[str, int]]) -> int:
    return sum(document["w"] for document in documents)


def check(partial: Partial, members: list[Record]) -> None:
    documents = [orjson.loads(member.value or b"") for member in members]
    xs = [d["x"] for d in documents if d["x"] is not None]
    assert (partial.topic, partial.worker, partial.epoch, partial.end - partial.start) == (TOPIC, 3, 7, 100)
    assert (partial.first, partial.last) == (members[0].offset, members[-1].offset)
    assert (partial.events, partial.weight) == (len(members), weight(documents))
    assert partial.hashes == tally(columns(members).offsets, SEEDS).hashes
    states = partial.aggregates
    assert (states["n"], states["known"]) == (len(members), len(xs))
    assert states["total"] == {"n": len(xs), "whole": str(sum(xs)), "parts": []}
    assert states["least"] == {"whole": min(xs, default=None), "real": None}
    known = [d for d in documents if d["x"] is not None]
    price = (
        {"sum": [sum(d["x"] * d["w"] for d in known)], "weight": [weight(known)]}
        if known
        else {"sum": [], "weight": []}
    )
    assert states["price"] == {"n": len(known), **price}
    assert states["top"]["counts"] == Counter(d["p"] for d in documents if d["p"] is not None)
    assert states["shape"] == [[x, count, x, x] for x, count in sorted(Counter(xs).items())]
    pairs = Counter((str(d["x"]), d["p"]) for d in known if d["p"] is not None)
    rows = {value: counts for feature, value, counts in states["classes"]["rows"] if feature == 1 and value}
    assert {(x, label): count for x, counts in rows.items() for label, count in counts.items()} == pairs
    if len(xs) > 1:
        mean = sum(xs) / len(xs)
        assert math.isclose(states["spread"]["m2"], sum((x - mean) ** 2 for x in xs), abs_tol=1e-6)


@given(st.lists(rows, max_size=30), st.integers(0, 30))
def test_a_replay_from_the_same_offset_gives_partials_of_the_same_identity_and_content(
    raw: list[tuple[int, bytes, bytes]], batch: int
) -> None:
    events = [event(offset, *row) for offset, row in enumerate(raw)]
    once = [(key, p.encode()) for key, p in taken(COUNT, events, batch + 1).partials(0)]
    again = [(key, p.encode()) for key, p in taken(COUNT, events).partials(0)]
    assert once == again


def test_after_clear_a_key_begins_a_new_partial() -> None:
    accumulator = taken(COUNT, [event(5, 10, b"k")])
    accumulator.clear()
    assert (len(accumulator), accumulator.key_bytes) == (0, 0)
    accumulator.add(columns([event(9, 10, b"k")]))
    ((_, partial),) = accumulator.partials(0)
    assert (partial.first, partial.events) == (9, 1)


def test_groups_and_key_bytes_are_told_so_that_memory_can_be_bounded() -> None:
    accumulator = taken(COUNT, [event(0, 10, b"long key"), event(1, 10, b"long key"), event(2, 110, b"k")])
    assert (len(accumulator), accumulator.key_bytes) == (2, 9)


@pytest.mark.parametrize("bad", [event(4, 10, None, b"{}"), event(4, 10, b"k", b"{"), event(4, 10, b"k")])
def test_a_record_that_no_router_sent_is_handed_back_with_its_reason(bad: Record) -> None:
    accumulator = Accumulator(JOB, worker=0, topic=TOPIC)
    good = event(5, 10, b"k", value(1, None, 1))
    ((row, rejection),) = accumulator.add(columns([good, bad._replace(offset=6), good._replace(offset=7)]))
    assert row == 1
    assert rejection.reason
    ((_, partial),) = accumulator.partials(0)
    assert (partial.events, partial.first, partial.last) == (2, 5, 7)


@given(st.lists(st.tuples(st.integers(-5, 350), st.none() | st.sampled_from([b"", b"a", b"b"])), max_size=30))
def test_a_job_of_key_and_timestamp_alone_takes_a_short_cut_to_the_same_partials(
    raw: list[tuple[int, bytes | None]],
) -> None:
    events = [event(offset, *row, value=b"1") for offset, row in enumerate(raw)]
    short = Accumulator(COUNT, worker=3, topic=TOPIC)
    long = Accumulator(replace(COUNT, weight=Source("size")), worker=3, topic=TOPIC)
    refused = [accumulator.add(columns(events)) for accumulator in (short, long)]
    assert refused[0] == refused[1]
    assert list(short.partials(0)) == list(long.partials(0))


def test_the_clock_is_asked_only_at_the_door() -> None:
    assert len(taken(COUNT, [event(0, 253_402_214_300_000, b"k")])) == 1
