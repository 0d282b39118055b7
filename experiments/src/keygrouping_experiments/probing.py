"""Partial Key Grouping with periodic probing, which its paper tries and finds to be of no use."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keygrouping.grouping.choices.pkg import Pkg, PkgSettings


class Probing(Pkg):
    """`pkg` whose estimate of the loads is corrected at the end of every interval of the simulation.

    Each source is given its part of the workers' real loads, as in the authors' simulator (LBPoTCLocalProbing).
    Source: "Partial Key Grouping", section 6.2, Q2 (LP).
    """

    name = "pkg with probing"

    def __init__(self, workers: int, settings: PkgSettings | None = None) -> None:
        super().__init__(workers, settings)
        self._sent = np.zeros(workers)
        self._told = np.zeros(workers)

    @property
    def shared(self) -> bool:
        """It does nothing but that."""
        return True

    def statistics(self, now: float | None = None) -> dict[str, Any]:  # noqa: ARG002 (loads don't fade)
        """The weight that it has sent to each worker so far."""
        self._sent += self._loads - self._told
        self._told = self._loads.copy()
        return {"sent": self._sent.tolist()}

    def plan(self, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The loads of all workers, divided by the number of sources."""
        loads = np.mean([source["sent"] for source in statistics], axis=0)
        figures = {"moved_keys": 0, "moved_state": 0.0, "feasible": True, "hot_keys": 0}
        return {"changed": True, **figures, "loads": loads.tolist()}

    def apply(self, plan: Mapping[str, Any]) -> None:
        """Go on from these loads."""
        self._set_loads(np.array(plan["loads"], np.float64))
        self._told = self._loads.copy()
        self._epoch += 1
