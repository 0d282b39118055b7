"""Aggregates over numbers, with the semantics of SQL: integers are exact, fractions are float64."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from keygrouping.aggregate import expected as oracle
from keygrouping.aggregate.base import Aggregate, AnyField, NumberField
from keygrouping.aggregate.exact import (
    Total,
    decode_float,
    decode_parts,
    decode_total,
    encode_float,
    encode_parts,
    encode_total,
    parts_of,
    sum_of,
)
from keygrouping.aggregate.expected import Answer, present
from keygrouping.aggregate.shape import Shape

MOST_WHOLE = 1 << 63
"""Integers of fields are less than this, and at least its negative: they have 64 bits."""

Seen = tuple[int, Total]
Moments = tuple[int, float, float]
Weighted = tuple[int, tuple[float, ...], tuple[float, ...]]


class Count(Aggregate):
    """Events, or those whose field is not missing. State: int."""

    op: ClassVar[str] = "count"
    spark: ClassVar[str | None] = "keygrouping_spark.aggregates:NativeCount"
    shape: ClassVar[Shape | None] = "integer"
    field: AnyField | None = None

    def initial(self) -> int:
        return 0

    def add_many(self, state: int, values: Iterable[Any]) -> int:
        if self.inputs:
            return state + sum(value is not None for value in values)
        return state + (len(values) if isinstance(values, Sequence) else sum(1 for _ in values))

    def merge(self, left: int, right: int) -> int:
        return left + right

    def finish(self, state: int) -> int:
        return state

    def expected(self, values: Iterable[Any]) -> Answer:
        return Answer(sum(1 for value in values if value is not None or not self.inputs))

    def decode(self, data: Any) -> int:
        return self.counted(data, data)

    def seen(self, state: int) -> int:
        return state


class _Totalling(Aggregate):
    """What sum and mean share. State: (values seen, their exact sum)."""

    shape: ClassVar[Shape | None] = {"n": "integer", "whole": "text", "parts": ("number",)}
    field: NumberField

    def initial(self) -> Seen:
        return (0, Total())

    def add_many(self, state: Seen, values: Iterable[Any]) -> Seen:
        numbers = present(values)
        return (state[0] + len(numbers), state[1].plus(numbers)) if numbers else state

    def merge(self, left: Seen, right: Seen) -> Seen:
        return (left[0] + right[0], left[1].merged(right[1]))

    def encode(self, state: Seen) -> Any:
        return {"n": state[0], **encode_total(state[1])}

    def decode(self, data: Any) -> Seen:
        try:
            count, total = self.counted(data["n"], data), decode_total(data)
        except (TypeError, KeyError, ValueError):
            raise self.fault(data) from None
        if abs(total.whole) > count << 63 or (not count and total.parts):
            raise self.fault(data)
        return (count, total)

    def seen(self, state: Seen) -> int:
        return state[0]


class Sum(_Totalling):
    """Sum of the values, None if there is none: an exact integer if all of them are, else the closest float64."""

    op: ClassVar[str] = "sum"
    spark: ClassVar[str | None] = "keygrouping_spark.aggregates:NativeSum"

    def finish(self, state: Seen) -> int | float | None:
        return state[1].rounded() if state[0] else None

    def expected(self, values: Iterable[Any]) -> Answer:
        return oracle.sum_of(values)


class Mean(_Totalling):
    """Arithmetic mean of the values, None if there is none: the exact sum, rounded, divided by their number."""

    op: ClassVar[str] = "mean"
    spark: ClassVar[str | None] = "keygrouping_spark.aggregates:NativeSum"

    def finish(self, state: Seen) -> float | None:
        return float(state[1].rounded()) / state[0] if state[0] else None

    def expected(self, values: Iterable[Any]) -> Answer:
        return oracle.mean_of(values)


class _Extreme(Aggregate):
    """What min and max share. State: the extreme, an integer or a fraction as it came, or None.

    Numbers compare exactly, so 2^53 + 1 is more than 2^53. Of an integer and a fraction that are equal the integer is
    kept, whichever comes first.
    """

    shape: ClassVar[Shape | None] = {"whole": "integer?", "real": "number?"}
    field: NumberField

    def initial(self) -> int | float | None:
        return None

    def add_many(self, state: int | float | None, values: Iterable[Any]) -> int | float | None:
        numbers = present(values)
        if not numbers:
            return state
        found = self.most(numbers)
        if type(found) is float:
            found = next((number for number in numbers if number == found and type(number) is int), found + 0.0)
        return self.merge(state, found)

    def merge(self, left: int | float | None, right: int | float | None) -> int | float | None:
        if left is None or right is None:
            return right if left is None else left
        return self.most((left, right) if type(left) is int else (right, left))

    @abstractmethod
    def most(self, numbers: Iterable[int | float]) -> int | float:
        """The most extreme of some numbers; of equal ones the first."""

    def finish(self, state: int | float | None) -> int | float | None:
        return state

    def encode(self, state: int | float | None) -> Any:
        is_whole = type(state) is int
        return {"whole": state if is_whole else None, "real": None if is_whole else state}

    def decode(self, data: Any) -> int | float | None:
        if not isinstance(data, dict):
            raise self.fault(data)
        whole, real = data.get("whole"), data.get("real")
        if not (whole is None or (type(whole) is int and -MOST_WHOLE <= whole < MOST_WHOLE)):
            raise self.fault(data)
        if not (real is None or type(real) in (int, float)):
            raise self.fault(data)
        return self.merge(whole, None if real is None else float(real) + 0.0)


class Min(_Extreme):
    """The smallest value, None if there is none."""

    op: ClassVar[str] = "min"
    spark: ClassVar[str | None] = "keygrouping_spark.aggregates:NativeMin"

    def most(self, numbers: Iterable[int | float]) -> int | float:
        return min(numbers)

    def expected(self, values: Iterable[Any]) -> Answer:
        return Answer(min(present(values), default=None))


class Max(_Extreme):
    """The largest value, None if there is none."""

    op: ClassVar[str] = "max"
    spark: ClassVar[str | None] = "keygrouping_spark.aggregates:NativeMax"

    def most(self, numbers: Iterable[int | float]) -> int | float:
        return max(numbers)

    def expected(self, values: Iterable[Any]) -> Answer:
        return Answer(max(present(values), default=None))


class Variance(Aggregate):
    """Sample variance of the values as SQL's VARIANCE, None below two values.

    State: (values seen, their mean, sum of squared deviations from it), merged as in Chan, Golub and LeVeque,
    "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    """

    op: ClassVar[str] = "variance"
    spark: ClassVar[str | None] = "keygrouping_spark.aggregates:NativeVariance"
    shape: ClassVar[Shape | None] = {"n": "integer", "mean": "number", "m2": "number"}
    field: NumberField

    def initial(self) -> Moments:
        return (0, 0.0, 0.0)

    def add(self, state: Moments, value: Any) -> Moments:
        if value is None:
            return state
        number = float(value)
        count = state[0] + 1
        deviation = number - state[1]
        mean = state[1] + deviation / count
        return (count, mean, state[2] + deviation * (number - mean))

    def add_many(self, state: Moments, values: Iterable[Any]) -> Moments:
        numbers = [float(value) for value in values if value is not None]
        if not numbers:
            return state
        mean = float(sum_of(numbers)) / len(numbers)
        deviations = [number - mean for number in numbers]
        squares = float(sum_of([deviation * deviation for deviation in deviations]))
        return self.merge(state, (len(numbers), mean, about_mean(squares, float(sum_of(deviations)), len(numbers))))

    def merge(self, left: Moments, right: Moments) -> Moments:
        if not left[0] or not right[0]:
            return left if left[0] else right
        count, most, least = left[0] + right[0], max(left, right), min(left, right)
        deviation = least[1] - most[1]
        # From the mean of more values on: the sum of both would be rounded by as much as all of the values differ.
        mean = most[1] + deviation * (least[0] / count)
        return (count, mean, left[2] + right[2] + deviation * deviation * (left[0] * right[0] / count))

    def finish(self, state: Moments) -> float | None:
        return state[2] / (state[0] - 1) if state[0] > 1 else None

    def expected(self, values: Iterable[Any]) -> Answer:
        return oracle.variance_of(values)

    def encode(self, state: Moments) -> Any:
        return {"n": state[0], "mean": encode_float(state[1]), "m2": encode_float(state[2])}

    def decode(self, data: Any) -> Moments:
        try:
            state = (self.counted(data["n"], data), decode_float(data["mean"]), decode_float(data["m2"]))
        except (TypeError, KeyError, ValueError):
            raise self.fault(data) from None
        if state[2] < 0:
            raise self.fault(data)
        return state

    def seen(self, state: Moments) -> int:
        return state[0]


