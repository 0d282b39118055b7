"""An aggregate of a user's own that costs so much Python per event: what is done where a router pays.

`PIPELINE_STEPS` in the environment is how many steps of a loop each event takes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from keygrouping.aggregate import Aggregate, NumberField

STEPS = "PIPELINE_STEPS"


def worked(value: float, steps: int) -> float:
    """The value, after so many steps."""
    found = value
    for _ in range(steps):
        found = -found
    return abs(found)


def steps_of(microseconds: float) -> int:
    """How many steps take so long on this machine, now."""
    trial = 200_000
    begun = time.process_time()
    worked(1.0, trial)
    return round(microseconds * trial / ((time.process_time() - begun) * 1e6))


class CostlySum(Aggregate):
    """A sum whose every event costs time."""

    field: NumberField

    def initial(self) -> Any:
        return 0

    def check(self, value: Any) -> None:
        if value is not None:
            round(value)

    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        steps = int(os.environ.get(STEPS, "0"))
        return state + sum(round(worked(float(value), steps)) for value in values if value is not None)

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def finish(self, state: Any) -> int:
        return int(state)
