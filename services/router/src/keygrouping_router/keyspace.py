"""What the router knows of its keys and workers, for people: the data behind `GET /keyspace`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from keygrouping.grouping import Grouping
from keygrouping.measure import lambda_, std_dev
from numpy.typing import NDArray

from keygrouping_router.routing import Routed, Usable

TOP = 50


class KeySpaceView:
    """Collects loads per worker and interval, and the names of hot keys, which groupings know by hash only."""

    def __init__(self, grouping: Grouping, interval: float = 10.0) -> None:
        self._grouping = grouping
        self._interval = interval
        self._started: float | None = None
        self._current = np.zeros(grouping.workers)
        self._recent = np.zeros(grouping.workers)
        self._names: dict[int, bytes] = {}
        self._named_at = float("-inf")
        self.events = 0

    def saw(self, usable: Usable, routed: Routed, now: float) -> None:
        """Takes account of a routed batch; `now` in seconds."""
        workers = self._grouping.workers
        self._turn(now)
        self._current += np.bincount(routed.workers, usable.weights, workers)
        self.events += len(usable.keys)
        if now - self._named_at >= 1.0 and routed.hashes.shape[1]:
            self._named_at = now
            self._learn_names(usable.keys, routed.hashes[:, 0])

    @property
    def loads(self) -> NDArray[np.float64]:
        """Weight per worker in the last whole interval, or so far in the first one."""
        return self._recent if self._recent.any() else self._current

    def as_json(self, limit: int = TOP) -> dict[str, Any]:
        """Grouping, loads, λ and the hottest keys as JSON data."""
        hot = self._grouping.hot(limit)
        return {
            "grouping": self._grouping.name,
            "workers": self._grouping.workers,
            "epoch": self._grouping.epoch,
            "events": self.events,
            "interval_seconds": self._interval,
            "loads": self.loads.tolist(),
            "lambda": lambda_(self.loads),
            "std_dev": std_dev(self.loads),
            "keys": [
                {"key": key_as_json(self._names.get(key.hash)), "width": key.width, "share": key.share} for key in hot
            ],
        }

    def _turn(self, now: float) -> None:
        if self._started is None:
            self._started = now
        if now - self._started >= self._interval:
            self._recent, self._current = self._current, np.zeros(self._grouping.workers)
            self._started = now

    def _learn_names(self, keys: Sequence[bytes], hashes: NDArray[np.int64]) -> None:
        hot = {key.hash for key in self._grouping.hot(TOP)}
        self._names = {hashed: name for hashed, name in self._names.items() if hashed in hot}
        wanted = np.fromiter(hot - self._names.keys(), np.int64)
        if len(wanted):
            found, first = np.unique(hashes, return_index=True)
            for hashed, index in zip(found.tolist(), first.tolist(), strict=True):
                if hashed in hot:
                    self._names.setdefault(hashed, keys[index])


def key_as_json(key: bytes | None) -> Any:
    """Text of a key, `{"base64": ...}` if it is no UTF-8, None if it is not known."""
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key).decode()}
