"""Laws of the oracle and of the comparison with it."""

import functools
import statistics
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.job import Headers, JobSpec
from keygrouping.job.extraction import _CONVERT
from keygrouping.partial import Result
from keygrouping_local.comparison import Comparison, compare, compare_left_out
from keygrouping_local.oracle import WAS_IDLE, Expected, Oracle
from keygrouping_service.records.record import Record

NOW = 1_800_000_000_000
JOB = JobSpec.from_json(
    {
        "window": "10s",
        "lateness": "5s",
        "confirmations": 1,
        "aggregates": [
            {"name": "n", "op": "count"},
            {"name": "present", "op": "count", "field": "x"},
            {"name": "total", "op": "sum", "field": "x"},
            {"name": "mean", "op": "mean", "field": "x"},
            {"name": "variance", "op": "variance", "field": "x"},
            {"name": "least", "op": "min", "field": "x"},
            {"name": "most", "op": "max", "field": "x"},
            {"name": "names", "op": "distinct", "field": "name"},
            {"name": "price", "op": "vwap", "field": "x", "weight": "w"},
            {"name": "top", "op": "top-k", "field": "name", "k": 3},
            {"name": "shape", "op": "histogram", "field": "x"},
            {"name": "classes", "op": "naive-bayes", "field": "name", "features": ["w"]},
        ],
    }
)


def event(key: bytes | None, timestamp: int, value: bytes = b"{}", partition: int = 0, headers: Headers = ()) -> Record:
    return Record("events", partition, 0, timestamp, key, value, headers)


def in_order(events: list[Record]) -> list[Record]:
    return [each._replace(offset=offset) for offset, each in enumerate(events)]


def expected(events: list[Record], **options: Any) -> Expected:
    oracle = Oracle(JOB, now_ms=NOW, **options)
    oracle.add(in_order(events))
    return oracle.finish()


def results(wanted: Expected) -> dict[tuple[bytes, int], Result]:
    return {
        (key, start): Result(
            key, start, start + 10_000, wanted.events[key, start], 1, True, {name: v.value for name, v in row.items()}
        )
        for (key, start), row in wanted.windows.items()
    }


def document(**members: Any) -> bytes:
    return orjson.dumps(members)


@given(st.lists(st.floats(-1e6, 1e6) | st.none(), min_size=1))
def test_aggregates_are_those_of_the_textbook(values: list[float | None]) -> None:
    wanted = expected([event(b"k", 1000, document(x=value)) for value in values])
    (row,) = wanted.windows.values()
    present = [value for value in values if value is not None]
    assert row["n"].value == len(values)
    assert row["present"].value == len(present)
    assert row["least"].value == min(present, default=None)
    assert row["most"].value == max(present, default=None)
    assert row["total"].value == (pytest.approx(sum(present), abs=1e-6) if present else None)
    assert row["mean"].value == (pytest.approx(statistics.fmean(present), abs=1e-6) if present else None)
    variance = statistics.variance(present) if len(present) > 1 else None
    assert row["variance"].value == (pytest.approx(variance, rel=1e-9, abs=1e-3) if present[1:] else None)


def test_distinct_is_near_the_truth_and_counts_text_and_integers_alike() -> None:
    events = [event(b"k", 1000, document(name=name)) for name in ["a", "b", "a", "7", 7, None]]
    assert expected(events).windows[b"k", 0]["names"].value == 3


def test_a_price_is_averaged_over_the_events_that_have_volume() -> None:
    sales: list[tuple[float | None, float | None]] = [(10, 1), (20, 3), (None, 5), (99, None)]
    wanted = expected([event(b"k", 1000, document(x=price, w=volume)) for price, volume in sales])
    assert wanted.windows[b"k", 0]["price"].value == 17.5
    assert expected([event(b"k", 1, document(x=5, w=0))]).windows[b"k", 0]["price"].value is None


def test_counts_of_values_are_exact_where_there_is_room() -> None:
    events = [event(b"k", 1, document(name=name, w=w)) for name, w in [("a", 1), ("b", 1), ("b", None), (None, 1)]]
    (row,) = expected(events).windows.values()
    assert row["top"].value == [{"value": "b", "least": 2, "most": 2}, {"value": "a", "least": 1, "most": 1}]
    values = {"1": {"a": 1, "b": 1}}
    features = {"w": {"classes": {"a": 1, "b": 1}, "values": values}}
    assert row["classes"].value == {"events": 3, "classes": {"a": 1, "b": 2}, "features": features, "complete": True}


def test_windows_are_by_key_and_time() -> None:
    wanted = expected([event(b"a", 9_999), event(b"a", 10_000), event(b"b", 10_001), event(b"a", 19_999)])
    assert wanted.events == {(b"a", 0): 1, (b"a", 10_000): 2, (b"b", 10_000): 1}


