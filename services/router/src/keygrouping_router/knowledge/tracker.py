"""What this router has seen of its keys: counts with bounds, names, and when they came, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from keygrouping.keyspace import SpaceSaving
from numpy.typing import NDArray

PANES = 6
"""Intervals that counts look back on, the current one among them."""

MOST_NAME_BYTES = 1024
"""Of keys that are longer only the hash is kept."""

_TICKS_PER_SECOND = 10
_NO_WEIGHTS: NDArray[np.float64] = np.empty(0)
_NO_HASHES: NDArray[np.int64] = np.empty(0, np.int64)


class Sighting(NamedTuple):
    """Name of a key (None: too long to be kept) and the time (seconds since 1970) of its first event.

    Where more keys come than can be counted it is that of the second one.
    """

    name: bytes | None
    first_seen: float


class Tracker:
    """Counts all routed traffic of the last `PANES` intervals by SpaceSaving, whatever the grouping counts itself.

    Keys that have no counter in any of the intervals are forgotten by `forget`, and when they are many. Times are
    seconds since 1970, exact to a tenth of a second and to the batch. Memory: up to PANES x 256 bytes x `capacity`, and
    the names.
    """

    def __init__(self, capacity: int, now: float) -> None:
        self.capacity = capacity
        self._began = now
        self._panes: deque[SpaceSaving] = deque([SpaceSaving(capacity)], PANES)
        self._merged: SpaceSaving | None = None
        self._sightings: dict[int, Sighting] = {}
        self._hot_since: dict[int, float] = {}
        self._past = _NO_HASHES, _NO_HASHES
        """Of all keys that are counted in the panes before this one: hashes in order, and when each came last."""

    def saw(
        self, keys: Sequence[bytes], hashes: NDArray[np.int64], weights: NDArray[np.float64] | None, now: float
    ) -> None:
        """Counts a batch: keys, their hashes by the first seed and weights (None: ones), all of n."""
        from keygrouping_router.knowledge._counting_kernel import count_keys

        pane = self._panes[-1]
        hashes = np.require(hashes, np.int64, ["C", "W"])
        weights = _NO_WEIGHTS if weights is None else np.require(weights, np.float64, ["C", "W"])
        tick = max(0, int((now - self._began) * _TICKS_PER_SECOND)) + 1
        fresh = np.empty(len(hashes), np.int64)
        entered = count_keys(pane.counters, pane.sketch, hashes, weights, tick, fresh)
        if entered:
            self._learn(keys, hashes, fresh[:entered], now)

    def end_interval(self) -> None:
        """Begins a new pane."""
        counters = self._panes[-1].counters
        used = counters[counters["used"] != 0]
        hashes = np.concatenate([used["hash"], self._past[0]])
        ticks = np.concatenate([np.abs(used["tag"]), self._past[1]])
        hashes, newest = np.unique(hashes, return_index=True)
        self._past = hashes, ticks[newest]
        self._panes.append(SpaceSaving(self.capacity))
        self._merged = None

    def forget(self) -> Iterator[None]:
        """Forgets the keys that have no counter any more. Yields in between; batches may come then."""
        counted = self._counted(self._panes)
        yield
        hashes, ticks = self._past
        kept = np.fromiter(map(counted.__contains__, hashes.tolist()), bool, len(hashes))
        self._past = hashes[kept], ticks[kept]
        yield
        self._forget_others(counted | self._counted([self._panes[-1]]))

    def note_hot(self, hashes: Iterable[int], now: float) -> None:
        """These keys are hot now, and no others."""
        self._hot_since = {hashed: self._hot_since.get(hashed, now) for hashed in hashes}

    @property
    def hot_since(self) -> Mapping[int, float]:
        """The hot keys by hash, and since when they are hot."""
        return self._hot_since

    @property
    def sightings(self) -> Mapping[int, Sighting]:
        """Names and first events by hash, of all keys with a counter and some without."""
        return self._sightings

    def counts(self) -> SpaceSaving:
        """The counts of all panes as a new sketch."""
        merged = self._earlier().copy()
        merged.merge(self._panes[-1])
        return merged

    def last_seen(self, hashed: int) -> float:
        """The time of a key's newest event, 0 if it isn't counted."""
        counter = self._panes[-1].find(hashed)
        if counter is not None:
            return self._began + (abs(int(counter["tag"])) - 1) / _TICKS_PER_SECOND
        hashes, ticks = self._past
        place = int(np.searchsorted(hashes, hashed))
        if place == len(hashes) or hashes[place] != hashed:
            return 0.0
        return self._began + (int(ticks[place]) - 1) / _TICKS_PER_SECOND

    def _earlier(self) -> SpaceSaving:
        """All panes but the current one, merged once in each interval."""
        if self._merged is None:
            self._merged = SpaceSaving(self.capacity)
            for pane in list(self._panes)[:-1]:
                self._merged.merge(pane)
        return self._merged

    def _learn(
        self, keys: Sequence[bytes], hashes: NDArray[np.int64], positions: NDArray[np.int64], now: float
    ) -> None:
        sightings = self._sightings
        for position, hashed in zip(positions.tolist(), hashes[positions].tolist(), strict=True):
            if hashed not in sightings:
                key = keys[position]
                sightings[hashed] = Sighting(key if len(key) <= MOST_NAME_BYTES else None, now)
        if len(sightings) > 4 * PANES * self.capacity:
            self._forget_others(self._counted(self._panes))

    def _counted(self, panes: Iterable[SpaceSaving]) -> set[int]:
        counted: set[int] = set()
        for pane in panes:
            counters = pane.counters
            counted.update(counters["hash"][counters["used"] != 0].tolist())
        return counted

    def _forget_others(self, kept: set[int]) -> None:
        self._sightings = {hashed: seen for hashed, seen in self._sightings.items() if hashed in kept}
