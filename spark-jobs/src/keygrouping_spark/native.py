"""What an aggregate is to Spark: native expressions that merge the states of partials, and make the published value.

A subclass follows one aggregate of the library, or of another package, from the states of partials on, which that
aggregate has made and read: `merged` is what the aggregator query computes over these states, `finished` and
`published` make the value to publish of what was merged, in Spark's expressions and then in Python, by tasks. The
aggregate names it by `Aggregate.spark`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keygrouping.aggregate import Aggregate, Shape
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType

_SCALARS: dict[str, DataType] = {"integer": LongType(), "number": DoubleType()}
"""All others are read as text."""


@dataclass(frozen=True)
class Native(ABC):
    """One aggregate of the job in Spark. Its name prefixes its intermediate columns."""

    aggregate: Aggregate

    @property
    def name(self) -> str:
        """Its name in the job."""
        return self.aggregate.name

    @abstractmethod
    def merged(self, state: Column) -> Mapping[str, Column]:
        """Aggregations over the states of partials, by a short name for each."""

    @abstractmethod
    def finished(self, merged: Mapping[str, Column]) -> Column:
        """What `published` takes, from the columns that `merged` named."""

    def published(self, value: Any) -> Any:
        """The value to publish of what was finished, as the library would. A struct or map of Spark comes as a dict."""
        return value

    def failure(self, value: Any) -> str:  # noqa: ARG002
        """What is wrong with what was finished ("": nothing): code that is not the library's may fail."""
        return ""

    def merge_columns(self, state: Column) -> list[Column]:
        """The columns of `merged`, named so that no two aggregates collide."""
        return [column.alias(self._column(part)) for part, column in self.merged(state).items()]

    def result(self, state: Column) -> Column:
        """What `published` takes, from the columns that `merge_columns` made."""
        return self.finished({part: F.col(self._column(part)) for part in self.merged(state)}).alias(self.name)

    def _column(self, part: str) -> str:
        return f"{self.name}.{part}".replace(".", "$")


def type_of(aggregate: Aggregate) -> DataType:
    """How Spark holds the state of a partial: by its shape, or as JSON text for what only its own code can merge."""
    if aggregate.spark is None:
        return StringType()
    assert aggregate.shape is not None
    return _type_of(aggregate.shape)


def _type_of(shape: Shape) -> DataType:
    if isinstance(shape, tuple):
        return ArrayType(_type_of(shape[0]))
    if isinstance(shape, str):
        return _SCALARS.get(shape, StringType())
    return StructType([StructField(name, _type_of(inner)) for name, inner in shape.items()])


def column_of(aggregate: Aggregate, data: Any) -> Any:
    """The encoded state of a partial, as Spark holds it."""
    if aggregate.spark is None:
        return json.dumps(data)
    assert aggregate.shape is not None
    return _value_of(aggregate.shape, data)


def _value_of(shape: Shape, data: Any) -> Any:
    if isinstance(shape, tuple):
        return [_value_of(shape[0], item) for item in data]
    if not isinstance(shape, str):
        return {name: _value_of(inner, data[name]) for name, inner in shape.items()}
    if shape == "number":
        return float(data)
    return data if data is None or shape in ("integer", "text") or isinstance(data, str) else json.dumps(data)
