"""Aggregates that Spark combines before its shuffle, into some bytes for each task and group.

A hot key is no more than a row of each task then, so there is nothing to spread.
"""

from collections.abc import Sequence

from pyspark.sql import Column

from keygrouping_pyspark.columns import call_of, is_value, without_cast

_COMBINED = frozenset(
    [
        "any",
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bool_and",
        "bool_or",
        "corr",
        "count",
        "count_if",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "kurtosis",
        "last",
        "last_value",
        "max",
        "max_by",
        "mean",
        "min",
        "min_by",
        "percentile_approx",
        "product",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "sum",
        "try_avg",
        "try_sum",
        "var_pop",
        "var_samp",
        "variance",
    ]
)
_OF_RESULTS = frozenset(["+", "-", "*", "/", "%", "negative", "round", "coalesce"])


def are_combined(aggregates: Sequence[Column]) -> bool:
    """Whether Spark combines all of these; False if one is not known, such as an SQL text."""
    return all(map(_is_combined, aggregates))


def _is_combined(aggregate: Column) -> bool:
    inner = without_cast(aggregate)
    call = call_of(inner)
    if call is None:
        return is_value(inner)
    if call.name in _COMBINED:
        return not call.distinct
    return call.name in _OF_RESULTS and all(map(_is_combined, call.arguments))
