"""Variances and correlations of parts, merged as Spark merges its own buffers (Chan, Golub and LeVeque 1983)."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from keygrouping_pyspark.columns import Call
from keygrouping_pyspark.splits import Split

type_of_finish = Callable[[Column], Column]


def _over(total: str, less: int) -> type_of_finish:
    return lambda buffer: F.when(buffer["n"] > less, buffer[total] / (buffer["n"] - less))


def _root(finish: type_of_finish) -> type_of_finish:
    return lambda buffer: F.sqrt(finish(buffer))


def _correlation(buffer: Column) -> Column:
    # Where nothing varies it fails in ANSI mode, and is null otherwise: as Spark's own.
    return F.when(buffer["n"] > 1, buffer["xy"] / F.sqrt(buffer["xx"] * buffer["yy"]))


_ONE: dict[str, type_of_finish] = {
    "var_pop": _over("xx", 0),
    "var_samp": _over("xx", 1),
    "variance": _over("xx", 1),
    "stddev_pop": _root(_over("xx", 0)),
    "stddev_samp": _root(_over("xx", 1)),
    "stddev": _root(_over("xx", 1)),
    "std": _root(_over("xx", 1)),
}
_TWO: dict[str, type_of_finish] = {
    "covar_pop": _over("xy", 0),
    "covar_samp": _over("xy", 1),
    "corr": _correlation,
}


def moments(call: Call) -> Split | None:
    """Variances and standard deviations."""
    if call.name not in _ONE:
        return None
    x = call.arguments[0].cast("double")
    return _split({"n": F.count(x).cast("double"), "x": _mean(x), "xx": _total(F.var_pop(x), x)}, _ONE[call.name])


def pairs(call: Call) -> Split | None:
    """Covariances and correlations, of the rows in which both are given."""
    if call.name not in _TWO:
        return None
    first, second = (each.cast("double") for each in call.arguments)
    x, y = F.when(second.isNotNull(), first), F.when(first.isNotNull(), second)
    buffer = {
        "n": F.count(x).cast("double"),
        "x": _mean(x),
        "y": _mean(y),
        "xx": _total(F.var_pop(x), x),
        "yy": _total(F.var_pop(y), x),
        "xy": _total(F.covar_pop(x, y), x),
    }
    return _split(buffer, _TWO[call.name])


def _mean(x: Column) -> Column:
    """Of equal values exactly that value, so that they have no variance when they are merged."""
    return F.coalesce(F.when(F.min(x) == F.max(x), F.min(x)).otherwise(F.avg(x)), F.lit(0.0))


def _total(average: Column, x: Column) -> Column:
    return F.coalesce(average * F.count(x), F.lit(0.0))


def _split(buffer: dict[str, Column], finish: type_of_finish) -> Split:
    names = list(buffer)
    partial = F.struct(*(column.alias(name) for name, column in buffer.items()))

    def merged(parts: Column) -> Column:
        empty = F.struct(*(F.lit(0.0).alias(name) for name in names))
        return F.aggregate(F.collect_list(parts), empty, lambda left, right: _merged(left, right, names), finish)

    return Split([partial], merged)


def _merged(left: Column, right: Column, names: list[str]) -> Column:
    rows = left["n"] + right["n"]
    moved = {name: right[name] - left[name] for name in names if len(name) == 1 and name != "n"}
    of = {"n": rows}
    for name, by in moved.items():
        of[name] = left[name] + by / rows * right["n"]
    for name in names[len(of) :]:
        apart = moved[name[0]] * (moved[name[1]] / rows) * left["n"] * right["n"]
        of[name] = left[name] + right[name] + apart
    both = F.struct(*(of[name].alias(name) for name in names))
    return F.when(left["n"] == 0, right).when(right["n"] == 0, left).otherwise(both)
