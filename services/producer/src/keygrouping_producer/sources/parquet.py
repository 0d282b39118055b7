"""Rows of Parquet files as JSON lines; needs the package pyarrow, which is not among our own."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson

from keygrouping_producer.sources.base import SourceError

_ROWS_AT_ONCE = 2_000
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def parquet_lines(path: Path) -> tuple[list[str], Iterator[bytes]]:
    """Names of the columns, and each row as a JSON object.

    Times are RFC 3339 texts in UTC with all their digits, decimals numbers, bytes text (base64 if they are no UTF-8).
    Raises SourceError without pyarrow, OSError for a file that is none.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise SourceError(
            f"{path}: to read Parquet, install the package pyarrow into this Python, or write the table as CSV or JSON "
            "lines"
        ) from None
    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from None
    return list(file.schema_arrow.names), _lines(file, pyarrow)


def _lines(file: Any, pyarrow: Any) -> Iterator[bytes]:
    try:
        with file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                columns = [_values(column, pyarrow) for column in batch.columns]
                for row in zip(*columns, strict=True):
                    yield orjson.dumps(dict(zip(batch.schema.names, row, strict=True)), _other)
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from None


def _values(column: Any, pyarrow: Any) -> list[Any]:
    if not pyarrow.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    digits = _DIGITS[column.type.unit]
    return [_rfc3339(ticks, digits) for ticks in column.cast(pyarrow.int64()).to_pylist()]


def _rfc3339(ticks: int | None, digits: int) -> str | int | None:
    """A time that has so many digits behind the second; as it is where no calendar has it."""
    if ticks is None:
        return None
    seconds, fraction = divmod(ticks, 10**digits)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return ticks
    return f"{moment:%Y-%m-%dT%H:%M:%S}{f'.{fraction:0{digits}d}' if digits else ''}Z"


def _other(value: Any) -> Any:
    """What JSON has no type for."""
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return str(value)
