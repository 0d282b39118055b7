"""Which aggregates Spark computes natively; known without PySpark, so that one can ask before anything starts."""

from collections.abc import Sequence

from keygrouping.aggregate import Aggregate

NATIVE_OPS = frozenset({"count", "sum", "mean", "vwap", "min", "max", "variance", "distinct"})
"""Not top-k, histogram and naive-bayes: Spark 4.0 has no expression that merges maps of counts, or bins that have
weights (`histogram_numeric` can't take up what it has made), and Python code for every row is too slow for a stream.
"""


class UnsupportedAggregate(ValueError):
    """Spark has no native form of an aggregate; the message names it and the way out."""


def require_native(aggregates: Sequence[Aggregate]) -> None:
    """Raises `UnsupportedAggregate` that names those which Spark can't compute natively."""
    refused = [f"{a.name} ({a.op})" for a in aggregates if a.op not in NATIVE_OPS]
    if refused:
        raise UnsupportedAggregate(f"Spark has no native form of {', '.join(refused)}: use the native runner")
