"""Aggregates by the name of their operation, so that every program finds the same ones.

Other packages add theirs by an entry point of the group `keygrouping.aggregates`: its name is the operation's, its
object the class, an `Aggregate`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from keygrouping.aggregate.base import Aggregate
from keygrouping.aggregate.distinct import Distinct
from keygrouping.aggregate.histogram import Histogram
from keygrouping.aggregate.naive_bayes import NaiveBayes
from keygrouping.aggregate.numeric import Count, Max, Mean, Min, Sum, Variance, Vwap
from keygrouping.aggregate.top_k import TopK

OPS: Mapping[str, type[Aggregate]] = {
    aggregate.op: aggregate
    for aggregate in (Count, Sum, Min, Max, Mean, Variance, Vwap, Distinct, TopK, Histogram, NaiveBayes)
}
"""The library's own aggregates by the name of their operation."""

PLUGINS = "keygrouping.aggregates"
"""Group of the entry points of other packages."""


class AggregateError(ValueError):
    """Aggregates that can't be used; the message lists every fault, one per line."""


def names() -> tuple[str, ...]:
    """The names of all operations, those of other packages last."""
    return (*OPS, *_plugins())


def operation(op: object) -> type[Aggregate]:
    """The aggregate of an operation; AggregateError with one line if there is none, or its package is at fault."""
    if isinstance(op, str) and op in OPS:
        return OPS[op]
    if isinstance(op, str) and op in _plugins():
        return _plugged_in(_plugins()[op])
    raise AggregateError(f"unknown op {op!r}; choose from {', '.join(names())}")


@functools.cache
def _plugins() -> Mapping[str, EntryPoint]:
    """The operations of other packages; a name that is taken already is none of theirs."""
    found = sorted(entry_points(group=PLUGINS), key=lambda point: point.name)
    return {point.name: point for point in found if point.name not in OPS}


def _plugged_in(point: EntryPoint) -> type[Aggregate]:
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise AggregateError(f"op {point.name!r}: {point.value} can't be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Aggregate) and not inspect.isabstract(found)):
        raise AggregateError(f"op {point.name!r}: {point.value} must be a subclass of Aggregate with all its methods")
    if getattr(found, "op", None) != point.name:
        raise AggregateError(f"op {point.name!r}: {point.value} must say so itself, by op = {point.name!r}")
    return found
