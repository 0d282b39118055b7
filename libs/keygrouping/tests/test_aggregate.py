"""What each aggregate computes, and that every grouping splits the events such that it does; its laws: test_laws.py."""

import base64
import functools
import json
import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from datasketches import hll_sketch, tgt_hll_type
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.aggregate import OPS, Aggregate, parse_aggregates
from keygrouping.grouping import create, names

numbers = st.one_of(st.none(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6))
weights = st.one_of(st.none(), st.integers(1, 1000), st.floats(1e-3, 1e3))

PROPERTIES: dict[str, dict[str, Any]] = {
    "vwap": {"weight": "w"},
    "top-k": {"k": 2, "capacity": 3},
    "histogram": {"bins": 4, "quantiles": [0, 0.1, 0.5, 1]},
    "naive-bayes": {"features": ["f", "g"], "entries": 14},
}
"""What operations are declared with beside a field; so little room that a few values are too many."""


def aggregate(op: str, field: str | None = "x") -> Aggregate:
    return parse_aggregates([{"name": "a", "op": op, "field": field, **PROPERTIES.get(op, {})}])[0]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-2)
    return bool(left == right)


def over(op: str, values: Sequence[Any]) -> Any:
    it = aggregate(op)
    return it.add_many(it.initial(), values)


def is_result_of(op: str, state: Any, values: Sequence[Any]) -> bool:
    """Whether a state of these values, however they were split, gives their result."""
    it = aggregate(op)
    return it.expected(values).accept(it.finish(state))


@functools.cache
def split(grouping: str) -> list[tuple[str, int]]:
    """Key and worker of 600 events."""
    source, router = random.Random(7), create(grouping, 5)
    keys = [f"key{source.randrange(9)}" for _ in range(600)]
    return [(key, router.route(key, 1.0, 0.0)) for key in keys]


def value_for(op: str, source: random.Random) -> Any:
    number = source.choice([None, source.randrange(500)])
    if op == "vwap":
        return number, source.randrange(1, 9)
    if op == "naive-bayes":
        return source.choice("yn"), number and f"v{number % 7}", source.choice("ab")
    return number


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("grouping", names())
def test_every_grouping_merges_back_to_the_whole(op: str, grouping: str) -> None:
    it = aggregate(op)
    source = random.Random(8)
    events = [(*place, value_for(op, source)) for place in split(grouping)]
    states: dict[tuple[str, int], Any] = {}
    for key, worker, value in events:
        states[key, worker] = it.add(states.get((key, worker), it.initial()), value)
    for key in {key for key, _, _ in events}:
        merged = it.initial()
        for (other, _), state in states.items():
            merged = it.merge(merged, it.decode(it.encode(state))) if other == key else merged
        assert is_result_of(op, merged, [value for k, _, value in events if k == key])


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


@given(st.lists(st.tuples(numbers, weights), max_size=30))
def test_vwap_is_the_average_of_prices_by_their_volumes(values: list[tuple[float | None, float | None]]) -> None:
    present = [(price, volume) for price, volume in values if price is not None and volume is not None]
    expected = None
    if present:
        expected = math.fsum(p * v for p, v in present) / math.fsum(v for _, v in present)
    assert same(aggregate("vwap").finish(over("vwap", values)), expected)


def test_vwap_of_no_volume_is_null() -> None:
    assert aggregate("vwap").finish(over("vwap", [(5, 0), (7, None), (None, 3)])) is None


def test_a_count_without_a_field_counts_events() -> None:
    it = aggregate("count", None)
    assert it.finish(it.add(it.add_many(it.initial(), iter([None, 1, None])), None)) == 4


