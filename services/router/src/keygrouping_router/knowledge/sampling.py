"""An even sample of the traffic, and the last of it kept for trials."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from keygrouping.slices import Slices
from numpy.typing import NDArray

Workers = NDArray[np.int32]

MOST_PER_SECOND = 20_000
"""Events that are sampled: eight groupings beside the one in force then take about a tenth of a core."""

MOST_EVENTS = 200_000
MOST_BYTES = 16 << 20
MOST_SECONDS = 600.0
"""What is older says little about the present traffic."""

_SEED = 13


class Slice(NamedTuple):
    """Events of a batch in the order of the stream, n of them; they came at `now` (seconds of the groupings' clock)."""

    keys: list[bytes]
    hashes: NDArray[np.int64]
    """By the first seed, shape (n,)."""
    weights: NDArray[np.float64] | None
    """None: ones."""
    now: float
    stands_for: float = 1.0
    """How many events of the traffic each of them stands for."""

    @property
    def traffic(self) -> NDArray[np.float64] | None:
        """The weight of the traffic that each event stands for; None: ones."""
        if self.stands_for == 1:
            return self.weights
        return np.full(len(self.keys), self.stands_for) if self.weights is None else self.weights * self.stands_for


class Sampler:
    """Takes each event with the same chance, whatever the batch that it comes in: at most `most` of all events.

    Batches are those of single input partitions, which may hold any part of the traffic: nothing may depend on how
    large they are or on which come next to each other. Where more events come than `MOST_PER_SECOND` the share is
    smaller; it only changes between intervals.
    """

    def __init__(self, most: float) -> None:
        self.share = most
        self._most = most
        self._random = np.random.default_rng(_SEED)

    def expect(self, per_second: float) -> None:
        """So many events are to be expected from now on."""
        self.share = min(self._most, MOST_PER_SECOND / per_second) if per_second else self._most

    def take(
        self, keys: Sequence[bytes], hashes: NDArray[np.int64], weights: NDArray[np.float64] | None, now: float
    ) -> Slice | None:
        """What is taken of this batch, None if nothing is."""
        chosen = np.flatnonzero(self._random.random(len(keys)) < self.share)
        if not len(chosen):
            return None
        kept = None if weights is None else weights[chosen]
        taken = keys.where(chosen) if isinstance(keys, Slices) else [keys[i] for i in chosen.tolist()]
        return Slice(cast("list[bytes]", list(taken)), hashes[chosen], kept, now, 1 / self.share)


class Recent:
    """The slices of the last `MOST_SECONDS`: at most `MOST_EVENTS` events and `MOST_BYTES` bytes of keys."""

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
        since = taken.now - MOST_SECONDS
        while len(self._slices) > 1 and (
            self._events > MOST_EVENTS or self._bytes > MOST_BYTES or self._slices[0][0].now < since
        ):
            dropped, size = self._slices.popleft()
            self._events -= len(dropped.keys)
            self._bytes -= size

    def slices(self) -> list[Slice]:
        """What is kept, the oldest first."""
        return [taken for taken, _ in self._slices]
