"""Sums of the events' hashes (see `keygrouping.identity`) in native Spark expressions.

A sum modulo 2^128 is kept as four numbers of 32 bits, the highest first, that are added up apart from each other: so
2^31 events fit before anything overflows. Carries are made up for when the sum is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from keygrouping.identity import topic_seeds
from pyspark.sql import Column
from pyspark.sql import functions as F

PIECES = ("receipt0$", "receipt1$", "receipt2$", "receipt3$")
"""Names of the columns of the four sums."""

_MASK = 0xFFFFFFFF


def sums_of_events(topic_id: str) -> list[Column]:
    """The four sums over events of the topic, from the columns partition and offset."""
    place = (F.col("partition").cast("long"), F.col("offset"))
    halves = [F.xxhash64(F.lit(_signed(seed)), *place) for seed in topic_seeds(topic_id)]
    pieces = [piece for half in halves for piece in (F.shiftrightunsigned(half, 32), half.bitwiseAND(_MASK))]
    return [F.sum(piece).alias(name) for piece, name in zip(pieces, PIECES, strict=True)]


def sums_of_receipts(receipt: Column) -> list[Column]:
    """The four sums over receipts of 32 hexadecimal digits."""
    pieces = [F.conv(F.substring(receipt, 1 + 8 * index, 8), 16, 10).cast("long") for index in range(4)]
    return [F.sum(piece).alias(name) for piece, name in zip(pieces, PIECES, strict=True)]


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


def _signed(seed: int) -> int:
    return seed - (1 << 64) if seed >= 1 << 63 else seed
