"""Latencies in buckets that grow by a fiftieth: small whatever their number, and processes can add theirs up."""

from __future__ import annotations

import math
from collections import Counter
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

_GROWTH = math.log(1.02)
_LEAST = 1e-6


class Latencies(BaseModel):
    """How many latencies fell into each bucket, and the longest of them, in seconds.

    A quantile is at most 2 % off; latencies below a microsecond count as one.
    """

    buckets: Counter[int] = Field(default_factory=Counter)
    longest: float = 0.0

    def add(self, seconds: NDArray[np.float64]) -> None:
        """Counts these, shape (n,)."""
        if not seconds.size:
            return
        places = np.floor(np.log(np.maximum(seconds, _LEAST) / _LEAST) / _GROWTH).astype(np.int64)
        counts = np.bincount(places)
        for place in np.flatnonzero(counts).tolist():
            self.buckets[place] += int(counts[place])
        self.longest = max(self.longest, float(seconds.max()))

    def joined(self, other: Self) -> Self:
        """Both together."""
        return type(self)(buckets=self.buckets + other.buckets, longest=max(self.longest, other.longest))

    def quantile(self, part: float) -> float:
        """The latency that this part of all is not above, in seconds; 0 if there are none."""
        wanted, met = part * self.buckets.total(), 0
        for place in sorted(self.buckets):
            met += self.buckets[place]
            if met >= wanted:
                return min(self.longest, _LEAST * math.exp((place + 1) * _GROWTH))
        return 0.0