def test_late_is_judged_by_the_own_partition_alone() -> None:
    ahead = [event(b"a", 100_000, partition=1), event(b"a", 95_000, partition=1), event(b"a", 94_999, partition=1)]
    behind = [event(b"a", 1_000, partition=0)]
    wanted = expected([*ahead, *behind])
    assert wanted.late == {(1, 2)}
    assert sum(wanted.events.values()) == 3


def test_what_the_routers_could_not_process_is_taken_as_made() -> None:
    wanted = expected([event(b"a", 90_000), event(b"a", 50_000)], unprocessed={(0, 0): "record-too-large"})
    assert (wanted.dead, wanted.late) == ({(0, 0): "record-too-large"}, set())
    assert wanted.events == {(b"a", 50_000): 1}


def test_a_late_event_or_a_dead_letter_does_not_move_the_time() -> None:
    events = [event(b"a", 50_000), event(b"a", 1), event(None, 90_000), event(b"a", 45_000)]
    wanted = expected(events)
    assert (wanted.late, set(wanted.dead)) == ({(0, 1)}, {(0, 2)})
    assert sum(wanted.events.values()) == 2


def test_unusable_events_are_dead_letters_with_their_reason() -> None:
    events = [event(None, 1), event(b"a", 1, b"{"), event(b"a", 1, document(x="text")), event(b"a", NOW * 2)]
    wanted = expected(events)
    assert len(wanted.dead) == len(set(wanted.dead.values())) == 3
    assert dict(wanted.skipped) == {1: [(0, 2)]}
    assert wanted.events == {(b"a", 0): 1}


def test_events_left_out_because_their_partition_was_idle_are_not_expected() -> None:
    wanted = expected([event(b"a", 1), event(b"a", 2)], left_out={(0, 1)})
    assert wanted.events == {(b"a", 0): 1}


def two_windows() -> Expected:
    events = [event(b"a", 1_000 * i, document(x=0.1 * i, name=str(i), w=1 + i % 3)) for i in range(20)]
    return expected(events)


def test_equal_results_compare_equal() -> None:
    wanted = two_windows()
    comparison = compare(wanted, results(wanted))
    assert comparison.equal
    assert not comparison.examples
    assert {row.name for row in comparison.rows} == {"windows", "events per window", *wanted.windows[b"a", 0]}


def changed(name: str, value: Any) -> Comparison:
    wanted = two_windows()
    found = results(wanted)
    place = (b"a", 0)
    found[place] = replace(found[place], aggregates={**found[place].aggregates, name: value})
    return compare(wanted, found)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 11), ("n", None), ("total", 4.500001), ("total", "4.5"), ("least", 1e-12), ("most", 0.9000000000001),
     ("names", 9), ("mean", None), ("variance", 0.0), ("mean", float("nan")), ("mean", float("inf")),
     ("price", 0.1), ("price", None), ("top", []), ("shape", None), ("shape", {"n": 10}), ("classes", {}), ("top", 5)],
)  # fmt: skip
def test_any_other_value_is_a_difference(name: str, value: Any) -> None:
    comparison = changed(name, value)
    assert not comparison.equal
    assert [row.name for row in comparison.rows if row.different] == [name]
    assert len(comparison.examples) == 1


@pytest.mark.parametrize(("name", "value"), [("total", 4.5 * (1 + 5e-10)), ("mean", 0.45 * (1 - 5e-10))])
def test_floats_may_differ_by_a_relative_billionth(name: str, value: float) -> None:
    assert changed(name, value).equal


def test_where_terms_cancel_out_their_size_sets_the_tolerance() -> None:
    wanted = expected([event(b"a", 1, document(x=1e6)), event(b"a", 2, document(x=-1e6))])
    found = results(wanted)
    place = (b"a", 0)
    found[place] = replace(found[place], aggregates={**found[place].aggregates, "total": 1e-7})
    assert compare(wanted, found).equal


def test_bounded_memory_may_say_whatever_its_bounds_allow_and_nothing_else() -> None:
    declared = [
        {"name": "top", "op": "top-k", "field": "name", "k": 2, "capacity": 3},
        {"name": "shape", "op": "histogram", "field": "x", "bins": 4},
    ]
    job = JobSpec.from_json({"window": "10s", "aggregates": declared})
    rows = [(f"n{i % 7 if i % 2 else 0}", float(i * i % 31)) for i in range(60)]
    oracle = Oracle(job, now_ms=NOW)
    oracle.add(in_order([event(b"a", 1, document(name=name, x=x)) for name, x in rows]))
    wanted = oracle.finish()
    columns = list(zip(job.aggregates, zip(*rows, strict=True), strict=True))
    for parts in (1, 4):
        states = [[a.add_many(a.initial(), values[part::parts]) for part in range(parts)] for a, values in columns]
        merged = [functools.reduce(a.merge, some) for a, some in zip(job.aggregates, states, strict=True)]
        values = {a.name: a.finish(state) for a, state in zip(job.aggregates, merged, strict=True)}
        result = Result(b"a", 0, 10_000, 60, 60, True, values)
        assert compare(wanted, {(b"a", 0): result}).equal
        for name in values:
            wrong = replace(result, aggregates={**values, name: values[name][:0] if name == "top" else None})
            comparison = compare(wanted, {(b"a", 0): wrong})
            assert [row.name for row in comparison.rows if row.different] == [name]
            assert all(len(line) < 1000 for line in comparison.examples)


