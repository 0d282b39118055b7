"""What the groupings share: the number of workers, the epoch, the frame of snapshots, single events as batches."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np

from keygrouping.grouping.protocol import (
    Explanation,
    Grouping,
    Hashes,
    HotKey,
    SnapshotError,
    Space,
    Weights,
    Workers,
)
from keygrouping.hashing import hash_key
from keygrouping.settings import Settings
from keygrouping.weights import check_weights

SNAPSHOT_VERSION = 1
NO_WEIGHTS: Weights = np.empty(0)
"""Stands for weights of one in kernels."""


SettingsType = TypeVar("SettingsType", bound=Settings)


class BaseGrouping(ABC, Generic[SettingsType]):
    """A grouping that keeps no statistics of keys; see `protocol.Grouping` for the meaning of all methods."""

    name: ClassVar[str]
    seeds: tuple[int, ...]
    settings: ClassVar[type[Settings]] = Settings
    """The class of its settings; `Settings` itself: it has none."""
    shared_settings: ClassVar[Mapping[str, object] | None] = None
    secret_setting: ClassVar[str | None] = None
    """The settings that leave planning to the owner, see `protocol.Planned`; None: it plans nothing."""

    def __init__(self, workers: int, settings: SettingsType | None = None) -> None:
        self._workers = check_workers(workers)
        self._settings = cast(SettingsType, self.settings()) if settings is None else settings
        self._epoch = 0
        self._now = 0.0

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def cold_width(self) -> int:
        return 1

    def route(self, key: bytes | str, weight: float = 1.0, now: float | None = None) -> int:
        hashes = np.array([[hash_key(key, seed) for seed in self.seeds]], np.int64)
        return int(self.route_batch(hashes, np.array([weight], float), self._now if now is None else now)[0])

    @abstractmethod
    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers: ...

    def one_by_one(self, now: float) -> Callable[[bytes | str], int]:
        event = np.empty((1, len(self.seeds)), np.int64)
        decisions = self._decisions(event, now)
        if decisions is None:
            return lambda key: self.route(key, now=now)
        hashes, (first, *others), decide = event.reshape(-1).data, self.seeds, decisions.__next__

        def choose_by_one(key: bytes | str) -> int:
            hashes[0] = hash_key(key, first)
            return decide()

        def choose(key: bytes | str) -> int:
            for place, seed in enumerate(others, 1):
                hashes[place] = hash_key(key, seed)
            return choose_by_one(key)

        return choose if others else choose_by_one

    def _decisions(self, event: Hashes, now: float) -> Iterator[int] | None:  # noqa: ARG002
        """The worker of the one event whose hashes stand in `event`, whenever the next one is asked for.

        For kernels that are compiled as generators: to call one with all of its arrays takes several times as long as
        to have it go on. None: `route` is no slower.
        """
        return None

    @abstractmethod
    def explain(self, key: bytes | str) -> Explanation: ...

    def bear(self, loads: Weights) -> None:
        if loads.shape != (self._workers,):  # One number would count for every worker.
            raise ValueError(f"loads must have shape ({self._workers},), not {loads.shape}")
        check_weights(loads, "worker {}")
        self._bear(loads)

    def _bear(self, loads: Weights) -> None:
        """Nothing to do without loads; those of a whole life would starve a worker once a pinned key has left it."""

    def spaces(self) -> tuple[Space, ...]:
        return ()

    def hot(self, limit: int) -> list[HotKey]:  # noqa: ARG002 (groupings without statistics have none)
        return []

    def resize(self, workers: int) -> None:
        if check_workers(workers) != self._workers:
            self._workers = workers
            self._epoch += 1
            self._resized()

    def __reduce__(self) -> tuple[Any, ...]:
        """As pickles and copies: by its snapshot, as views of arrays would become arrays of their own."""
        return _revived, (type(self), self._settings, self.snapshot())

    def snapshot(self) -> dict[str, Any]:
        return {
            "grouping": self.name,
            "version": SNAPSHOT_VERSION,
            "workers": self._workers,
            "epoch": self._epoch,
            "now": self._now,
            "state": self._state(),
        }

    def restore(self, snapshot: Mapping[str, Any], now: float | None = None) -> None:
        if not isinstance(snapshot, Mapping):
            raise SnapshotError(f"not a snapshot of {self.name!r}, but {type(snapshot).__name__}")
        if snapshot.get("grouping") != self.name or snapshot.get("version") != SNAPSHOT_VERSION:
            raise SnapshotError(f"not a snapshot of {self.name!r}, version {SNAPSHOT_VERSION}")
        before = (self._workers, self._epoch, self._now)
        try:
            self._workers = check_workers(snapshot["workers"])
            self._epoch = int(snapshot["epoch"])
            taken = float(snapshot["now"])
            if not math.isfinite(taken):
                raise ValueError(f"now is {taken}")
            self._now = taken if now is None else now
            self._restore_state(snapshot["state"], self._now - taken)
        except (KeyError, TypeError, ValueError) as error:
            self._workers, self._epoch, self._now = before
            raise SnapshotError(f"damaged snapshot of {self.name!r}: {error}") from error

    def adopt(self, other: Grouping) -> bool:
        if not isinstance(other, type(self)):
            raise ValueError(f"{self.name!r} can't go on with what {other.name!r} has learned")
        workers, epoch = self._workers, other.epoch + 1
        self.resize(other.workers)
        kept = self._take_over(other)
        self.resize(workers)
        self._epoch += max(0, epoch - self.epoch)
        return kept

    def _take_over(self, other: Self) -> bool:
        """Go on with the other's state, for as many workers; False, and no change, if nothing of it can be kept."""
        snapshot = other.snapshot()
        try:
            self.restore({**snapshot, "state": self._fitted(snapshot["state"], other)})
        except SnapshotError:
            return False
        return True

    def _fitted(self, state: Any, other: Self) -> Any:  # noqa: ARG002 (most states fit all settings)
        """What the other instance's _state() gave, fit for these settings; both have as many workers."""
        return state

    @abstractmethod
    def _resized(self) -> None:
        """Fit the state to the new number of workers."""

    @abstractmethod
    def _state(self) -> Any:
        """What snapshot() adds for this grouping, as JSON data."""

    @abstractmethod
    def _restore_state(self, state: Any, shift: float) -> None:
        """Take over what _state() gave, for self._workers workers, its times moved by `shift` seconds.

        Checks everything before it changes anything.
        """


