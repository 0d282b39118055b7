"""How many events per second go by, of a count that rises by whole transactions."""

from __future__ import annotations

from collections import deque

SECONDS = 10.0
"""Time over which is averaged: routers commit up to some seconds' events at once."""


class Pace:
    """The rise of a count over the last seconds, or since the first look at it."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def at(self, now: float, count: int) -> float:
        """Takes in what the count is at this moment (s); gives its rise per second."""
        looks = self._looks
        looks.append((now, count))
        while len(looks) > 2 and looks[1][0] <= now - SECONDS:
            looks.popleft()
        began, before = looks[0]
        return (count - before) / (now - began) if now > began else 0.0
