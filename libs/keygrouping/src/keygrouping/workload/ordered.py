"""Workloads whose order says as much as their frequencies: events of a key come together, or never come again."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.hashing import kafka_hashes, kafka_partitions
from keygrouping.settings import setting
from keygrouping.workload.model import Model
from keygrouping.workload.popularity import Zipf
from keygrouping.workload.stream import CHUNK, Chunk
from keygrouping.workload.table import ListedKeys, NumberedKeys

_FIRSTS = 1_000_000
"""New keys are numbered from one of so many numbers on."""


def _z() -> Any:
    return setting(1.0, "Zipf exponent", least=0, most=10)


def _keys() -> Any:
    return setting(10_000, "number of keys", least=1, most=1_000_000)


@dataclass(frozen=True)
class Sessions(Model):
    """Ids of sessions: each has one to `longest` events in a row, all lengths alike, and never comes again."""

    prefix: ClassVar[bytes] = b"session-"
    longest: int = setting(5, "most events of a session; 1: every event has a key of its own", least=1, most=CHUNK)

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        first = int(random.integers(_FIRSTS))
        sessions = CHUNK // self.longest
        while True:
            lengths = random.integers(1, self.longest + 1, sessions)
            yield Chunk(np.repeat(np.arange(first, first + sessions), lengths))
            first += sessions


@dataclass(frozen=True)
class Runs(Model):
    """Runs of events of one key, as a sender that collects batches by key makes them; the keys are drawn by Zipf."""

    length: int = setting(1_000, "events of a run", least=1, most=CHUNK)
    z: float = _z()
    keys: int = _keys()

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        while True:
            yield Chunk(np.repeat(ranks.draw(random, CHUNK // self.length), self.length))


@dataclass(frozen=True)
class Sorted(Model):
    """Zipf's keys in batches that are sorted by key, as exports of tables are; the order is not that of frequency."""

    batch: int = setting(100_000, "events of a batch", least=1, most=10_000_000)
    z: float = _z()
    keys: int = _keys()

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        places = 1 + random.permutation(self.keys)
        while True:
            yield from _chunks(np.sort(places[ranks.draw(random, self.batch) - 1]))


@dataclass(frozen=True)
class Backlog(Model):
    """Zipf's keys as one gets them who catches up with a topic: a fetch from each of its partitions in turn."""

    partitions: int = setting(12, "partitions that Kafka's own partitioner has filled", least=1, most=10_000)
    fetch: int = setting(5_000, "events of a fetch, on average", least=1, most=1_000_000)
    z: float = _z()
    keys: int = _keys()

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        ranks = Zipf(self.z, self.keys)
        names = NumberedKeys(self.prefix).keys(np.arange(self.keys + 1))
        partitions = kafka_partitions(kafka_hashes(names), self.partitions)
        while True:
            keys = ranks.draw(random, self.partitions * self.fetch)
            yield from _chunks(keys[np.argsort(partitions[keys], kind="stable")])


@dataclass(frozen=True)
class Text(Model):
    """The words of "Alice's Adventures in Wonderland" in their order, over and over, from any of its words on."""

    def table(self) -> ListedKeys:
        return ListedKeys(words()[0])

    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:  # noqa: ARG002 (endless)
        _, text = words()
        text = np.roll(text, -int(random.integers(len(text))))
        while True:
            yield Chunk(text)


def words() -> tuple[list[bytes], NDArray[np.int64]]:
    """The distinct words, and the number of each word of the text; it was written by Lewis Carroll in 1865."""
    text = resources.files("keygrouping.workload").joinpath("alice.txt").read_text("utf-8")
    distinct, numbers = np.unique(np.array(text.split()), return_inverse=True)
    return [word.encode() for word in distinct.tolist()], numbers.astype(np.int64)


def _chunks(keys: NDArray[np.int64]) -> Iterator[Chunk]:
    for start in range(0, len(keys), CHUNK):
        yield Chunk(keys[start : start + CHUNK])
