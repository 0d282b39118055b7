"""Readj: the heaviest keys move or change places, one best step after the other.

Source: Gedik, "Partitioning functions for stateful data parallelism in stream processing" (VLDB Journal 2014), as
described by Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), section 5, where it is the baseline.
"""

from dataclasses import dataclass
from typing import ClassVar

from keygrouping.grouping.table.grouping import RoutingTableGrouping, RoutingTableSettings
from keygrouping.grouping.table.interval import Interval, Outcome
from keygrouping.grouping.table.planning import readj
from keygrouping.settings import setting


@dataclass(frozen=True)
class ReadjSettings(RoutingTableSettings):
    """Settings of `readj`."""

    sigma: float = setting(
        0.001,
        "share of all load from which on a key takes part; a plan takes time in proportion to 1/sigma**2",
        least=0.0001,
        most=1,
    )


class Readj(RoutingTableGrouping[ReadjSettings]):
    """Keys with at least `sigma` of the load move or change places until no worker is overloaded; others are at home.

    Memory: two times `tracked_keys` keys, at most 34 MB by default (see `RoutingTableGrouping`).
    """

    name: ClassVar[str] = "readj"
    settings = ReadjSettings

    def _planned(self, interval: Interval) -> Outcome:
        chosen = self._settings
        return readj(interval, chosen.theta_max, chosen.sigma)
