"""Idle lanes of others: where a member writes what comes to wait, before plans know of it.

Plans are of rates, and how often a key comes is known once it has come for a while. That events wait is known at once,
and so are lanes that have nothing to do. Who has too much waiting fills those, as fast as they can begin it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace

BURST = 0.2
"""Seconds of what idle lanes do that may be written at once; a call for each, if it takes longer."""


_ROUNDING = 1e-9


@dataclass(slots=True)
class Bucket:
    """Tokens that come up by a rate per second."""

    rate: float
    filled: float
    tokens: float = 0.0

    def fill(self, now: float, most: float) -> float:
        """How many there are."""
        self.tokens = min(most, self.tokens + self.rate * (now - self.filled))
        self.filled = now
        return self.tokens


class SpareLanes:
    """Behind the slots of other members, as these have told last. Tokens are seconds of calls."""

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}
        self._idle: Mapping[int, float] = {}

    def hear(self, lanes: Mapping[int, float], now: float) -> None:
        """How many lanes are idle behind each slot."""
        fresh = {slot: Bucket(0.0, now, float("inf")) for slot in lanes}  # they have been idle for a while
        self._buckets = {slot: self._buckets.get(slot, bucket) for slot, bucket in fresh.items()}
        self._idle = lanes

    def deal(self, events: int, cost: float, part: float, room: Callable[[int], int], now: float) -> list[int]:
        """A slot for each of so many events, or of those that there is room for: the emptiest first.

        `cost`: seconds of their calls; `part`: of the idle lanes, as others fill them, too; `room`: what may be written
        to a slot for other reasons.
        """
        rooms: list[tuple[int, int]] = []
        for slot, bucket in self._buckets.items():
            bucket.rate = part * self._idle[slot]
            tokens = bucket.fill(now, max(cost, bucket.rate * max(BURST, cost)) if bucket.rate else 0.0)
            if (most := int(tokens / cost + _ROUNDING)) and (left := min(most, room(slot))) > 0:
                rooms.append((-left, slot))
        heapify(rooms)
        dealt: list[int] = []
        while rooms and len(dealt) < events and (left := -rooms[0][0]) > 0:
            slot = rooms[0][1]
            self._buckets[slot].tokens -= cost
            dealt.append(slot)
            heapreplace(rooms, (1 - left, slot))
        return dealt

    def give_back(self, slots: Iterable[int], cost: float) -> None:
        """Nothing was written for these."""
        for slot in slots:
            self._buckets[slot].tokens += cost
