"""Latencies in bounded memory."""

import math

import numpy as np
from numpy.typing import NDArray

PER_OCTAVE = 128
LEAST_EXPONENT = -40
BUCKETS = 80 * PER_OCTAVE


class Latencies:
    """How often latencies occurred, in buckets from 2^-41 s to 2^39 s that are less than 0.8 % wide each.

    A quantile is the mean of its bucket. Memory: 16 bytes for each of 10,240 buckets.
    """

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(BUCKETS, np.int64)
        self.sums: NDArray[np.float64] = np.zeros(BUCKETS)

    def add(self, other: "Latencies") -> None:
        """Take in all latencies of another one."""
        self.counts += other.counts
        self.sums += other.sums

    def clear(self) -> None:
        """Forget all of them."""
        self.counts[:] = 0
        self.sums[:] = 0.0

    def quantile(self, part: float) -> float:
        """The latency (s) that this part (above 0, up to 1) of the events doesn't exceed; NaN without events."""
        below = np.cumsum(self.counts)
        total = int(below[-1])
        if not total:
            return math.nan
        bucket = int(np.searchsorted(below, math.ceil(part * total)))
        return float(self.sums[bucket] / self.counts[bucket])
