"""The stabilization window of W: workers that restart one after the other are missed for a moment only."""

from __future__ import annotations

from collections import deque


class Stabilization:
    """Says what W should be after each look at the number of workers that run.

    It follows more workers at once, and fewer once there have been no more in a window of `grace` seconds.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._seen: deque[tuple[float, int]] = deque()

    def wanted(self, present: int, running: int, now: float) -> int:
        """W, which is `present` now; so many workers run at `now`, in seconds of a steady clock."""
        seen = self._seen
        seen.append((now, running))
        while len(seen) > 1 and seen[1][0] <= now - self._grace:
            seen.popleft()
        most = max(count for _, count in seen)
        lasting = seen[0][0] <= now - self._grace
        if running > present:
            return running
        return most if lasting and 0 < most < present else present
