"""Mergeable aggregates: what is computed per key and window, and how partials come back together."""

from keygrouping.aggregate.base import Aggregate, FieldKind, Input, Role, State
from keygrouping.aggregate.distinct import Distinct
from keygrouping.aggregate.histogram import Histogram, StreamHistogram
from keygrouping.aggregate.naive_bayes import NaiveBayes
from keygrouping.aggregate.numeric import MOST_WHOLE, Count, Max, Mean, Min, Sum, Variance, Vwap
from keygrouping.aggregate.parse import OPS, AggregateError, parse_aggregates
from keygrouping.aggregate.top_k import TopK

__all__ = [
    "MOST_WHOLE",
    "OPS",
    "Aggregate",
    "AggregateError",
    "Count",
    "Distinct",
    "FieldKind",
    "Histogram",
    "Input",
    "Max",
    "Mean",
    "Min",
    "NaiveBayes",
    "Role",
    "State",
    "StreamHistogram",
    "Sum",
    "TopK",
    "Variance",
    "Vwap",
    "parse_aggregates",
]
