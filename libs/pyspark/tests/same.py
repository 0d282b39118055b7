"""What it means that a frame has the rows of plain Spark."""

import math
from typing import Any

from pyspark.sql import DataFrame, Row


def assert_same(found: DataFrame, plain: DataFrame) -> None:
    """The same columns, types and rows; floats to twelve digits, and lists in any order, as Spark leaves it open."""
    assert found.schema == plain.schema
    assert rows_of(found) == rows_of(plain)


def rows_of(frame: DataFrame) -> list[str]:
    """The rows in an order of their own."""
    return sorted(repr(_plain(row)) for row in frame.collect())


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return sorted(map(repr, map(_plain, value)))
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.11e}" if abs(value) > 1e-9 else "0"
    return value
