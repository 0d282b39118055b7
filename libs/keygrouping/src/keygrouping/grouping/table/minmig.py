"""MinMig: the keys that bring most relief per migrated state move, and stay where they are then.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), algorithm 3.
"""

from dataclasses import dataclass
from typing import ClassVar

from keygrouping.grouping.table.grouping import CompactSettings, RoutingTableGrouping
from keygrouping.grouping.table.interval import Interval, Outcome
from keygrouping.grouping.table.planning import minmig
from keygrouping.settings import setting


@dataclass(frozen=True)
class MinMigSettings(CompactSettings):
    """Settings of `minmig`."""

    beta: float = setting(
        1.5,
        "exponent of the cost in the migration priority cost**beta / state: larger ones move fewer keys",
        least=0,
        most=10,
    )


class MinMig(RoutingTableGrouping[MinMigSettings]):
    """Little state migrates; the table grows up to (W - 1) / W of the keys.

    Memory: two times `tracked_keys` keys, at most 34 MB by default (see `RoutingTableGrouping`).
    """

    name: ClassVar[str] = "minmig"
    settings = MinMigSettings

    def _planned(self, interval: Interval) -> Outcome:
        chosen = self._settings
        return minmig(interval, chosen.theta_max, chosen.beta, chosen.compact)
