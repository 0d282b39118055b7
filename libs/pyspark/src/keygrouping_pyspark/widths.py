"""Into how many parts each key is split: given, from a report of `keygrouping inspect`, or learned from a sample."""

import base64
import json
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
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

# A key of less than this part of a task's fair share is left to chance.
_SMALL = 0.02
# Each row is compared with all of them.
_MOST = 256
# Below it a share is a guess.
_SEEN = 20
# Of its fair share, what a task may have more.
_OVER = 0.05
# How a report names keys that are no text, and long ones.
_CODED, _CUT, _MOST_BYTES = "base64url:", "…", 256
_LARGEST_INT = 2**63
# A wide key gets so many parts more at a time as it has by this number.
_FINENESS = 16


def learned_widths(
    frame: DataFrame, key: str | Column, *, partitions: int | None = None, sample: float = 0.01
) -> dict[Any, int]:
    """The hot keys of a batch and their widths, by one pass over a sample: a mapping that a stream can be given.

    `sample` is the fraction of the rows that is counted. Keys are split where their tasks would have too much of the
    rows, into as few parts as that takes: each part costs a call of the function that works on it.
    """
    check_can_learn(frame)
    tasks = tasks_of(frame, partitions)
    column, kind = key_of(frame, key)
    homes = frame.select(column.alias("key"), F.pmod(F.hash(column), F.lit(tasks)).alias("home"))
    # By name: PySpark's `sample(0.5, seed=1)` draws with a random seed.
    drawn = homes.sample(fraction=float(sample), seed=1)
    counts = drawn.groupBy("key").agg(F.count("*").alias("rows"), F.min("home").alias("home"))
    hot = counts.where(F.col("rows") >= _SEEN).orderBy(F.desc("rows"), F.xxhash64("key")).limit(_MOST)
    # With a home, which it doesn't need, Spark reads the frame once for both.
    whole = counts.agg(F.sum("rows").alias("rows"), F.min("home").alias("home"))
    whole = whole.select(F.lit(None).cast(kind).alias("key"), "rows", "home", F.lit(True).alias("whole"))
    rows = whole.union(hot.select("key", "rows", "home", F.lit(False))).collect()
    total = sum(each["rows"] or 0 for each in rows if each["whole"])
    found = [each for each in rows if not each["whole"]]
    widths = even_widths([each["rows"] for each in found], [each["home"] for each in found], total, tasks)
    return {_hashable(each["key"]): width for each, width in zip(found, widths, strict=True) if width > 1}


def check_can_learn(frame: DataFrame) -> None:
    """Refuses streams."""
    if frame.isStreaming:
        raise SkewError("a stream can't be sampled: give widths, such as a list of hot keys or a report of inspect")


