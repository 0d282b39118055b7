"""Least-Load Fit Decreasing: overloaded workers give their most costly keys to the least loaded ones.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), algorithm 1.
"""

from typing import ClassVar

from keygrouping.grouping.table.grouping import CompactSettings, RoutingTableGrouping
from keygrouping.grouping.table.interval import Interval, Outcome
from keygrouping.grouping.table.planning import llfd


class Llfd(RoutingTableGrouping[CompactSettings]):
    """The most costly keys of overloaded workers move, others only where they make room for them.

    Memory: two times `tracked_keys` keys, at most 34 MB by default (see `RoutingTableGrouping`).
    The table grows up to (W - 1) / W of the keys.
    """

    name: ClassVar[str] = "llfd"
    settings = CompactSettings

    def _planned(self, interval: Interval) -> Outcome:
        chosen = self._settings
        return llfd(interval, chosen.theta_max, chosen.compact)
