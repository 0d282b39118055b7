"""An aggregate as users write it, which can't use every event: what tests of whole pipelines declare."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

from keygrouping.aggregate import Aggregate, NumberField, Shape

State = dict[str, Any]


class GeometricMean(Aggregate):
    """Geometric mean of positive numbers, None if there is none; anything else raises an error."""

    shape: ClassVar[Shape | None] = {"n": "integer", "logs": "number"}
    field: NumberField

    def initial(self) -> State:
        return {"n": 0, "logs": 0.0}

    def add_many(self, state: State, values: Iterable[Any]) -> State:
        logs = [math.log(value) for value in values if value is not None]
        return self.merge(state, {"n": len(logs), "logs": math.fsum(logs)})

    def merge(self, left: State, right: State) -> State:
        return {"n": left["n"] + right["n"], "logs": left["logs"] + right["logs"]}

    def finish(self, state: State) -> float | None:
        return math.exp(state["logs"] / state["n"]) if state["n"] else None
