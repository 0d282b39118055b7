"""Every aggregate keeps the laws; one that breaks a law is told which, with an example."""

from collections.abc import Iterable
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.aggregate import OPS, Aggregate, Answer, NumberField, Shape, Sum, names, parse_aggregates
from keygrouping.aggregate.laws import LAWS, BrokenLaw, check
from keygrouping.aggregate.shape import has_shape

NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e300, 1e300) | st.sampled_from([0, 7, 7.0, -0.0])
TEXTS = st.none() | st.integers(-5, 2**60) | st.sampled_from(["", "a", "b", "ç", "long" * 50, "long" * 51])
DECLARED: dict[str, dict[str, Any]] = {
    "vwap": {"weight": "w"},
    "top-k": {"k": 2, "capacity": 3},
    "histogram": {"bins": 4, "quantiles": [0, 0.1, 0.5, 1]},
    "naive-bayes": {"features": ["f", "g"], "entries": 14},
}
"""What operations are declared with beside a field; so little room that a few values are too many."""
VALUES: dict[str, st.SearchStrategy[Any]] = {
    # With numbers from both ends of the floats bins can't add up to what the numbers do.
    "histogram": st.none() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6),
    "distinct": TEXTS,
    "top-k": TEXTS,
    "vwap": st.tuples(st.none() | st.floats(-1e6, 1e6), st.none() | st.integers(1, 1000) | st.floats(1e-3, 1e3)),
    "naive-bayes": st.tuples(st.sampled_from([None, "yes", "no"]), TEXTS, st.none() | st.integers(0, 4)),
}


@pytest.mark.parametrize("op", names())
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_the_librarys_own_keep_them(op: str, data: st.DataObject) -> None:
    (it,) = parse_aggregates([{"name": "a", "op": op, "field": "x", **DECLARED.get(op, {})}])
    values = data.draw(st.lists(VALUES.get(op, NUMBERS), max_size=30))
    check(it, values, rounds=5, seed=data.draw(st.integers(0, 2**32)))


@pytest.mark.parametrize(
    ("data", "shape", "fits"),
    [
        (3, "integer", True),
        (True, "integer", False),
        (3.0, "integer", False),
        (1 << 63, "integer", False),
        (None, "integer", False),
        (None, "integer?", True),
        ("3", "integer?", False),
        (0.5, "number", True),
        ("NaN", "number", True),
        ("x", "number?", False),
        ("x", "text", True),
        ([1, 2.5], ("number",), True),
        ([1, None], ("number",), False),
        ([[1]], (("number",),), True),
        ({"n": 1}, {"n": "integer"}, True),
        ({"n": 1, "m": 1}, {"n": "integer"}, False),
        ({}, {"n": "integer?"}, False),
        ([], {"n": "integer"}, False),
    ],
)
def test_data_have_a_shape_or_not(data: Any, shape: Shape, fits: bool) -> None:
    assert has_shape(data, shape) is fits


def test_a_state_that_is_not_of_the_declared_shape_breaks_a_law() -> None:
    class Wrong(Sum):
        shape: ClassVar[Shape | None] = {"n": "integer", "whole": "integer", "parts": ("number",)}

    with pytest.raises(BrokenLaw, match=r"codec: encode gives .*, and the declared shape is"):
        check(Wrong(name="a", field="x"), [1, 2])


def test_what_has_a_spark_half_has_a_shape() -> None:
    assert all(kind.shape is not None for kind in OPS.values() if kind.spark is not None)


class Spread(Aggregate):
    """Largest less smallest value, which keeps all laws. State: a list of both, or an empty one."""

    op: ClassVar[str] = "spread"
    field: NumberField

    def initial(self) -> Any:
        return []

    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        numbers = [float(value) for value in values if value is not None]
        return self.merge(state, [min(numbers), max(numbers)]) if numbers else state

    def merge(self, left: Any, right: Any) -> Any:
        ends = [*left, *right]
        return [min(ends), max(ends)] if ends else []

    def finish(self, state: Any) -> Any:
        return state[1] - state[0] if state else None

    def expected(self, values: Iterable[Any]) -> Answer:
        numbers = [float(value) for value in values if value is not None]
        return Answer(max(numbers) - min(numbers) if numbers else None)

    def decode(self, data: Any) -> Any:
        if isinstance(data, list) and len(data) in (0, 2) and all(type(end) in (int, float) for end in data):
            return [float(end) for end in sorted(data)]
        raise self.fault(data)


