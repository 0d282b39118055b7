"""The heaviest keys with their names, in memory that doesn't grow with the number of keys."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.inspection.names import KeyNaming
from keygrouping.keyspace import WindowedSpaceSaving

CAPACITY = 4096


class HeavyKey(NamedTuple):
    """A key and its guaranteed share of all weight read."""

    name: str
    hash: int
    low: float
    """At least this part of all weight, 0 to 1."""
    high: float
    """At most this part."""

    @property
    def share(self) -> float:
        """Halfway between the bounds."""
        return (self.low + self.high) / 2


class TopKeys:
    """Counts keys by SpaceSaving, and keeps the names of those that are counted.

    Any key above 1 / (capacity + 1) of all weight is among them; no bound is further than that from the truth. With
    several panes it is all weight of that window, whose oldest pane `slide` forgets.
    """

    def __init__(self, naming: KeyNaming, capacity: int = CAPACITY, panes: int = 1) -> None:
        self._naming = naming
        self._window = WindowedSpaceSaving(capacity, panes)
        self._most_names = 8 * capacity * panes
        self._names: dict[int, str] = {}

    @property
    def total(self) -> float:
        """All weight."""
        return self._window.total

    @property
    def hashed(self) -> bool:
        """Whether names are hashes."""
        return self._naming.hashed

    def name(self, hashed: int) -> str | None:
        """The name of a key by its hash, None if it is not among those that are counted."""
        return self._names.get(hashed)

    def add(self, keys: Sequence[bytes], hashes: NDArray[np.int64], weights: NDArray[np.float64] | None) -> None:
        """Events of these keys; hashes and weights (None: ones) of shape (n,)."""
        self._window.update(hashes, weights)
        counted = self._window.panes[-1].known()["hash"]
        distinct, places = np.unique(hashes, return_index=True)
        for place in places[np.isin(distinct, counted)].tolist():
            hashed = int(hashes[place])
            if hashed not in self._names:
                self._names[hashed] = self._naming.name(keys[place])
        if len(self._names) > self._most_names:
            self._forget_names()

    def slide(self) -> None:
        """Begin a new pane and forget the oldest."""
        self._window.slide()
        self._forget_names()

    def heaviest(self, limit: int) -> list[HeavyKey]:
        """At most so many keys, by what they have at most; none without weight."""
        window = self._window.merged()
        total = window.total
        if not total:
            return []
        return [
            HeavyKey(self._names[hashed], hashed, max(0.0, count - error) / total, min(1.0, count / total))
            for hashed, count, error, *_ in window.known()[:limit].tolist()
        ]

    def _forget_names(self) -> None:
        """Of the keys that are no longer counted."""
        counted = {hashed for pane in self._window.panes for hashed in pane.known()["hash"].tolist()}
        self._names = {hashed: name for hashed, name in self._names.items() if hashed in counted}
