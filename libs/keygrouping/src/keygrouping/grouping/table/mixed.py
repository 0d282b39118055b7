"""Mixed: little state migrates, and the routing table stays within its size.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), algorithm 4.
"""

from dataclasses import dataclass
from typing import ClassVar

from keygrouping.grouping.table.grouping import RoutingTableGrouping
from keygrouping.grouping.table.interval import Interval, Outcome
from keygrouping.grouping.table.minmig import MinMigSettings
from keygrouping.grouping.table.planning import mixed
from keygrouping.settings import setting


@dataclass(frozen=True)
class MixedSettings(MinMigSettings):
    """Settings of `mixed` and `mixed-bf`."""

    table_size: int = setting(3000, "most keys in the routing table", least=0, most=10_000_000)


class Mixed(RoutingTableGrouping[MixedSettings]):
    """As MinMig, but keys with little state are moved home as long as the table would be too large.

    Where no table of this size balances, the size is kept and the plan says that it is not feasible.
    Memory: two times `tracked_keys` keys, at most 34 MB by default (see `RoutingTableGrouping`).
    """

    name: ClassVar[str] = "mixed"
    settings = MixedSettings

    def _planned(self, interval: Interval) -> Outcome:
        chosen = self._settings
        return mixed(interval, chosen.theta_max, chosen.beta, chosen.table_size, chosen.compact)

    def _table_capacity(self) -> int:
        return min(self._settings.table_size, super()._table_capacity())
