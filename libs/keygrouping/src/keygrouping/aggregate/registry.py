"""Aggregates by the name of their operation, so that every program finds the same ones.

Other packages add theirs by an entry point of the group `keygrouping.aggregates`: its name is the operation's, its
object the class, an `Aggregate`. An operation may also say where its class is, as `module:Class`.
"""

from __future__ import annotations

import functools
import re
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

PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""What all of the place of a class looks like."""

_IMPORTABLE = (
    "every process of the job (router, worker, aggregator, observer, Spark) imports it: install it in their images, or "
    "put its folder on PYTHONPATH"
)


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
    if isinstance(op, str) and PLACE.fullmatch(op):
        return _loaded(EntryPoint(op, op, PLUGINS))
    raise AggregateError(f"unknown op {op!r}; choose from {', '.join(names())}, or name a class by module:Class")


def is_foreign(aggregate: Aggregate) -> bool:
    """Whether its code is not the library's own."""
    return OPS.get(aggregate.op) is not type(aggregate)


@functools.cache
def _plugins() -> Mapping[str, EntryPoint]:
    """The operations of other packages; a name that is taken already is none of theirs."""
    found = sorted(entry_points(group=PLUGINS), key=lambda point: point.name)
    return {point.name: point for point in found if point.name not in OPS}


def _plugged_in(point: EntryPoint) -> type[Aggregate]:
    found = _loaded(point)
    if found.op != point.name:
        raise AggregateError(f"op {point.name!r}: {point.value} must say so itself, by op = {point.name!r}")
    return found


def _loaded(point: EntryPoint) -> type[Aggregate]:
    told = f"op {point.name!r}" + (f": {point.value}" if point.value != point.name else "")
    try:
        found = point.load()
    except Exception as error:  # as a module may raise anything
        what = error if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise AggregateError(f"{told} can't be loaded: {what}; {_IMPORTABLE}") from error
    missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
    if not (isinstance(found, type) and issubclass(found, Aggregate)) or missing:
        has_no = f": it has no {missing}" if missing else ""
        raise AggregateError(f"{told} must be a subclass of Aggregate with all its methods{has_no}")
    return found
