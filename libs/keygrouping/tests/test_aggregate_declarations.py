"""Aggregates declared as data: what is understood, and every fault of what is not."""

from typing import Any

import pytest
from keygrouping.aggregate import AggregateError, Histogram, Input, NaiveBayes, TopK, parse_aggregates

QUANTILES = "quantiles must be a list of at most 100, each a number from 0 to 1"


def faults_of(*specs: Any) -> list[str]:
    with pytest.raises(AggregateError) as caught:
        parse_aggregates(specs)
    return str(caught.value).splitlines()


def test_all_faults_are_listed_at_once() -> None:
    assert faults_of(
        {"name": "n", "op": "count"},
        {"name": "N", "op": "count"},
        {"name": "2x", "op": "total", "field": ""},
        {"name": "s", "op": "sum", "fild": "price"},
        "count",
        {"name": "v", "op": "vwap", "weight": 5, "k": 3},
        {"name": "t", "op": "top-k", "field": "x", "k": 0, "capacity": True, "bins": 3},
    ) == [
        "aggregates[1]: name 'N' is used twice (upper and lower case are the same)",
        "aggregates[2]: name must be letters, digits and _ (not first a digit), at most 63, not '2x'",
        "aggregates[2]: field must be a field name or a JSON pointer, not ''",
        "aggregates[2]: unknown op 'total'; choose from count, sum, min, max, mean, variance, vwap, distinct, top-k, "
        "histogram, naive-bayes, or name a class by module:Class",
        "aggregates[3]: op 'sum' needs a field",
        "aggregates[3]: unknown property 'fild'; sum has name, op, field",
        "aggregates[4]: must be an object with name, op and field",
        "aggregates[5]: op 'vwap' needs a field",
        "aggregates[5]: weight must be a field name or a JSON pointer, not 5",
        "aggregates[5]: unknown property 'k'; vwap has name, op, field, weight",
        "aggregates[6]: k must be an integer from 1 to 1000, not 0",
        "aggregates[6]: capacity must be an integer from 1 to 1000, not True",
        "aggregates[6]: unknown property 'bins'; top-k has name, op, field, k, capacity",
    ]


def test_fields_and_settings_are_taken_over() -> None:
    top, histogram, bayes, words = parse_aggregates(
        [
            {"name": "t", "op": "top-k", "field": "x", "k": 5, "capacity": 50},
            {"name": "h", "op": "histogram", "field": "x", "quantiles": [0.5, 1]},
            {"name": "b", "op": "naive-bayes", "field": "c", "features": ["f", "/g/h"], "entries": 9},
            {"name": "w", "op": "naive-bayes", "field": "c"},
        ]
    )
    assert isinstance(top, TopK) and (top.k, top.capacity) == (5, 50)
    assert isinstance(histogram, Histogram) and histogram.quantiles == (0.5, 1)
    assert histogram.bins == 64
    assert isinstance(bayes, NaiveBayes) and bayes.entries == 9
    assert bayes.inputs == (Input("c", "text"), Input("f", "text"), Input("/g/h", "text"))
    assert words.inputs == (Input("c", "text"),)


@pytest.mark.parametrize(
    ("properties", "fault"),
    [
        ({"op": "top-k", "field": "x", "k": 300}, "k must be at most capacity (256), not 300"),
        ({"op": "histogram", "field": "x", "bins": 1}, "bins must be an integer from 2 to 1000, not 1"),
        (
            {"op": "histogram", "field": "x", "quantiles": [1.5]},
            f"{QUANTILES}, not [1.5]",
        ),
        (
            {"op": "histogram", "field": "x", "quantiles": 0.5},
            f"{QUANTILES}, not 0.5",
        ),
        (
            {"op": "histogram", "field": "x", "quantiles": [0, 1] * 51},
            f"{QUANTILES}, not {[0, 1] * 51}",
        ),
        ({"op": "naive-bayes", "features": ["f"]}, "op 'naive-bayes' needs a field"),
        (
            {"op": "naive-bayes", "field": "c", "features": "f"},
            "features must be a list, each a field name or a JSON pointer, not 'f'",
        ),
        (
            {"op": "naive-bayes", "field": "c", "features": ["f", 5]},
            "features must be a field name or a JSON pointer, not 5",
        ),
        ({"op": "naive-bayes", "field": "c", "features": ["f", "g", "f"]}, "features names a field twice: f, g, f"),
    ],
)
def test_a_fault_says_what_would_be_right(properties: dict[str, Any], fault: str) -> None:
    assert faults_of({"name": "a", **properties}) == [f"aggregates[0]: {fault}"]


@pytest.mark.parametrize(
    ("op", "why", "instead"),
    [
        ("median", "needs all values of a key in one place, so it can't be merged from partials", "use histogram"),
        ("percentile", "needs all values of a key in one place", "use histogram"),
        ("mode", "needs all values of a key in one place", "use top-k"),
        ("collect", "needs all values of a key in one place", "use count, distinct or top-k"),
        ("first", "depends on the order of events", "use min"),
        ("count_distinct", "can't be merged in bounded memory", "use distinct"),
        ("stddev", "does not merge by itself", "use variance"),
        ("top_k", "is called top-k here", "use top-k"),
    ],
)
def test_what_does_not_merge_is_refused_with_a_way_out(op: str, why: str, instead: str) -> None:
    (fault,) = faults_of({"name": "a", "op": op, "field": "x"})
    assert fault.startswith(f"aggregates[0]: op {op!r} {why}") and instead in fault


def test_the_list_itself_must_be_a_list() -> None:
    with pytest.raises(AggregateError, match="must be a list"):
        parse_aggregates({"name": "n"})  # type: ignore[arg-type]
