"""Generated workloads: a model, which is settings and a way to draw from them, a number of events and a seed."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, repeat
from typing import ClassVar

import numpy as np

from keygrouping.settings import Settings
from keygrouping.workload.stream import CHUNK, Chunk
from keygrouping.workload.table import ModelKeys, NumberedKeys


@dataclass(frozen=True)
class Model(Settings, ABC):
    """What a kind of workload is drawn from. Its fields are its settings."""

    prefix: ClassVar[bytes] = b"key-"
    """Stands in all of its keys before their numbers."""

    def table(self) -> ModelKeys:
        """A new table for its keys."""
        return NumberedKeys(self.prefix)

    @abstractmethod
    def draw(self, random: np.random.Generator, events: int) -> Iterator[Chunk]:
        """A stream of at least `events` events; its chunks hold numbers of keys instead of positions.

        The stream is cut at `events`. Where only the cut depends on `events`, longer streams begin with the shorter.
        """


class Generated:
    """The workload of a model; the same model, number of events and seed are the same stream."""

    def __init__(self, name: str, events: int, seed: int, model: Model) -> None:
        self.name = name
        self.events = events
        self.table = model.table()
        self._seed = seed
        self._model = model

    def chunks(self) -> Iterator[Chunk]:
        left = self.events
        drawn = self._model.draw(np.random.default_rng(self._seed), self.events)
        while left:
            chunk = _first(next(drawn), left)
            left -= len(chunk)
            yield Chunk(self.table.positions(chunk.keys), chunk.weights, chunk.sources)


def sizes(interval: int) -> Iterator[tuple[int, int]]:
    """Number of the interval and size of every chunk of an endless stream, where no chunk is in two intervals."""
    whole, rest = divmod(interval, CHUNK)
    for number in count():
        for size in chain(repeat(CHUNK, whole), [rest] if rest else []):
            yield number, size


def _first(chunk: Chunk, size: int) -> Chunk:
    if len(chunk) <= size:
        return chunk
    weights = None if chunk.weights is None else chunk.weights[:size]
    return Chunk(chunk.keys[:size], weights, None if chunk.sources is None else chunk.sources[:size])
