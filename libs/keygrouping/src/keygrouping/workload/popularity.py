"""Draws of ranks and other outcomes with given probabilities, many at a time."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

_HEAD = 1 << 15
"""Ranks that have a cell of their own: their tables stay in the processor's cache."""

_GROWTH = 16
"""A block of ranks behind them holds a sixteenth as many ranks as there are before it."""


class Choice:
    """Outcomes 0 to n - 1 with probabilities in proportion to their weights, by Walker's alias method.

    Takes 16 bytes per outcome. One random number is used per draw.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        size = len(weights)
        scaled = weights * (size / weights.sum())
        self._size = np.nextafter(float(size), 0.0)
        self._keep = np.ones(size)
        self._alias = np.arange(size)
        light, heavy = np.flatnonzero(scaled <= 1), np.flatnonzero(scaled > 1)
        if not len(heavy):
            return
        # The heavy ones in turn fill up the light ones in turn, so that sums say who fills whom. A heavy one that
        # has given too much is filled up by the next.
        lacking, spare = np.cumsum(1 - scaled[light]), np.cumsum(scaled[heavy] - 1)
        before = np.concatenate([[0.0], lacking[:-1]])[: len(light)]
        self._keep[light] = scaled[light]
        self._alias[light] = heavy[np.minimum(np.searchsorted(spare, before, "right"), len(heavy) - 1)]
        overdrawn = np.searchsorted(lacking, spare[:-1])
        overdrawing = np.flatnonzero(overdrawn < len(light))
        excess = lacking[overdrawn[overdrawing]] - spare[overdrawing]
        self._keep[heavy[overdrawing]] = np.clip(1 - excess, 0, 1)
        self._alias[heavy[overdrawing]] = heavy[overdrawing + 1]

    def draw(self, random: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` outcomes."""
        places = random.random(size)
        places *= self._size
        outcomes = places.astype(np.int64)
        places -= outcomes
        return np.where(places < self._keep[outcomes], outcomes, self._alias[outcomes])


class Zipf:
    """Ranks r from 1 to `keys` with probabilities r**-z / H(keys, z), H the generalised harmonic number.

    Exact for every z >= 0, and its memory (under 1 MB) does not depend on the number of keys: the first ranks are
    drawn one by one, those behind them by blocks and then by rejection inside of the block.
    """

    def __init__(self, z: float, keys: int) -> None:
        self.z = z
        self.keys = keys
        self._head = min(keys, _HEAD)
        starts = [self._head + 1]
        while starts[-1] <= keys:
            starts.append(starts[-1] + starts[-1] // _GROWTH)
        starts[-1] = keys + 1
        blocks = [power_sum(start, stop, z) for start, stop in itertools.pairwise(starts)]
        edges = np.array(starts, np.float64)
        self._starts = edges[:-1]
        self._sizes = np.nextafter(np.diff(edges), 0.0)
        self._least = (edges[:-1] / edges[1:]) ** z
        ranks = np.arange(1, self._head + 1, dtype=np.float64)
        weights = np.concatenate([ranks**-z, blocks])
        self._total = float(weights.sum())
        self._choice = Choice(weights)

    def share(self, ranks: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """The probabilities of these ranks."""
        shares: NDArray[np.float64] = np.asarray(ranks, np.float64) ** -self.z / self._total
        return shares

    def draw(self, random: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` ranks."""
        ranks = self._choice.draw(random, size)
        ranks += 1
        if self.keys > self._head:
            behind = np.flatnonzero(ranks > self._head)
            ranks[behind] = self._draw_behind(random, ranks[behind] - (self._head + 1))
        return ranks

    def _draw_behind(self, random: np.random.Generator, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """A rank of each of these blocks."""
        ranks = np.empty(len(blocks), np.int64)
        left = np.arange(len(blocks))
        while len(left):
            block = blocks[left]
            start = self._starts[block]
            drawn = np.floor(start + random.random(len(left)) * self._sizes[block])
            level = random.random(len(left))
            taken = level < self._least[block]  # true for nearly all, without a power
            unsure = np.flatnonzero(~taken)
            taken[unsure] = level[unsure] < (start[unsure] / drawn[unsure]) ** self.z
            ranks[left[taken]] = drawn[taken]
            left = left[~taken]
        return ranks


def power_sum(start: int, stop: int, z: float) -> float:
    """The sum of r**-z over start <= r < stop, for start >= 1000, by Euler and Maclaurin (relative error < 1e-12)."""
    low, high = float(start), float(stop)
    ratio = math.log(high / low)
    integral = ratio if z == 1 else low ** (1 - z) * math.expm1((1 - z) * ratio) / (1 - z)
    ends = (low**-z - high**-z) / 2
    return float(integral + ends + z / 12 * (low ** (-z - 1) - high ** (-z - 1)))


def harmonic(keys: int, z: float) -> float:
    """H(keys, z), the sum of r**-z over the ranks 1 to keys."""
    head = min(keys, 4096)
    total = float((np.arange(1, head + 1, dtype=np.float64) ** -z).sum())
    return total + (power_sum(head + 1, keys + 1, z) if keys > head else 0.0)


def exponent(keys: int, top_share: float) -> float:
    """The z with which the first of `keys` ranks has this share; top_share is from 1 / keys to under 1."""
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 / harmonic(keys, middle) < top_share else (low, middle)
    return high
