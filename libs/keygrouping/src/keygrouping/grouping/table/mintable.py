"""MinTable: every new routing table is made from nothing, so that it is small.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), algorithm 2.
"""

from typing import ClassVar

from keygrouping.grouping.table.grouping import CompactSettings, RoutingTableGrouping
from keygrouping.grouping.table.interval import Interval, Outcome
from keygrouping.grouping.table.planning import mintable


class MinTable(RoutingTableGrouping[CompactSettings]):
    """Before it plans, all keys are at home; so few keys are in the table, but many migrate from one to the next.

    Memory: two times `tracked_keys` keys, at most 34 MB by default (see `RoutingTableGrouping`).
    """

    name: ClassVar[str] = "mintable"
    settings = CompactSettings

    def _planned(self, interval: Interval) -> Outcome:
        chosen = self._settings
        return mintable(interval, chosen.theta_max, chosen.compact)
