"""docs/howto/pyspark.md says of each of Spark's aggregates what becomes of it: that is what becomes of it."""

import re
from pathlib import Path
from typing import Any

import pytest
from keygrouping.spark import NotMergeableError, skewed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "pyspark.md"
# Of one argument that is a number, unless given here.
CALLS = {
    **dict.fromkeys(["any", "bool_and", "bool_or", "count_if", "every", "some"], "{}(n > 1)"),
    **dict.fromkeys(["approx_percentile", "percentile", "percentile_approx"], "{}(n, 0.5)"),
    **dict.fromkeys(["bitmap_and_agg", "bitmap_or_agg", "theta_union_agg", "theta_intersection_agg"], "{}(bytes)"),
    **dict.fromkeys(["hll_union_agg", "approx_top_k_combine"], "{}(bytes)"),
    **dict.fromkeys(["kll_merge_agg_bigint", "kll_merge_agg_double", "kll_merge_agg_float"], "{}(bytes)"),
    **dict.fromkeys(["tuple_union_agg_double", "tuple_union_agg_integer"], "{}(bytes)"),
    **dict.fromkeys(["tuple_intersection_agg_double", "tuple_intersection_agg_integer"], "{}(bytes)"),
    **dict.fromkeys(["corr", "covar_pop", "covar_samp", "max_by", "min_by"], "{}(n, m)"),
    **dict.fromkeys(["listagg", "string_agg"], "{}(text, '; ')"),
    **dict.fromkeys(["percentile_cont", "percentile_disc"], "{}(0.5) WITHIN GROUP (ORDER BY n)"),
    "approx_top_k_combine": "{}(sketch)",
    "bitmap_construct_agg": "{}(bitmap_bit_position(n))",
    "count_min_sketch": "{}(n, 0.5d, 0.5d, 1)",
    "histogram_numeric": "{}(n, 5)",
    "kll_sketch_agg_double": "{}(m)",
    "kll_sketch_agg_float": "{}(cast(n as float))",
    "tuple_sketch_agg_double": "{}(n, m)",
    "tuple_sketch_agg_integer": "{}(n, cast(n as int))",
}
NOT_ALONE = {"grouping", "grouping_id", "measure"}
"""Of rollups and metric views."""


@pytest.fixture(scope="module")
def aggregates(spark: SparkSession) -> list[str]:
    """Spark's own, by their names in SQL."""
    jvm: Any = spark.sparkContext._jvm
    analysis = jvm.org.apache.spark.sql.catalyst.analysis
    registry = getattr(getattr(analysis, "FunctionRegistry$"), "MODULE$").builtin()
    names = registry.listFunction().iterator()
    found = []
    while names.hasNext():
        info = registry.lookupFunction(names.next()).get()
        if info.getGroup() == "agg_funcs":
            found.append(info.getName())
    return sorted(set(found) - NOT_ALONE)


@pytest.fixture(scope="module")
def numbers(spark: SparkSession) -> DataFrame:
    frame = spark.range(9).selectExpr("'hot' AS user", "id AS n", "id / 2 AS m", "'a' AS text", "x'00' AS bytes")
    top = "approx_top_k_accumulate"
    if not spark.catalog.functionExists(top):
        return frame
    return frame.crossJoin(frame.agg(F.expr(f"{top}(n)").alias("sketch")))


def told() -> dict[str, tuple[str, str]]:
    """By function: whether it has partials, and what it becomes without `spread`."""
    table = (
        PAGE.read_text().split('| aggregates | `"partials"` | without `spread` |\n|---|---|---|\n')[1].split("\n\n")[0]
    )
    found = {}
    for line in table.splitlines():
        names, partials, default = (each.strip() for each in line.strip("|").split("|"))
        for name in re.findall(r"`(\w+)`", names):
            assert name not in found, f"{name} stands in two lines"
            found[name] = partials.split()[0].rstrip(",:"), default
    return found


def becomes(frame: DataFrame, name: str) -> tuple[str, str]:
    asked = F.expr(CALLS.get(name, "{}(m, n)" if name.startswith("regr_") else "{}(n)").format(name))
    plan: Any = skewed(frame, "user", widths={"hot": 2}).groupBy("user").agg(asked)
    text = str(plan._jdf.queryExecution().analyzed())
    default = "rows" if "RepartitionByExpression" in text else "partials" if "__skewed" in text else "plain Spark"
    try:
        skewed(frame, "user", widths={"hot": 2}, spread="partials").groupBy("user").agg(asked)
    except NotMergeableError:
        return "refused", default
    return "yes", default


def test_the_page_has_all_aggregates_of_spark_and_what_becomes_of_them(
    aggregates: list[str], numbers: DataFrame
) -> None:
    page = told()
    assert set(aggregates) <= set(page)
    assert {name: becomes(numbers, name) for name in aggregates} == {name: page[name] for name in aggregates}