def _revived(kind: type[BaseGrouping[Any]], settings: Settings, snapshot: Mapping[str, Any]) -> BaseGrouping[Any]:
    grouping = kind(1, settings)
    grouping.restore(snapshot)
    return grouping


def check_workers(workers: int) -> int:
    """The number of workers, or a ValueError."""
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= 1_000_000:
        raise ValueError(f"workers must be an integer from 1 to 1000000, not {workers!r}")
    return workers


def kernel_arrays(hashes: Hashes, weights: Weights | None, columns: int) -> tuple[Hashes, Weights]:
    """Both arrays in the one layout that kernels are compiled for."""
    if hashes.ndim != 2 or hashes.shape[1] != columns:
        raise ValueError(f"hashes must have shape (n, {columns}), not {hashes.shape}")
    hashes = np.require(hashes, np.int64, ["C", "W"])
    if weights is None:
        return hashes, NO_WEIGHTS
    if weights.shape != (len(hashes),):
        raise ValueError(f"weights must have shape ({len(hashes)},), not {weights.shape}")
    weights = np.require(weights, np.float64, ["C", "W"])
    check_weights(weights)
    return hashes, weights


def loads_from(state: Any, workers: int) -> Weights:
    """One load per worker out of a snapshot, or a ValueError."""
    loads = np.array(state, np.float64)
    if loads.shape != (workers,) or not np.all(np.isfinite(loads)) or np.any(loads < 0):
        raise ValueError(f"needs {workers} loads")
    return loads
