"""Generators with the published statistics of real data sets, for when their dumps are not at hand.

Sources: Nasir et al., "Partial Key Grouping" (2015), table I; Dalabasmaz and Can, "Dynamic Key Grouping" (2020),
table 2; for Nasdaq Chen, Zhang and Jin, "Popularity-aware Differentiated Distributed Stream Processing on Skewed
Streams" (2017), sections I and V. What they leave open is a setting, and named an assumption.

Unless stated otherwise popularity is Zipf's, with the exponent that gives the published share to the most frequent
of the keys there are. There are somewhat more keys than published where the published ones are those that were met:
as many as let the published number of events meet the published number of keys.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.hashing import SEED
from keygrouping.settings import setting
from keygrouping.workload.model import Model
from keygrouping.workload.popularity import Choice, Zipf, exponent
from keygrouping.workload.stream import CHUNK, Chunk
from keygrouping.workload.synthetic import MOST_KEYS
from keygrouping.workload.table import NumberedKeys


def keys_setting(default: int) -> Any:
    return setting(default, "keys there are, met or not", least=2, most=MOST_KEYS)


def share_setting(default: float, of: str = "the events") -> Any:
    return setting(default, f"share of {of} that the most frequent key has", above=0, most=0.999)


@dataclass(frozen=True)
class Popular(Model):
    """Zipf's popularity by number of keys and share of the first."""

    keys: int = keys_setting(10_000)
    top_share: float = share_setting(0.1)

    def _faults(self) -> list[str]:
        return too_small("top_share", self.top_share, self.keys)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = self.ranks()
        while True:
            yield Chunk(ranks.draw(random, CHUNK))

    def ranks(self) -> Zipf:
        """The distribution of the keys."""
        return Zipf(exponent(self.keys, self.top_share), self.keys)


def too_small(name: str, share: float, keys: int) -> list[str]:
    """The fault of a share that can't be the largest of so many keys' shares."""
    return [f"{name} must be at least 1/{keys} with {keys} keys, not {share!r}"] if share * keys < 1 else []


@dataclass(frozen=True)
class WikipediaPageviews(Popular):
    """Pages of Wikipedia visited in a day (data set WP): 22 M visits, 2.9 M pages, the first has 9.32 %."""

    prefix: ClassVar[bytes] = b"page-"
    keys: int = keys_setting(24_465_830)
    top_share: float = share_setting(0.0932)


@dataclass(frozen=True)
class Words(Popular):
    """Words of tweets (data set TW): 1.2 G words, 31 M different ones, the first has 2.67 %."""

    prefix: ClassVar[bytes] = b"word-"
    keys: int = keys_setting(31_101_800)
    top_share: float = share_setting(0.0267)


@dataclass(frozen=True)
class Ticker(Popular):
    """Ticker symbols in tweets: 1.5 M, the first has 10 %. Their number is an assumption: that of data set CT."""

    prefix: ClassVar[bytes] = b"$ticker-"
    keys: int = keys_setting(2_900)
    top_share: float = share_setting(0.1)


@dataclass(frozen=True)
class TwitterElection(Model):
    """Hashtags of an election day's tweets: 5 M, of which ElectionDay, here `tag-0`, has 68 %.

    The others are an assumption: Zipf with z = 1 over as many hashtags as give shuffle grouping the published
    DIST_COST of 2.449 with 10 workers after 5 M events.
    """

    prefix: ClassVar[bytes] = b"tag-"
    top_share: float = share_setting(0.68)
    keys: int = keys_setting(282_560)
    z: float = setting(1.0, "Zipf exponent of the keys behind the first", least=0, most=10)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        others = Zipf(self.z, self.keys - 1)
        while True:
            is_first = random.random(CHUNK) < self.top_share
            yield Chunk(np.where(is_first, 0, others.draw(random, CHUNK)))


