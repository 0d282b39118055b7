"""Workloads with a fixed distribution that is a formula: Zipf and log-normal."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from keygrouping.settings import setting
from keygrouping.workload.model import Model
from keygrouping.workload.popularity import Zipf
from keygrouping.workload.stream import CHUNK, Chunk

MOST_KEYS = 100_000_000
"""More keys would take more memory than their tables are worth."""

_LARGEST = 1 << 25


@dataclass(frozen=True)
class ZipfKeys(Model):
    """Zipf: the key of rank r has the share r**-z / H(keys, z). `key-1` is the most frequent one.

    Source: Nasir et al., "Partial Key Grouping" (2015), section 6.1, data set ZF: 10 M messages, z from 0.1
    to 2, 1 k to 1 M keys.
    """

    z: float = setting(1.0, "exponent; 0: all keys are equally frequent", least=0, most=10)
    keys: int = setting(10_000, "number of keys", least=1, most=MOST_KEYS)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        while True:
            yield Chunk(ranks.draw(random, CHUNK))


@dataclass(frozen=True)
class LogNormal1(Model):
    """Every event's key is a log-normal random number, rounded to a whole one: data set LN1 of the source.

    10 M events have 16 k keys, and the most frequent one, `key-0`, 14.71 % of them. Numbers above 2**25 count as that.
    Source: Nasir et al., "Partial Key Grouping" (2015), section 6.1; that the numbers are rounded
    is not said there, but gives both figures of its table I.
    """

    mu: float = setting(1.789, "mean of the logarithm", least=-10, most=10)
    sigma: float = setting(2.366, "standard deviation of the logarithm", above=0, most=10)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        while True:
            numbers = np.minimum(random.lognormal(self.mu, self.sigma, CHUNK), _LARGEST)
            yield Chunk(np.rint(numbers).astype(np.int64))


@dataclass(frozen=True)
class LogNormal2(LogNormal1):
    """Like LogNormal1, with the parameters of LN2: 10 M events have 1.1 k keys, `key-3` has 7.01 % of them."""

    mu: float = setting(2.245, "mean of the logarithm", least=-10, most=10)
    sigma: float = setting(1.133, "standard deviation of the logarithm", above=0, most=10)
