"""How often the keys of late events come, for `split=True`: counts that halve with time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from heapq import nlargest

_MOST_KEYS = 16_384
_KEPT_KEYS = 2048
_FORGOTTEN = 0.05
"""Counts that are not kept."""


class Arrivals:
    """Of one handler's events; times are seconds of the caller's clock."""

    def __init__(self, now: float) -> None:
        self._aged = now
        self._keys: dict[Hashable, float] = {}
        self.events = 0.0
        """Of all keys, those that are forgotten included."""
        self.seconds = 0.0
        """That the counts stand for: a rate is a count divided by them."""

    def add(self, keys: Iterable[Hashable], events: int) -> None:
        """So many events have come, with these keys."""
        known = self._keys
        for key, count in Counter(keys).items():
            known[key] = known.get(key, 0.0) + count
        self.events += events

    def age(self, now: float, half_life: float = 1.0) -> None:
        """Lets what came before weigh half as much after so many seconds; to be called several times a second."""
        passed = now - self._aged
        factor = 0.5 ** (passed / half_life)
        self.events *= factor
        self.seconds = (self.seconds + passed) * factor
        kept = {key: count * factor for key, count in self._keys.items() if count * factor > _FORGOTTEN}
        if len(kept) > _MOST_KEYS:
            kept = dict(nlargest(_KEPT_KEYS, kept.items(), key=lambda each: each[1]))
        self._keys = kept
        self._aged = now

    def most(self, keys: int) -> list[tuple[Hashable, float]]:
        """The keys that came most, with their counts."""
        return nlargest(keys, self._keys.items(), key=lambda each: each[1])
