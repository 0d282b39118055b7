"""Workloads that are hard in ways of their own: weights with a heavy tail, days, and an attack on the hash."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from keygrouping.settings import setting
from keygrouping.workload.model import Model
from keygrouping.workload.popularity import Zipf
from keygrouping.workload.stream import CHUNK, Chunk
from keygrouping.workload.table import ListedKeys, NumberedKeys

COLLIDING = (
    *(1999424, 3828016, 6259892, 7509571, 10117540, 10304831, 10483208, 10987780, 13602511, 14446107),
    *(14739526, 15142680, 16135616, 16498519, 16902080, 17567329, 19295513, 20463379, 22009460, 23088654),
)
"""The hashes of `user-N` with these numbers agree in the bits 0 to 11 and 32 to 39."""

_STEPS = 4096


@dataclass(frozen=True)
class Colliding(Model):
    """Twenty keys that somebody has chosen such that their hashes agree in twenty bits; the rest is Zipf's."""

    share: float = setting(1.0, "share of the twenty keys, all alike", least=0, most=1)
    z: float = setting(1.0, "Zipf exponent of the other keys", least=0, most=10)
    keys: int = setting(10_000, "number of the other keys", least=1, most=1_000_000)

    def table(self) -> ListedKeys:
        chosen = [b"user-%d" % number for number in COLLIDING]
        return ListedKeys([*chosen, *NumberedKeys(self.prefix).keys(np.arange(1, self.keys + 1))])

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks, chosen = Zipf(self.z, self.keys), len(COLLIDING)
        while True:
            others = chosen - 1 + ranks.draw(random, CHUNK)
            yield Chunk(np.where(random.random(CHUNK) < self.share, random.integers(chosen, size=CHUNK), others))


@dataclass(frozen=True)
class ParetoWeights(Model):
    """Zipf's keys, where all events of a key have the same weight, drawn for each key by Pareto's law from 1 on."""

    alpha: float = setting(1.2, "exponent of the weights' tail", above=0, most=100)
    z: float = setting(0.0, "Zipf exponent of the frequencies; 0: all keys are equally frequent", least=0, most=10)
    keys: int = setting(10_000, "number of keys", least=1, most=10_000_000)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        weights = 1.0 + random.pareto(self.alpha, self.keys + 1)
        while True:
            keys = ranks.draw(random, CHUNK)
            yield Chunk(keys, weights[keys])


@dataclass(frozen=True)
class Diurnal(Model):
    """Keys of regions around the world, each with its own Zipf; a region's activity is a cosine of its local time."""

    day: int = setting(1_000_000, "length of a day", unit="events", least=1, most=10**12)
    regions: int = setting(24, "number of regions, evenly spread over the time zones", least=1, most=1_000)
    amplitude: float = setting(0.9, "by which activity rises and falls, as a part of its average", least=0, most=1)
    z: float = setting(1.0, "Zipf exponent within a region", least=0, most=10)
    keys: int = setting(500, "number of keys of a region", least=1, most=1_000_000)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        hours = np.linspace(0.0, 1.0, _STEPS)
        active = hours + self.amplitude / (2 * np.pi) * np.sin(2 * np.pi * hours)  # Its distribution over the hours.
        start = 0
        while True:
            now = np.arange(start, start + CHUNK) / self.day
            local = np.interp(random.random(CHUNK), active, hours)
            regions = np.floor((local - now) % 1.0 * self.regions).astype(np.int64) % self.regions
            yield Chunk(regions * self.keys + ranks.draw(random, CHUNK))
            start += CHUNK
