"""When it is asked inside of an interval whether a plan is wanted."""

from __future__ import annotations

from keygrouping.grouping import CHECKS

TICKS = 32
"""Parts of an interval at which routers may call for a plan."""

_LEAST_SECONDS = 0.1


class Checks:
    """After each of the parts `CHECKS` of an interval, from its first event on: a run may begin anywhere in one."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._passed = 0

    def begin(self) -> None:
        """An interval begins, or another grouping."""
        self._began, self._passed = None, 0

    def saw(self, now: float) -> None:
        """Events have come."""
        if self._began is None:
            self._began = now

    def due(self, now: float, interval: float) -> bool:
        """Whether another part has passed since the last call, to half a tick: events begin a little after it."""
        if self._began is None:
            return False
        gone = (now - self._began) / interval + 1 / (2 * TICKS)
        passed = sum(gone >= check for check in CHECKS)
        due, self._passed = passed > self._passed, passed
        return due


def ticks_of(interval: float) -> int:
    """The number of times in an interval of so many seconds at which routers may call for a plan."""
    return max(1, min(TICKS, int(interval / _LEAST_SECONDS)))
