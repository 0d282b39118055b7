"""How Spark's own aggregates are made of partials: what a part of a key keeps, and how the parts become one."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, CalendarIntervalType, DataType, DecimalType, DoubleType, StringType

from keygrouping_pyspark.columns import Call, number
from keygrouping_pyspark.hashing import hashes_by_value
from keygrouping_pyspark.moments import MOMENTS, moments, pairs
from keygrouping_pyspark.splits import Split

# Of partials, the same aggregate.
_SAME = ("min", "max", "any", "bool_and", "bool_or", "every", "some", "bit_and", "bit_or", "bit_xor", "product")
# Of distinct values, the same aggregate.
_OF_VALUES = ("count", "min", "max", "collect_list", "array_agg", "collect_set")
_OF_NUMBERS = ("sum", "avg", "mean")
# Digits of a quotient behind those that are kept: below this, rounding twice could show.
_SPARE_DIGITS = 12


type_of_types = Callable[[], Sequence[DataType]]


def split(call: Call, types: type_of_types, kind: DataType, sketches: bool, condition: Column | None) -> Split | None:
    """The two steps of an aggregate whose arguments and result have these types, of rows for which a condition holds.

    None where no rule gives the rows of plain Spark. With `sketches`, approximate counts are taken by Spark's HLL
    sketch, another estimator of the same error.
    """
    for its in (call.condition, condition):
        call = call if its is None else _of_rows(call, its)
    if call.distinct:
        return _distinct(call, types())
    if call.name in _SAME:
        return Split([_whole(call)], lambda partial: _called(call.name, partial))
    if call.name in _RULES:
        return _RULES[call.name](call, kind)
    if call.name in _BY_VALUE:
        return _BY_VALUE[call.name](call, types()[0])
    if call.name == "approx_count_distinct" and sketches and hashes_by_value(types()[0]):
        return _hll(call)
    return moments(call) or pairs(call)


def _of_rows(call: Call, condition: Column) -> Call:
    """Of some rows alone: all aggregates that have rules leave out nulls, max_by and min_by those of their order."""
    chosen = 1 if call.name in ("max_by", "min_by") else 0
    arguments = list(call.arguments)
    arguments[chosen] = F.when(condition, arguments[chosen])
    return call._replace(arguments=tuple(arguments))


def _whole(call: Call) -> Column:
    """In one step, of all values that are given."""
    return _called(call.name, *call.arguments)


def _called(name: str, *arguments: Column) -> Column:
    # Spark's SQL does not have it.
    return F.product(*arguments) if name == "product" else F.call_function(name, *arguments)


def _distinct(call: Call, kinds: Sequence[DataType]) -> Split | None:
    """Values are distinct as what Spark casts them to."""
    if any(isinstance(each, CalendarIntervalType) for each in kinds):
        return None  # Of copies without a value, Spark would make several rows.
    name, values, kind = call.name, call.arguments, kinds[0]
    others: tuple[Column, ...] = ()
    text = isinstance(kind, StringType)
    if name in MOMENTS or (name in _OF_NUMBERS and text):
        values = tuple(each.cast("double") for each in values)
    elif name in _TEXTS and (text or isinstance(kind, BinaryType)):
        values, others = values[:1], values[1:]
    elif name not in (*_OF_VALUES, *_OF_NUMBERS):
        return None
    return Split([], lambda *given: _called(name, *given, *others), values)


def _added_counts(partial: Column) -> Column:
    return F.coalesce(F.sum(partial), F.lit(0).cast("long"))


def _count(call: Call, _: DataType) -> Split:
    return Split([_whole(call)], _added_counts)


def _sum(call: Call, kind: DataType) -> Split:
    """Of decimals, a part that overflows without an error is null, and must not be left out as a part of nulls is."""
    if not isinstance(kind, DecimalType):
        return Split([_whole(call)], F.sum)

    def merged(partial: Column, count: Column) -> Column:
        lost = F.coalesce(F.bool_or(partial.isNull() & (count > 0)), F.lit(False))
        return F.when(~lost, F.sum(partial).cast(kind))

    return Split([_whole(call), F.count(call.arguments[0])], merged)


def _avg(call: Call, kind: DataType) -> Split | None:
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


def _collect_list(call: Call, _: DataType) -> Split:
    return Split([_whole(call)], lambda partial: F.flatten(F.collect_list(partial)))


def _collect_set(call: Call, kind: DataType) -> Split | None:
    """Not of floating-point numbers: Spark keeps each NaN, of which array_distinct would leave one."""
    if _has_floats(kind):
        return None
    return Split([_whole(call)], lambda partial: F.array_distinct(F.flatten(F.collect_list(partial))))


def _has_floats(kind: DataType) -> bool:
    return "float" in kind.simpleString() or "double" in kind.simpleString()


def _extreme_by(call: Call, _: DataType) -> Split | None:
    if len(call.arguments) != 2:
        return None
    extreme = F.max if call.name == "max_by" else F.min
    return Split([_whole(call), extreme(call.arguments[1])], lambda *partials: _called(call.name, *partials))


def _any_value(call: Call, _: DataType) -> Split:
    """One that is not null if there is: any of a group's values will do."""
    return Split([F.any_value(call.arguments[0], True)], lambda partial: F.any_value(partial, True))


