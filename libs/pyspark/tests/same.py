"""What it means that a frame, or a stream, has the rows of plain Spark."""

import math
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row

_SLOW_START = "Python worker failed to connect back"
"""Spark gives a new Python process ten seconds for that, which it may need more than on a busy machine."""
_STARTS = 4


def assert_same(found: DataFrame, plain: DataFrame) -> None:
    """The same columns, types and rows; floats to twelve digits, and lists in any order, as Spark leaves it open."""
    assert found.schema == plain.schema
    assert rows_of(found) == rows_of(plain)


def rows_of(frame: DataFrame) -> list[str]:
    """The rows in an order of their own."""
    return sorted(repr(_plain(row)) for row in frame.collect())


def results(frame: DataFrame, mode: str, folder: Path) -> list[list[Any]]:
    """What each micro-batch of a stream gives, until it has read all that is there."""
    batches: list[list[Any]] = []

    def collected(batch: DataFrame, _: int) -> None:
        batches.append(sorted(map(tuple, batch.collect()), key=repr))

    for _ in range(_STARTS):
        query = (
            frame.writeStream.outputMode(mode)
            .option("checkpointLocation", str(folder))
            .foreachBatch(collected)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(560)
            break
        except StreamingQueryException as error:
            if _SLOW_START not in str(error):
                raise
        finally:
            query.stop()
    else:
        raise AssertionError(f"{_STARTS} times: {_SLOW_START}")
    return batches


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return sorted(map(repr, map(_plain, value)))
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.11e}" if abs(value) > 1e-9 else "0"
    return value
