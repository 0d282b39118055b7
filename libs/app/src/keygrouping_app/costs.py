"""What the calls of each key have cost of late: keys are hot by the seconds of their handler, not by their events."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from heapq import nlargest

WINDOW = 30.0
"""Seconds; what is told covers this one and the one before."""
_LEAST_SPAN = 10.0
"""Seconds of time over which work that has just begun is spread at least: a few calls say little of what is to come."""
_LITTLE = 0.02
"""Of a member's lanes: who has filled less of them had nothing to do."""
_MOST_KEYS = 16_384
_KEPT_KEYS = 2048


class _Window:
    """Seconds and ended events by key. Where there are many keys, the lightest are forgotten, but not their seconds."""

    __slots__ = ("began", "events", "keys", "seconds")

    def __init__(self, began: float) -> None:
        self.began = began
        self.keys: dict[Hashable, list[float]] = {}
        self.seconds = 0.0
        self.events = 0

    def shrink(self) -> None:
        kept = nlargest(_KEPT_KEYS, self.keys.items(), key=lambda each: each[1][0])
        self.keys = dict(kept)


class Costs:
    """Of one handler; times are seconds of the caller's clock. None: what has no order."""

    def __init__(self, now: float) -> None:
        self._before = _Window(now)
        self._recent = _Window(now)

    def add(self, key: Hashable, seconds: float, events: int, now: float) -> None:
        """A call of a key has ended, and so many events with it."""
        if now >= self._recent.began + WINDOW:
            self._turn(now)
        window = self._recent
        window.seconds += seconds
        window.events += events
        found = window.keys.get(key)
        if found is None:
            window.keys[key] = [seconds, events]
            if len(window.keys) > _MOST_KEYS:
                window.shrink()
        else:
            found[0] += seconds
            found[1] += events

    def add_all(self, keys: list[Hashable], seconds: list[float], events: list[int], now: float) -> None:
        """Calls have ended, of these keys."""
        if now >= self._recent.began + WINDOW:
            self._turn(now)
        window = self._recent
        window.seconds += sum(seconds)
        window.events += sum(events)
        known = window.keys
        for key, took, ended in zip(keys, seconds, events, strict=True):
            found = known.get(key)
            if found is None:
                known[key] = [took, ended]
            else:
                found[0] += took
                found[1] += ended
        if len(known) > _MOST_KEYS:
            window.shrink()

    def span(self, now: float) -> float:
        """Seconds of time that what is told covers."""
        if now >= self._recent.began + WINDOW:
            self._turn(now)
        return now - self._before.began

    @property
    def seconds(self) -> float:
        """Of all calls, those of forgotten keys included."""
        return self._before.seconds + self._recent.seconds

    @property
    def events(self) -> int:
        """That have ended, those of forgotten keys included."""
        return self._before.events + self._recent.events

    def of(self, key: Hashable) -> tuple[float, int]:
        """Seconds and ended events of a key."""
        (a, b), (c, d) = self._before.keys.get(key, (0.0, 0)), self._recent.keys.get(key, (0.0, 0))
        return a + c, int(b + d)

    def by_key(self) -> Iterator[tuple[Hashable, float, int]]:
        """Each key with the seconds of its calls and its ended events."""
        before, recent = self._before.keys, self._recent.keys
        for key in before.keys() | recent.keys():
            seconds, events = (a + b for a, b in zip(before.get(key, (0, 0)), recent.get(key, (0, 0)), strict=True))
            yield key, seconds, int(events)

    def _turn(self, now: float) -> None:
        idle = now >= self._recent.began + 2 * WINDOW
        self._before = _Window(now) if idle else self._recent
        self._recent = _Window(now)


class CostsOfWork(Costs):
    """Of work as it is since it has come: the time before, in which there was next to none, is forgotten.

    Otherwise what has just begun would be an average with idle time, by another part of it in each member.
    """

    def __init__(self, now: float, lanes: int) -> None:
        super().__init__(now)
        self._little = _LITTLE * lanes
        self._since = now
        self._last_end = -math.inf

    def add(self, key: Hashable, seconds: float, events: int, now: float) -> None:
        """See `Costs`."""
        began = now - seconds
        known = now - self._since
        if began >= self._last_end + WINDOW or (known >= _LEAST_SPAN and self.seconds < self._little * known):
            self._before, self._recent = _Window(self._before.began), _Window(self._recent.began)
            self._since = began
        self._since = min(self._since, began)
        self._last_end = now
        super().add(key, seconds, events, now)

    def work_span(self, now: float) -> float:
        """Seconds of time in which what is told was done."""
        return min(self.span(now), max(_LEAST_SPAN, now - self._since))