def even_widths(rows: Sequence[float], homes: Sequence[int], total: float, tasks: int) -> list[int]:
    """Into how many parts each of these keys is split, so that no task has much more than its share of all rows.

    `homes`: the task of each key's first part; the others go to those behind it, as `Skewed.place` has them. All other
    rows are taken to be even. Time and again the heaviest part on the fullest task becomes smaller.
    """
    loads = [(total - sum(rows)) / tasks] * tasks
    widths = [1] * len(rows)

    def put(key: int, sign: int) -> None:
        for part in range(widths[key]):
            loads[(homes[key] + part) % tasks] += sign * rows[key] / widths[key]

    for key in range(len(rows)):
        put(key, 1)
    fair = total / tasks
    while max(loads, default=0.0) > (1 + _OVER) * fair:
        fullest = loads.index(max(loads))
        there = [key for key, width in enumerate(widths) if (fullest - homes[key]) % tasks < width < tasks]
        heaviest = max(there, key=lambda key: rows[key] / widths[key], default=None)
        if heaviest is None or rows[heaviest] <= _SMALL * fair * widths[heaviest]:
            break
        put(heaviest, -1)
        widths[heaviest] = min(tasks, widths[heaviest] + 1 + widths[heaviest] // _FINENESS)
        put(heaviest, 1)
    return widths


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


def given_widths(frame: DataFrame, kind: DataType, widths: type_of_widths, tasks: int) -> dict[Any, int]:
    """What was given as a mapping from keys of this type; a list's keys get a part on every task.

    Keys of a report get as few parts as even tasks need, and those that no column of this type can have are left out
    with a warning.
    """
    if isinstance(widths, str | PathLike):
        return _widths_of_report(frame.sparkSession, Path(widths), kind, tasks)
    found = dict(widths) if isinstance(widths, Mapping) else dict.fromkeys(widths, tasks)
    wrong = [f"{key!r}: {width!r}" for key, width in found.items() if not _is_width(width)]
    if wrong:
        raise SkewError(f"widths: a whole number of at least 1 is wanted, not {', '.join(wrong)}")
    return {_as_key(key, kind): int(width) for key, width in found.items()}


def _is_width(width: Any) -> bool:
    return isinstance(width, Integral) and not isinstance(width, bool) and int(width) >= 1


def width_of(key: Column, kind: DataType, widths: Mapping[Any, int]) -> Column:
    """The width of a row's key: 1 for every key that is not mentioned."""
    column = F.lit(1)
    for width in sorted({each for each in widths.values() if each > 1}):
        keys = [each for each, its in widths.items() if its == width]
        named = key.isin(*(_literal(each, kind) for each in keys if each is not None))
        column = F.when(named | key.isNull() if None in keys else named, F.lit(width)).otherwise(column)
    return column


def _widths_of_report(spark: SparkSession, path: Path, kind: DataType, tasks: int) -> dict[Any, int]:
    shares: defaultdict[Any, float] = defaultdict(float)
    left_out: list[str] = []
    for name, share in _top_of_report(path):
        try:
            shares[_as_key(_named_key(name), kind)] += share
        except SkewError as error:
            left_out.append(str(error))
    homes = _homes(spark, list(shares), kind, tasks)
    left_out += [_no_value(key, kind) for key, home in zip(shares, homes, strict=True) if home is None]
    if left_out:
        warnings.warn(f"{path}: {len(left_out)} keys are left out: {'; '.join(left_out)}", stacklevel=4)
    known = [(key, shares[key], home) for key, home in zip(shares, homes, strict=True) if home is not None]
    widths = even_widths([share for _, share, _ in known], [home for *_, home in known], 1, tasks)
    return {key: width for (key, *_), width in zip(known, widths, strict=True)}


def _top_of_report(path: Path) -> list[tuple[str, float]]:
    """The names of the heaviest keys, and what each has of all rows."""
    try:
        keys = json.loads(path.read_text().strip().splitlines()[-1])["keys"]
        top = [(str(each["key"]), float(each["share"])) for each in keys["top"]]
        hashed = keys["hashed"]
    except OSError as error:
        raise SkewError(
            f"widths={str(path)!r} is no file that can be read ({error.strerror}): give the file of a report, a list "
            'of hot keys such as ["hot"], or a mapping such as {"hot": 8}'
        ) from None
    except (IndexError, KeyError, TypeError, ValueError):
        raise SkewError(f"{path} is no report of `keygrouping inspect --json`") from None
    if hashed:
        raise SkewError(f"{path} has hashes for keys: run `keygrouping inspect --json` without --hash-keys")
    return top[:_MOST]


def _named_key(name: str) -> str | bytes:
    """The key that a report names so. One that is cut raises SkewError."""
    if name.endswith(_CUT) and len(name.encode()) >= _MOST_BYTES:
        raise SkewError(f"of {name[:40]}{_CUT} the report has only the first {_MOST_BYTES} bytes")
    if not name.startswith(_CODED):
        return name
    code = name.removeprefix(_CODED)
    try:
        key = base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True)
        key.decode()
    except UnicodeDecodeError:
        return key
    except ValueError:
        return name
    return name  # A report would have named it by its text.


def _homes(spark: SparkSession, keys: list[Any], kind: DataType, tasks: int) -> list[int | None]:
    """The task of each key's first part; None if a column of this type can't have the key."""
    if not keys:
        return []
    cast = [_literal(each, kind).try_cast(kind) for each in keys]
    homes = [F.when(each.isNotNull(), F.pmod(F.hash(each), F.lit(tasks))) for each in cast]
    return list(spark.range(1).select(F.array(*homes)).collect()[0][0])


def _as_key(key: Any, kind: DataType) -> Any:
    if key is None:
        return None
    try:
        if isinstance(kind, StructType) and not isinstance(key, str | bytes):
            return tuple(_as_key(part, field.dataType) for part, field in zip(key, kind, strict=True))
        if isinstance(kind, StringType):
            return key.decode() if isinstance(key, bytes) else str(key)
        if isinstance(kind, BinaryType):
            return key.encode() if isinstance(key, str) else bytes(key)
        if isinstance(kind, IntegralType):
            return _as_whole(key)
        if isinstance(kind, FloatType | DoubleType):
            return float(key)
    except (TypeError, ValueError):
        raise SkewError(_no_value(key, kind)) from None
    if isinstance(kind, StructType) or isinstance(key, bytes):
        raise SkewError(_no_value(key, kind))
    return key


def _as_whole(key: Any) -> int:
    found = int(key)
    if not -_LARGEST_INT <= found < _LARGEST_INT:
        raise ValueError
    return found


def _no_value(key: Any, kind: DataType) -> str:
    return f"widths: {key!r} is no value of a column of type {kind.simpleString()}"


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
