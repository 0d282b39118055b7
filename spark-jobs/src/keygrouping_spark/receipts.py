"""Sums of the events' hashes (see `keygrouping.identity`) in native Spark expressions.

A sum modulo 2^128 is kept as four numbers of 32 bits, the highest first, that are added up apart from each other: so
2^31 events fit before anything overflows. Carries are made up for when the sum is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

PIECES = ("receipt0$", "receipt1$", "receipt2$", "receipt3$")
"""Names of the columns of the four sums."""

_MASK = 0xFFFFFFFF


def pieces_of(receipt: int) -> tuple[int, ...]:
    """The four numbers of a sum."""
    return tuple(receipt >> shift & _MASK for shift in (96, 64, 32, 0))


def sums_of_receipts() -> list[Column]:
    """The four sums over receipts, of columns of these names."""
    return [F.sum(name).alias(name) for name in PIECES]


def receipt_of(names: Sequence[str] = PIECES) -> Column:
    """The sum as 32 hexadecimal digits, of the columns of the four sums."""
    digits: list[Column] = []
    above = reduce(lambda carry, name: _carried(carry, F.col(name), digits), reversed(names), F.lit(0).cast("long"))
    del above  # what is carried out of the highest number is a multiple of 2^128
    return F.concat(*reversed(digits))


def _carried(carry: Column, piece: Column, digits: list[Column]) -> Column:
    """Adds the digits of a number with what is carried into it; gives what is carried on."""
    total = piece + carry
    upper = F.lpad(F.hex(total.bitwiseAND(_MASK)), 8, "0")
    # `lower` would bring in the rules of all languages, which takes a second at the start.
    digits.append(F.translate(upper, "ABCDEF", "abcdef"))
    return F.shiftrightunsigned(total, 32)
