"""Sums in native Spark expressions: integers exactly, fractions as Spark adds them up."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, DoubleType, StructField, StructType

WHOLE = "decimal(38,0)"
"""Sums of integers: 10^38 is reached by no 10^18 of them."""

NUMBER = StructType([StructField("whole", DecimalType(38, 0)), StructField("real", DoubleType())])
"""A number: an integer, `whole`, or else the float64 `real`."""


def sum_of_numbers(number: Column) -> Column:
    """Aggregation: the sums of integers and of fractions, each null if there is none."""
    return F.struct(F.try_sum(number["whole"]).alias("whole"), F.sum(number["real"]).alias("real"))


def sum_of_parts(given: Column) -> Column:
    """Aggregation: the sum of all parts, null if there is none."""
    value = F.aggregate(given, F.lit(0.0), lambda total, part: total + part)
    return F.sum(F.when(F.size(given) > 0, value))
