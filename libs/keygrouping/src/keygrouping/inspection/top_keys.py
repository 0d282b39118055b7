"""The heaviest keys with their names, in memory that doesn't grow with the number of keys."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.inspection.names import KeyNaming
from keygrouping.keyspace import SpaceSaving

CAPACITY = 4096
_MOST_NAMES = 8 * CAPACITY


class HeavyKey(NamedTuple):
    """A key and its guaranteed share of all weight read."""

    name: str
    hash: int
    low: float
    """At least this part of all weight, 0 to 1."""
    high: float
    """At most this part."""


class TopKeys:
    """Counts keys by SpaceSaving, and keeps the names of those that are counted.

    Any key above 1 / (capacity + 1) of all weight is among them; no bound is further than that from the truth.
    """

    def __init__(self, naming: KeyNaming, capacity: int = CAPACITY) -> None:
        self._naming = naming
        self._sketch = SpaceSaving(capacity)
        self._names: dict[int, str] = {}

    @property
    def total(self) -> float:
        """All weight."""
        return self._sketch.total

    @property
    def hashed(self) -> bool:
        """Whether names are hashes."""
        return self._naming.hashed

    def name(self, hashed: int) -> str | None:
        """The name of a key by its hash, None if it is not among those that are counted."""
        return self._names.get(hashed)

    def add(self, keys: Sequence[bytes], hashes: NDArray[np.int64], weights: NDArray[np.float64] | None) -> None:
        """Events of these keys; hashes and weights (None: ones) of shape (n,)."""
        self._sketch.update(hashes, weights)
        counted = self._sketch.known()["hash"]
        distinct, places = np.unique(hashes, return_index=True)
        for place in places[np.isin(distinct, counted)].tolist():
            hashed = int(hashes[place])
            if hashed not in self._names:
                self._names[hashed] = self._naming.name(keys[place])
        if len(self._names) > _MOST_NAMES:
            self._names = {hashed: self._names[hashed] for hashed in counted.tolist()}

    def heaviest(self, limit: int) -> list[HeavyKey]:
        """At most so many keys, by what they have at most; none without weight."""
        total = self._sketch.total
        if not total:
            return []
        return [
            HeavyKey(self._names[hashed], hashed, max(0.0, count - error) / total, min(1.0, count / total))
            for hashed, count, error, *_ in self._sketch.known()[:limit].tolist()
        ]
