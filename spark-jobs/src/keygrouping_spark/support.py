"""Where Spark's half of an aggregate is: the aggregate names it itself (`Aggregate.spark`), or Python computes it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keygrouping.aggregate import Aggregate

if TYPE_CHECKING:
    from keygrouping_spark.native import Native


class UnsupportedAggregate(ValueError):
    """The Spark half of aggregates can't be used; the message names them and what is wrong."""


def spark_halves(aggregates: Sequence[Aggregate]) -> list[type[Native]]:
    """The Spark half of each aggregate; `UnsupportedAggregate` names those of which it can't be used.

    An aggregate that names none is computed by its own code in Spark's Python processes. Of the library's these are
    top-k, histogram and naive-bayes: Spark has no expression that merges maps of counts, or bins that have weights
    (`histogram_numeric` can't take up what it has made).
    """
    found = [_load(aggregate) for aggregate in aggregates]
    faults = [half for half in found if isinstance(half, str)]
    if faults:
        raise UnsupportedAggregate("; ".join(faults))
    return [half for half in found if not isinstance(half, str)]


def native(aggregates: Sequence[Aggregate]) -> list[Native]:
    """The aggregates of a job in Spark; `UnsupportedAggregate` names those that Spark can't compute natively."""
    return [half(aggregate) for half, aggregate in zip(spark_halves(aggregates), aggregates, strict=True)]


def _load(aggregate: Aggregate) -> type[Native] | str:
    """The Spark half, or what is wrong with it."""
    from keygrouping_spark.in_python import InPython  # PySpark comes with it.
    from keygrouping_spark.native import Native

    if aggregate.spark is None:
        return InPython
    place = aggregate.spark
    told = f"the Spark half of {aggregate.name} ({aggregate.op}), {place},"
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        return f"{told} can't be loaded: {error}"
    if not (isinstance(found, type) and issubclass(found, Native)):
        return f"{told} must be a subclass of keygrouping_spark.native.Native"
    if aggregate.shape is None:
        return f"{told} reads states by the aggregate's shape: {type(aggregate).__name__} must declare one"
    return found
