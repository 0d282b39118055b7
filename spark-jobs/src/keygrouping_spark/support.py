"""Which aggregates Spark computes natively, and where: each names its Spark half itself (`Aggregate.spark`)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keygrouping.aggregate import Aggregate

if TYPE_CHECKING:
    from keygrouping_spark.native import Native


class UnsupportedAggregate(ValueError):
    """Spark has no native form of aggregates; the message names them and the way out."""


def require_native(aggregates: Sequence[Aggregate]) -> None:
    """Raises `UnsupportedAggregate` that names those which Spark can't compute natively. Loads no PySpark.

    Of the library's own these are top-k, histogram and naive-bayes: Spark 4.0 has no expression that merges maps of
    counts, or bins that have weights (`histogram_numeric` can't take up what it has made), and Python code for every
    row is too slow for a stream.
    """
    refused = [f"{a.name} ({a.op})" for a in aggregates if a.spark is None]
    if refused:
        raise UnsupportedAggregate(f"Spark has no native form of {', '.join(refused)}: use the native runner")


def spark_halves(aggregates: Sequence[Aggregate]) -> list[type[Native]]:
    """The Spark half of each aggregate; `UnsupportedAggregate` names those that there is none of, or a wrong one."""
    require_native(aggregates)
    found = [_load(aggregate) for aggregate in aggregates]
    faults = [half for half in found if isinstance(half, str)]
    if faults:
        raise UnsupportedAggregate("; ".join(faults))
    return [half for half in found if not isinstance(half, str)]


def _load(aggregate: Aggregate) -> type[Native] | str:
    """The Spark half, or what is wrong with it."""
    from keygrouping_spark.native import Native  # PySpark comes with it.

    place = aggregate.spark or ""
    told = f"the Spark half of {aggregate.name} ({aggregate.op}), {place},"
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        return f"{told} can't be loaded: {error}"
    if not (isinstance(found, type) and issubclass(found, Native)):
        return f"{told} must be a subclass of keygrouping_spark.native.Native"
    return found
