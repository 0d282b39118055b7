"""Laws that let any split of the events over workers give the same result."""

import base64
import json
import math
import random
import statistics
from typing import Any

import pytest
from datasketches import hll_sketch, tgt_hll_type
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.aggregate import OPS, Aggregate, AggregateError, parse_aggregates
from keygrouping.grouping import create, names

numbers = st.one_of(st.none(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6))
texts = st.one_of(st.none(), st.text(max_size=5), st.integers(-5, 2**60))


def aggregate(op: str, field: str | None = "x") -> Aggregate:
    return parse_aggregates([{"name": "a", "op": op, "field": field}])[0]


def values_for(op: str) -> st.SearchStrategy[list[Any]]:
    return st.lists(texts if op == "distinct" else numbers, max_size=30)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-2)
    return bool(left == right)


def over(op: str, values: list[Any]) -> Any:
    it = aggregate(op)
    return it.add_many(it.initial(), values)


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
def test_merging_is_associative_and_commutative(op: str, data: st.DataObject) -> None:
    it = aggregate(op)
    a, b, c = (over(op, data.draw(values_for(op))) for _ in range(3))
    results = [
        it.finish(state)
        for state in (it.merge(it.merge(a, b), c), it.merge(a, it.merge(b, c)), it.merge(it.merge(c, b), a))
    ]
    assert same(results[0], results[1]) and same(results[0], results[2])


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
def test_the_initial_state_is_the_identity(op: str, data: st.DataObject) -> None:
    it = aggregate(op)
    state = over(op, data.draw(values_for(op)))
    for merged in (it.merge(it.initial(), state), it.merge(state, it.initial())):
        assert it.finish(merged) == it.finish(state)


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
def test_merging_changes_neither_side(op: str, data: st.DataObject) -> None:
    it = aggregate(op)
    left, right = (over(op, data.draw(values_for(op))) for _ in range(2))
    before = (it.encode(left), it.encode(right))
    it.merge(left, right)
    assert (it.encode(left), it.encode(right)) == before


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
def test_adding_one_by_one_is_adding_many(op: str, data: st.DataObject) -> None:
    it = aggregate(op)
    values = data.draw(values_for(op))
    state = it.initial()
    for value in values:
        state = it.add(state, value)
    assert same(it.finish(state), it.finish(over(op, values)))


@pytest.mark.parametrize("op", OPS)
@given(data=st.data())
def test_a_state_survives_json(op: str, data: st.DataObject) -> None:
    it = aggregate(op)
    state = over(op, data.draw(values_for(op)))
    back = it.decode(json.loads(json.dumps(it.encode(state), allow_nan=False)))
    assert it.finish(back) == it.finish(state)
    assert op == "distinct" or back == state


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("grouping", names())
def test_every_grouping_merges_back_to_the_whole(op: str, grouping: str) -> None:
    it = aggregate(op)
    source = random.Random(7)
    events = [(f"key{source.randrange(9)}", source.choice([None, source.randrange(500)])) for _ in range(600)]
    router = create(grouping, 5)
    states: dict[tuple[str, int], Any] = {}
    for key, value in events:
        place = (key, router.route(key, 1.0, 0.0))
        states[place] = it.add(states.get(place, it.initial()), value)
    for key in {key for key, _ in events}:
        merged = it.initial()
        for (other, _), state in states.items():
            merged = it.merge(merged, it.decode(it.encode(state))) if other == key else merged
        assert same(it.finish(merged), it.finish(over(op, [v for k, v in events if k == key])))


@given(st.lists(numbers, max_size=30))
def test_numbers_mean_what_they_mean_in_sql(values: list[float | None]) -> None:
    present = [float(value) for value in values if value is not None]
    expected = {
        "count": len(present),
        "sum": math.fsum(present) if present else None,
        "min": min(present, default=None),
        "max": max(present, default=None),
        "mean": math.fsum(present) / len(present) if present else None,
        "variance": statistics.variance(present) if len(present) > 1 else None,
    }
    for op, value in expected.items():
        assert same(aggregate(op).finish(over(op, values)), value), op


