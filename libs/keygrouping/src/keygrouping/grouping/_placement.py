"""Where heavy keys and buckets of light ones are placed, and what an interval tells of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.base import loads_from
from keygrouping.grouping.protocol import Weights, Workers
from keygrouping.hashing import worker_of
from keygrouping.keyspace import SpaceSaving

_COLUMNS = ("keys", "key_workers", "bucket_workers")


@dataclass(frozen=True, slots=True)
class Placement:
    """The workers of heavy keys (ascending by hash) and of buckets."""

    keys: NDArray[np.int64]
    key_workers: Workers
    bucket_workers: Workers

    @classmethod
    def by_hash(cls, workers: int, buckets: int) -> "Placement":
        """Key grouping, where the number of buckets is a multiple of that of workers."""
        bucket_workers = (np.arange(buckets) % workers).astype(np.int32)
        return cls(np.empty(0, np.int64), np.empty(0, np.int32), bucket_workers)

    @classmethod
    def parsed(cls, data: Mapping[str, Any], workers: int, buckets: int) -> "Placement":
        """Out of JSON data; a ValueError if it is none for so many workers and buckets."""
        try:
            keys = np.array(data["keys"], np.int64)
            key_workers, bucket_workers = (np.array(data[name], np.int32) for name in _COLUMNS[1:])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a plan: {error}") from error
        placed = np.concatenate([key_workers.ravel(), bucket_workers.ravel()])
        if np.any((placed < 0) | (placed >= workers)) or bucket_workers.shape != (buckets,):
            raise ValueError(f"not a plan for {workers} workers and {buckets} buckets")
        if keys.ndim != 1 or keys.shape != key_workers.shape or np.any(keys[1:] <= keys[:-1]):
            raise ValueError("a plan needs its keys in order, and a worker for each")
        return cls(keys, key_workers, bucket_workers)

    def to_data(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {name: getattr(self, name).tolist() for name in _COLUMNS}

    def worker_of(self, hashed: int) -> int:
        """The worker of a key."""
        if self.places(hashed):
            return int(self.key_workers[np.searchsorted(self.keys, hashed)])
        return int(self.bucket_workers[worker_of(hashed, len(self.bucket_workers))])

    def places(self, hashed: int) -> bool:
        """Whether the key has a worker of its own, whatever its bucket's is."""
        at = int(np.searchsorted(self.keys, hashed))
        return at < len(self.keys) and int(self.keys[at]) == hashed


@dataclass(frozen=True, slots=True)
class Seen:
    """What was routed in an interval: counts of keys, and the weight of each bucket."""

    sketch: SpaceSaving
    buckets: Weights

    @classmethod
    def nothing(cls, theta: float, buckets: int) -> "Seen":
        """As an interval begins; errors of counts are at most half of what makes a key heavy."""
        return cls(SpaceSaving(_capacity(theta)), np.zeros(buckets))

    @classmethod
    def parsed(cls, data: Mapping[str, Any], theta: float, buckets: int) -> "Seen":
        """Out of JSON data; a KeyError, TypeError or ValueError if it is none for so many buckets."""
        return cls(SpaceSaving.from_data(_capacity(theta), data["sketch"]), loads_from(data["buckets"], buckets))

    @staticmethod
    def fitted(theta: float, sketch: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON data of a sketch for another theta, fit for this one."""
        return SpaceSaving.fitted(_capacity(theta), sketch)

    def add(self, other: "Seen") -> None:
        """Count what another source has seen."""
        self.sketch.merge(other.sketch)
        self.buckets[:] += other.buckets

    def to_data(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {"sketch": self.sketch.to_data(), "buckets": self.buckets.tolist()}

    def heavy(self, theta: float) -> tuple[NDArray[np.int64], Weights]:
        """The keys whose guaranteed weight is at least theta of all, ascending by hash, and that weight."""
        known = np.sort(self.sketch.known(), order="hash")
        lower = known["count"] - known["error"]
        chosen = (lower >= theta * self.sketch.total) & (lower > 0)
        return known["hash"][chosen], lower[chosen]

    def apart(self, keys: Sequence[int]) -> Weights:
        """The weight of each bucket without these keys, as far as that is guaranteed."""
        rest = self.buckets.copy()
        for key in keys:
            rest[worker_of(key, len(rest))] -= self.sketch.bounds(key).lower
        return np.maximum(rest, 0.0)


def _capacity(theta: float) -> int:
    return int(np.ceil(2 / theta))
