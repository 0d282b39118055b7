"""Spark's expressions read and compute the same as the library."""

import base64
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest
from by_task import pairs, partials_of, results_of
from datasketches import hll_sketch, tgt_hll_type
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from keygrouping.accumulator import Accumulator
from keygrouping.aggregate import Distinct
from keygrouping.aggregate.sketch import sound as python_sound
from keygrouping.identity import partition_seeds, tally
from keygrouping.job import Extracted, JobSpec, picker
from keygrouping.partial import Partial, RecordError, Result, encode_receipt
from keygrouping.receipt import MODULUS
from keygrouping_local.hostile_events import JOBS, hostile_events
from keygrouping_service.kafka.partials import check
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import Record as KafkaRecord
from keygrouping_spark.aggregator import IDENTITY, merge
from keygrouping_spark.fetching import Range
from keygrouping_spark.pre_aggregation import PreAggregation, Seen
from keygrouping_spark.reading import Letters, read_partials
from keygrouping_spark.refused import Refused
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

TOPIC = "x" * 22
JOB = JobSpec.from_json(
    {
        "window": "1m",
        "aggregates": [
            {"name": "n", "op": "count"},
            {"name": "present", "op": "count", "field": "x"},
            {"name": "total", "op": "sum", "field": "x"},
            {"name": "average", "op": "mean", "field": "x"},
            {"name": "least", "op": "min", "field": "x"},
            {"name": "most", "op": "max", "field": "x"},
            {"name": "spread", "op": "variance", "field": "x"},
            {"name": "kinds", "op": "distinct", "field": "/who/id"},
            {"name": "price", "op": "vwap", "field": "x", "weight": "w"},
        ],
    }
)
PICKERS = [picker(positions) for positions in JOB.fields_of]

Record = tuple[bytes | None, bytes | None, int, int, int, list[tuple[str, bytes | None]]]

# Each example is a few Spark jobs, so there are few, and a failing one is shown as it is.
slowly = settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
numbers = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([10**17 + 1, 2**53 + 1]),
    st.floats(-1e9, 1e9),
    st.floats(1.7e9, 1.7e9 + 10),
    st.just(-0.0),
)
texts = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(st.characters(codec="utf-8"), max_size=5))
events = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"\xff\x00", b""]), st.integers(0, 200_000), numbers, texts, st.integers(0, 2)
    ),
    min_size=1,
    max_size=120,
)


