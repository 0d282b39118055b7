"""`skewed_join`: the rows of a hot key on several tasks, each with its own copy of what they join."""

from collections.abc import Sequence
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from keygrouping_pyspark.errors import SkewError
from keygrouping_pyspark.frames import Skewed, skewed
from keygrouping_pyspark.hashing import not_hashed, quoted, type_of_by
from keygrouping_pyspark.in_parts import check_names
from keygrouping_pyspark.placing import salt
from keygrouping_pyspark.widths import type_of_widths

type_of_join = Literal[
    "inner", "left", "leftouter", "left_outer", "semi", "leftsemi", "left_semi", "anti", "leftanti", "left_anti"
]

_HOWS = ("inner", "left", "leftouter", "semi", "leftsemi", "anti", "leftanti")
_SWAPPED, _IN_TWO = 'swap sides, with how="left"', 'use "left", and add right.join(left, on, "left_anti")'
_INSTEAD = {"right": _SWAPPED, "rightouter": _SWAPPED, "outer": _IN_TWO, "full": _IN_TWO, "fullouter": _IN_TWO}
_SALT = "__skewed_salt"


def skewed_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    how: type_of_join = "inner",
    *,
    widths: type_of_widths | None = None,
    by: type_of_by | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """`left.join(right, on, how)`, with the rows of hot keys of `left` on several tasks, and their match on each.

    `on`: names of columns that both sides have. `how`: inner, left, left_semi or left_anti, spelt as Spark takes them.

    `widths` are those of the first column of `on`; they and the other arguments are as for `skewed`. A stream's widths
    must be given. For two streams neither they nor the number of tasks may change while their checkpoint is kept: rows
    of the right side are kept in as many copies as were needed when they came, so joined rows would be missing.
    """
    _check_how(how)
    names = _names_of(on)
    if isinstance(widths, DataFrame):
        raise SkewError("widths: a join looks up no frame: give a mapping, such as dict(frame.collect())")
    check_names([*left.columns, *right.columns])
    _check_types(left, right, names)
    spread = skewed(left, F.col(quoted(names[0])), widths=widths, by=by, partitions=partitions)
    if spread.width is None:
        return left.join(right, names, how)
    width = F.least(spread.width, F.lit(spread.tasks))
    copies = F.explode(F.sequence(F.lit(0), width - 1))
    placed = right.withColumn(_SALT, copies).withColumn(_SALT, _salt(spread, names, F.col(_SALT)))
    columns = [*map(F.col, map(quoted, names)), F.col(_SALT)]
    return (
        left.withColumn(_SALT, _salt(spread, names, spread.part(width)))
        .repartition(spread.tasks, *columns)
        .join(placed.repartition(spread.tasks, *columns), [*names, _SALT], how)
        .drop(_SALT)
    )


def _check_how(how: str) -> None:
    told = how.lower().replace("_", "")  # as Spark reads it
    if told in _INSTEAD:
        raise SkewError(f"how={how!r}: rows of the right side without a match have copies; {_INSTEAD[told]}")
    if told not in _HOWS:
        raise SkewError(f"how={how!r}: give one of {', '.join(get_args(type_of_join))}")


def _names_of(on: str | Sequence[str]) -> list[str]:
    names = [on] if isinstance(on, str | Column) else list(on)
    if not names or not all(isinstance(each, str) for each in names):
        raise SkewError(
            'on: give names of columns that both sides have, such as "user" or ["user", "day"]; a condition on others '
            "can be a where behind an inner join"
        )
    return names


def _salt(spread: Skewed, names: list[str], part: Column) -> Column:
    """With it, Spark's own placement by the join's columns gives each part of a key a task of its own."""
    before = [F.col(quoted(each)) for each in names]
    task = F.pmod(F.hash(*before).cast("long") + part, F.lit(spread.tasks)).cast("int")
    return salt(task, spread.tasks, *before)


def _check_types(left: DataFrame, right: DataFrame, names: list[str]) -> None:
    for name in names:
        ours, theirs = (each.select(quoted(name)).schema[0].dataType for each in (left, right))
        if ours.simpleString() != theirs.simpleString():  # Whether a field may be null does not matter.
            raise SkewError(f"{name} is {ours.simpleString()} left and {theirs.simpleString()} right: cast one of them")
        inner = not_hashed(ours)
        if isinstance(inner, StringType):
            raise SkewError(f"{name} has a collation and can't be placed: join by a binary string, as lower({name})")
        if inner:
            has = f"is {ours.simpleString()}" if inner is ours else f"has a {inner.typeName()} in it"
            raise SkewError(f"{name} {has}, and Spark joins by none: join by a part of it, or by to_json({name})")