def about_mean(squares: float, deviations: float, count: int) -> float:
    """The squared deviations from the exact mean; given are those from the mean as a float, squared and as they are."""
    beyond = deviations * deviations / count
    return squares - beyond if beyond < squares else squares


class Vwap(Aggregate):
    """Volume-weighted average price: sum(field * weight) / sum(weight), None where the weights add up to 0.

    An event without field or without weight is skipped. Products are those of float64; products and weights are added
    up exactly. State: (events, parts of the sum of products, parts of the sum of weights), see `exact.parts_of`.
    """

    op: ClassVar[str] = "vwap"
    spark: ClassVar[str | None] = "keygrouping_spark.aggregates:NativeVwap"
    shape: ClassVar[Shape | None] = {"n": "integer", "sum": ("number",), "weight": ("number",)}
    field: NumberField
    weight: NumberField

    def initial(self) -> Weighted:
        return (0, (), ())

    def add_many(self, state: Weighted, values: Iterable[Any]) -> Weighted:
        pairs = [(float(value), float(weight)) for value, weight in values if value is not None and weight is not None]
        if not pairs:
            return state
        products = parts_of([*state[1], *[value * weight for value, weight in pairs]])
        return (state[0] + len(pairs), products, parts_of([*state[2], *[weight for _, weight in pairs]]))

    def merge(self, left: Weighted, right: Weighted) -> Weighted:
        if not left[0] or not right[0]:
            return left if left[0] else right
        return (left[0] + right[0], parts_of([*left[1], *right[1]]), parts_of([*left[2], *right[2]]))

    def finish(self, state: Weighted) -> float | None:
        return state[1][0] / state[2][0] if state[0] and state[2][0] else None

    def expected(self, values: Iterable[Any]) -> Answer:
        return oracle.vwap_of(values)

    def encode(self, state: Weighted) -> Any:
        return {"n": state[0], "sum": encode_parts(state[1]), "weight": encode_parts(state[2])}

    def decode(self, data: Any) -> Weighted:
        try:
            count = self.counted(data["n"], data)
            products, weights = decode_parts(data["sum"]), decode_parts(data["weight"])
        except (TypeError, KeyError, ValueError):
            raise self.fault(data) from None
        if not bool(count) == bool(products) == bool(weights):
            raise self.fault(data)
        return (count, products, weights)

    def seen(self, state: Weighted) -> int:
        return state[0]