@dataclass(frozen=True)
class Cashtags(Popular):
    """Cashtags with weekly drift (data set CT): 690 k in November 2013, 2.9 k different ones, the first has 3.29 %.

    The stream is cut into equal weeks. Every week other keys take the first ranks: how many is an assumption. The
    share of the first key is that over all weeks; within its best week it is larger.
    """

    prefix: ClassVar[bytes] = b"$"
    keys: int = keys_setting(2_900)
    top_share: float = share_setting(0.0329, "all events")
    weeks: int = setting(4, "number of equal parts of the stream", least=1, most=1000)
    turnover: int = setting(5, "first ranks whose keys are replaced each week", least=0, most=1_000_000)

    def _faults(self) -> list[str]:
        if self.weeks * self.turnover > self.keys:
            return [f"weeks times turnover must be at most {self.keys}, not {self.weeks * self.turnover}"]
        return too_small("top_share", self.top_share, self.keys)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:
        ranks = self.ranks()
        for week in range(self.weeks):
            left = events * (week + 1) // self.weeks - events * week // self.weeks
            keys = np.arange(self.keys + 1)
            keys[1 : 1 + self.weeks * self.turnover] = np.roll(
                keys[1 : 1 + self.weeks * self.turnover], -week * self.turnover
            )
            while left:
                size = min(CHUNK, left)
                yield Chunk(keys[ranks.draw(random, size)])
                left -= size

    def ranks(self) -> Zipf:
        """The distribution within a week, such that the first key has its share over all weeks.

        With `weeks` ranks that are `turnover` apart in turn, that is the mean share of the ranks 1, 1 + turnover, ...
        """
        low, high = 0.0, 64.0
        for _ in range(60):
            ranks = Zipf((low + high) / 2, self.keys)
            mean = float(ranks.share(1 + np.arange(self.weeks) * self.turnover).mean())
            low, high = (ranks.z, high) if mean < self.top_share else (low, ranks.z)
        return ranks


@dataclass(frozen=True)
class WeightedPopular(Popular):
    """Lines that stand for several events each: a key's share of the weight and of the lines may differ."""

    top_share: float = share_setting(0.1, "the weight")
    top_lines: float = share_setting(0.1, "the lines")
    mean_weight: float = setting(10.0, "mean weight of a line", least=1, most=1e9)

    def _faults(self) -> list[str]:
        return super()._faults() + too_small("top_lines", self.top_lines, self.keys)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        lines, weight = Zipf(exponent(self.keys, self.top_lines), self.keys), self.ranks()
        while True:
            ranks = lines.draw(random, CHUNK)
            means = self.mean_weight * weight.share(ranks) / lines.share(ranks)
            yield Chunk(ranks, _whole(np.maximum(means - 1, 0) * _spread(random, CHUNK), random) + 1)


@dataclass(frozen=True)
class Clickstream(WeightedPopular):
    """Clicks by the page that they lead to, weighted by their counts: 8 000 M clicks, the first page has 10 %.

    Assumptions: 22 M lines (as in the release of February 2015), 3 M pages, and that the first page is in 0.5 % of the
    lines: a line is a pair of pages, so that a page has at most as many lines as it is linked from.
    """

    prefix: ClassVar[bytes] = b"page-"
    keys: int = keys_setting(3_000_000)
    top_share: float = share_setting(0.1, "the weight")
    top_lines: float = share_setting(0.005, "the lines")
    mean_weight: float = setting(364.0, "mean clicks of a line", least=1, most=1e9)


@dataclass(frozen=True)
class PageviewsByLanguage(WeightedPopular):
    """Page views by language, weighted by their counts: 588 M views, the first language has 27 %.

    Assumptions: 300 languages, 5 views in the mean line of an hour's dump, in all languages alike.
    """

    prefix: ClassVar[bytes] = b"language-"
    keys: int = keys_setting(300)
    top_share: float = share_setting(0.27, "the weight")
    top_lines: float = share_setting(0.27, "the lines")
    mean_weight: float = setting(5.0, "mean views of a line", least=1, most=1e9)


