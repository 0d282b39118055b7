"""Mergeable aggregates: what is computed per key and window, and how partials come back together."""

from keygrouping.aggregate.base import Aggregate, FieldKind, State
from keygrouping.aggregate.distinct import Distinct
from keygrouping.aggregate.numeric import Count, Max, Mean, Min, Sum, Variance
from keygrouping.aggregate.parse import OPS, AggregateError, parse_aggregates

__all__ = [
    "OPS",
    "Aggregate",
    "AggregateError",
    "Count",
    "Distinct",
    "FieldKind",
    "Max",
    "Mean",
    "Min",
    "State",
    "Sum",
    "Variance",
    "parse_aggregates",
]
