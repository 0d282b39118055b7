"""Variances, correlations and the like of parts, merged as Spark merges its buffers (Chan, Golub and LeVeque 1983)."""

from collections.abc import Callable
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from keygrouping_pyspark.columns import Call
from keygrouping_pyspark.splits import Split

type_of_finish = Callable[[Column], Column]


def _over(total: str, less: int) -> type_of_finish:
    return lambda buffer: F.when(buffer["n"] > less, buffer[total] / (buffer["n"] - less))


def _root(finish: type_of_finish) -> type_of_finish:
    return lambda buffer: F.sqrt(finish(buffer))


def _given(name: str) -> type_of_finish:
    return lambda buffer: F.when(buffer["n"] > 0, buffer[name])


def _correlation(buffer: Column) -> Column:
    # Where nothing varies it fails in ANSI mode, and is null otherwise: as Spark's own.
    return F.when(buffer["n"] > 1, buffer["xy"] / F.sqrt(buffer["xx"] * buffer["yy"]))


def _skewness(buffer: Column) -> Column:
    squares = buffer["xx"]
    return F.when(squares != 0, F.sqrt(buffer["n"]) * buffer["xxx"] / F.sqrt(squares * squares * squares))


def _kurtosis(buffer: Column) -> Column:
    squares = buffer["xx"]
    return F.when(squares != 0, buffer["n"] * buffer["xxxx"] / (squares * squares) - 3.0)


def _slope(buffer: Column) -> Column:
    return F.when(buffer["xx"] != 0, buffer["xy"] / buffer["xx"])


def _intercept(buffer: Column) -> Column:
    return buffer["y"] - _slope(buffer) * buffer["x"]


def _determination(buffer: Column) -> Column:
    found = buffer["xy"] / F.sqrt(buffer["xx"] * buffer["yy"])
    return F.when(buffer["xx"] != 0, F.when(buffer["yy"] == 0, F.lit(1.0)).otherwise(found * found))


_ONE: dict[str, type_of_finish] = {
    "var_pop": _over("xx", 0),
    "var_samp": _over("xx", 1),
    "variance": _over("xx", 1),
    "stddev_pop": _root(_over("xx", 0)),
    "stddev_samp": _root(_over("xx", 1)),
    "stddev": _root(_over("xx", 1)),
    "std": _root(_over("xx", 1)),
    "skewness": _skewness,
    "kurtosis": _kurtosis,
}
_TWO: dict[str, type_of_finish] = {
    "covar_pop": _over("xy", 0),
    "covar_samp": _over("xy", 1),
    "corr": _correlation,
    "regr_avgx": _given("x"),
    "regr_avgy": _given("y"),
    "regr_sxx": _given("xx"),
    "regr_sxy": _given("xy"),
    "regr_syy": _given("yy"),
    "regr_slope": _slope,
    "regr_intercept": _intercept,
    "regr_r2": _determination,
}
MOMENTS = frozenset([*_ONE, *_TWO])
"""Functions of numbers, which Spark reads as floating-point ones."""


def moments(call: Call) -> Split | None:
    """Variances, standard deviations, skewness and kurtosis."""
    if call.name not in _ONE:
        return None
    x = call.arguments[0].cast("double")
    squares = F.var_pop(x)
    buffer = {"n": F.count(x).cast("double"), "x": _mean(x), "xx": _total(squares, x)}
    if call.name in ("skewness", "kurtosis"):
        buffer["xxx"] = _total(F.skewness(x) * squares * F.sqrt(squares), x)
    if call.name == "kurtosis":
        buffer["xxxx"] = _total((F.kurtosis(x) + 3.0) * squares * squares, x)
    return _split(buffer, _ONE[call.name])


def pairs(call: Call) -> Split | None:
    """Covariances, correlations and regressions, of the rows in which both are given."""
    if call.name not in _TWO:
        return None
    first, second = (each.cast("double") for each in call.arguments)
    if call.name.startswith("regr_"):
        first, second = second, first  # Those are of y and x.
    x, y = F.when(second.isNotNull(), first), F.when(first.isNotNull(), second)
    buffer = {
        "n": F.count(x).cast("double"),
        "x": _mean(x),
        "y": _mean(y),
        "xx": _total(F.var_pop(x), x),
        "yy": _total(F.var_pop(y), y),
        "xy": _total(F.covar_pop(x, y), x, y),
    }
    return _split(buffer, _TWO[call.name])


def _mean(x: Column) -> Column:
    """Of equal values exactly that value, so that they have no variance when they are merged."""
    return F.coalesce(F.when(F.min(x) == F.max(x), F.min(x)).otherwise(F.avg(x)), F.lit(0.0))


def _total(average: Column, *numbers: Column) -> Column:
    """Exactly nothing where one of the numbers does not vary: Spark's buffers round means as they are merged."""
    extremes = [(F.min(x), F.max(x)) for x in numbers]
    level = reduce(or_, (least == most for least, most in extremes))
    finite = reduce(and_, (F.abs(each) < float("inf") for both in extremes for each in both))
    total = F.when(level & finite, 0.0).otherwise(average * F.count(numbers[0]))
    return F.coalesce(total, F.lit(0.0))


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
        apart = _apart(left, right, name, moved)
        of[name] = left[name] + right[name] + apart
    both = F.struct(*(of[name].alias(name) for name in names))
    return F.when(left["n"] == 0, right).when(right["n"] == 0, left).otherwise(both)


def _apart(left: Column, right: Column, name: str, moved: dict[str, Column]) -> Column:
    """What a sum of products has more as the parts' means differ."""
    ours, theirs = left["n"], right["n"]
    rows = ours + theirs
    by = moved[name[0]]
    step = by / rows
    if len(name) == 2:
        return by * (moved[name[1]] / rows) * ours * theirs
    if len(name) == 3:
        of_squares = step * (ours * right["xx"] - theirs * left["xx"]) * 3.0
        return by * step * step * ours * theirs * (ours - theirs) + of_squares
    of_squares = step * step * (ours * ours * right["xx"] + theirs * theirs * left["xx"]) * 6.0
    of_cubes = step * (ours * right["xxx"] - theirs * left["xxx"]) * 4.0
    of_means = by * step * step * step * ours * theirs * (ours * ours - ours * theirs + theirs * theirs)
    return of_means + of_squares + of_cubes
