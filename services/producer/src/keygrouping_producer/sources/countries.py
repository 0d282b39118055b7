"""Generated workloads: events keyed by country, as skewed as wanted, with an event time of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import orjson
from keygrouping.workload import Chunk, workload

from keygrouping_producer.sources.base import Block

FIRST_MS = 1_704_067_200_000
"""Event time of the first event: 2024-01-01T00:00:00Z."""

STEP_MS = 100
"""Event time between two events."""

_NOTHING = Chunk(np.empty(0, np.int64))


class Countries:
    """A country workload of `keygrouping.workload`.

    Key and value name a country, event i happens at FIRST_MS + i * STEP_MS.
    """

    def __init__(self, name: str, events: int, seed: int) -> None:
        self._workload = workload(name, events, seed)
        self._events = events
        self._keys = [self._workload.table.name(index) for index in range(len(self._workload.table))]
        self._values = {key: orjson.dumps({"country": key.decode()}) for key in self._keys}
        self._chunks: Iterator[Chunk]
        self._chunk: Chunk
        self._chunk_start: int
        self._rewind()

    @property
    def length(self) -> int:
        """Events of one round."""
        return self._events

    @property
    def span_ms(self) -> int:
        """From the first event to the last."""
        return max(0, self.length - 1) * STEP_MS

    def read(self, start: int, count: int) -> Block:
        """Up to `count` events from `start` on, at most to the end of the generator's array."""
        if start < self._chunk_start:
            self._rewind()
        while start >= self._chunk_start + len(self._chunk) and self._chunk_start + len(self._chunk) < self.length:
            self._chunk_start += len(self._chunk)
            self._chunk = next(self._chunks)
        first = start - self._chunk_start
        keys = [self._keys[index] for index in self._chunk.keys[first : first + count].tolist()]
        times = range(FIRST_MS + start * STEP_MS, FIRST_MS + (start + len(keys)) * STEP_MS, STEP_MS)
        values = self._values
        return Block(keys, times, lambda i: values[keys[i]])

    def _rewind(self) -> None:
        self._chunks = self._workload.chunks()
        self._chunk_start = 0
        self._chunk = next(self._chunks, _NOTHING)
