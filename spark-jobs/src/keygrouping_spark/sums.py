"""Sums of JSON numbers in native Spark expressions: integers exactly, fractions as Spark adds them up.

A number is a struct of `whole` (an integer of 64 bits) or `real`, as `events` makes it.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

WHOLE = "decimal(38,0)"
"""Sums of integers: 10^38 is reached by no 10^18 of them."""

_HALF = 32
_NOTHING = "array<double>"


def real(number: Column) -> Column:
    """A number as float64."""
    return F.coalesce(number["real"], number["whole"].cast("double"))


def sum_of_wholes(number: Column) -> Column:
    """Aggregation: the exact sum of the integers, 0 if there is none.

    Both halves of the bits are added up as integers of 64 bits, which 2^31 values can't exceed: quicker than decimals.
    """
    low = F.sum(number["whole"].bitwiseAND(F.lit((1 << _HALF) - 1)))
    high = F.sum(F.shiftright(number["whole"], _HALF))
    factor = F.lit(1 << _HALF).cast("decimal(10,0)")
    total = high.cast("decimal(20,0)") * factor + low.cast("decimal(20,0)")
    return F.coalesce(total, F.lit(0)).cast(WHOLE)


def parts_of_reals(number: Column) -> Column:
    """Aggregation: the sum of the fractions as a list of parts, empty if there is none."""
    return parts(number["real"])


def parts(value: Column) -> Column:
    """Aggregation: the sum of floats as a list of parts, empty if there is none."""
    return F.when(F.count(value) > 0, F.array(F.sum(value))).otherwise(F.array().cast(_NOTHING))


def sum_of_parts(given: Column) -> Column:
    """Aggregation: the sum of all parts, null if there is none."""
    value = F.aggregate(given, F.lit(0.0), lambda total, part: total + part)
    return F.sum(F.when(F.size(given) > 0, value))


def text_of_sum(number: Column) -> Column:
    """Aggregation: the sum as text, which tells an integer from a fraction."""
    fractions = F.sum(number["real"])
    mixed = fractions + sum_of_wholes(number).cast("double")
    return F.when(fractions.isNull(), sum_of_wholes(number).cast("string")).otherwise(mixed.cast("string"))
