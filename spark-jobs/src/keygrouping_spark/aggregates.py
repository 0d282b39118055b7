"""The library's aggregates as native Spark expressions: a state per partial, its merge, and the published value.

Each class follows one aggregate of `keygrouping.aggregate` in three steps: `state` is what the worker query computes
over the values of its fields (its JSON is the state in the partial), `merged` is what the aggregator query computes
over these states, `finished` makes the value to publish of what was merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from keygrouping.aggregate import Aggregate
from keygrouping.aggregate.sketch import LG_K
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.stat import Summarizer
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructField, StructType

from keygrouping_spark.support import require_native

_NEGLIGIBLE = 1e-300
"""Weight of a partial without values: `Summarizer` refuses a group in which all weights are 0."""


@dataclass(frozen=True)
class Native(ABC):
    """One named aggregate in Spark. `name` is its name in the job and prefixes its intermediate columns."""

    name: str

    json_type: ClassVar[DataType]

    @abstractmethod
    def state(self, *values: Column) -> Column:
        """Aggregation of the values of the inputs (none: of the events themselves) into the state of a partial."""

    @abstractmethod
    def merged(self, state: Column) -> Mapping[str, Column]:
        """Aggregations over the states of partials, by a short name for each."""

    @abstractmethod
    def finished(self, merged: Mapping[str, Column]) -> Column:
        """The value to publish, from the columns that `merged` named."""

    def merge_columns(self, state: Column) -> list[Column]:
        """The columns of `merged`, named so that no two aggregates collide."""
        return [column.alias(self._column(part)) for part, column in self.merged(state).items()]

    def result(self, state: Column) -> Column:
        """The value to publish, from the columns that `merge_columns` made."""
        return self.finished({part: F.col(self._column(part)) for part in self.merged(state)}).alias(self.name)

    def _column(self, part: str) -> str:
        return f"{self.name}.{part}".replace(".", "$")


class NativeCount(Native):
    """Events, or values that are not missing."""

    json_type = LongType()

    def state(self, *values: Column) -> Column:
        return F.count(*(values or (F.lit(1),)))

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"n": F.coalesce(F.sum(state), F.lit(0))}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return merged["n"]


class NativeSum(Native):
    """Sum of the values, null if there is none."""

    json_type = StructType([StructField("n", LongType()), StructField("sum", DoubleType())])

    def state(self, *values: Column) -> Column:
        (value,) = values
        return F.struct(F.count(value).alias("n"), F.coalesce(F.sum(value), F.lit(0.0)).alias("sum"))

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"n": F.sum(state["n"]), "sum": F.sum(state["sum"])}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.when(merged["n"] > 0, merged["sum"])


class NativeMean(NativeSum):
    """Arithmetic mean of the values, null if there is none."""

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.when(merged["n"] > 0, merged["sum"] / merged["n"])


class NativeVwap(Native):
    """Average weighted by a second field, null where the weights add up to 0."""

    json_type = StructType(
        [StructField("n", LongType()), StructField("sum", DoubleType()), StructField("weight", DoubleType())]
    )

    def state(self, *values: Column) -> Column:
        value, weight = values
        product = value * weight
        known = F.when(product.isNotNull(), weight)
        return F.struct(
            F.count(product).alias("n"),
            F.coalesce(F.sum(product), F.lit(0.0)).alias("sum"),
            F.coalesce(F.sum(known), F.lit(0.0)).alias("weight"),
        )

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"sum": F.sum(state["sum"]), "weight": F.sum(state["weight"])}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.when(merged["weight"] != 0, merged["sum"] / merged["weight"])


class NativeMin(Native):
    """The smallest value, null if there is none."""

    json_type = DoubleType()

    def state(self, *values: Column) -> Column:
        return F.min(*values) + 0.0

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"min": F.min(state)}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return merged["min"]


class NativeMax(Native):
    """The largest value, null if there is none."""

    json_type = DoubleType()

    def state(self, *values: Column) -> Column:
        return F.max(*values) + 0.0

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"max": F.max(state)}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return merged["max"]


class NativeVariance(Native):
    """Sample variance, null below two values.

    The partials' squares add up to the squares within them; the squares between their means come from the weighted
    variance of `Summarizer`, which merges as Chan et al. do, where a sum of squares would cancel out. It divides by
    N - sum(n^2)/N, so that is multiplied back.
    """

    json_type = StructType(
        [StructField("n", LongType()), StructField("mean", DoubleType()), StructField("m2", DoubleType())]
    )

    def state(self, *values: Column) -> Column:
        (value,) = values
        squares = F.var_pop(value) * F.count(value)
        return F.struct(
            F.count(value).alias("n"),
            F.coalesce(F.avg(value), F.lit(0.0)).alias("mean"),
            F.coalesce(squares, F.lit(0.0)).alias("m2"),
        )

    def merged(self, state: Column) -> Mapping[str, Column]:
        count = F.coalesce(state["n"], F.lit(0)).cast("double")
        mean = array_to_vector(F.array(F.coalesce(state["mean"], F.lit(0.0))))
        return {
            "n": F.sum(count),
            "nn": F.sum(count * count),
            "within": F.sum(F.coalesce(state["m2"], F.lit(0.0))),
            "between": Summarizer.variance(mean, F.greatest(count, F.lit(_NEGLIGIBLE))),
        }

    def finished(self, merged: Mapping[str, Column]) -> Column:
        count = merged["n"]
        spread = F.element_at(vector_to_array(merged["between"]), 1) * (count - merged["nn"] / count)
        return F.when(count > 1, (merged["within"] + spread) / (count - 1))


class NativeDistinct(Native):
    """Number of different values by an HLL sketch; the doubled union makes it independent of the merge order."""

    json_type = StringType()

    def state(self, *values: Column) -> Column:
        (value,) = values
        return F.base64(F.hll_sketch_agg(value, LG_K))

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"sketch": F.hll_union_agg(F.unbase64(state), F.lit(False))}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.hll_sketch_estimate(F.hll_union(merged["sketch"], merged["sketch"]))


_NATIVE: dict[str, type[Native]] = {
    "count": NativeCount,
    "sum": NativeSum,
    "mean": NativeMean,
    "min": NativeMin,
    "max": NativeMax,
    "variance": NativeVariance,
    "vwap": NativeVwap,
    "distinct": NativeDistinct,
}


def native(aggregates: Sequence[Aggregate]) -> list[Native]:
    """The aggregates of a job in Spark; `UnsupportedAggregate` names those that Spark can't compute natively."""
    require_native(aggregates)
    return [_NATIVE[a.op](a.name) for a in aggregates]
