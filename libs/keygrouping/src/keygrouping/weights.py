"""Weights of events, checked: one that is NaN, infinite or negative would spoil all loads and counts behind it."""

import math

import numpy as np
from numpy.typing import NDArray


def check_weights(weights: NDArray[np.float64], named: str = "event {} of the batch") -> None:
    """ValueError, which names the first bad one by its position, unless all weights are finite and not negative."""
    if weights.size and not (weights.min() >= 0.0 and weights.max() < np.inf):  # NaN fails the first.
        bad = int(np.flatnonzero(~((weights >= 0.0) & (weights < np.inf)))[0])
        raise ValueError(f"weights must be finite and not negative; {named.format(bad)} has {float(weights[bad])!r}")


def check_weight(weight: float) -> None:
    """As `check_weights`, of one event; without an array, which would take longer than to route it."""
    if not 0.0 <= weight < math.inf:
        raise ValueError(f"weights must be finite and not negative, not {weight!r}")
