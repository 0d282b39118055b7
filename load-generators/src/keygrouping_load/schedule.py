"""When each event is to be sent, whatever has become of those before it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Schedule:
    """Event i of a run is due i / `rate` seconds after the start; slot s of n has the events s, s + n, s + 2n, ...

    `events` counts those of all slots. Places number the events of this slot alone, from 0 on.
    """

    rate: float
    events: int
    slot: int = 0
    slots: int = 1

    @property
    def size(self) -> int:
        """Events of this slot."""
        return len(range(self.slot, self.events, self.slots))

    def due(self, passed: float) -> int:
        """How many of this slot's events are due once `passed` seconds have passed since the start."""
        turns = (passed * self.rate - self.slot) / self.slots
        return min(self.size, math.floor(turns) + 1) if turns >= 0 else 0

    def number(self, place: int) -> int:
        """The number of an event in the whole run."""
        return place * self.slots + self.slot

    def intended(self, place: int) -> float:
        """Seconds after the start at which it is due."""
        return self.number(place) / self.rate

    def intended_all(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same for many; the same shape."""
        return (places * self.slots + self.slot) / self.rate
