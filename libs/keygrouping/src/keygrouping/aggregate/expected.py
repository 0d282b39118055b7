"""What must be published of values that are known, computed in the most obvious way and without any state.

The oracle of whole runs and the laws of every aggregate (`laws`) hold what was split and merged against this. It
shares no arithmetic with the aggregates: a fault would be on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from datasketches import hll_sketch, hll_union, tgt_hll_type

RELATIVE = 1e-9
"""How far a float may be off that is added up in another order."""

_OF_SIZE = 1e-12
_LG_K = 12


@dataclass(frozen=True)
class Answer:
    """The oracle's answer: the value to publish, as JSON data. No other will do."""

    value: Any

    def accept(self, found: Any) -> bool:
        """Whether `found` may have been published, whatever the split of the values."""
        return bool(self.value == found) and isinstance(self.value, bool) == isinstance(found, bool)

    def deviation(self, found: Any) -> float:
        """Relative difference of an accepted value, 0 where none is allowed."""
        del found
        return 0.0


@dataclass(frozen=True)
class Rounded(Answer):
    """A float that depends on the order in which it was computed by its last bits.

    `size` is the magnitude of the terms: where they cancel out, rounding of the terms is all that is left.
    """

    size: float

    def accept(self, found: Any) -> bool:
        if super().accept(found):
            return True
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            return False
        return self.deviation(found) <= RELATIVE or abs(found - self.value) <= _OF_SIZE * self.size

    def deviation(self, found: Any) -> float:
        return 0.0 if found == self.value else float(abs(found - self.value) / max(abs(self.value), abs(found)))


@dataclass(frozen=True)
class Unsplit(Answer):
    """JSON data whose floats, wherever they are, may differ by their last bits; `size` as in `Rounded`."""

    size: float

    @classmethod
    def of(cls, value: Any, values: Iterable[Any]) -> Unsplit:
        """What has been published of these values."""
        return cls(value, max(map(abs, _numbers_in(values)), default=0.0))

    def accept(self, found: Any) -> bool:
        return self._alike(self.value, found)

    def _alike(self, value: Any, found: Any) -> bool:
        if isinstance(value, Mapping):
            return (
                isinstance(found, Mapping)
                and value.keys() == found.keys()
                and all(self._alike(inner, found[name]) for name, inner in value.items())
            )
        if isinstance(value, list | tuple):
            same_length = isinstance(found, list | tuple) and len(value) == len(found)
            return same_length and all(map(self._alike, value, found))
        if isinstance(value, float) and not math.isfinite(value):
            return found is None
        return (Rounded(value, self.size) if isinstance(value, float) else Answer(value)).accept(found)


def _numbers_in(values: Iterable[Any]) -> Iterator[float]:
    for value in values:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float):
                yield float(number)


def present(values: Iterable[Any]) -> list[Any]:
    """The values that are not missing."""
    return [value for value in values if value is not None]


def rounded(value: float, size: float) -> Answer:
    """A value of a size; exact if the size is 0, and null beyond the floats."""
    if not math.isfinite(value):
        return Answer(None)
    return Rounded(value, size) if size else Answer(value)


def total(values: Iterable[float]) -> int | float:
    """The exact sum of integers; with fractions among them that of both, rounded; infinite beyond the floats."""
    numbers = list(values)
    fractions = [number for number in numbers if isinstance(number, float)]
    whole = sum(number for number in numbers if isinstance(number, int))
    if not fractions:
        return whole
    if not all(map(math.isfinite, fractions)):
        return sum(fractions)  # Infinite, or NaN where infinities of both signs meet.
    exact = whole + sum(map(Fraction, fractions))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def sum_of(values: Iterable[Any]) -> Answer:
    """The sum: exact where all are integers."""
    numbers = present(values)
    if not numbers:
        return Answer(None)
    found = total(numbers)
    return rounded(found, 0 if isinstance(found, int) else total(map(abs, numbers)))


def mean_of(values: Iterable[Any]) -> Answer:
    """The arithmetic mean."""
    numbers = present(values)
    if not numbers:
        return Answer(None)
    return rounded(total(numbers) / len(numbers), total(map(abs, numbers)) / len(numbers))


def variance_of(values: Iterable[Any]) -> Answer:
    """The sample variance, in two passes."""
    numbers = present(values)
    if len(numbers) < 2:
        return Answer(None)
    mean = total(numbers) / len(numbers)
    squares = total((number - mean) * (number - mean) for number in numbers)
    return rounded(squares / (len(numbers) - 1), total(number * number for number in numbers) / (len(numbers) - 1))


def vwap_of(values: Iterable[tuple[Any, Any]]) -> Answer:
    """The average weighted by the second number of each pair."""
    pairs = [(price, weight) for price, weight in values if price is not None and weight is not None]
    weights = total(weight for _, weight in pairs)
    if not weights:
        return Answer(None)
    # Weights that cancel out magnify the rounding of their sum.
    magnified = total(abs(weight) for _, weight in pairs) / abs(weights)
    size = total(abs(price * weight) for price, weight in pairs) / abs(weights) * magnified
    return rounded(total(price * weight for price, weight in pairs) / weights, size)


def distinct_of(values: Iterable[Any]) -> Answer:
    """The estimate of a sketch of all values."""
    sketch, union = hll_sketch(_LG_K, tgt_hll_type.HLL_8), hll_union(_LG_K)
    for value in set(map(str, present(values))):
        sketch.update(value)
    # United with itself, the estimate depends on the set alone and not on the order of updates.
    union.update(sketch)
    union.update(sketch)
    return Answer(round(union.get_result(tgt_hll_type.HLL_8).get_estimate()))
