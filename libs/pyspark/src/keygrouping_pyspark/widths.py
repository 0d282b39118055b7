"""Into how many parts each key is split: given, from a report of `keygrouping inspect`, or learned from a sample."""

import base64
import json
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import reduce
from numbers import Integral, Real
from operator import and_
from os import PathLike
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from keygrouping_pyspark.errors import SkewError
from keygrouping_pyspark.hashing import hashes_by_value

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
_BITS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_OF_PYTHON: dict[type[DataType], type] = {
    BooleanType: bool,
    DateType: date,
    TimestampType: date,
    TimestampNTZType: date,
    DayTimeIntervalType: timedelta,
    YearMonthIntervalType: str,
}
"""What of a key of these types may be given beside its text; a datetime is a date, too."""
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
    check_sample(sample)
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
    found_rows = whole.union(hot.select("key", "rows", "home", F.lit(False)))
    rows = _collected(found_rows.withColumn("key", F.col("key").cast(_readable(kind))))
    total = sum(each["rows"] or 0 for each in rows if each["whole"])
    found = [each for each in rows if not each["whole"]]
    widths = even_widths([each["rows"] for each in found], [each["home"] for each in found], total, tasks)
    return {_hashable(each["key"]): width for each, width in zip(found, widths, strict=True) if width > 1}


def _readable(kind: DataType) -> DataType:
    """As what Python gets keys of this type: it has nothing but text for intervals of years and months."""
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _readable(each.dataType)) for each in kind])
    return StringType() if isinstance(kind, YearMonthIntervalType) else kind


def _collected(rows: DataFrame) -> list[Any]:
    try:
        return rows.collect()
    except (ValueError, OverflowError) as error:
        raise SkewError(
            f"a hot key is a time that Python does not have ({error}): give widths, or a string of it for key"
        ) from None


def check_sample(sample: float) -> None:
    """Refuses what is no fraction of rows."""
    if isinstance(sample, bool) or not isinstance(sample, Real) or not 0 < sample <= 1:
        raise SkewError(f"sample={sample!r}: give the fraction of rows that is counted, over 0 and up to 1")


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
        raise SkewError(
            f"a key of type {kind.simpleString()} can't be spread: give a part of it, to_json of it, or a string of it"
        )
    return column, kind


def _has_widths(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_widths(each.dataType) for each in kind)
    # Spark compares no calendar intervals, as a month may have 28 days or 31.
    if isinstance(kind, ArrayType | CalendarIntervalType):
        return False
    return isinstance(kind, StringType) or hashes_by_value(kind)


def tasks_of(frame: DataFrame, partitions: int | None) -> int:
    """The number of tasks that rows are spread over."""
    if partitions is None:
        told = frame.sparkSession.conf.get("spark.sql.shuffle.partitions")
        if told is None or not told.isdecimal():
            raise SkewError(f"spark.sql.shuffle.partitions is {told}, no number: give partitions=, the number of tasks")
        partitions = int(told)
    if not _is_width(partitions):
        raise SkewError(f"partitions={partitions!r}: give the number of tasks, a whole number of at least 1")
    return int(partitions)


def given_widths(frame: DataFrame, kind: DataType, widths: type_of_widths, tasks: int) -> dict[Any, int]:
    """What was given as a mapping from keys of this type; a list's keys get a part on every task.

    Keys of a report get as few parts as even tasks need, and those that no column of this type can have are left out
    with a warning.
    """
    if isinstance(widths, str | PathLike):
        return _widths_of_report(frame.sparkSession, Path(widths), kind, tasks)
    if not isinstance(widths, Iterable):
        raise SkewError(
            f'widths={widths!r}: give a list of hot keys such as ["hot"], a mapping such as {{"hot": 8}}, '
            "or the file of a report"
        )
    found = dict(widths) if isinstance(widths, Mapping) else dict.fromkeys(widths, tasks)
    wrong = [f"{key!r}: {width!r}" for key, width in found.items() if not _is_width(width)]
    if wrong:
        raise SkewError(f"widths: a whole number of at least 1 is wanted, not {', '.join(wrong)}")
    known = {_as_key(key, kind): int(width) for key, width in found.items()}
    texts = [key for key in known if _has_text(key, kind)]
    for key, home in zip(texts, _homes(frame.sparkSession, texts, kind, tasks), strict=True):
        if home is None:
            raise SkewError(_no_value(key, kind))
    return known


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
    homes = [
        F.when(reduce(and_, _has_values(each, kind)), F.pmod(F.hash(_literal(each, kind)), F.lit(tasks)))
        for each in keys
    ]
    # Of literals alone, so that Spark needs no job.
    return list(spark.sql("VALUES (0)").select(F.array(*homes)).collect()[0][0])


