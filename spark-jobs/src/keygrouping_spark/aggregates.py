"""The Spark halves of the library's own aggregates."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from keygrouping.aggregate import MOST_WHOLE
from keygrouping.aggregate.exact import MOST_PARTS, Total
from keygrouping.aggregate.sketch import LG_K
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.stat import Summarizer
from pyspark.sql import Column
from pyspark.sql import functions as F

from keygrouping_spark import sketches, sums
from keygrouping_spark.native import Native

_WHOLE = "^-?[0-9]{1,38}$"
_NEGLIGIBLE = 1e-300
"""Weight of a partial without values: `Summarizer` refuses a group in which all weights are 0."""


class NativeCount(Native):
    """Events, or values that are not missing."""

    def state(self, *values: Column) -> Column:
        return F.count(*(values or (F.lit(1),)))

    def fits(self, state: Column, events: Column) -> Column:
        return state.between(0, events)

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"n": F.try_sum(state)}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return merged["n"]


class NativeSum(Native):
    """Sum of the values, null if there is none. Integers exactly; fractions are added up by Spark."""

    def state(self, *values: Column) -> Column:
        (value,) = values
        return F.struct(
            F.count(value).alias("n"),
            sums.sum_of_wholes(value).cast("string").alias("whole"),
            sums.parts_of_reals(value).alias("parts"),
        )

    def fits(self, state: Column, events: Column) -> Column:
        whole = F.when(state["whole"].rlike(_WHOLE), state["whole"].try_cast(sums.WHOLE))
        most = state["n"].cast("decimal(18,0)") * F.lit(Decimal(MOST_WHOLE)).cast("decimal(19,0)")
        empty = (state["n"] > 0) | (F.size(state["parts"]) == 0)
        return state["n"].between(0, events) & (F.abs(whole) <= most) & _are_parts(state["parts"]) & empty

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

    def state(self, *values: Column) -> Column:
        value, weight = map(sums.real, values)
        product = value * weight
        known = F.when(product.isNotNull(), weight)
        return F.struct(
            F.count(product).alias("n"), sums.parts(product).alias("sum"), sums.parts(known).alias("weight")
        )

    def fits(self, state: Column, events: Column) -> Column:
        some = state["n"] > 0
        filled = (some == (F.size(state["sum"]) > 0)) & (some == (F.size(state["weight"]) > 0))
        return state["n"].between(0, events) & _are_parts(state["sum"]) & _are_parts(state["weight"]) & filled

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"sum": sums.sum_of_parts(state["sum"]), "weight": sums.sum_of_parts(state["weight"])}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.when(merged["weight"] != 0, merged["sum"] / merged["weight"])


class _NativeExtreme(Native):
    """What min and max share: integers and fractions by themselves, so that both stay exact."""

    def state(self, *values: Column) -> Column:
        (value,) = values
        whole, real = self.most(value["whole"]), self.most(value["real"]) + 0.0
        return F.struct(whole.alias("whole"), real.alias("real"))

    def fits(self, state: Column, events: Column) -> Column:
        whole, real = state["whole"].try_cast("bigint"), state["real"].try_cast("double")
        is_whole = state["whole"].isNull() | whole.isNotNull()
        is_real = state["real"].isNull() | (F.abs(real) <= sys.float_info.max)
        return state.isNotNull() & is_whole & is_real & events.isNotNull()

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

    def state(self, *values: Column) -> Column:
        value = sums.real(values[0])
        squares = F.var_pop(value) * F.count(value)
        return F.struct(
            F.count(value).alias("n"),
            F.coalesce(F.avg(value), F.lit(0.0)).alias("mean"),
            F.coalesce(squares, F.lit(0.0)).alias("m2"),
        )

    def fits(self, state: Column, events: Column) -> Column:
        return state["n"].between(0, events) & state["mean"].isNotNull() & (state["m2"] >= 0)

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

    def state(self, *values: Column) -> Column:
        (value,) = values
        # Spark breaks base64 into lines of 76 characters, unless its session says otherwise.
        return F.translate(F.base64(F.hll_sketch_agg(value, LG_K)), "\r\n", "")

    def fits(self, state: Column, events: Column) -> Column:
        return sketches.sound(state).isNotNull() & events.isNotNull()

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"sketch": F.hll_union_agg(sketches.sound(state), F.lit(False))}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.hll_sketch_estimate(F.hll_union(merged["sketch"], merged["sketch"]))


def _are_parts(parts: Column) -> Column:
    return (F.size(parts) <= MOST_PARTS) & ~F.exists(parts, lambda part: part.isNull())
