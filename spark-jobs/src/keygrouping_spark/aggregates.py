"""The Spark halves of the library's own aggregates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from keygrouping.aggregate.exact import Total
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.stat import Summarizer
from pyspark.sql import Column
from pyspark.sql import functions as F

from keygrouping_spark import sums
from keygrouping_spark.native import Native

_NEGLIGIBLE = 1e-300
"""Weight of a partial without values: `Summarizer` refuses a group in which all weights are 0."""


class NativeCount(Native):
    """Events, or values that are not missing."""

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"n": F.try_sum(state)}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return merged["n"]


class NativeSum(Native):
    """Sum of the values, null if there is none. Integers exactly; fractions are added up by Spark."""

    def merged(self, state: Column) -> Mapping[str, Column]:
        whole = F.try_sum(state["whole"].try_cast(sums.WHOLE))
        return {"n": F.try_sum(state["n"]), "whole": whole, "real": sums.sum_of_parts(state["parts"])}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.struct(*[column.alias(part) for part, column in merged.items()])

    def published(self, value: Any) -> Any:
        if value["whole"] is None:
            return None
        parts = () if value["real"] is None else (value["real"],)
        return self.aggregate.finish((value["n"], Total(int(value["whole"]), parts)))


class NativeVwap(Native):
    """Average weighted by a second field, null where the weights add up to 0."""

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"sum": sums.sum_of_parts(state["sum"]), "weight": sums.sum_of_parts(state["weight"])}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.when(merged["weight"] != 0, merged["sum"] / merged["weight"])


class _NativeExtreme(Native):
    """What min and max share: integers and fractions by themselves, so that both stay exact."""

    def merged(self, state: Column) -> Mapping[str, Column]:
        whole, real = state["whole"].try_cast("bigint"), state["real"].try_cast("double")
        return {"whole": self.most(whole), "real": self.most(real)}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.struct(merged["whole"].alias("whole"), merged["real"].alias("real"))

    def published(self, value: Any) -> Any:
        return self.aggregate.finish(self.aggregate.merge(value["whole"], value["real"]))

    @abstractmethod
    def most(self, value: Column) -> Column:
        """Aggregation: the most extreme of the values."""


class NativeMin(_NativeExtreme):
    """The smallest value, null if there is none."""

    def most(self, value: Column) -> Column:
        return F.min(value)


class NativeMax(_NativeExtreme):
    """The largest value, null if there is none."""

    def most(self, value: Column) -> Column:
        return F.max(value)


class NativeVariance(Native):
    """Sample variance, null below two values.

    The partials' squares add up to the squares within them; the squares between their means come from the weighted
    variance of `Summarizer`, which merges as Chan et al. do, where a sum of squares would cancel out. It divides by
    N - sum(n^2)/N, so that is multiplied back.
    """

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

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"sketch": F.hll_union_agg(F.unbase64(state), F.lit(False))}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.hll_sketch_estimate(F.hll_union(merged["sketch"], merged["sketch"]))
