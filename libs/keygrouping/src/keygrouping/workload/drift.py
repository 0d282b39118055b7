"""Workloads whose hot keys change: what a grouping has to notice, and how fast."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.settings import setting
from keygrouping.workload.model import Model, sizes
from keygrouping.workload.popularity import Zipf
from keygrouping.workload.stream import CHUNK, Chunk
from keygrouping.workload.synthetic import MOST_KEYS


def _z(default: float) -> Any:
    return setting(default, "Zipf exponent of the keys behind", least=0, most=10)


def _keys(default: int) -> Any:
    return setting(default, "number of keys", least=2, most=MOST_KEYS)


def _interval(default: int = 150_000) -> Any:
    return setting(default, "length of an interval", unit="events", least=1, most=10**12)


def _share(default: float, meaning: str) -> Any:
    return setting(default, meaning, least=0, most=1)


@dataclass(frozen=True)
class Step(Model):
    """One hot key, `key-0`, whose share of the events changes once; the other events have keys by Zipf."""

    before: float = _share(0.8, "share of the hot key at first")
    after: float = _share(0.0, "its share afterwards")
    at: float = _share(0.5, "part of the stream after which it changes")
    z: float = _z(0.0)
    keys: int = _keys(204)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:
        ranks = Zipf(self.z, self.keys - 1)
        change = round(events * self.at)
        for start in range(0, events, CHUNK):
            share = np.where(np.arange(start, start + CHUNK) < change, self.before, self.after)
            yield Chunk(_with_hot(random, ranks.draw(random, CHUNK), 0, share))


@dataclass(frozen=True)
class MovingHotKey(Model):
    """In every interval another key has a share of the events of its own; the rest of them are Zipf's."""

    share: float = _share(0.5, "share of the hot key")
    interval: int = _interval()
    z: float = _z(0.0)
    keys: int = _keys(100_000)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        first = int(random.integers(self.keys))
        for interval, size in sizes(self.interval):
            hot = (first + interval) % self.keys + 1
            yield Chunk(_with_hot(random, ranks.draw(random, size), hot, self.share))


@dataclass(frozen=True)
class Burst(Model):
    """Zipf's keys; at the end of every interval a key that is drawn at random from all of them bursts."""

    share: float = _share(0.5, "share of the bursting key")
    length: int = setting(15_000, "length of a burst", unit="events", least=1, most=10**12)
    interval: int = _interval()
    z: float = _z(1.0)
    keys: int = _keys(10_000)

    def _faults(self) -> list[str]:
        return [f"length must be at most {self.interval}, not {self.length}"] if self.length > self.interval else []

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        burst = begun = -1
        place = 0
        for interval, size in sizes(self.interval):
            if interval != begun:
                burst, begun, place = int(random.integers(1, self.keys + 1)), interval, 0
            share = np.where(np.arange(place, place + size) < self.interval - self.length, 0.0, self.share)
            place += size
            yield Chunk(_with_hot(random, ranks.draw(random, size), burst, share))


@dataclass(frozen=True)
class Swap(Model):
    """Zipf's keys; in every interval the most frequent ones change places with others, drawn at random."""

    swaps: int = setting(1, "number of most frequent keys that change places", least=1, most=1_000_000)
    interval: int = _interval()
    z: float = _z(1.0)
    keys: int = _keys(10_000)

    def _faults(self) -> list[str]:
        return [f"swaps must be at most half of keys, not {self.swaps}"] if 2 * self.swaps > self.keys else []

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        keys = np.arange(self.keys + 1)
        begun = 0
        for interval, size in sizes(self.interval):
            if interval != begun:
                begun = interval
                hot = np.arange(1, 1 + self.swaps)
                others = 1 + self.swaps + random.choice(self.keys - self.swaps, self.swaps, replace=False)
                keys[hot], keys[others] = keys[others], keys[hot]
            yield Chunk(keys[ranks.draw(random, size)])


@dataclass(frozen=True)
class RotatingHead(Model):
    """Zipf's keys; in every interval the most frequent key becomes the last of the head, the others of it move up."""

    head: int = setting(10, "number of keys that take turns", least=2, most=1_000_000)
    interval: int = _interval()
    z: float = _z(1.0)
    keys: int = _keys(10_000)

    def _faults(self) -> list[str]:
        return [f"head must be at most {self.keys}, the number of keys, not {self.head}"] * (self.head > self.keys)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        keys = np.arange(self.keys + 1)
        for interval, size in sizes(self.interval):
            keys[1 : self.head + 1] = 1 + (np.arange(self.head) + interval) % self.head
            yield Chunk(keys[ranks.draw(random, size)])


def _with_hot(
    random: np.random.Generator, keys: NDArray[np.int64], hot: int, share: float | NDArray[np.float64]
) -> NDArray[np.int64]:
    """The keys, each replaced by the hot one with the probability `share`."""
    return np.where(random.random(len(keys)) < share, hot, keys)