def test_a_count_without_a_field_counts_events() -> None:
    it = aggregate("count", None)
    assert it.finish(it.add(it.add_many(it.initial(), iter([None, 1, None])), None)) == 4


def test_a_sum_beyond_all_floats_still_travels() -> None:
    it = aggregate("sum")
    state = over("sum", [1e308, 1e308])
    assert json.loads(json.dumps(it.encode(state), allow_nan=False)) == {"n": 2, "sum": "Infinity"}
    assert it.finish(it.decode(it.encode(state))) == math.inf


@pytest.mark.parametrize("count", [0, 1, 7, 300, 5_000, 60_000])
def test_distinct_counts_within_its_error_and_by_content_only(count: int) -> None:
    it = aggregate("distinct")
    values = [f"v{i}" for i in range(count)]
    whole = over("distinct", values)
    random.Random(1).shuffle(values)
    parts = [over("distinct", values[i::7] + values[:100]) for i in range(7)]
    merged = it.initial()
    for part in parts:
        merged = it.merge(it.decode(it.encode(part)), merged)
    assert it.finish(merged) == it.finish(whole)
    assert it.finish(whole) == pytest.approx(count, rel=0.05)


def test_an_integer_counts_as_its_decimal_text() -> None:
    it = aggregate("distinct")
    assert it.finish(over("distinct", [12, "12", 13, None, ""])) == 2


@pytest.mark.parametrize("count", [1, 20, 5_000])
def test_both_binary_forms_of_a_sketch_are_read(count: int) -> None:
    sketch = hll_sketch(12, tgt_hll_type.HLL_8)
    for i in range(count):
        sketch.update(str(i))
    it = aggregate("distinct")
    forms = (sketch.serialize_compact(), sketch.serialize_updatable())
    results = {it.finish(it.decode(base64.b64encode(form).decode())) for form in forms}
    assert results == {it.finish(sketch)}


@pytest.mark.parametrize(
    ("op", "data"),
    [
        ("count", -1), ("count", "1"), ("count", True), ("sum", {}), ("sum", {"n": "a", "sum": 1}), ("mean", None),
        ("min", "x"), ("max", []), ("variance", {"n": 1, "mean": 0}), ("distinct", 5), ("distinct", "!"),
        ("distinct", "AAAA"), ("distinct", ""),
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused_by_name(op: str, data: Any) -> None:
    with pytest.raises(ValueError, match=f"aggregate 'a' \\({op}\\): not a state"):
        aggregate(op).decode(data)


def test_all_faults_are_listed_at_once() -> None:
    specs: list[Any] = [
        {"name": "n", "op": "count"},
        {"name": "N", "op": "count"},
        {"name": "2x", "op": "total", "field": ""},
        {"name": "s", "op": "sum", "fild": "price"},
        "count",
    ]
    with pytest.raises(AggregateError) as caught:
        parse_aggregates(specs)
    assert str(caught.value).splitlines() == [
        "aggregates[1]: name 'N' is used twice (upper and lower case are the same)",
        "aggregates[2]: name must be letters, digits and _ (not first a digit), at most 63, not '2x'",
        "aggregates[2]: unknown op 'total'; choose from count, sum, min, max, mean, variance, distinct",
        "aggregates[2]: field must be a field name or a JSON pointer, not ''",
        "aggregates[3]: unknown property 'fild'; known are name, op and field",
        "aggregates[3]: op 'sum' needs a field",
        "aggregates[4]: must be an object with name, op and field",
    ]


def test_what_does_not_merge_is_refused_with_a_way_out() -> None:
    with pytest.raises(AggregateError, match=r"median.*can't be merged.*use mean and variance"):
        aggregate("median")


def test_the_list_itself_must_be_a_list() -> None:
    with pytest.raises(AggregateError, match="must be a list"):
        parse_aggregates({"name": "n"})  # type: ignore[arg-type]
