"""Compiled queues of the simulated workers; needs numba."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.simulate.latency import BUCKETS, LEAST_EXPONENT, PER_OCTAVE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@kernel
def offer(weights: Floats, events: int, gap: float, offered: Floats) -> Floats:
    """When each event comes, if each is followed by a gap in proportion to its weight (empty: 1).

    `offered` is the weight so far.
    """
    times = np.empty(events, np.float64)
    weighted = len(weights) > 0
    for i in range(events):
        times[i] = offered[0] * gap
        offered[0] += weights[i] if weighted else 1.0
    return times


@kernel
def bucket_of(latency: float) -> Any:
    """The bucket of a latency: PER_OCTAVE of them from each power of two to the next."""
    fraction, exponent = math.frexp(latency)
    bucket = (exponent - LEAST_EXPONENT) * PER_OCTAVE + int((2.0 * fraction - 1.0) * PER_OCTAVE)
    return min(max(bucket, 0), BUCKETS - 1)


@kernel
def serve(
    workers: NDArray[np.int32],
    weights: Floats,
    times: Floats,
    service: Floats,
    free: Floats,
    counts: Integers,
    sums: Floats,
) -> None:
    """Workers with endless queues take events that come at these times; `free`: when each is done with what it has."""
    weighted = len(weights) > 0
    for i in range(len(workers)):
        worker = workers[i]
        begin = max(times[i], free[worker])
        free[worker] = begin + (service[worker] * weights[i] if weighted else service[worker])
        latency = free[worker] - times[i]
        bucket = bucket_of(latency)
        counts[bucket] += 1
        sums[bucket] += latency


@kernel
def saturate(
    workers: NDArray[np.int32],
    weights: Floats,
    service: Floats,
    free: Floats,
    places: Floats,
    following: Integers,
    released: Floats,
) -> None:
    """Workers with short queues take events that come as soon as there is a place for them, in their order.

    `places[worker, i]`: when that place of its queue becomes free; `following`: the place for its next event;
    `released`: when the last event left its source.
    """
    weighted = len(weights) > 0
    size = places.shape[1]
    for i in range(len(workers)):
        worker = workers[i]
        place = following[worker]
        released[0] = max(released[0], places[worker, place])
        begin = max(released[0], free[worker])
        free[worker] = begin + (service[worker] * weights[i] if weighted else service[worker])
        places[worker, place] = free[worker]
        following[worker] = place + 1 if place + 1 < size else 0
