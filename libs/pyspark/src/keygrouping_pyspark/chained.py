"""Aggregates as two aggregations, one behind the other: of parts of groups, then of a group's parts."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from keygrouping_pyspark.splits import Split

type_of_step = Callable[[Column | None], Split]
"""The two steps of an aggregate: of all rows, or where rows have copies, of those for which a condition holds."""

_SET, _PART, _COPIES = "__skewed_set", "__skewed_part", "__skewed_copies"
_ALL_ELSE = -1


class Groups(NamedTuple):
    """Rows, what they are grouped by, and to which part of its group a row belongs."""

    frame: DataFrame
    keys: list[Column]
    part: Column


class _Values(NamedTuple):
    """Columns of which each value counts once."""

    columns: Sequence[Column]
    types: list[DataType]
    names: list[str]


def chained(groups: Groups, steps: Sequence[type_of_step]) -> DataFrame:
    """The keys, then the aggregates, with names of our own.

    Where values count once, each is a part of its group, wherever its rows are. Then a row has a copy for each set of
    such values, and one for all else: as Spark plans distinct aggregates itself.
    """
    splits = [each(None) for each in steps]
    names = [f"__skewed_k{place}" for place in range(len(groups.keys))]
    keys = [key.alias(name) for key, name in zip(groups.keys, names, strict=True)]
    if not any(each.values for each in splits):
        return _merged(groups.frame.groupBy(*keys, groups.part.alias(_PART)), names, splits, [[]] * len(splits), None)
    counted = F.col(_SET) == _ALL_ELSE
    splits = [one if one.values else step(counted) for one, step in zip(splits, steps, strict=True)]
    sets, given = _sets(groups.frame, splits)
    copies = F.array(*_copies(groups.part, sets, all(given))).alias(_COPIES)
    # Beside the keys, not behind them: to a value, * is the frame's columns alone.
    rows = groups.frame.select("*", *keys, copies).select("*", F.inline(_COPIES))
    parts = rows.groupBy(*names, _SET, _PART, *(name for each in sets for name in each.names))
    return _merged(parts, names, splits, given, counted)


def _sets(frame: DataFrame, splits: Iterable[Split]) -> tuple[list[_Values], list[list[str]]]:
    """The sets of values, and by aggregate the names of its values."""
    sets: list[_Values] = []
    frames: list[DataFrame] = []
    given: list[list[str]] = []
    for one in splits:
        if not one.values:
            given.append([])
            continue
        # Not by the Columns' texts, which two of different frames may share.
        selected = frame.select(*(each.alias(f"v{place}") for place, each in enumerate(one.values)))
        number = next((place for place, each in enumerate(frames) if each.sameSemantics(selected)), len(frames))
        if number == len(frames):
            frames.append(selected)
            names = [f"__skewed_v{number}_{place}" for place in range(len(one.values))]
            sets.append(_Values(one.values, [each.dataType for each in selected.schema], names))
        given.append(sets[number].names)
    return sets, given


def _copies(part: Column, sets: list[_Values], values_alone: bool) -> list[Column]:
    """Of each row: one for each set, with its values in no set else, and one without values for all else."""

    def values(number: int) -> list[Column]:
        return [
            (column if place == number else F.lit(None).cast(kind)).alias(name)
            for place, each in enumerate(sets)
            for column, kind, name in zip(each.columns, each.types, each.names, strict=True)
        ]

    numbers = range(len(sets)) if values_alone else range(_ALL_ELSE, len(sets))
    return [
        F.struct(
            F.lit(number).alias(_SET),
            (part if number == _ALL_ELSE else F.lit(0)).alias(_PART),
            *values(number),
        )
        for number in numbers
    ]


def _merged(
    parts: GroupedData, keys: list[str], splits: list[Split], values: list[list[str]], counted: Column | None
) -> DataFrame:
    names = [[f"__skewed_a{place}_{each}" for each in range(len(one.partials))] for place, one in enumerate(splits)]
    partials = [
        each.alias(name)
        for one, its in zip(splits, names, strict=True)
        for each, name in zip(one.partials, its, strict=True)
    ]

    def given(name: str, one: Split) -> Column:
        # Otherwise a list would hold an empty one for each value.
        return F.col(name) if one.values or counted is None else F.when(counted, F.col(name))

    merged = [
        one.merged(*map(F.col, distinct), *(given(each, one) for each in its)).alias(f"__skewed_{place}")
        for place, (one, distinct, its) in enumerate(zip(splits, values, names, strict=True))
    ]
    return parts.agg(*partials or [F.lit(0)]).groupBy(*keys).agg(*merged)