@dataclass(frozen=True)
class Nasdaq(Model):
    """Trades by symbol: 274 M in April 2017, 6 649 symbols, 8 % of which have 80 % of the trades.

    Popularity is log-normal, with the spread that gives these shares. A trade's shares are an assumption: round lots
    of 100, log-normal.
    """

    prefix: ClassVar[bytes] = b"symbol-"
    keys: int = keys_setting(6_649)
    head: float = setting(0.08, "part of the keys that are the head", above=0, most=0.5)
    head_share: float = setting(0.8, "share of the events that the head has", above=0, most=0.999)
    volume: bool = setting(False, "whether a trade weighs the number of its shares instead of 1")

    def _faults(self) -> list[str]:
        if self.head * self.keys < 1:
            return [f"head must be at least 1/{self.keys} with {self.keys} keys, not {self.head!r}"]
        return [] if self.head_share >= self.head else [f"head_share must be at least head, not {self.head_share!r}"]

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        choice = Choice(self._popularity())
        while True:
            ranks = choice.draw(random, CHUNK) + 1
            yield Chunk(ranks, 100 * np.ceil(random.lognormal(0, 1, CHUNK)) if self.volume else None)

    def _popularity(self) -> NDArray[np.float64]:
        normal = NormalDist()
        quantiles = np.array([normal.inv_cdf(1 - (rank - 0.5) / self.keys) for rank in range(1, self.keys + 1)])
        head = math.ceil(self.head * self.keys)
        low, high = 0.0, 64.0
        for _ in range(60):
            middle = (low + high) / 2
            weights: NDArray[np.float64] = np.exp(middle * (quantiles - quantiles[0]))
            reached = weights[:head].sum() / weights.sum() >= self.head_share
            low, high = (low, middle) if reached else (middle, high)
        return weights


@dataclass(frozen=True)
class Graph(Popular):
    """Edges of a graph: the key is the vertex that an edge goes to, its source the vertex that it comes from.

    The popular vertices are the same ones at both ends; how skewed the sources are is an assumption.
    """

    prefix: ClassVar[bytes] = b""
    top_source: float = share_setting(0.01, "the edges, as their source,")

    def _faults(self) -> list[str]:
        return super()._faults() + too_small("top_source", self.top_source, self.keys)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks, source_ranks = self.ranks(), Zipf(exponent(self.keys, self.top_source), self.keys)
        vertices = NumberedKeys(self.prefix)
        while True:
            keys = ranks.draw(random, CHUNK)
            sources = vertices.positions(source_ranks.draw(random, CHUNK))
            yield Chunk(keys, None, vertices.hashes((SEED,))[sources, 0])


@dataclass(frozen=True)
class LiveJournal(Graph):
    """Friends on LiveJournal (data set LJ): 69 M edges, 4.9 M vertices, the first has 0.29 %."""

    keys: int = keys_setting(4_915_321)
    top_share: float = share_setting(0.0029)
    top_source: float = share_setting(0.0029, "the edges, as their source,")


@dataclass(frozen=True)
class Slashdot0811(Graph):
    """Friends and foes on Slashdot in November 2008 (SL1): 905 k edges, 77 k vertices, the first has 3.28 %."""

    keys: int = keys_setting(80_196)
    top_share: float = share_setting(0.0328)
    top_source: float = share_setting(0.0328, "the edges, as their source,")


@dataclass(frozen=True)
class Slashdot0902(Graph):
    """Friends and foes on Slashdot in February 2009 (SL2): 948 k edges, 82 k vertices, the first has 3.11 %."""

    keys: int = keys_setting(85_355)
    top_share: float = share_setting(0.0311)
    top_source: float = share_setting(0.0311, "the edges, as their source,")


def _spread(random: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Log-normal factors with a mean of 1."""
    return random.lognormal(-0.5, 1, size)


def _whole(values: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Whole numbers around the values with the same mean."""
    return np.floor(values + random.random(len(values)))
