"""The fluctuating workload on which routing tables with migration are compared.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017), section on its
synthetic data.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keygrouping.hashing import hash_keys
from keygrouping.settings import setting
from keygrouping.workload.model import Model, sizes
from keygrouping.workload.popularity import Zipf
from keygrouping.workload.stream import Chunk
from keygrouping.workload.table import NumberedKeys

_MOST_TRIES = 4
"""Pairs drawn per key before the rest of the fluctuation is given up."""

_PAIRS = 256
"""Pairs drawn at once."""


@dataclass(frozen=True)
class Fluctuation(Model):
    """Zipf's keys that swap their frequencies between intervals until the load of an instance has changed enough.

    With L_i(d) the load of instance d in interval i when keys go to abs(hash) % instances, and Lbar the mean over d:
    at the begin of an interval one instance is drawn, and keys of other instances, drawn by their frequency, give
    theirs in exchange for lower ones to random keys of it until (L_i(d) - L_{i-1}(d)) / Lbar >= fluctuation. The
    source leaves open which instance has to reach it, and how pairs are drawn. Where the fluctuation can't be reached,
    as with z = 0, the swaps end after a while. Loads are the expected ones: those of a finite interval vary more.
    """

    fluctuation: float = setting(1.0, "change of an instance's load, in mean loads", least=0, most=10)
    z: float = setting(0.85, "Zipf exponent", least=0, most=10)
    keys: int = setting(10_000, "number of keys", least=2, most=1_000_000)
    instances: int = setting(15, "number of instances whose loads change", least=2, most=100_000)
    interval: int = setting(150_000, "length of an interval", unit="events", least=1, most=10**12)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        swaps = _Swaps(ranks, self._homes(), self.instances)
        begun = 0
        for interval, size in sizes(self.interval):
            if interval != begun:
                begun = interval
                swaps.raise_load(random, self.fluctuation)
            yield Chunk(swaps.keys[ranks.draw(random, size)])

    def _homes(self) -> NDArray[np.int64]:
        """The instance of every number of a key."""
        hashes = hash_keys(NumberedKeys(self.prefix).keys(np.arange(self.keys + 1)))[:, 0]
        return (np.abs(hashes).view(np.uint64) % np.uint64(self.instances)).astype(np.int64)


class _Swaps:
    """Which key has which rank."""

    def __init__(self, ranks: Zipf, homes: NDArray[np.int64], instances: int) -> None:
        self.keys = np.arange(ranks.keys + 1)
        """The key of every rank."""
        self._ranks = ranks
        self._rank_of = self.keys.copy()
        self._homes = homes
        self._instances = instances

    def raise_load(self, random: np.random.Generator, change: float) -> None:
        """Swap until the load of a random instance is `change` mean loads higher."""
        instance = int(random.integers(self._instances))
        members = np.flatnonzero(self._homes[1:] == instance) + 1
        missing, tries = change / self._instances, 0
        while missing > 0 and len(members) and tries < _MOST_TRIES * self._ranks.keys:
            tries += _PAIRS
            lower = members[random.integers(len(members), size=_PAIRS)]
            for high, member in zip(self._ranks.draw(random, _PAIRS).tolist(), lower.tolist(), strict=True):
                low = int(self._rank_of[member])
                if missing > 0 and high < low and self._homes[self.keys[high]] != instance:
                    missing -= self._swap(high, low)

    def _swap(self, high: int, low: int) -> float:
        """Exchange the keys of two ranks; the difference of their shares."""
        self.keys[[high, low]] = self.keys[[low, high]]
        self._rank_of[self.keys[[high, low]]] = high, low
        return float(self._ranks.share(high) - self._ranks.share(low))
