"""An even sample of the traffic in whole slices of batches, and the last of it kept for trials."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Workers = NDArray[np.int32]

_GOLDEN = 0.6180339887498949
_FEWEST = 64

MOST_EVENTS = 100_000
MOST_BYTES = 16 << 20


class Slice(NamedTuple):
    """Neighbouring events of a batch, n of them: where they went at `now` (seconds of the groupings' clock)."""

    keys: list[bytes]
    hashes: NDArray[np.int64]
    """By the first seed, shape (n,)."""
    weights: NDArray[np.float64] | None
    """None: ones."""
    workers: Workers
    now: float


class Sampler:
    """Takes this part of all events, as one slice of each batch.

    The order within a slice is that of the stream, so that groupings which learn from it do so as from the whole.
    Where in its batch a slice lies follows the golden ratio, so that no place is favoured. What is less than 64
    events waits for the next batch.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._due = 0.0
        self._place = 0.0

    def take(
        self,
        keys: Sequence[bytes],
        hashes: NDArray[np.int64],
        weights: NDArray[np.float64] | None,
        workers: Workers,
        now: float,
    ) -> Slice | None:
        """The slice of this batch, None if none is due."""
        self._due += self.share * len(keys)
        size = min(int(self._due), len(keys))
        if size < min(_FEWEST, len(keys)):
            return None
        self._due -= size
        self._place = (self._place + _GOLDEN) % 1
        start = int(self._place * (len(keys) - size + 1))
        chosen = slice(start, start + size)
        kept = None if weights is None else weights[chosen].copy()
        return Slice(list(keys[chosen]), hashes[chosen].copy(), kept, workers[chosen].copy(), now)


class Recent:
    """The last slices: at most `MOST_EVENTS` events and `MOST_BYTES` bytes of keys."""

    def __init__(self) -> None:
        self._slices: deque[tuple[Slice, int]] = deque()
        self._events = 0
        self._bytes = 0

    def add(self, taken: Slice) -> None:
        """Keeps a slice, and gives up the oldest ones for it."""
        size = sum(map(len, taken.keys))
        self._slices.append((taken, size))
        self._events += len(taken.keys)
        self._bytes += size
        while len(self._slices) > 1 and (self._events > MOST_EVENTS or self._bytes > MOST_BYTES):
            dropped, size = self._slices.popleft()
            self._events -= len(dropped.keys)
            self._bytes -= size

    def slices(self) -> list[Slice]:
        """What is kept, the oldest first."""
        return [taken for taken, _ in self._slices]
