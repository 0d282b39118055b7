"""How many events may start a second: token buckets that hold a tenth of a second's worth."""

from __future__ import annotations

from collections.abc import Hashable

SPREAD = 0.1
"""Seconds that a start may be too early: in any T seconds no more than `rate * (T + SPREAD) + 1` events start."""
_FEW = 1024


class Limit:
    """At most `rate` events a second, of each key by itself. A batch counts by its events, once it has started."""

    def __init__(self, rate: float) -> None:
        self._gap = 1.0 / rate
        self._paid: dict[Hashable, float] = {}
        self._most = _FEW

    def free_at(self, key: Hashable) -> float:
        """When the key's next events may start; in the past if they may now."""
        return self._paid.get(key, 0.0) - SPREAD

    def take(self, key: Hashable, events: int, now: float) -> None:
        """Events of the key start now."""
        self._paid[key] = max(now, self._paid.get(key, now)) + events * self._gap
        if len(self._paid) > self._most:
            # A key that has paid for all it had is as one that never was.
            self._paid = {key: paid for key, paid in self._paid.items() if paid > now}
            self._most = max(_FEW, 2 * len(self._paid))
