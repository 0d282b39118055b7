"""Strain: how far a worker is above the level, over what explains that; what it says of plans."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from keygrouping.grouping.base import loads_from
from keygrouping.grouping.level_fill.settings import LevelFillSettings
from keygrouping.grouping.level_fill.state import Arrays
from keygrouping.grouping.protocol import Weights

_WIDE = 0.5
"""Of 1, that much is left after seven intervals, with a memory of ten."""
_ROUNDING = 1e-6
"""Of the level: what is allowed where nothing is."""


def above(arrays: Arrays, outside: Weights) -> Weights:
    """How far each worker is above the level, or above what was routed there from `outside`; parts of the level."""
    average = arrays.average
    if not average:
        return np.zeros(len(arrays.loads))
    excess: Weights = arrays.loads + arrays.left - np.maximum(average, outside * arrays.slowness)
    return excess / average


def strain(arrays: Arrays, outside: Weights, settings: LevelFillSettings) -> float:
    """The strain of this interval so far; above 1 nothing explains it.

    Light keys explain `eps`, `noise`, and the least `slack` of those on the worker, as one of them would have spilled
    by now; cold keys explain what chance makes of them; and nothing is more level than by one event.
    """
    average, mass, workers = arrays.average, arrays.mass, len(arrays.loads)
    if not mass or not average:
        return 0.0
    deviation = np.sqrt(float(arrays.state["unit"][0]) / average)
    light = np.flatnonzero(arrays.tracked & ~arrays.keys["hot"])
    slack = np.full(workers, np.inf)
    np.minimum.at(slack, arrays.keys["current"][light], arrays.keys["slack"][light])
    slack[np.isinf(slack)] = 0.0
    cold = min(1.0, float(np.maximum(arrays.cold, 0.0).sum()) / mass)
    # The fullest of all workers, if each has the same; the second part counts where they have few events.
    tail = np.log(workers) * cold * arrays.slowness
    by_chance = np.sqrt(2 * tail) * deviation + tail * deviation**2 / 3
    noise, event = min(settings.noise * deviation, arrays.most_noise / average), deviation**2
    explained = settings.eps + noise + event + by_chance + slack / average
    return max(0.0, float((above(arrays, outside) / np.maximum(explained, _ROUNDING)).max()))


@dataclass(frozen=True)
class Strains:
    """Strain with the workers that plans give to keys, and with those that keys have got; whichever is less is kept."""

    planned: float = 0.0
    """That of the last interval in which keys had the workers that were planned."""
    kept: float = 0.0
    """That of the last one in which they kept what they had; it fades from interval to interval."""
    wide: float = 0.0
    """1 after an interval with too much strain, then less from interval to interval; 0: plans hold."""

    @classmethod
    def parsed(cls, data: Mapping[str, Any]) -> Self:
        """Out of JSON data; a KeyError, TypeError or ValueError if it is none."""
        return cls(*loads_from([data[name] for name in ("planned", "kept", "wide")], 3).tolist())

    def to_data(self) -> dict[str, float]:
        """As plain JSON data."""
        return {"planned": self.planned, "kept": self.kept, "wide": self.wide}

    def keeps(self, strain: float) -> bool:
        """Whether keys keep the workers that they have got, rather than have as many as planned.

        `strain`: that of the interval so far; above that with planned workers, a plan may help.
        """
        return self.wide >= _WIDE and strain <= self.planned

    def next(self, strain: float, memory: int) -> "Strains":
        """After an interval with a plan that had this strain; what is known fades within `memory` intervals."""
        fading = 1 - 1 / memory
        if self.wide >= _WIDE:
            return Strains(self.planned, strain, self.wide * fading if strain < self.planned else 0.0)
        kept = self.kept * fading
        return Strains(strain, kept, float(strain > max(1.0, kept)))
