"""`skewed_join`: the rows of a hot key on several tasks, each with its own copy of what they join."""

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from keygrouping_pyspark.errors import SkewError
from keygrouping_pyspark.frames import Skewed, skewed
from keygrouping_pyspark.hashing import hashes_by_value
from keygrouping_pyspark.in_parts import check_names
from keygrouping_pyspark.placing import salt
from keygrouping_pyspark.widths import type_of_widths

type_of_join = Literal["inner", "left", "left_outer", "left_semi", "left_anti"]

_HOWS = ("inner", "left", "left_outer", "left_semi", "left_anti")
_SALT = "__skewed_salt"


def skewed_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    how: type_of_join = "inner",
    *,
    widths: type_of_widths | None = None,
    by: str | Sequence[str] | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """`left.join(right, on, how)`, with the rows of hot keys of `left` on several tasks, and their match on each.

    `widths` are those of the first column of `on`; they and the other arguments are as for `skewed`. A stream's widths
    must be given. For two streams neither they nor the number of tasks may change while their checkpoint is kept: rows
    of the right side are kept in as many copies as were needed when they came, so joined rows would be missing.
    """
    names = [on] if isinstance(on, str) else list(on)
    if how not in _HOWS:
        raise SkewError(f"how={how!r}: unmatched rows of the right side have copies; swap sides, or use {_HOWS}")
    if isinstance(widths, DataFrame):
        raise SkewError("widths: a join looks up no frame: give a mapping, such as dict(frame.collect())")
    check_names([*left.columns, *right.columns])
    _check_types(left, right, names)
    spread = skewed(left, names[0], widths=widths, by=by, partitions=partitions)
    if spread.width is None:
        return left.join(right, names, how)
    width = F.least(spread.width, F.lit(spread.tasks))
    copies = F.explode(F.sequence(F.lit(0), width - 1))
    placed = right.withColumn(_SALT, copies).withColumn(_SALT, _salt(spread, names, F.col(_SALT)))
    return (
        left.withColumn(_SALT, _salt(spread, names, spread.part(width)))
        .repartition(spread.tasks, *names, _SALT)
        .join(placed.repartition(spread.tasks, *names, _SALT), [*names, _SALT], how)
        .drop(_SALT)
    )


def _salt(spread: Skewed, names: list[str], part: Column) -> Column:
    """With it, Spark's own placement by the join's columns gives each part of a key a task of its own."""
    before = [F.col(each) for each in names]
    task = F.pmod(F.hash(*before).cast("long") + part, F.lit(spread.tasks)).cast("int")
    return salt(task, spread.tasks, *before)


def _check_types(left: DataFrame, right: DataFrame, names: list[str]) -> None:
    for name in names:
        ours, theirs = left.select(name).schema[0].dataType, right.select(name).schema[0].dataType
        if ours.simpleString() != theirs.simpleString():  # Whether a field may be null does not matter.
            raise SkewError(f"{name} is {ours.simpleString()} left and {theirs.simpleString()} right: cast one of them")
        if not hashes_by_value(ours):
            raise SkewError(f"{name} has a collation and can't be placed: join by a binary string, as lower({name})")
