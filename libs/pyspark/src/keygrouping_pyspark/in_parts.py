"""A function of pandas frames on the parts of hot keys, and the merge of what it returns."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from keygrouping_pyspark.errors import SkewError
from keygrouping_pyspark.hashing import hashes_by_value

PART, GROUP = "__skewed_part", "__skewed_group"
_SALT, _OURS = "__skewed_salt", "__skewed_"
_UTC = ("UTC", "ETC/UTC", "GMT", "Z", "+00:00")


class Spread(NamedTuple):
    """A batch, or the micro-batches of a stream, and where its rows go."""

    frame: DataFrame
    salt: Column
    tasks: int
    others: list[str]
    """Columns that are not the user's."""


def apply_in_parts(
    spread: Spread,
    keys: list[Column],
    function: Callable[..., Any],
    schema: StructType | str,
    merge: Callable[[Any], Any],
) -> DataFrame:
    """`function` by (group, task), then `merge` by group where a group was on several tasks.

    That may be any group: one without the skewed key has rows of many keys.
    """
    types = checked_types(spread.frame, keys)
    wanted = parsed(schema)
    told = [each for key, kind in zip(keys, types, strict=True) for each in told_apart(key, kind)]
    told = [each.alias(f"__skewed_told{place}") for place, each in enumerate(told)]
    # By the salt alone: Spark then takes the rows as they lie, and moves them no second time.
    placed = spread.frame.withColumn(_SALT, spread.salt).repartition(spread.tasks, _SALT)
    partial = placed.groupBy(_SALT, *told, *keys).applyInPandas(
        _of_parts(function, wanted.names, len(told), [_SALT, *spread.others]),
        with_part(wanted),
    )
    return merged_parts(partial, spread.tasks, wanted, merge)


def parsed(schema: StructType | str) -> StructType:
    """The type that a text in DDL means."""
    return cast(StructType, StructType.fromDDL(schema)) if isinstance(schema, str) else schema


def check_names(names: Iterable[str]) -> None:
    """Refuses names that the columns made here may have, in either case, as Spark takes them for the same."""
    taken = [each for each in names if each.lower().startswith(_OURS)]
    if taken:
        raise SkewError(f"{', '.join(taken)}: columns named {_OURS}... are made here: give them other names")


def check_parts(frame: DataFrame, keys: list[Column], wanted: StructType) -> None:
    """Refuses what parts can't do, whether there are any or not: a key may get hot on any day."""
    checked_types(frame, keys)
    check_names(wanted.names)
    _check_times(frame, wanted)


def with_part(wanted: StructType) -> StructType:
    """With whose result a row is."""
    check_names(wanted.names)
    return StructType([*wanted.fields, StructField(PART, IntegerType()), StructField(GROUP, StringType())])


def merged_parts(partial: DataFrame, tasks: int, wanted: StructType, merge: Callable[[Any], Any]) -> DataFrame:
    """`merge` of each group that has rows of several parts; in a stream, in each micro-batch."""
    _check_times(partial, wanted)
    # Many groups a call: most of them are whole and only passed on.
    some = F.pmod(F.hash(GROUP), F.lit(tasks))
    return partial.groupBy(some).applyInArrow(_of_groups(_merged(merge, wanted.names), _arrow_schema(wanted)), wanted)


def _check_times(frame: DataFrame, wanted: StructType) -> None:
    """Refuses times inside of others: pandas has them without a zone, and Arrow takes them for UTC then."""
    inner = [each.name for each in wanted if not isinstance(each.dataType, TimestampType) and _has_times(each.dataType)]
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone") or ""
    if inner and zone.upper() not in _UTC:
        raise SkewError(
            f"{', '.join(inner)}: timestamps inside of other types are not merged in the time zone {zone}: give them a "
            "column of their own, or use timestamp_ntz, or the time zone UTC"
        )


def _has_times(kind: DataType) -> bool:
    match kind:
        case TimestampType():
            return True
        case ArrayType():
            return _has_times(kind.elementType)
        case MapType():
            return _has_times(kind.keyType) or _has_times(kind.valueType)
        case StructType():
            return any(_has_times(each.dataType) for each in kind)
    return False


def checked_types(frame: DataFrame, keys: list[Column]) -> list[DataType]:
    """The types of keys that have one text each."""
    types = [each.dataType for each in frame.select(*keys).schema]
    if not all(map(_has_one_text, types)):
        raise SkewError(
            "a key with an array, a map, a variant or a collation is not placed: group by to_json(key) or lower(key)"
        )
    return types


def _arrow_schema(schema: StructType) -> Any:
    """With timestamps in UTC, as Spark takes them back; since 4.2 it has to be told."""
    told = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return cast(Callable[..., Any], to_arrow_schema)(schema, **told)


def _has_one_text(kind: DataType) -> bool:
    """Whether pandas gives equal keys, and only those, the same text."""
    if isinstance(kind, StructType):
        return all(_has_one_text(each.dataType) for each in kind)
    return hashes_by_value(kind) and not isinstance(kind, ArrayType)


