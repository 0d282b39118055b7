"""Mixed by brute force: the least migration that Mixed could have had.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), section 3.3.
"""

from typing import ClassVar

from keygrouping.grouping.table.grouping import RoutingTableGrouping
from keygrouping.grouping.table.interval import Interval, Outcome
from keygrouping.grouping.table.mixed import MixedSettings
from keygrouping.grouping.table.planning import mixed_bf


class MixedBruteForce(RoutingTableGrouping[MixedSettings]):
    """As Mixed, but tries for every number of keys what comes of moving that many home; takes as many times as long.

    Memory: two times `tracked_keys` keys, at most 34 MB by default (see `RoutingTableGrouping`).
    """

    name: ClassVar[str] = "mixed-bf"
    settings = MixedSettings

    def _planned(self, interval: Interval) -> Outcome:
        chosen = self._settings
        return mixed_bf(interval, chosen.theta_max, chosen.beta, chosen.table_size, chosen.compact)

    def _table_capacity(self) -> int:
        return min(self._settings.table_size, super()._table_capacity())
