"""When something that a handler needs is away: all of it waits, and one call at a time tries whether it is back."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

LEAST_EVENTS = 3
"""So many events have to fail before the handler pauses: tries of one or two say something of those only."""

State = Literal["closed", "open", "probing"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """Pauses a handler when more than `share` of its last `calls` calls have failed, of three events at least.

    The first probe comes after `first` seconds; the pause doubles up to `most`, each half to one and a half times that.
    """

    calls: int = 10
    share: float = 0.5
    first: float = 1.0
    most: float = 30.0

    def pause(self, failed: int) -> float:
        """Seconds before the next probe when `failed` have failed already."""
        return min(self.most, self.first * 2.0 ** min(failed, 60)) * random.uniform(0.5, 1.5)

    def circuit(self) -> Circuit:
        """Its state, closed."""
        return Circuit(self.calls, self.share, self.pause)


class Circuit:
    """The state of one handler's breaker; times are seconds of the caller's clock.

    Closed, it lets all through. Open, it lets nothing through until `free_at`, then one call, the probe. When a probe
    succeeds, it closes; when one fails, it waits longer. A probe that says nothing of what the handler needs (a
    rejected event) is followed by another one at once.
    """

    def __init__(self, calls: int, share: float, pause: Callable[[int], float]) -> None:
        self._wanted = calls * share
        self._pause = pause
        self._recent: deque[Hashable | None] = deque(maxlen=calls)
        self._probe: object | None = None
        self._failed_probes = 0
        self._free_at = 0.0
        self.is_open = False
        self.opened_at = 0.0
        """When it was opened, if it is open."""
        self.troubled = False
        """Whether anything has failed of late; while nothing has, successes need not be told."""

    @property
    def state(self) -> State:
        """In a word."""
        if not self.is_open:
            return "closed"
        return "open" if self._probe is None else "probing"

    @property
    def free_at(self) -> float:
        """When the next probe may start; infinite while one is at work."""
        return self._free_at if self._probe is None else float("inf")

    def probe(self, call: object) -> None:
        """A call starts although it is open."""
        self._probe = call

    def succeeded(self, call: object) -> None:
        """A call has succeeded. Of those that began before it was opened, none closes it."""
        if not self.is_open:
            self._note(None)
        elif call is self._probe:
            self.is_open = self.troubled = False
            self._probe = None
            self._recent.clear()

    def skipped(self, call: object, now: float) -> None:
        """A call has ended in a way that says nothing of what the handler needs."""
        if call is self._probe:
            self._probe = None
            self._free_at = now

    def failed(self, call: object, event: Hashable, now: float) -> None:
        """A call for an event has failed."""
        if self.is_open:
            if call is self._probe:
                self._probe = None
                self._failed_probes += 1
                self._free_at = now + self._pause(self._failed_probes)
            return
        self._note(event)
        failed = [each for each in self._recent if each is not None]
        if len(failed) > self._wanted and len(set(failed)) >= LEAST_EVENTS:
            self.is_open = True
            self.opened_at = now
            self._failed_probes = 0
            self._free_at = now + self._pause(0)

    def _note(self, failed: Hashable | None) -> None:
        self._recent.append(failed)
        self.troubled = any(each is not None for each in self._recent)
