"""Generated workloads: events keyed by country, as skewed as wanted, with an event time of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import orjson
from keygrouping.workload import Workload, workload
from numpy.typing import NDArray

from keygrouping_producer.sources.base import Block

FIRST_MS = 1_704_067_200_000
"""Event time of the first event: 2024-01-01T00:00:00Z."""

STEP_MS = 100
"""Event time between two events."""


class Countries:
    """A workload of `keygrouping.workload`: key and value name a country, event i happens at FIRST_MS + i * STEP_MS."""

    def __init__(self, name: str, events: int, seed: int) -> None:
        self._workload: Workload = workload(name, events, seed)
        self._keys = [key.encode() for key in self._workload.keys]
        self._values = {key: orjson.dumps({"country": key.decode()}) for key in self._keys}
        self._arrays: Iterator[NDArray[np.int64]]
        self._array: NDArray[np.int64]
        self._array_start: int
        self._rewind()

    @property
    def length(self) -> int:
        """Events of one round."""
        return self._workload.events

    @property
    def span_ms(self) -> int:
        """From the first event to the last."""
        return max(0, self.length - 1) * STEP_MS

    def read(self, start: int, count: int) -> Block:
        """Up to `count` events from `start` on, at most to the end of the generator's array."""
        if start < self._array_start:
            self._rewind()
        while start >= self._array_start + len(self._array) and self._array_start + len(self._array) < self.length:
            self._array_start += len(self._array)
            self._array = next(self._arrays)
        first = start - self._array_start
        keys = [self._keys[index] for index in self._array[first : first + count].tolist()]
        times = range(FIRST_MS + start * STEP_MS, FIRST_MS + (start + len(keys)) * STEP_MS, STEP_MS)
        values = self._values
        return Block(keys, times, lambda i: values[keys[i]])

    def _rewind(self) -> None:
        self._arrays = self._workload.indices()
        self._array_start = 0
        self._array = next(self._arrays)
