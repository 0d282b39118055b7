"""What of a row can be hashed such that equal values have equal hashes."""

from collections import Counter
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from keygrouping_pyspark.errors import SkewError

_KAFKA = ("topic", "partition", "offset")


def hashes_by_value(kind: DataType) -> bool:
    """False for maps and variants, which Spark does not hash, and for strings whose collation has others equal."""
    if isinstance(kind, ArrayType):
        return hashes_by_value(kind.elementType)
    if isinstance(kind, StructType):
        return all(hashes_by_value(each.dataType) for each in kind)
    if isinstance(kind, StringType):
        return kind == StringType()
    return not isinstance(kind, MapType | VariantType)


def row_hash(frame: DataFrame, by: str | Sequence[str] | None) -> Column:
    """A hash of the row: the same whenever, and on whichever task, the row is read."""
    names = [by] if isinstance(by, str) else list(by) if by is not None else _names(frame)
    if not names:
        raise SkewError("no column of the frame can be hashed: give by=[...], columns in which a key's rows differ")
    return F.xxhash64(*(F.col(quoted(each)) for each in names))


def _names(frame: DataFrame) -> list[str]:
    if set(_KAFKA) <= set(frame.columns):
        return list(_KAFKA)
    # Spark takes names of either case for the same; what it can't tell apart it can't read.
    times = Counter(each.lower() for each in frame.columns)
    return [each.name for each in frame.schema if hashes_by_value(each.dataType) and times[each.name.lower()] == 1]


def quoted(name: str) -> str:
    """As Spark reads the name of a column whatever is in it, such as a dot."""
    return f"`{name.replace('`', '``')}`"
