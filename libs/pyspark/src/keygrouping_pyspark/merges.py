"""How Spark's own aggregates are made of partials: what a part of a key keeps, and how the parts become one."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType

from keygrouping_pyspark.columns import Call, number
from keygrouping_pyspark.moments import moments, pairs
from keygrouping_pyspark.splits import Split

# Of partials, the same aggregate.
_SAME = ("min", "max", "bool_and", "bool_or", "every", "some", "bit_and", "bit_or", "bit_xor", "product")
# Digits of a quotient behind those that are kept: below this, rounding twice could show.
_SPARE_DIGITS = 12


def split(call: Call, whole: Column, kind: DataType, sketches: bool) -> Split | None:
    """The two steps of an aggregate whose result has this type; None where no rule gives the rows of plain Spark.

    With `sketches`, approximate counts are taken by Spark's HLL sketch, another estimator of the same error.
    """
    if call.distinct:
        return _distinct(call, whole, kind)
    if call.name in _SAME:
        return Split([whole], getattr(F, call.name))
    rule = _RULES.get(call.name)
    if rule:
        return rule(call, whole, kind)
    if call.name == "approx_count_distinct" and sketches:
        return _hll(call)
    return moments(call) or pairs(call)


def _distinct(call: Call, whole: Column, kind: DataType) -> Split | None:
    values = F.xxhash64(*call.arguments)
    given = call.arguments[0].isNotNull()
    for each in call.arguments[1:]:
        given = given & each.isNotNull()
    by_value = F.when(given, values)
    if call.name == "count":
        return Split([whole], _added_counts, by_value)
    if call.name == "sum" and not isinstance(kind, DecimalType):
        return Split([whole], F.sum, by_value)
    return None


def _added_counts(partial: Column) -> Column:
    return F.coalesce(F.sum(partial), F.lit(0).cast("long"))


def _count(_: Call, whole: Column, _kind: DataType) -> Split:
    return Split([whole], _added_counts)


def _sum(call: Call, whole: Column, kind: DataType) -> Split:
    """Of decimals, a part that overflows without an error is null, and must not be left out as a part of nulls is."""
    if not isinstance(kind, DecimalType):
        return Split([whole], F.sum)

    def merged(partial: Column, count: Column) -> Column:
        lost = F.coalesce(F.bool_or(partial.isNull() & (count > 0)), F.lit(False))
        return F.when(~lost, F.sum(partial).cast(kind))

    return Split([whole, F.count(call.arguments[0])], merged)


def _avg(call: Call, _whole: Column, kind: DataType) -> Split | None:
    if isinstance(kind, DecimalType):
        return _decimal_avg(call, kind)
    if not isinstance(kind, DoubleType):
        return None
    # A text that is no number is null here, and counted as such.
    argument = call.arguments[0].cast("double")

    def merged(total: Column, count: Column) -> Column:
        return F.when(F.sum(count) > 0, F.sum(total) / F.sum(count))

    return Split([F.sum(argument), F.count(argument)], merged)


def _decimal_avg(call: Call, kind: DecimalType) -> Split | None:
    precision, scale = kind.precision - 4, kind.scale - 4
    spare = 28 - precision + scale - kind.scale
    if spare < _SPARE_DIGITS:
        return None
    summed = DecimalType(precision + 10, scale)
    argument = call.arguments[0]

    def merged(total: Column, count: Column) -> Column:
        rows = F.sum(count)
        lost = F.coalesce(F.bool_or(total.isNull() & (count > 0)), F.lit(False))
        exact = F.sum(total).cast(summed) / rows.cast(DecimalType(20, 0))
        return F.when((rows > 0) & ~lost, exact.cast(kind))

    return Split([F.sum(argument), F.count(argument)], merged)


def _collect_list(_: Call, whole: Column, _kind: DataType) -> Split:
    return Split([whole], lambda partial: F.flatten(F.collect_list(partial)))


def _collect_set(_: Call, whole: Column, kind: DataType) -> Split | None:
    """Not of floating-point numbers: Spark keeps each NaN, of which array_distinct would leave one."""
    if "float" in kind.simpleString() or "double" in kind.simpleString():
        return None
    return Split([whole], lambda partial: F.array_distinct(F.flatten(F.collect_list(partial))))


def _max_by(call: Call, whole: Column, _kind: DataType) -> Split | None:
    return Split([whole, F.max(call.arguments[1])], F.max_by) if len(call.arguments) == 2 else None


def _min_by(call: Call, whole: Column, _kind: DataType) -> Split | None:
    return Split([whole, F.min(call.arguments[1])], F.min_by) if len(call.arguments) == 2 else None


_RULES: dict[str, Callable[[Call, Column, DataType], Split | None]] = {
    "count": _count,
    "count_if": _count,
    "sum": _sum,
    "avg": _avg,
    "mean": _avg,
    "collect_list": _collect_list,
    "array_agg": _collect_list,
    "collect_set": _collect_set,
    "max_by": _max_by,
    "min_by": _min_by,
}


def _hll(call: Call) -> Split:
    """Registers for the error that was asked for (a relative standard deviation of .05 unless told)."""
    error = (number(call.arguments[1]) if len(call.arguments) > 1 else None) or 0.05
    bits = next((each for each in range(4, 21) if 1.04 / 2 ** (each / 2) <= error), 21)
    argument = call.arguments[0]
    hashed = F.when(argument.isNotNull(), F.xxhash64(argument))

    def merged(partial: Column) -> Column:
        return F.coalesce(F.hll_sketch_estimate(F.hll_union_agg(partial)), F.lit(0).cast("long"))

    return Split([F.hll_sketch_agg(hashed, F.lit(bits))], merged)
