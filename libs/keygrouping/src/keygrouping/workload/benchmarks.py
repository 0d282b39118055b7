"""Streams as the generators of public benchmarks make them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from keygrouping.settings import setting
from keygrouping.workload.model import Model
from keygrouping.workload.popularity import Zipf
from keygrouping.workload.stream import CHUNK, Chunk

_FIRSTS = 1_000_000
_AUCTIONS, _BIDS = 3, 46
"""Of fifty events of Nexmark one is a person, these are auctions and bids."""
_AHEAD = 10
"""Auctions that bids know before they are there."""
_HOT_AUCTIONS = 100
"""Of so many auctions one is hot."""


@dataclass(frozen=True)
class NexmarkBids(Model):
    """Bids of Nexmark by their auctions: half of them are for a hot one, which is another after some 1,500 bids.

    The others are uniform over those in flight. Source: the generator of Apache Beam's Nexmark suite, with its defaults
    for auctions in flight and hot auctions.
    """

    prefix: ClassVar[bytes] = b"auction-"
    hot: float = setting(0.5, "share of the hot auction", least=0, most=1)
    flight: int = setting(100, "auctions in flight", least=1, most=1_000_000)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        bid = int(random.integers(_FIRSTS))
        while True:
            newest = self.flight + np.arange(bid, bid + CHUNK) * _AUCTIONS // _BIDS
            other = newest - self.flight + random.integers(0, self.flight + 1 + _AHEAD, CHUNK)
            hot = newest // _HOT_AUCTIONS * _HOT_AUCTIONS
            yield Chunk(np.where(random.random(CHUNK) < self.hot, hot, other))
            bid += CHUNK


@dataclass(frozen=True)
class YcsbLatest(Model):
    """Records by YCSB's "latest" distribution: the newest are read most, by Zipf, while new ones are inserted.

    Source: Cooper et al., "Benchmarking Cloud Serving Systems with YCSB" (SoCC 2010), workload D.
    """

    prefix: ClassVar[bytes] = b"record-"
    inserts: float = setting(0.05, "share of the events that insert a record", least=0, most=1)
    z: float = setting(0.99, "Zipf exponent of the age", least=0, most=10)
    records: int = setting(10_000, "records that are read", least=1, most=10_000_000)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ages = Zipf(self.z, self.records)
        newest = self.records + int(random.integers(_FIRSTS))
        while True:
            inserted = random.random(CHUNK) < self.inserts
            now = newest + np.cumsum(inserted)
            yield Chunk(np.where(inserted, now, now + 1 - ages.draw(random, CHUNK)))
            newest = int(now[-1])


@dataclass(frozen=True)
class TpccItems(Model):
    """Items that TPC-C orders: NURand(8191, 1, 100000), a bitwise or of two uniform numbers.

    Source: TPC Benchmark C, revision 5.11, clause 2.1.6.
    """

    prefix: ClassVar[bytes] = b"item-"
    a: int = setting(8191, "bits of the smaller number; a power of two less one", least=0, most=2**20 - 1)
    items: int = setting(100_000, "number of items", least=1, most=10_000_000)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        constant = int(random.integers(0, self.a + 1))
        while True:
            either = random.integers(0, self.a + 1, CHUNK) | random.integers(1, self.items + 1, CHUNK)
            yield Chunk((either + constant) % self.items + 1)