def _as_key(key: Any, kind: DataType) -> Any:
    if key is None:
        return None
    try:
        if not isinstance(kind, StructType):
            return _as_value(key, kind)
        if not isinstance(key, str | bytes):
            return tuple(_as_key(part, field.dataType) for part, field in zip(key, kind, strict=True))
    except (TypeError, ValueError, ArithmeticError):
        pass
    raise SkewError(_no_value(key, kind))


def _as_value(key: Any, kind: DataType) -> Any:
    """As Python has it, or as a text that Spark casts."""
    match kind:
        case StringType():
            return key.decode() if isinstance(key, bytes) else str(key)
        case BinaryType():
            return key.encode() if isinstance(key, str) else bytes(key)
        case IntegralType():
            return _as_whole(key, _BITS[type(kind)])
        case FloatType() | DoubleType():
            return float(key)
        case DecimalType():
            return _as_decimal(key, kind)
        case DateType() if isinstance(key, datetime):
            if key.time() != time.min:
                raise ValueError
            return key.date()
    if isinstance(key, bytes) or not isinstance(key, (str, _OF_PYTHON.get(type(kind), object))):
        raise TypeError
    return key


def _as_whole(key: Any, bits: int) -> int:
    found = int(key)
    if not -(2 ** (bits - 1)) <= found < 2 ** (bits - 1) or (isinstance(key, Real | Decimal) and found != key):
        raise ValueError
    return found


def _as_decimal(key: Any, kind: DecimalType) -> Decimal:
    found = Decimal(str(key))
    if not found.is_finite():
        raise ValueError
    exactly = Context(kind.precision, traps=[Inexact, InvalidOperation])
    return found.quantize(Decimal((0, (1,), -kind.scale)), context=exactly)


def _no_value(key: Any, kind: DataType) -> str:
    return f"widths: {key!r} is no value of a column of type {kind.simpleString()}"


def _hashable(key: Any) -> Any:
    """As Spark returns it, but bytes and structs as what a mapping can have for its key."""
    if isinstance(key, bytearray):
        return bytes(key)
    return tuple(map(_hashable, key)) if isinstance(key, tuple) else key


def _has_text(key: Any, kind: DataType) -> bool:
    """Whether Spark alone can tell if it is a value of this type."""
    if isinstance(kind, StructType) and key is not None:
        return any(_has_text(part, its.dataType) for part, its in zip(key, kind, strict=True))
    return isinstance(key, str) and not isinstance(kind, StringType)


def _has_values(key: Any, kind: DataType) -> list[Column]:
    """For all that a key is made of, whether it is a value of its type."""
    if isinstance(kind, StructType) and key is not None:
        return [each for part, its in zip(key, kind, strict=True) for each in _has_values(part, its.dataType)]
    return [F.lit(True) if key is None else _literal(key, kind).isNotNull()]


def _literal(key: Any, kind: DataType) -> Column:
    """Of the key's type: 0.1 as a float is another number than 0.1 as a double. Null for what is no value of it."""
    if isinstance(kind, StructType) and key is not None:
        parts = zip(key, kind, strict=True)
        return F.struct(*(_literal(part, its.dataType).alias(its.name) for part, its in parts))
    if isinstance(key, date) and not isinstance(key, datetime):
        key = key.isoformat()  # PySpark can't make a literal of dates before the year 1000.
    if isinstance(kind, TimestampNTZType) and isinstance(key, datetime) and key.tzinfo is None:
        key = key.isoformat()  # PySpark would take it for a time of the program's time zone.
    return F.lit(key).try_cast(kind)
