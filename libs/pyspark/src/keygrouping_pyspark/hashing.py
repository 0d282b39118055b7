"""What of a row can be hashed such that equal values have equal hashes."""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from keygrouping_pyspark.errors import SkewError

type_of_by = str | Column | Sequence[str | Column]

_KAFKA = ("topic", "partition", "offset")
# By name, as PySpark 4.0 does not have them. Spark fails on them wherever it hashes.
_SHAPES = ("geometry", "geography")
_GIVE_BY = (
    "give by=, Columns in which a key's rows differ, such as "
    'clicks["id"] of a frame before a join that has two of that name, or F.to_json("tags") of a map'
)


def hashes_by_value(kind: DataType) -> bool:
    """False for what Spark does not hash, such as maps, and for strings whose collation has others equal."""
    return not_hashed(kind) is None


def not_hashed(kind: DataType) -> DataType | None:
    """The type, or that of an inner one, whose equal values do not have equal hashes; None if there is none."""
    if isinstance(kind, ArrayType):
        return not_hashed(kind.elementType)
    if isinstance(kind, StructType):
        return next(filter(None, (not_hashed(each.dataType) for each in kind)), None)
    if isinstance(kind, StringType):
        return None if kind == StringType() else kind
    return kind if isinstance(kind, MapType | VariantType) or kind.typeName() in _SHAPES else None


def row_hash(frame: DataFrame, key: Column, by: list[Column] | None) -> Column:
    """A hash of the row: the same whenever, and on whichever task, the row is read."""
    if by:
        return F.xxhash64(*by)
    names = _names(frame)
    if not names:
        raise SkewError(f"no column of the frame can be hashed by its name: {_GIVE_BY}")
    if len(frame.columns) > 1 and names == frame.select(key).columns:
        warnings.warn(
            f"no column but {names[0]} can be hashed by its name, so nothing is spread: {_GIVE_BY}", stacklevel=2
        )
    return F.xxhash64(*(F.col(quoted(each)) for each in names))


def columns_of(frame: DataFrame, by: type_of_by | None) -> list[Column] | None:
    """What was given for `by`, as Columns that Spark can hash."""
    if by is None:
        return None
    given = [by] if isinstance(by, str | Column) else list(by) if isinstance(by, Iterable) else []
    if not given or not all(isinstance(each, str | Column) for each in given):
        raise SkewError(f"by={by!r}: give the columns in which a key's rows differ, as names or Columns: one or a list")
    columns = [F.col(quoted(each)) if isinstance(each, str) else each for each in given]
    try:
        kinds = [each.dataType for each in frame.select(*columns).schema]
    except AnalysisException as error:
        why = str(error).partition("\n")[0]
        raise SkewError(f"by={by!r}: give columns that the frame has ({why})") from None
    for each, kind in zip(given, kinds, strict=True):
        inner = not_hashed(kind)
        if inner and not isinstance(inner, StringType):
            raise SkewError(
                f"by: Spark hashes no {inner.typeName()}, as in {each}: give a part of it, or to_json of it"
            )
    return columns


def _names(frame: DataFrame) -> list[str]:
    if set(_KAFKA) <= set(frame.columns):
        return list(_KAFKA)
    # Spark takes names of either case for the same; what it can't tell apart it can't read.
    times = Counter(each.lower() for each in frame.columns)
    return [each.name for each in frame.schema if hashes_by_value(each.dataType) and times[each.name.lower()] == 1]


def quoted(name: str) -> str:
    """As Spark reads the name of a column whatever is in it, such as a dot."""
    return f"`{name.replace('`', '``')}`"
