"""Exact sums of JSON numbers: no split over workers and no order changes a digit of them.

Integers are added up as integers of any size. Fractions (float64) are added up without any rounding too: their sum is
kept as a few floats that don't overlap, the greatest first, which is all that `math.fsum` would round away. A sum is
rounded once, when it is published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, NamedTuple

MOST_PARTS = 40
"""Floats of 53 bits that the 2098 bits of all finite ones fill."""

_WHOLE = re.compile(r"-?[0-9]{1,60}", re.ASCII)


class Total(NamedTuple):
    """The sum of the integers, and that of the fractions in parts; no parts if there was no fraction.

    5.0 is a fraction here, as in JSON it stands for a float. Fractions beyond all floats are one infinite part.
    """

    whole: int = 0
    parts: tuple[float, ...] = ()

    def plus(self, numbers: Sequence[int | float]) -> Total:
        """With some more numbers; those of NumPy and Decimals count as what JSON would have. TypeError for others."""
        # Builtin and quick; it is an integer only if all of them are.
        if type(quick := sum(numbers)) is int:
            return Total(self.whole + quick, self.parts)
        fractions = [number for number in numbers if type(number) is float]
        wholes = [number for number in numbers if type(number) is int] if len(fractions) < len(numbers) else []
        if len(fractions) + len(wholes) < len(numbers):
            return self.plus([_builtin(number) for number in numbers])
        return Total(self.whole + sum(wholes), parts_of([*self.parts, *fractions]))

    def merged(self, other: Total) -> Total:
        """The sum of both."""
        parts = parts_of([*self.parts, *other.parts]) if self.parts and other.parts else self.parts or other.parts
        return Total(self.whole + other.whole, parts)

    def rounded(self) -> int | float:
        """The exact integer if there was no fraction, else the float that is closest to the exact sum."""
        if not self.parts:
            return self.whole
        if not self.whole or not math.isfinite(self.parts[0]):
            return self.parts[0]
        return parts_of([*_floats(self.whole), *self.parts])[0]


def _builtin(number: Any) -> int | float:
    """The same as Python has it in JSON; TypeError for what is no number."""
    if isinstance(number, Integral):
        return int(number)
    if isinstance(number, Real | Decimal):
        return float(number)
    raise TypeError(f"{number!r} is no number")


def parts_of(numbers: Iterable[float]) -> tuple[float, ...]:
    """The exact sum of floats: the float closest to it, the one closest to the rest, and so on; at least one."""
    rest, parts = list(numbers), list[float]()
    if len(rest) == 1:
        return (rest[0] + 0.0,)
    try:
        while (top := math.fsum(rest)) or not parts:
            if not math.isfinite(top):
                return (top,)
            parts.append(top + 0.0)
            rest.append(-top)
    except OverflowError:
        return _parts_of_large(rest[: len(rest) - len(parts)])
    except ValueError:
        return (math.nan,)
    return tuple(parts)


def _parts_of_large(numbers: Sequence[float]) -> tuple[float, ...]:
    """The same where intermediate sums are beyond the floats."""
    infinite = [number for number in numbers if not math.isfinite(number)]
    if infinite:
        return parts_of(infinite)
    whole, parts = sum(map(Fraction, numbers)), list[float]()
    while whole or not parts:
        try:
            parts.append(float(whole))
        except OverflowError:
            return (math.inf if whole > 0 else -math.inf,)
        whole -= Fraction(parts[-1])
    return tuple(parts)


def _floats(whole: int) -> list[float]:
    """An integer as floats of this sum."""
    found = []
    while whole:
        found.append(float(whole))
        whole -= int(found[-1])
    return found


def sum_of(numbers: Sequence[int | float]) -> int | float:
    """The sum: exact if all are integers, else the closest float; the same on every version of Python."""
    return quick if type(quick := sum(numbers)) is int else Total().plus(numbers).rounded()


def encode_total(total: Total) -> dict[str, Any]:
    """As JSON data. The integer is text: most parsers know none of more than 64 bits."""
    return {"whole": str(total.whole), "parts": encode_parts(total.parts)}


def decode_total(data: Mapping[str, Any]) -> Total:
    """From JSON data; ValueError, KeyError or TypeError if it is none."""
    text = data["whole"]
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise ValueError("whole must be the text of an integer")
    return Total(int(text), decode_parts(data["parts"]))


def encode_parts(parts: Sequence[float]) -> list[Any]:
    """The parts of a sum as JSON data."""
    return [encode_float(part) for part in parts]


def decode_parts(data: Any) -> tuple[float, ...]:
    """The parts of a sum from JSON data; ValueError if they are none."""
    if not isinstance(data, list) or len(data) > MOST_PARTS:
        raise ValueError(f"parts must be a list of at most {MOST_PARTS} numbers")
    return parts_of([decode_float(part) for part in data]) if data else ()


def encode_float(value: float) -> float | str:
    """JSON has no infinities: a sum that overflowed travels as text, as Spark writes it too."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def decode_float(data: Any) -> float:
    """A float from JSON data; ValueError if it is none."""
    if data in ("NaN", "Infinity", "-Infinity") or type(data) in (int, float):
        return float(data)
    raise ValueError(f"{data!r} is no number")