def _texts(call: Call, _: DataType) -> Split:
    """In any order, as Spark leaves it open."""
    return Split([_whole(call)], lambda partial: _called(call.name, partial, *call.arguments[1:]))


def _regr_count(call: Call, _: DataType) -> Split:
    y, x = call.arguments
    return Split([F.count(F.when(y.isNotNull(), x))], _added_counts)


def _bits_of_maps(call: Call, _: DataType) -> Split:
    merge = "bitmap_or_agg" if call.name == "bitmap_construct_agg" else call.name
    return Split([_whole(call)], lambda partial: _called(merge, partial))


_TEXTS = ("listagg", "string_agg")
_RULES: dict[str, Callable[[Call, DataType], Split | None]] = {
    "count": _count,
    "count_if": _count,
    "sum": _sum,
    "avg": _avg,
    "mean": _avg,
    "collect_list": _collect_list,
    "array_agg": _collect_list,
    "collect_set": _collect_set,
    "max_by": _extreme_by,
    "min_by": _extreme_by,
    "any_value": _any_value,
    "regr_count": _regr_count,
    **dict.fromkeys(_TEXTS, _texts),
    **dict.fromkeys(["bitmap_construct_agg", "bitmap_or_agg", "bitmap_and_agg"], _bits_of_maps),
}


def _percentile(call: Call, _: DataType) -> Split | None:
    value, *others = call.arguments
    shares = others[:1] or [F.lit(0.5)]
    if any(number(each) != 1 for each in others[1:]):
        return None  # Each row has a number of its own that it counts for.

    def merged(values: Column, rows: Column) -> Column:
        return F.call_function("percentile", values, *shares, rows)

    return Split([F.count(F.lit(1))], merged, [value])


def _mode(call: Call, kind: DataType) -> Split | None:
    """Of several, the lowest. Not of floating-point numbers: Spark tells zeros of either sign apart here alone."""
    if _has_floats(kind) or not hashes_by_value(kind):
        return None

    def merged(values: Column, rows: Column) -> Column:
        return F.min_by(values, F.when(values.isNotNull(), F.struct(-rows, values)))

    return Split([F.count(F.lit(1))], merged, call.arguments[:1])


_BY_VALUE: dict[str, Callable[[Call, DataType], Split | None]] = {
    "percentile": _percentile,
    "median": _percentile,
    "mode": _mode,
}


def _hll(call: Call) -> Split | None:
    """Registers for the error that was asked for (a relative standard deviation of .05 unless told)."""
    error = number(call.arguments[1]) if len(call.arguments) > 1 else 0.05
    if error is None:
        return None
    bits = next((each for each in range(4, 21) if 1.04 / 2 ** (each / 2) <= error), 21)
    argument = call.arguments[0]
    hashed = F.when(argument.isNotNull(), F.xxhash64(argument))

    def merged(partial: Column) -> Column:
        return F.coalesce(F.hll_sketch_estimate(F.hll_union_agg(partial)), F.lit(0).cast("long"))

    return Split([F.hll_sketch_agg(hashed, F.lit(bits))], merged)
