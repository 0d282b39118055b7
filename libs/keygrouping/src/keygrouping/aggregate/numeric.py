"""Aggregates over numbers, with the semantics of SQL and float64 arithmetic."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from keygrouping.aggregate.base import NUMBER, Aggregate, Role

Total = tuple[int, float]
Moments = tuple[int, float, float]
Weighted = tuple[int, float, float]


def _present(values: Iterable[Any]) -> list[float]:
    return [float(value) for value in values if value is not None]


def _encode_float(value: float) -> float | str:
    """JSON has no infinities: a sum that overflowed travels as text, as Spark writes it too."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class Count(Aggregate):
    """Events, or those whose field is not missing. State: int."""

    op: ClassVar[str] = "count"
    roles: ClassVar[tuple[Role, ...]] = (Role("field", None, required=False),)

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

    def decode(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int) or data < 0:
            raise self.fault(data)
        return data


class _Totalling(Aggregate):
    """What sum and mean share. State: (values seen, their sum)."""

    roles: ClassVar[tuple[Role, ...]] = (NUMBER,)

    def initial(self) -> Total:
        return (0, 0.0)

    def add(self, state: Total, value: Any) -> Total:
        return state if value is None else (state[0] + 1, state[1] + float(value))

    def add_many(self, state: Total, values: Iterable[Any]) -> Total:
        numbers = _present(values)
        return (state[0] + len(numbers), state[1] + sum(numbers))

    def merge(self, left: Total, right: Total) -> Total:
        return (left[0] + right[0], left[1] + right[1])

    def encode(self, state: Total) -> Any:
        return {"n": state[0], "sum": _encode_float(state[1])}

    def decode(self, data: Any) -> Total:
        try:
            return (int(data["n"]), float(data["sum"]))
        except (TypeError, KeyError, ValueError):
            raise self.fault(data) from None


class Sum(_Totalling):
    """Sum of the values, None if there is none."""

    op: ClassVar[str] = "sum"

    def finish(self, state: Total) -> float | None:
        return state[1] if state[0] else None


class Mean(_Totalling):
    """Arithmetic mean of the values, None if there is none."""

    op: ClassVar[str] = "mean"

    def finish(self, state: Total) -> float | None:
        return state[1] / state[0] if state[0] else None


class _Extreme(Aggregate):
    """What min and max share. State: the extreme as float64, or None."""

    roles: ClassVar[tuple[Role, ...]] = (NUMBER,)

    def initial(self) -> float | None:
        return None

    def merge(self, left: float | None, right: float | None) -> float | None:
        if left is None or right is None:
            return right if left is None else left
        return self.better(left, right)

    @abstractmethod
    def better(self, left: float, right: float) -> float:
        """The more extreme of two numbers."""

    def finish(self, state: float | None) -> float | None:
        return state

    def decode(self, data: Any) -> float | None:
        if data is None:
            return None
        if isinstance(data, bool) or not isinstance(data, int | float):
            raise self.fault(data)
        return float(data) + 0.0


class Min(_Extreme):
    """The smallest value, None if there is none."""

    op: ClassVar[str] = "min"

    def add_many(self, state: float | None, values: Iterable[Any]) -> float | None:
        numbers = _present(values)
        return self.merge(state, min(numbers) + 0.0) if numbers else state

    def better(self, left: float, right: float) -> float:
        return min(left, right)


class Max(_Extreme):
    """The largest value, None if there is none."""

    op: ClassVar[str] = "max"

    def add_many(self, state: float | None, values: Iterable[Any]) -> float | None:
        numbers = _present(values)
        return self.merge(state, max(numbers) + 0.0) if numbers else state

    def better(self, left: float, right: float) -> float:
        return max(left, right)


class Variance(Aggregate):
    """Sample variance of the values as SQL's VARIANCE, None below two values.

    State: (values seen, their mean, sum of squared deviations from it), merged as in Chan, Golub and LeVeque,
    "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    """

    op: ClassVar[str] = "variance"
    roles: ClassVar[tuple[Role, ...]] = (NUMBER,)

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
        numbers = _present(values)
        if not numbers:
            return state
        mean = sum(numbers) / len(numbers)
        squares = sum((number - mean) * (number - mean) for number in numbers)
        return self.merge(state, (len(numbers), mean, squares))

    def merge(self, left: Moments, right: Moments) -> Moments:
        if not left[0] or not right[0]:
            return left if left[0] else right
        count = left[0] + right[0]
        deviation = right[1] - left[1]
        mean = (left[0] * left[1] + right[0] * right[1]) / count
        return (count, mean, left[2] + right[2] + deviation * deviation * (left[0] * right[0] / count))

    def finish(self, state: Moments) -> float | None:
        return state[2] / (state[0] - 1) if state[0] > 1 else None

    def encode(self, state: Moments) -> Any:
        return {"n": state[0], "mean": _encode_float(state[1]), "m2": _encode_float(state[2])}

    def decode(self, data: Any) -> Moments:
        try:
            return (int(data["n"]), float(data["mean"]), float(data["m2"]))
        except (TypeError, KeyError, ValueError):
            raise self.fault(data) from None


class Vwap(Aggregate):
    """Volume-weighted average price: sum(field * weight) / sum(weight), None where the weights add up to 0.

    An event without field or without weight is skipped. State: (events, sum of products, sum of weights).
    """

    op: ClassVar[str] = "vwap"
    roles: ClassVar[tuple[Role, ...]] = (NUMBER, Role("weight", "number"))

    def initial(self) -> Weighted:
        return (0, 0.0, 0.0)

    def add_many(self, state: Weighted, values: Iterable[Any]) -> Weighted:
        pairs = [(float(value), float(weight)) for value, weight in values if value is not None and weight is not None]
        products = sum([value * weight for value, weight in pairs])
        return (state[0] + len(pairs), state[1] + products, state[2] + sum([weight for _, weight in pairs]))

    def merge(self, left: Weighted, right: Weighted) -> Weighted:
        return (left[0] + right[0], left[1] + right[1], left[2] + right[2])

    def finish(self, state: Weighted) -> float | None:
        return state[1] / state[2] if state[2] else None

    def encode(self, state: Weighted) -> Any:
        return {"n": state[0], "sum": _encode_float(state[1]), "weight": _encode_float(state[2])}

    def decode(self, data: Any) -> Weighted:
        try:
            return (int(data["n"]), float(data["sum"]), float(data["weight"]))
        except (TypeError, KeyError, ValueError):
            raise self.fault(data) from None
