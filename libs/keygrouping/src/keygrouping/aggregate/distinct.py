"""Approximate distinct count by a HyperLogLog sketch that Spark reads and writes too."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, ClassVar

from datasketches import hll_sketch, hll_union, tgt_hll_type

from keygrouping.aggregate.base import Aggregate, TextField
from keygrouping.aggregate.expected import Answer, distinct_of
from keygrouping.aggregate.shape import Shape
from keygrouping.aggregate.sketch import LG_K, sound


class Distinct(Aggregate):
    """Number of different values, by an Apache DataSketches HLL sketch (lg_k 12, HLL_8).

    Strings are hashed as UTF-8, integers as their decimal text. As in DataSketches and Spark the empty string is
    not counted. In JSON the sketch is base64 of its binary form, as `hll_sketch_agg` of Spark makes it (both the
    compact and the updatable form are read, the compact one is written). At most 4 KiB per state.
    """

    op: ClassVar[str] = "distinct"
    spark: ClassVar[str | None] = "keygrouping_spark.aggregates:NativeDistinct"
    shape: ClassVar[Shape | None] = "text"
    field: TextField

    def initial(self) -> Any:
        return hll_sketch(LG_K, tgt_hll_type.HLL_8)

    def add(self, state: Any, value: Any) -> Any:
        if value is not None:
            state.update(str(value))
        return state

    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        for value in dict.fromkeys(values):
            if value is not None:
                state.update(str(value))
        return state

    def merge(self, left: Any, right: Any) -> Any:
        union = hll_union(LG_K)
        union.update(left)
        union.update(right)
        return union.get_result(tgt_hll_type.HLL_8)

    def finish(self, state: Any) -> int:
        """The estimate, after a union of the state with itself.

        A sketch that was only updated estimates from the order of its updates too (HIP); a merged one from its
        registers alone. So the result never depends on how the events were split.
        """
        estimate: float = self.merge(state, state).get_estimate()
        return round(estimate)

    def expected(self, values: Iterable[Any]) -> Answer:
        return distinct_of(values)

    def encode(self, state: Any) -> str:
        return base64.b64encode(state.serialize_compact()).decode("ascii")

    def decode(self, data: Any) -> Any:
        try:
            sketch = sound(base64.b64decode(data, validate=True))
            if sketch is None:
                raise self.fault(data)
            return hll_sketch.deserialize(sketch)
        except (TypeError, ValueError, RuntimeError, IndexError, binascii.Error):
            raise self.fault(data) from None
