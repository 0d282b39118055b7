"""Compiled greedy stage of the discretisation; needs numba."""

import math

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping.protocol import Weights


@kernel
def below(value: float, degree: int) -> float:
    """The largest representative value that does not exceed `value`, at least 1."""
    if value >= degree:
        return math.floor(value / degree) * degree
    return math.ldexp(0.5, math.frexp(value)[1])


@kernel
def discretise(values: Weights, parts: NDArray[np.int64], degree: int) -> Weights:
    """A representative for each value, so that the errors of each part cancel out.

    Values are at least 1; those of a part stand together in falling order.
    """
    chosen = np.empty_like(values)
    largest = 0.0
    missing = 0.0
    for i in range(len(values)):
        value = values[i]
        if i == 0 or parts[i] != parts[i - 1]:
            largest = math.ceil(value / degree) * degree
            missing = 0.0
        representative = below(value, degree)
        if missing > 0 and 1 < value < largest:
            representative += degree if value >= degree else representative
        missing += value - representative
        chosen[i] = representative
    return chosen