def frame(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    """The records as Spark's Kafka source gives them: in one task, in the order of their offsets."""
    rows = ", ".join(
        f"('t', {binary(key)}, {binary(value)}, {partition}, {offset}L, timestamp_millis({at}), {header_list(headers)})"
        for key, value, partition, offset, at, headers in records
    )
    names = "topic, key, value, partition, offset, timestamp, headers"
    return spark.sql(f"select * from values {rows} as t({names})").coalesce(1)


def kafka_values(spark: SparkSession, rows: Sequence[tuple[bytes, bytes]]) -> DataFrame:
    """Records that consist of key and value alone."""
    return frame(spark, [(key, value, 0, offset, 0, []) for offset, (key, value) in enumerate(rows)])


def binary(data: bytes | None) -> str:
    return "cast(null as binary)" if data is None else f"X'{data.hex()}'"


def header_list(headers: Sequence[tuple[str, bytes | None]]) -> str:
    items = [f"named_struct('key', '{name}', 'value', {binary(value)})" for name, value in headers]
    empty = "cast(array() as array<struct<key string, value binary>>)"
    return f"array({', '.join(items)})" if items else empty


def record(value: object, **changes: Any) -> Record:
    encoded = value if isinstance(value, bytes) else json.dumps(value).encode()
    fields = {"key": b"k", "value": encoded, "partition": 0, "offset": 0, "timestamp": 5000, "headers": []} | changes
    return tuple(fields.values())  # type: ignore[return-value]


def read_by_library(job: JobSpec, item: Record) -> Extracted:
    key, value, _, _, timestamp, headers = item
    found = job.extract(key, value, headers, timestamp, 1 << 62)
    assert isinstance(found, Extracted), found
    return found


SAME_READING: list[tuple[dict[str, object], list[Record]]] = [
    ({"weight": "size"}, [record({}), record({}, key=b""), record({}, key=b"\xff")]),
    (
        {"key": {"header": "k"}},
        [record({}, headers=[("k", b"1"), ("k", b"2"), ("j", None)]), record({}, headers=[("k", b"\xfe")])],
    ),
    (
        {"key": {"field": "/a~1b/c"}, "weight": {"field": "w"}, "time": {"field": "t", "unit": "s"}},
        [record({"a/b": {"c": key}, "w": 1.5, "t": 7}) for key in ("x", 12, "", "é\u0000")],
    ),
    (
        {"time": {"field": "t", "unit": "iso"}},
        [
            record({"t": text})
            for text in (
                "2026-01-31T12:00:00Z",
                "2026-01-31T12:00:00.123999+00:00",
                "2026-01-31T12:00:00.5-23:59",
                "2024-02-29T23:59:59.999999+19:30",
                "2026-01-31T01:59:59.9996Z",
                "2026-01-31T01:59:59.999999999999Z",
                "2026-01-31T01:59:59.00099999999-00:01",
                "1970-01-01t00:00:00.0019z",
                "1970-01-01T00:00:01.001Z",
                "9998-12-31T23:59:59.9999999Z",
            )
        ],
    ),
    (
        {"aggregates": [{"name": "v", "op": "sum", "field": "/x/y"}, {"name": "s", "op": "distinct", "field": "/x"}]},
        [record({"x": "text"}), record({"x": 5}), record({"x": None}), record({})],
    ),
    (
        {
            "aggregates": [
                {"name": "v", "op": "sum", "field": "X"},
                {"name": "w", "op": "max", "field": "x"},
                {"name": "d", "op": "distinct", "field": "x"},
                {"name": "n", "op": "min", "field": "/a/b"},
                {"name": "e", "op": "min", "field": "a.b"},
                {"name": "c", "op": "count", "field": "a"},
                {"name": "q", "op": "count", "field": "q"},
            ]
        },
        [
            record({"X": 1, "x": 2, "a": {"b": 3}, "a.b": 4}),
            record({"a": [1], "x": 12345678901234567}),
            record({"a": 5, "X": 1e300}),
            record(b'{"x":1,"x":2,"a":{"b":1},"a":{"b":null}}'),
            record(b'{"deep":' + b"[" * 1000 + b"]" * 1000 + b',"x":-0}'),
            record(b'{"long":0.' + b"1" * 2000 + b',"X":1e-400,"x":7}'),
            record(b' {"x" : 3, "q":"\\ud83d\\ude00\\u0000"}\n'),
        ],
    ),
    (
        {
            "aggregates": [
                {"name": "v", "op": "sum", "field": "n"},
                {"name": "d", "op": "distinct", "field": "/t/u"},
                {"name": "c", "op": "count", "field": "c"},
            ]
        },
        [
            record(b'{"n":%b,"t":{"u":%b},"c":%b}' % (odd, odd, odd))
            for odd in (
                *(b'"3"', b'"NaN"', b'""', b"true", b"[3]", b"[]", b"{}", b'{"a":1,"a":2}', b"null", b'"NULL"'),
                *(b"3", b"3.0", b"-0", b"-0.0", b"1e2", b"1E40", b"0.1", b"1e-320"),
                *(b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808.0", b"1234567890123456789.0"),
                *(b'"9223372036854775808"', b'"1.5"', b'"true"', b'"[3]"', b'"-0"', b"[" * 900 + b"]" * 900),
            )
        ]
        + [record(b'{"n":3,"n":"x","t":{"u":"a","u":1.5}}'), record(b'{"t":5}'), record(b'{"n":"x","n":3}')],
    ),
    (
        {"aggregates": [{"name": "d", "op": "distinct", "field": "t"}], "key": {"field": "k"}},
        [
            record(b'{"t":%b,"k":%b}' % (text, key))
            for text, key in (
                (b"9223372036854775808", b"18446744073709551615"),
                (b"18446744073709551615", b"9223372036854775808"),
                (b"18446744073709551616", b"-0"),
                (b"-9223372036854775809", b'"-0"'),
                (b"9223372036854775808.0", b"1000000000000000000"),
                (b"1.0", b'"1.0"'),
            )
        ],
    ),
]


def by_native_workers(job: JobSpec, records: Sequence[Record]) -> list[tuple[bytes, bytes]]:
    """The partials that native workers write of the same records."""
    written: list[tuple[bytes, bytes]] = []
    for worker in {item[2] for item in records}:
        rows = [(r[3], r[4], r[0], r[1], tuple(r[5])) for r in records if r[2] == worker]
        accumulator = Accumulator(job, worker, TOPIC)
        accumulator.add(Columns.of("t", worker, rows))
        written += [(key, partial.encode()) for key, partial in accumulator.partials(3)]
    return written


@pytest.mark.parametrize(("members", "records"), SAME_READING)
def test_the_worker_query_writes_the_partials_of_a_native_worker(
    members: dict[str, object], records: list[Record]
) -> None:
    job = JobSpec.from_json({"aggregates": [], **members})
    numbered = [(*r[:3], offset, *r[4:]) for offset, r in enumerate(records)]
    expected = by_native_workers(job, numbered)
    assert sum(Partial.decode(value).events for _, value in expected) == len(records)
    assert sorted(partials_of(numbered, job, 3, TOPIC)) == sorted(expected)


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_the_worker_query_takes_of_hostile_events_what_a_native_worker_does(job: JobSpec) -> None:
    """The readings of the same events are compared by `tests/test_extractions.py`."""
    records: list[Record] = [
        (e.key, e.value, e.offset % 2, e.offset, e.timestamp, list(e.headers)) for e in hostile_events()
    ]
    expected = by_native_workers(job, records)
    assert len(expected) > 3
    assert sorted(partials_of(records, job, 3, TOPIC)) == sorted(expected)


def test_a_batch_is_cut_at_the_same_records_whatever_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is replayed must give the same partials, however much is fetched at once."""
    monkeypatch.setattr("keygrouping_spark.pre_aggregation.ROWS", 10)
    monkeypatch.setattr("keygrouping_spark.pre_aggregation._STEP", 5)
    count = 35
    whole = Columns.of("routed", 0, [(offset, 1000, b"k", None, ()) for offset in range(100, 100 + count)])
    task = PreAggregation(JobSpec.from_json({"aggregates": []}), 0, TOPIC)
    for size in (1, 7, 10, 64):
        seen: Seen = {}
        batches = [whole.cut(start, start + size) for start in range(0, count, size)]
        made = [Partial.decode(value) for _, value in pairs(task(Range(0, 100, 135), batches, seen))]
        found = [(partial.first, partial.last, partial.events) for partial in made]
        assert found == [(100, 109, 10), (110, 119, 10), (120, 129, 10), (130, 134, 5)]


def as_records(found: Sequence[tuple[bytes, int, object, object, int]]) -> list[Record]:
    return [
        (key, orjson.dumps({"x": x, "who": {"id": who}, "w": time % 97 or None}), partition, offset, time, [])
        for offset, (key, time, x, who, partition) in enumerate(found)
    ]


def all_decoded(rows: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, Partial]]:
    return [(key, Partial.decode(value)) for key, value in rows]


def oracle(records: Sequence[Record], by_worker: bool) -> dict[tuple[Any, ...], dict[str, Any]]:
    states: dict[tuple[Any, ...], list[Any]] = defaultdict(lambda: [a.initial() for a in JOB.aggregates])
    for item in records:
        found = read_by_library(JOB, item)
        group = (found.key, JOB.window_of(found.time_ms), *([item[2]] if by_worker else []))
        for index, (aggregate, pick) in enumerate(zip(JOB.aggregates, PICKERS, strict=True)):
            value = pick(found.fields) if pick else True
            states[group][index] = aggregate.add(states[group][index], value)
    return {group: finish(state) for group, state in states.items()}


def finish(states: Sequence[Any]) -> dict[str, Any]:
    return {a.name: a.finish(state) for a, state in zip(JOB.aggregates, states, strict=True)}


def same(found: dict[str, Any], expected: dict[str, Any], scale: float) -> bool:
    """Equal up to what float64 loses in another order: relative to the values, for the spread to their squares."""

    def close(name: str) -> bool:
        left, right = found[name], expected[name]
        if left is None or right is None or name in ("n", "present", "least", "most", "kinds"):
            return bool(left == right) and type(left) is type(right)
        if isinstance(right, int):
            return bool(left == right) and isinstance(left, int)
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12 * (scale**2 if name == "spread" else scale))

    return found.keys() == expected.keys() and all(map(close, found))


def assert_same(
    found: dict[tuple[Any, ...], dict[str, Any]], expected: dict[tuple[Any, ...], dict[str, Any]], scale: float
) -> None:
    assert found.keys() == expected.keys()
    for group in found:
        assert same(found[group], expected[group], scale), (group, found[group], expected[group])


def largest(found: list[tuple[bytes, int, Any, object, int]]) -> float:
    return max((abs(x) for _, _, x, _, _ in found if x is not None), default=1.0) * len(found)


@slowly
@given(found=events)
def test_the_library_finishes_sparks_partials_to_its_own_results(found: Any) -> None:
    records = as_records(found)
    rows = all_decoded(partials_of(records, JOB, 3, TOPIC))
    results = {
        (key, p.start, p.worker): finish([a.decode(p.aggregates[a.name]) for a in JOB.aggregates]) for key, p in rows
    }
    assert_same(results, oracle(records, by_worker=True), largest(found))
    assert sum(p.events for _, p in rows) == sum(p.weight for _, p in rows) == len(records)
    for key, p in rows:
        mine = [r[3] for r in records if (r[0], r[2], JOB.window_of(r[4])) == (key, p.worker, p.start)]
        assert (p.first, p.last, p.events, p.end, p.epoch) == (mine[0], mine[-1], len(mine), p.start + 60_000, 3)
        assert p.topic == TOPIC
        assert p.hashes == receipt_of(mine, p.worker)


def receipt_of(offsets: list[int], worker: int) -> int:
    return tally(np.array(offsets, np.int64), partition_seeds(TOPIC, worker)).hashes


def by_spark(records: Sequence[Record]) -> list[tuple[bytes, bytes]]:
    return partials_of(records, JOB, 0, TOPIC)


def by_library(records: Sequence[Record]) -> list[tuple[bytes, bytes]]:
    groups: dict[tuple[bytes, int, int], list[Record]] = defaultdict(list)
    for item in records:
        groups[item[0] or b"", JOB.window_of(item[4]), item[2]].append(item)
    return [(group[0], by_hand(group, items).encode()) for group, items in groups.items()]


def by_hand(group: tuple[bytes, int, int], items: list[Record]) -> Partial:
    fields = [read_by_library(JOB, item).fields for item in items]
    states = {
        a.name: a.encode(a.add_many(a.initial(), map(pick, fields) if pick else fields))
        for a, pick in zip(JOB.aggregates, PICKERS, strict=True)
    }
    _, start, worker = group
    receipt = receipt_of([item[3] for item in items], worker)
    counts, offsets = (len(items), len(items)), (items[0][3], items[-1][3])
    return Partial(worker, start, start + 60_000, *counts, *offsets, 0, states, receipt=encode_receipt(receipt))


@slowly
@pytest.mark.parametrize("runner", [by_spark, by_library])
@given(found=events, cut=st.integers(0, 120))
def test_spark_merges_partials_of_either_runner_to_the_librarys_results(
    spark: SparkSession,
    runner: Callable[[Sequence[Record]], list[tuple[bytes, bytes]]],
    found: Any,
    cut: int,
) -> None:
    records = as_records(found)
    flushed = [row for part in (records[:cut], records[cut:]) if part for row in runner(part)]
    source = kafka_values(spark, flushed)
    assert refused(source) == []
    rows = merged(source)
    results = {(row.key, row.start): dict(row.aggregates) for row in rows}
    assert_same(results, oracle(records, by_worker=False), largest(found))
    assert sum(row.events for row in rows) == sum(row.weight for row in rows) == len(records)
    receipts: dict[tuple[bytes, int], int] = defaultdict(int)
    for key, value in flushed:
        partial = Partial.decode(value)
        receipts[key, partial.start] = (receipts[key, partial.start] + partial.hashes) % MODULUS
    assert {(row.key, row.start): row.receipt for row in rows} == receipts


@pytest.mark.parametrize("receipt", ["", "f" * 31, "F" * 32, "f" * 31 + "g", "f" * 33, "f" * 32 + "\n"])
def test_a_partial_whose_receipt_is_none_is_not_merged(spark: SparkSession, receipt: str) -> None:
    ((key, value),) = by_library(as_records([(b"a", 0, 1, None, 0)]))
    document = orjson.loads(value)
    rows = [(key, value), (key, orjson.dumps(document | {"first": 7, "last": 7, "receipt": receipt}))]
    (row,) = merged(kafka_values(spark, rows))
    assert (row.events, row.receipt) == (1, Partial.decode(value).hashes)


def read(source: DataFrame, job: JobSpec = JOB, floor: int = -1) -> DataFrame:
    return read_partials(source, job, floor, Letters(source.sparkSession.sparkContext))


def refused(source: DataFrame) -> list[Refused]:
    letters = Letters(source.sparkSession.sparkContext)
    read_partials(source, JOB, -1, letters).collect()
    told = letters.take()
    assert letters.take() == []
    return told


def merged(source: DataFrame, job: JobSpec = JOB) -> list[Result]:
    return [result for result, _ in results_of(merge(read(source, job), job), job)]


def test_offsets_of_a_topic_that_was_created_again_are_no_repetitions_of_the_old_ones(spark: SparkSession) -> None:
    """The same workers, keys, windows and first offsets, but other events."""
    written: list[tuple[bytes, bytes]] = []
    for topic, count in (("o" * 22, 100), ("n" * 22, 500)):
        records = as_records([(b"a", 0, number, None, 0) for number in range(count)])
        written += 2 * partials_of(records, JOB, 0, topic)
    once = read(kafka_values(spark, written)).dropDuplicates(IDENTITY)
    ((result, _),) = results_of(merge(once, JOB), JOB)
    assert result.events == 600


def test_variance_does_not_cancel_out_far_from_zero(spark: SparkSession) -> None:
    found = [(b"a", 0, 1.7e9 + (i % 7), None, i % 3) for i in range(300)]
    source = kafka_values(spark, by_spark(as_records(found)))
    (row,) = merged(source)
    expected = oracle(as_records(found), by_worker=False)[b"a", 0]["spread"]
    assert row.aggregates["spread"] == pytest.approx(expected, rel=1e-6)


def test_no_volume_is_no_price(spark: SparkSession) -> None:
    records = [record({"x": 5, "w": 0}), record({"x": 7}, offset=1)]
    (row,) = merged(kafka_values(spark, by_spark(records)))
    assert row.aggregates["price"] is None


def test_partials_of_windows_that_were_final_before_are_left_out(spark: SparkSession) -> None:
    found = [(b"a", time, 1, None, 0) for time in (0, 60_000, 120_000)]
    source = kafka_values(spark, by_spark(as_records(found)))
    assert [row["start"] for row in merge(read(source, floor=120_000), JOB).collect()] == [120_000]


def test_no_code_is_compiled_again_for_a_later_batch(spark: SparkSession) -> None:
    """What differs from batch to batch, as the time does, must not stand in the code that Spark generates."""
    written = by_spark(as_records([(b"a", 0, 1, None, 0), (b"b", 60_000, 2.5, None, 1)]))
    source = kafka_values(spark, written).repartition(1)
    jvm: Any = spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts = []
    for _ in range(3):
        assert len(merged(source)) == 2
        assert not refused(source)
        counts.append(compiled.getCount())
    assert counts[1] == counts[2]


def test_integers_are_exact_and_mixed_numbers_are_too(spark: SparkSession) -> None:
    values = [10**17 + 1, 1, 2**63 - 1, -(2**63), 2**53 + 1, None, 3]
    flushed = by_spark(as_records([(b"a", i, x, None, i % 2) for i, x in enumerate(values)]))
    whole = [x for x in values if x is not None]
    (row,) = merged(kafka_values(spark, [*flushed, *by_library(as_records([(b"a", 0, 2**62, None, 2)]))]))
    assert (row.aggregates["total"], row.aggregates["most"]) == (sum(whole) + 2**62, 2**63 - 1)
    assert row.aggregates["least"] == -(2**63)
    assert type(row.aggregates["total"]) is int
    assert row.aggregates["average"] == float(sum(whole) + 2**62) / 7
    records = as_records([(b"a", i, x, None, 0) for i, x in enumerate([10**17 + 1, 2.5, 1])])
    (row,) = merged(kafka_values(spark, by_spark(records)))
    assert row.aggregates["total"] == float(Fraction(10**17 + 2) + Fraction(5, 2))


def test_weights_are_added_up_as_the_integers_that_they_are(spark: SparkSession) -> None:
    job = JobSpec.from_json({"aggregates": [], "weight": {"field": "w"}})
    cases: list[tuple[list[float], float]] = [([10**18] * 20, 2 * 10**19), ([2**53, 1], 2**53 + 1), ([1.5, 2], 3.5)]
    for weights, expected in cases:
        rows = [record({"w": w}, offset=i, partition=i % 2) for i, w in enumerate(weights)]
        (row,) = merged(kafka_values(spark, partials_of(rows, job, 0, TOPIC)), job)
        assert (row.weight, type(row.weight)) == (expected, type(expected))


GOOD = by_hand(
    (b"k", 60_000, 3), [record({"x": 5, "who": {"id": "a"}, "w": 2}, offset=7), record({"x": 1.5}, offset=8)]
)
FAR = 250_000_000_020_000 // 60_000 * 60_000
"""A window of a year that is long to come: nobody would ever close it."""
SEGMENTATION_FAULT = "CgEHBAAIBwKIndq+l5qxQAAAAAAAgKc/AAAAAAAAAAACAAAAAAAAACMBI43P2REw"


def damaged(**members: Any) -> bytes:
    return json.dumps(orjson.loads(GOOD.encode()) | members).encode()


def with_state(name: str, state: Any) -> bytes:
    return damaged(aggregates={**GOOD.aggregates, name: state})


POISON: list[tuple[bytes, str]] = [
    (b"", "JSON"), (b"{", "JSON"), (b"[]", "no object of version 1"), (b"\xff", "JSON"), (damaged(v=2), "version"),
    (damaged(worker=-1), "worker"), (damaged(worker=1 << 70), "worker"), (damaged(worker="3"), "worker"),
    (damaged(epoch=1 << 64), "epoch"), (damaged(epoch=None), "epoch"), (damaged(first=-1), "offsets"),
    (damaged(last=1 << 50), "offsets"), (damaged(first=9), "offsets"), (damaged(events=-7), "events"),
    (damaged(events=0), "events"), (damaged(events=3), "events"), (damaged(events=1 << 64), "events"),
    (damaged(events=2.0), "events"), (damaged(weight=-1), "weight"), (damaged(weight="x"), "weight"),
    (damaged(weight=3e18), "weight"), (damaged(weight=10**300), "weight"), (damaged(end=2**63 - 1), "window"),
    (damaged(start=-(2**63), end=120_000), "window"), (damaged(start=60_001, end=120_001), "window"),
    (damaged(start=FAR, end=FAR + 60_000), "ahead of the clock"),
    (damaged(end=180_000), "window"), (damaged(start=-60_000, end=0), "window"),
    (damaged(receipt="f" * 31), "receipt"), (damaged(receipt=5), "receipt"), (damaged(topic="t"), "topic"),
    (damaged(topic="t" * 22 + "\n"), "topic"), (damaged(receipt="f" * 32 + "\n"), "receipt"),
    (damaged(aggregates={}), "not the job's"),
    (damaged(aggregates=None), "aggregates"), (with_state("foreign", 1), "not the job's"),
    (with_state("n", 3), "'n'"), (with_state("n", -7), "'n'"), (with_state("n", 1 << 64), "'n'"),
    (with_state("total", {"n": 1 << 62, "whole": "1", "parts": []}), "'total'"),
    (with_state("total", {"n": 1, "whole": "9" * 30, "parts": []}), "'total'"),
    (with_state("total", {"n": 1, "whole": "9" * 50, "parts": []}), "'total'"),
    (with_state("total", {"n": 1, "whole": "x", "parts": []}), "'total'"),
    (with_state("total", {"n": 1, "whole": "1"}), "'total'"), (with_state("total", None), "'total'"),
    (with_state("total", {"n": 1, "whole": "1", "parts": [1.0] * 41}), "'total'"),
    (with_state("total", {"n": 1, "whole": "1", "parts": [None]}), "'total'"),
    (with_state("total", {"n": 0, "whole": "0", "parts": [1.0]}), "'total'"),
    (with_state("least", {"whole": 1 << 64, "real": None}), "'least'"), (with_state("most", 5), "'most'"),
    (with_state("most", {"whole": None, "real": "Infinity"}), "'most'"),
    (with_state("spread", {"n": 2, "mean": 1, "m2": -1}), "'spread'"),
    (with_state("spread", {"n": -2, "mean": 1, "m2": 1}), "'spread'"),
    (with_state("price", {"n": 1, "sum": [], "weight": [1.0]}), "'price'"),
    (with_state("kinds", SEGMENTATION_FAULT), "'kinds'"), (with_state("kinds", "A"), "'kinds'"),
    (with_state("kinds", 5), "'kinds'"), (with_state("kinds", ""), "'kinds'"), (with_state("kinds", "%%%%"), "'kinds'"),
]  # fmt: skip


def test_a_partial_that_no_worker_writes_is_refused_by_both_runners_and_changes_nothing(spark: SparkSession) -> None:
    source = kafka_values(spark, [(b"k", GOOD.encode()), *[(b"k", value) for value, _ in POISON]])
    (row,) = merged(source)
    assert (row.events, row.aggregates["total"], row.aggregates["kinds"]) == (2, 6.5, 1)
    told = {each.record.value: each.detail for each in refused(source)}
    assert [(value, says) for value, says in POISON if says not in told.get(value, "")] == []
    for value, _ in POISON:
        with pytest.raises((RecordError, ValueError)):
            decoded(b"k", value)
    (nameless,) = refused(frame(spark, [(None, GOOD.encode(), 2, 7, 5000, [("h", b"1"), ("i", None)])]))
    assert nameless.record == KafkaRecord("t", 2, 7, 5000, None, GOOD.encode(), [("h", b"1"), ("i", None)])
    assert (nameless.reason, nameless.detail) == ("invalid-partial", "the record has no key")


def decoded(key: bytes, value: bytes) -> None:
    """As the native aggregator reads a partial."""
    partial = Partial.decode(value)
    check(key, partial, JOB, int(time.time() * 1000))
    for aggregate in JOB.aggregates:
        if aggregate.seen(aggregate.decode(partial.aggregates[aggregate.name])) > partial.events:
            raise RecordError("too many events")


def test_spark_decodes_and_merges_every_sketch_that_the_library_takes(spark: SparkSession) -> None:
    chance = random.Random(7)
    sketches = [one for count in (0, 1, 7, 8, 9, 30, 200, 383, 400, 3000) for one in forms_of(count)]
    tried = list(dict.fromkeys([*sketches, *[damage(chance, chance.choice(sketches)) for _ in range(1500)]]))
    it = Distinct(name="d", field="x")
    texts = {n: base64.b64encode(data).decode() for n, data in enumerate(tried) if python_sound(data) is not None}
    assert 50 < len(texts) < len(tried) - 50
    # As a partial comes to Spark: read and written again by the library.
    rows = ", ".join(f"({number}, '{it.encode(it.decode(text))}')" for number, text in texts.items())
    given = spark.sql(f"select * from values {rows} as t(number, text)").withColumn("sketch", F.unbase64("text"))
    estimate = F.hll_sketch_estimate(F.hll_union("sketch", "sketch"))
    estimates = {row["number"]: row[1] for row in given.select("number", estimate).collect()}
    assert estimates == {number: it.finish(it.decode(text)) for number, text in texts.items()}
    for size in (1, 5, 2000):
        union = F.hll_union_agg("sketch", F.lit(False))
        parts = given.groupBy(F.col("number") % size).agg(union.alias("one"))
        assert parts.agg(F.hll_sketch_estimate(F.hll_union_agg("one"))).collect()[0][0] > 0


def test_sketches_of_all_sizes_that_the_worker_query_writes_are_read_by_both_runners(spark: SparkSession) -> None:
    counts = (1, 7, 8, 9, 30, 200, 383, 400, 1000)
    found = [(b"%d" % count, 1000, 1.5, f"value {n}", 0) for count in counts for n in range(count)]
    rows = by_spark(as_records(found))
    assert refused(kafka_values(spark, rows)) == []
    assert len(rows) == len(counts)
    it = Distinct(name="kinds", field="x")
    for key, value in rows:
        decoded(key, value)
        assert it.finish(it.decode(Partial.decode(value).aggregates["kinds"])) == pytest.approx(
            int(key), rel=0.05, abs=1
        )


def forms_of(count: int) -> list[bytes]:
    made = hll_sketch(12, tgt_hll_type.HLL_8)
    for number in range(count):
        made.update(str(number))
    return [made.serialize_compact(), made.serialize_updatable()]


def damage(chance: random.Random, sketch: bytes) -> bytes:
    data = bytearray(sketch)
    for _ in range(chance.choice([1, 1, 2])):
        place = chance.randrange(min(len(data), chance.choice([8, 12, 40, 4136])))
        data[place] = chance.choice([0, 1, 3, 8, 12, 16, 63, 64, 127, 255, chance.randrange(256)])
    return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.1 else data)
