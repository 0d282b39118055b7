"""Mergeable aggregates: what is computed per key and window, and how partials come back together."""

from keygrouping.aggregate.base import (
    Aggregate,
    AnyField,
    FieldKind,
    FieldName,
    Input,
    NumberField,
    State,
    TextField,
    TextFields,
)
from keygrouping.aggregate.distinct import Distinct
from keygrouping.aggregate.expected import Answer, Rounded
from keygrouping.aggregate.histogram import Histogram, StreamHistogram
from keygrouping.aggregate.naive_bayes import NaiveBayes
from keygrouping.aggregate.numeric import MOST_WHOLE, Count, Max, Mean, Min, Sum, Variance, Vwap
from keygrouping.aggregate.parse import parse_aggregates
from keygrouping.aggregate.registry import OPS, PLUGINS, AggregateError, is_foreign, names, operation
from keygrouping.aggregate.shape import Shape
from keygrouping.aggregate.top_k import TopK

__all__ = [
    "MOST_WHOLE",
    "OPS",
    "PLUGINS",
    "Aggregate",
    "AggregateError",
    "Answer",
    "AnyField",
    "Count",
    "Distinct",
    "FieldKind",
    "FieldName",
    "Histogram",
    "Input",
    "Max",
    "Mean",
    "Min",
    "NaiveBayes",
    "NumberField",
    "Rounded",
    "Shape",
    "State",
    "StreamHistogram",
    "Sum",
    "TextField",
    "TextFields",
    "TopK",
    "Variance",
    "Vwap",
    "is_foreign",
    "names",
    "operation",
    "parse_aggregates",
]
