"""Aggregates that Spark combines before its shuffle, into some bytes for each task and group, or for each value.

A hot key is no more than a row of each task then, so there is nothing to spread. For distinct aggregates Spark spreads
a key's rows by their values itself.
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
        "approx_top_k",
        "approx_top_k_accumulate",
        "approx_top_k_combine",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_and_agg",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bool_and",
        "bool_or",
        "corr",
        "count",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kll_merge_agg_bigint",
        "kll_merge_agg_double",
        "kll_merge_agg_float",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "kurtosis",
        "last",
        "last_value",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "product",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "sum",
        "theta_intersection_agg",
        "theta_sketch_agg",
        "theta_union_agg",
        "try_avg",
        "try_sum",
        "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer",
        "tuple_sketch_agg_double",
        "tuple_sketch_agg_integer",
        "tuple_union_agg_double",
        "tuple_union_agg_integer",
        "var_pop",
        "var_samp",
        "variance",
    ]
)
_OF_RESULTS = frozenset(["+", "-", "*", "/", "%", "negative", "round", "coalesce"])


def are_combined(aggregates: Sequence[Column]) -> bool:
    """Whether Spark combines all of these; False if one is not known."""
    return all(map(_is_combined, aggregates))


def _is_combined(aggregate: Column) -> bool:
    inner = without_cast(aggregate)
    call = call_of(inner)
    if call is None:
        return is_value(inner)
    if call.name in _COMBINED:
        return True
    return call.name in _OF_RESULTS and all(map(_is_combined, call.arguments))
