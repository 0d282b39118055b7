"""Streams of countries: one hot key among equal ones.

Source: the synthetic data sets of Dalabasmaz and Can, "Dynamic Key Grouping" (2020), table 2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

import numpy as np

from keygrouping.settings import setting
from keygrouping.workload.model import Model
from keygrouping.workload.stream import Chunk
from keygrouping.workload.table import FixedKeys

COUNTRIES: tuple[str, ...] = tuple(
    resources.files(__package__).joinpath("countries.txt").read_text("utf-8").splitlines()
)
"""204 different names; some countries have two, as in the lists that such data comes from."""

HOT_COUNTRY = "Turkey"
"""The key that the skewed workloads repeat."""

_CHUNK = 10_000
"""Events per array; part of what a seed means."""


@dataclass(frozen=True)
class CountrySkew(Model):
    """Some events are the hot country whatever is drawn, the others uniform over all names, it among them."""

    skews: tuple[int, ...] = setting(
        (80,), "events that are the hot country, for each equal part of the stream", unit="per cent", least=0, most=100
    )

    def table(self) -> FixedKeys:
        return FixedKeys([name.encode() for name in COUNTRIES])

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:
        hot = COUNTRIES.index(HOT_COUNTRY)
        for start in range(0, events, _CHUNK):
            positions = np.arange(start, min(start + _CHUNK, events))
            skews = np.array(self.skews)[positions * len(self.skews) // events]
            is_hot = random.integers(0, 100, positions.size) < skews
            yield Chunk(np.where(is_hot, hot, random.integers(0, len(COUNTRIES), positions.size)))