class NoIdentity(Spread):
    def merge(self, left: Any, right: Any) -> Any:
        return right and super().merge(left, right)


class NotCommutative(Spread):
    def merge(self, left: Any, right: Any) -> Any:
        return left or right


class NotAssociative(Spread):
    def merge(self, left: Any, right: Any) -> Any:
        both = super().merge(left, right)
        return [both[0], both[1] + 1] if left and right else both


class OneByOne(Spread):
    def add(self, state: Any, value: Any) -> Any:
        return self.add_many(state, (value, 0))


class AListOnly(Spread):
    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        return super().add_many(state, [value for value in values if len(values) >= 0])  # type: ignore[arg-type]


class CountsMissing(Spread):
    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        return super().add_many(state, [value or 0 for value in values])


class Changes(Spread):
    def merge(self, left: Any, right: Any) -> Any:
        left[:] = super().merge(left, right)
        return left


class Truncates(Spread):
    def encode(self, state: Any) -> Any:
        return [int(end) for end in state]


class NotJson(Spread):
    def encode(self, state: Any) -> Any:
        return [end + float("inf") for end in state]


class SeesMore(Spread):
    def seen(self, state: Any) -> int:
        return 4 * len(state)


class Believes(Spread):
    def decode(self, data: Any) -> Any:
        return [data[0], data[1]] if data else []


class BelievesTypes(Spread):
    def decode(self, data: Any) -> Any:
        if not isinstance(data, list):
            raise self.fault(data)
        return data


BROKEN: list[tuple[type[Aggregate], str]] = [
    (NoIdentity, "identity: initial() merged from the right gives None, and without"),
    (NotCommutative, "commutativity: merge(left, right) of "),
    (NotAssociative, "associativity: merging parts in any order of "),
    (OneByOne, "adding: add, one by one, of "),
    (AListOnly, "adding: TypeError: object of type 'list_iterator' has no len()"),
    (CountsMissing, "missing values: None among the values of "),
    (Changes, "unchanged arguments: merge has changed one of its arguments"),
    (Truncates, "codec: decode(encode(state)) gives "),
    (NotJson, "codec: ValueError: Out of range float values are not JSON compliant"),
    (SeesMore, "events seen: seen() is 8 of "),
    (Believes, "hostile input: decode of "),
    (BelievesTypes, "hostile input: decode takes "),
]


def faults_of(kind: Any, values: list[Any]) -> list[str]:
    with pytest.raises(BrokenLaw) as caught:
        check(kind(name="a", field="x"), values)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("kind", "told"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_law_is_told_with_an_example(kind: type[Aggregate], told: str) -> None:
    assert any(line.startswith(f"a (spread): {told}") for line in faults_of(kind, [1.5, None, -3, 9, 2, 4.25]))


def test_there_is_a_broken_one_for_each_law() -> None:
    assert {told.partition(":")[0] for _, told in BROKEN} == {law.__name__.replace("_", " ") for law in LAWS}


def test_one_that_keeps_them_all_passes() -> None:
    check(Spread(name="a", field="x"), [1.5, None, -3, 9, 2, 4.25, 1e15], rounds=200)


def test_a_sum_that_rounds_at_every_step_is_found() -> None:
    class Careless(Sum):
        def merge(self, left: Any, right: Any) -> Any:
            both = super().merge(left, right)
            return (both[0], type(both[1])(round(both[1].whole, -2), both[1].parts))

    assert any("associativity" in line for line in faults_of(Careless, [1, 2, 3, 4, 101]))


def test_all_broken_laws_are_told_at_once_and_the_same_ones_each_time() -> None:
    class Wrong(NotCommutative, SeesMore):
        pass

    told = faults_of(Wrong, [1.5, 2, 3, -7])
    assert len(told) >= 3
    assert told == faults_of(Wrong, [1.5, 2, 3, -7])


def test_squares_beyond_the_floats_are_null_for_the_oracle_too() -> None:
    (variance,) = parse_aggregates([{"name": "v", "op": "variance", "field": "x"}])
    assert variance.expected([1e200, -1e200, 3]).value is None
    check(variance, [1e200, -1e200, 3, None])
