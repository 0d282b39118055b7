"""The workers of every key over the whole run, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import mmh3

PREFIX = b"k"
"""Begins the record keys of this part of the state."""

Row = tuple[bytes, bytes | None]
"""Key and value of a state record; no value: the key is forgotten."""


class Widths:
    """Distinct workers per key, exact for up to `most` keys.

    Beyond that it keeps the keys of every second hash, then of every fourth and so on: an even sample of the keys that
    depends on nothing but the keys. Keys are known by hashes of 128 bits. Memory: about 200 bytes per key.
    """

    def __init__(self, most: int, halvings: int = 0) -> None:
        self.pairs = 0
        """Distinct (key, worker) pairs of the keys that are kept."""
        self.halvings = halvings
        self._most = most
        self._masks: dict[int, int] = {}
        self._changed: set[int] = set()

    @property
    def keys(self) -> int:
        """Number of keys that are kept."""
        return len(self._masks)

    @property
    def sample(self) -> float:
        """Part of all keys that is kept; 1: all of them, and everything is exact."""
        return 0.5**self.halvings

    def add(self, key: bytes, worker: int) -> None:
        """The key has been on this worker."""
        hashed = mmh3.hash128(key, signed=False)
        if not self._keeps(hashed):
            return
        mask = self._masks.get(hashed, 0)
        if not mask >> worker & 1:
            self._masks[hashed] = mask | 1 << worker
            self._changed.add(hashed)
            self.pairs += 1
            if len(self._masks) > self._most:
                self._halve()

    def changes(self) -> Iterator[Row]:
        """State records of all that has changed since the last call."""
        changed, self._changed = self._changed, set()
        for hashed in changed:
            mask = self._masks.get(hashed)
            yield PREFIX + hashed.to_bytes(16, "big"), None if mask is None else _bytes_of(mask)

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes in state records, in any order."""
        for key, value in rows:
            hashed = int.from_bytes(key[len(PREFIX) :], "big")
            if self._keeps(hashed):
                self._masks[hashed] = int.from_bytes(value, "big")
        self.pairs = sum(mask.bit_count() for mask in self._masks.values())

    def _keeps(self, hashed: int) -> bool:
        return not hashed & (1 << self.halvings) - 1

    def _halve(self) -> None:
        while len(self._masks) > self._most:
            self.halvings += 1
            gone = [hashed for hashed in self._masks if not self._keeps(hashed)]
            for hashed in gone:
                self.pairs -= self._masks.pop(hashed).bit_count()
            self._changed.update(gone)


def _bytes_of(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "big")