def told_apart(key: Column, kind: DataType) -> list[Column]:
    """What is the same of two keys if Spark takes them for the same, and differs otherwise, in pandas too.

    There, two timestamps are the same when clocks are put back, null is NaN, and zeros of either sign differ.
    """
    if isinstance(kind, StructType):
        fields = [StructField(f"f{place}", field.dataType) for place, field in enumerate(kind)]
        # By names of our own, as those of two fields may differ in case alone.
        parts = key.cast(StructType(fields))
        inner = [each for field in fields for each in told_apart(parts[field.name], field.dataType)]
        return [key.isNull(), *inner]
    if isinstance(kind, FloatType | DoubleType):
        return [F.when(key == 0, F.lit("0.0")).otherwise(key.cast("string"))]
    return [F.unix_micros(key)] if isinstance(kind, TimestampType) else [key]


def check_function(function: Callable[..., Any]) -> None:
    """Refuses what Spark would call with batches of a group, by what its parameters are said to be."""
    if any("Iterator" in str(each.annotation) for each in _by_place(function)):
        raise SkewError("a function of iterators gets a group in batches: give one of a whole pandas frame")


def _by_place(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters that are given by their place, as Spark counts them."""
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each for each in inspect.signature(function).parameters.values() if each.kind in places]


def _of_parts(
    function: Callable[..., Any], names: list[str], told: int, others: list[str]
) -> Callable[[Any, Any], Any]:
    """Spark sends what is returned here to the executors by value: they need nothing of this package."""
    label = labelled(names)
    with_key = len(_by_place(function)) > 1

    def of_part(key: Any, rows: Any) -> Any:
        for name in others:  # In place, as `drop` takes three times as long, and the frame is nobody else's.
            del rows[name]
        found = function(key[1 + told :], rows) if with_key else function(rows)
        return label(found, key[0], repr(key[1 : 1 + told]))

    return of_part


def labelled(names: list[str]) -> Callable[[Any, Any, Any], Any]:
    """A function that tells of a frame whose result it is, and gives its columns their names if it has none."""
    part, group = PART, GROUP
    named = _naming(names, "the function")

    def label(found: Any, its_part: Any, its_group: Any) -> Any:
        found = named(found).copy(deep=False)  # The user's may be one that lasts. `assign` takes twice as long.
        found[part], found[group] = its_part, its_group
        return found

    return label


def _naming(names: list[str], whose: str) -> Callable[[Any], Any]:
    def named(found: Any) -> Any:
        if getattr(found, "columns", None) is None:
            raise TypeError(f"{whose} returned {type(found).__name__}: return a pandas frame with the columns {names}")
        if any(isinstance(each, str) for each in found.columns):
            return found
        return type(found)(columns=names, dtype=object) if found.empty else found.set_axis(names, axis="columns")

    return named


def _of_groups(merged: Callable[[Any], Any], wanted: Any) -> Callable[[Any], Any]:
    """`wanted`: the schema that Spark takes back; it gives timestamps of the session's zone, and wants them in UTC."""
    part, group = PART, GROUP

    def of_groups(table: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        ends = table.group_by(group).aggregate([(part, "min"), (part, "max")])
        split = ends.filter(pc.not_equal(ends[f"{part}_min"], ends[f"{part}_max"]))[group]
        is_split = pc.is_in(table[group], value_set=split.combine_chunks())
        inner = table.drop_columns([part, group])
        places: dict[str, list[int]] = {name: [] for name in split.to_pylist()}
        for place, name in enumerate(table[group].to_pylist() if places else ()):
            if name in places:
                places[name].append(place)
        found = [inner.filter(pc.invert(is_split)), *(merged(inner.take(each)) for each in places.values())]
        return pa.concat_tables([each.cast(wanted) for each in found])

    return of_groups


def _merged(merge: Callable[[Any], Any], names: list[str]) -> Callable[[Any], Any]:
    """The user's merge, of an Arrow table with the results of one group's parts."""
    named = _naming(names, "merge")

    def merged(table: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        schema = table.schema
        zones = {
            place: field.type.tz
            for place, field in enumerate(schema)
            if pa.types.is_timestamp(field.type) and field.type.tz
        }
        for place in zones:
            table = table.set_column(place, schema.field(place).name, pc.local_timestamp(table[place]))
        local = table.schema
        found = named(merge(table.to_pandas(maps_as_pydicts="strict")))
        if missing := [name for name in names if name not in found.columns]:
            raise ValueError(
                f"merge returned a frame without the columns {missing}: return those of the schema, {names}"
            )
        made = pa.Table.from_pandas(found, local, preserve_index=False)
        for place, zone in zones.items():
            there = pc.assume_timezone(made[place], zone, ambiguous="latest", nonexistent="latest")
            made = made.set_column(place, schema.field(place).name, there)
        return made

    return merged
