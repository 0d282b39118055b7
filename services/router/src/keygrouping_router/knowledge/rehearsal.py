"""A grouping that only looks on, with the plans that a router would make for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from keygrouping.grouping import Grouping, Overrides, Planned, UrgentlyPlanned
from numpy.typing import NDArray

from keygrouping_router.control.checks import Checks
from keygrouping_router.control.groupings import widths_with
from keygrouping_router.control.overrides import orders_of
from keygrouping_router.control.state import Control


class Rehearsal:
    """Routes, and plans where the grouping leaves that to its owner: at the same moments as routers do."""

    def __init__(self, grouping: Grouping, control: Control) -> None:
        self.grouping = grouping
        self._checks = Checks()
        self.follow(control)

    def follow(self, control: Control) -> None:
        """Single keys go where this says."""
        self._overrides = Overrides(orders_of(control.overrides), control.workers)

    def route(
        self,
        keys: Sequence[bytes],
        hashes: NDArray[np.int64],
        weights: NDArray[np.float64] | None,
        now: float,
    ) -> NDArray[np.int32]:
        """The workers of n events of these keys at `now`; see `Grouping.route_batch`."""
        self._checks.saw(now)
        return self._overrides.route_batch(self.grouping, keys, hashes, weights, now)

    def check(self, now: float, interval: float) -> None:
        """Inside of an interval of so many seconds: plans if it is time to ask for that, and urgent."""
        grouping = self.grouping
        due = self._checks.due(now, interval)
        if due and isinstance(grouping, UrgentlyPlanned) and grouping.shared and grouping.urgent:
            self._apply(grouping, grouping.interim_statistics())

    def end_interval(self, now: float) -> None:
        """An interval is over: plans."""
        self._checks.begin()
        if isinstance(self.grouping, Planned) and self.grouping.shared:
            self._apply(self.grouping, self.grouping.statistics(now))

    @staticmethod
    def _apply(grouping: Planned, statistics: dict[str, Any]) -> None:
        plan = grouping.plan([statistics])
        if plan["changed"]:
            grouping.apply(plan)

    def widths(self) -> dict[int, int]:
        """The width of each hot key, by its hash."""
        return widths_with(self._overrides, self.grouping)
