"""What a handler's calls have cost and how they ended, counted as cheaply as every call needs it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds in seconds."""
HANDLED = "handled"
UNREADABLE = "unreadable_state"
"""Why a call fails whose key has a state that can't be read."""
REASONS = ("failed", "timeout", "rejected", "undecodable", "invalid_output", "invalid_state", UNREADABLE, "crashed")
"""Why calls fail, as in the headers of dead letters."""
REFUSED = "refused_output"
"""Why an event is a dead letter although its call has succeeded: a broker refuses its outputs for good."""
REFUSED_STATE = "refused_state"
"""The same, of what its call has made of the state."""
NOT_OF_CALLS = (REFUSED, REFUSED_STATE)

ENDS = ("died", "late")
"""Why a process of the handler was replaced: it has ended by itself or was killed, or its call was late."""


class Tally:
    """Of one handler, since the start; seconds per call."""

    def __init__(self) -> None:
        self.calls = {outcome: [0] * (len(BUCKETS) + 1) for outcome in (HANDLED, *REASONS)}
        """How many took up to each bound, and how many longer than all."""
        self.seconds = dict.fromkeys(self.calls, 0.0)
        self.dead = Counter(dict.fromkeys((*REASONS, *NOT_OF_CALLS), 0))
        """Events that have failed for good."""
        self.ended = 0
        """Events that have ended, those included."""
        self.replaced = Counter(dict.fromkeys(ENDS, 0))
        """Processes that were replaced."""

    def add(self, outcome: str, seconds: float) -> None:
        """A call has ended."""
        self.calls[outcome][bisect_left(BUCKETS, seconds)] += 1
        self.seconds[outcome] += seconds

    def add_all(self, outcome: str, seconds: list[float]) -> None:
        """Calls have ended alike."""
        counts = self.calls[outcome]
        for each in seconds:
            counts[bisect_left(BUCKETS, each)] += 1
        self.seconds[outcome] += sum(seconds)


class Typical:
    """What half of the calls of late take longer than: `seconds`.

    On a busy machine a mean would tell how long others have the CPU while a call runs.
    """

    _STEP = 1.1

    def __init__(self) -> None:
        self.seconds = 1.0

    def add(self, seconds: float) -> None:
        """A call took so long."""
        self.seconds *= self._STEP if seconds > self.seconds else 1 / self._STEP