def test_missing_and_unexpected_windows_are_differences() -> None:
    wanted = two_windows()
    found = results(wanted)
    strange = replace(found.pop((b"a", 0)), key=b"b")
    comparison = compare(wanted, found | {(b"b", 0): strange})
    assert comparison.rows[0].different == 2
    assert any("missing" in line for line in comparison.examples)
    assert any("unexpected" in line for line in comparison.examples)


def test_what_was_left_out_must_be_just_what_belongs_there() -> None:
    wanted = Expected(late={(0, 1)}, dead={(0, 2): "no-key"})
    right = Comparison()
    compare_left_out(wanted, {(0, 1): "late", (0, 7): WAS_IDLE}, {(0, 2): "no-key"}, right)
    assert right.equal
    for late, dead in [({}, {(0, 2): "no-key"}), ({(0, 1): "late"}, {(0, 2): "no-value"}), ({(0, 3): "late"}, {})]:
        wrong = Comparison()
        compare_left_out(wanted, late, dead, wrong)
        assert not wrong.equal


def test_sums_beyond_the_floats_are_null_as_json_has_no_infinity() -> None:
    wanted = expected([event(b"a", 1, document(x=1.7e308)), event(b"a", 2, document(x=1.7e308))])
    assert wanted.windows[b"a", 0]["total"].value is None
    assert compare(wanted, results(wanted)).equal


def with_times(unit: str) -> JobSpec:
    aggregates = [{"name": "n", "op": "count"}, {"name": "total", "op": "sum", "field": "x"}]
    return JobSpec.from_json({"window": "1h", "time": {"field": "at", "unit": unit}, "aggregates": aggregates})


def windows_of(job: JobSpec, *values: bytes) -> dict[int, Any]:
    oracle = Oracle(job, now_ms=NOW)
    oracle.add(in_order([event(b"k", 0, value) for value in values]))
    return {start: row["total"].value for (_, start), row in oracle.finish().windows.items()}


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("1970-01-01T01:59:59.9996Z", 1), ("1970-01-01T01:59:59.999999999999Z", 1), ("1970-01-01t02:00:00z", 2),
        ("1970-01-02T01:59:59.9999+23:59", 2), ("1970-01-01T00:00:00.0-02:30", 2), ("2000-02-29T12:00:00Z", 264_396),
    ],
)  # fmt: skip
def test_a_time_is_in_its_own_window_and_not_in_the_next(text: str, hour: int) -> None:
    assert windows_of(with_times("iso"), document(at=text, x=1)) == {hour * 3_600_000: 1}


def test_faults_in_the_stages_reading_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keygrouping.job.extraction.ms_of_rfc3339", lambda _: 7_200_000)
    monkeypatch.setitem(_CONVERT, "number", lambda number: number and float(number))
    monkeypatch.setattr(JobSpec, "window_of", lambda *_: 0)
    value = b'{"at": "1970-01-01T01:59:59.9996Z", "x": 100000000000000001}'
    assert windows_of(with_times("iso"), value) == {3_600_000: 10**17 + 1}


def test_a_sum_of_integers_that_went_through_a_float_is_seen() -> None:
    wanted = expected([event(b"k", 1000, document(x=x)) for x in (10**17 + 1, 2)])
    found = results(wanted)
    ((place, result),) = found.items()
    assert wanted.windows[place]["total"].value == 10**17 + 3
    assert compare(wanted, found).equal
    rounded = replace(result, aggregates={**result.aggregates, "total": float(10**17 + 3)})
    assert not compare(wanted, {place: rounded}).equal
    assert windows_of(with_times("ms"), b'{"at":0,"x":100000000000000001}', b'{"at":1,"x":2.5}') == {0: 1e17}


def test_what_is_nested_deeply_is_read_all_the_same() -> None:
    deep = b'{"at":"1970-01-01T00:00:01Z","x":1,"deep":' + b"[" * 1000 + b"]" * 1000 + b"}"
    assert windows_of(with_times("iso"), deep) == {0: 1}
