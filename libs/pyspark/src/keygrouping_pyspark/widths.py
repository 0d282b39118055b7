"""Into how many parts each key is split: given, from a report of `keygrouping inspect`, or learned from a sample."""

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from keygrouping_pyspark.errors import SkewError

type_of_widths = Mapping[Any, int] | Iterable[Any] | str | PathLike[str]

# A key is spread if it is more than this part of a task's fair share: what is left to chance, the tasks of all other
# keys, then stays within some percent of even.
_SMALL = 0.02
# Each row is compared with all of them.
_MOST = 256
# Below it a share is a guess.
_SEEN = 20


def learned_widths(
    frame: DataFrame, key: str | Column, *, partitions: int | None = None, sample: float = 0.01
) -> dict[Any, int]:
    """The hot keys of a batch and their widths, by one pass over a sample: a mapping that a stream can be given.

    `sample` is the fraction of the rows that is counted. A key is hot above a fiftieth of a task's fair share.
    """
    if frame.isStreaming:
        raise SkewError("a stream can't be sampled: give widths, such as a list of hot keys or a report of inspect")
    tasks = tasks_of(frame, partitions)
    column, _ = key_of(frame, key)
    counts = frame.select(column.alias("key")).sample(sample, seed=1).groupBy("key").count()
    hot = F.when(F.col("count") >= _SEEN, F.struct("count", "key"))
    row = counts.agg(F.sum("count").alias("total"), F.collect_list(hot).alias("hot")).collect()[0]
    found = sorted(row["hot"], key=lambda each: -int(each["count"]))[:_MOST]
    return {_hashable(each["key"]): tasks for each in found if each["count"] * tasks > _SMALL * row["total"]}


def key_of(frame: DataFrame, key: str | Column) -> tuple[Column, DataType]:
    """The key's column and its type."""
    column = F.col(key) if isinstance(key, str) else key
    kind = frame.select(column).schema[0].dataType
    if not _has_widths(kind):
        raise SkewError(f"a key of type {kind.simpleString()} can't be spread: give a part of it, or to_json of it")
    return column, kind


def _has_widths(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_widths(each.dataType) for each in kind)
    return not isinstance(kind, ArrayType | MapType | VariantType)


def tasks_of(frame: DataFrame, partitions: int | None) -> int:
    """The number of tasks that rows are spread over."""
    if partitions is None:
        told = frame.sparkSession.conf.get("spark.sql.shuffle.partitions")
        if told is None or not told.isdecimal():
            raise SkewError(f"spark.sql.shuffle.partitions is {told}, no number: give partitions=, the number of tasks")
        partitions = int(told)
    if partitions < 1:
        raise SkewError(f"partitions={partitions}: must be at least 1")
    return partitions


def given_widths(widths: type_of_widths, tasks: int, kind: DataType) -> dict[Any, int]:
    """What was given as a mapping from keys of this type; a list's keys get a part on every task."""
    if isinstance(widths, str | PathLike):
        return {_as_key(each, kind): tasks for each in _hot_of_report(Path(widths), tasks)}
    found = dict(widths) if isinstance(widths, Mapping) else dict.fromkeys(widths, tasks)
    wrong = [f"{key!r}: {width!r}" for key, width in found.items() if type(width) is not int or width < 1]
    if wrong:
        raise SkewError(f"widths: a whole number of at least 1 is wanted, not {', '.join(wrong)}")
    return {_as_key(key, kind): width for key, width in found.items()}


def width_of(key: Column, kind: DataType, widths: Mapping[Any, int]) -> Column:
    """The width of a row's key: 1 for every key that is not mentioned."""
    column = F.lit(1)
    for width in sorted({each for each in widths.values() if each > 1}):
        keys = [each for each, its in widths.items() if its == width]
        named = key.isin(*(_literal(each, kind) for each in keys if each is not None))
        column = F.when(named | key.isNull() if None in keys else named, F.lit(width)).otherwise(column)
    return column


def _hot_of_report(path: Path, tasks: int) -> list[str]:
    try:
        keys = json.loads(path.read_text().strip().splitlines()[-1])["keys"]
        top = [(str(each["key"]), float(each["share"])) for each in keys["top"]]
        hashed = keys["hashed"]
    except (IndexError, KeyError, TypeError, ValueError):
        raise SkewError(f"{path} is no report of `keygrouping inspect --json`") from None
    if hashed:
        raise SkewError(f"{path} has hashes for keys: run `keygrouping inspect --json` without --hash-keys")
    return [key for key, share in top if share * tasks > _SMALL][:_MOST]


def _as_key(key: Any, kind: DataType) -> Any:
    if key is None:
        return None
    try:
        if isinstance(kind, StructType):
            return tuple(_as_key(part, field.dataType) for part, field in zip(key, kind, strict=True))
        if isinstance(kind, StringType):
            return key.decode() if isinstance(key, bytes) else str(key)
        if isinstance(kind, BinaryType):
            return key.encode() if isinstance(key, str) else bytes(key)
        if isinstance(kind, IntegralType):
            return int(key)
        return float(key) if isinstance(kind, FloatType | DoubleType) else key
    except (TypeError, ValueError):
        raise SkewError(f"widths: {key!r} is no value of a column of type {kind.simpleString()}") from None


def _hashable(key: Any) -> Any:
    """As Spark returns it, but bytes and structs as what a mapping can have for its key."""
    if isinstance(key, bytearray):
        return bytes(key)
    return tuple(map(_hashable, key)) if isinstance(key, tuple) else key


def _literal(key: Any, kind: DataType) -> Column:
    if not isinstance(kind, StructType) or key is None:
        return F.lit(key)
    return F.struct(
        *(_literal(part, its.dataType).cast(its.dataType).alias(its.name) for part, its in zip(key, kind, strict=True))
    )