def test_a_sum_beyond_all_floats_still_travels() -> None:
    it = aggregate("sum")
    state = over("sum", [1e308, 1e308])
    assert json.loads(json.dumps(it.encode(state), allow_nan=False)) == {"n": 2, "whole": "0", "parts": ["Infinity"]}
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
        ("count", -1), ("count", "1"), ("count", True), ("sum", {}), ("mean", None), ("count", 1 << 41),
        ("sum", {"n": "a", "whole": "1", "parts": []}), ("sum", {"n": 1 << 64, "whole": "1", "parts": []}),
        ("sum", {"n": 1, "whole": 1, "parts": []}),
        ("sum", {"n": 1, "whole": "9" * 20, "parts": []}), ("sum", {"n": 1, "whole": "9" * 5000, "parts": []}),
        ("sum", {"n": 1, "whole": "1", "parts": [1.0] * 41}), ("sum", {"n": 1, "whole": "0", "parts": ["1"]}),
        ("sum", {"n": 0, "whole": "0", "parts": [1.0]}), ("mean", {"n": 1, "whole": "0", "parts": [None]}),
        ("min", {"whole": 1 << 63, "real": None}), ("max", {"whole": None, "real": "Infinity"}),
        ("max", {"whole": 1.5, "real": None}),
        ("variance", {"n": 2, "mean": 0, "m2": -1}), ("variance", {"n": "2", "mean": 0, "m2": 1}),
        ("variance", {"n": 1 << 64, "mean": 0, "m2": 1}), ("vwap", {"n": 1, "sum": [], "weight": [1.0]}),
        ("vwap", {"n": 0, "sum": [1.0], "weight": [1.0]}), ("vwap", {"n": -1, "sum": [1.0], "weight": [1.0]}),
        ("naive-bayes", {"events": 1, "rows": [[1, "v", {"c": 2}]], "cut": None}),
        ("distinct", "CgEHBAAIBwKIndq+l5qxQAAAAAAAgKc/AAAAAAAAAAACAAAAAAAAACMBI43P2REw"),
        ("min", "x"), ("max", []), ("variance", {"n": 1, "mean": 0}), ("distinct", 5), ("distinct", "!"),
        ("distinct", "AAAA"), ("distinct", ""), ("vwap", {"n": 1, "sum": 2}), ("vwap", [1, 2, 3]),
        ("top-k", {}), ("top-k", {"n": 1, "error": 0, "counts": {"a": 2}}), ("top-k", [1, 0, {}]),
        ("top-k", {"n": 9, "error": 0, "counts": {"a": 1.5}}), ("top-k", {"n": 9, "error": 3, "counts": {}}),
        ("top-k", {"n": 9, "error": 0, "counts": dict.fromkeys("abcd", 1)}), ("top-k", {"n": 9, "error": 0}),
        ("top-k", {"n": "9", "error": 0, "counts": {}}), ("top-k", {"n": 9, "error": 0, "counts": {"a": 0}}),
        ("histogram", 5), ("histogram", [[1, 1]]), ("histogram", [[1, 0, 1, 1]]), ("histogram", [[1, 1, 2, 3]]),
        ("histogram", [[2, 1, 2, 2], [1, 1, 1, 1]]), ("histogram", [[i, 1, i, i] for i in range(5)]),
        ("histogram", [["x", 1, 1, 1]]), ("histogram", [[1, 1.5, 1, 1]]), ("histogram", None),
        ("naive-bayes", {}), ("naive-bayes", {"events": 1, "rows": [[3, "v", {"c": 1}]], "cut": None}),
        ("naive-bayes", {"events": 1, "rows": [[0, "v", {"c": 1}]], "cut": None}), ("naive-bayes", []),
        ("naive-bayes", {"events": 1, "rows": [[1, "v", {"c": "1"}]], "cut": None}),
        ("naive-bayes", {"events": 1, "rows": [[1, str(i), {"c": 1}] for i in range(15)], "cut": None}),
        ("naive-bayes", {"events": 1, "rows": [[1, "v", {"c": 1}]], "cut": [1]}),
        ("naive-bayes", {"events": -1, "rows": [], "cut": None}),
    ],
)  # fmt: skip
def test_a_damaged_state_is_refused_by_name(op: str, data: Any) -> None:
    with pytest.raises(ValueError, match=f"aggregate 'a' \\({op}\\): not a state"):
        aggregate(op).decode(data)
