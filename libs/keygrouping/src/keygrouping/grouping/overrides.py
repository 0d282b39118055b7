"""What people say about single keys, as a layer around any grouping: pinned, split, whole, or on a worker alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.protocol import Grouping, Hashes, Weights, Workers
from keygrouping.hashing import hash_key, worker_of
from keygrouping.weights import check_weights

Action = Literal["pin", "split", "whole", "isolate"]


class Override(NamedTuple):
    """What is to become of one key.

    `pin`: all of its events go to `worker`. `split`: it is spread evenly over `width` workers (None: over all of them).
    `whole`: it has one worker, that of its hash. `isolate`: it has one worker, and that gets no other key; `worker`
    says which (None: the last one that nobody else has asked for).
    """

    key: bytes
    action: Action
    worker: int | None = None
    width: int | None = None


@dataclass(frozen=True)
class Layout:
    """What overrides make of a number of workers."""

    workers: int
    """W, the number of all workers."""
    shared: tuple[int, ...]
    """The workers that a grouping spreads the other keys over: its worker v is `shared[v]`."""
    places: Mapping[bytes, tuple[int, ...]]
    """The workers of each key with an override."""
    resting: Mapping[bytes, str]
    """Keys whose override plays no part with so many workers, and why, in one line."""


def lay_out(overrides: Sequence[Override], workers: int) -> Layout:
    """The same for all who ask, so that every router routes a key with an override alike."""
    resting: dict[bytes, str] = {}
    alone = _isolated(overrides, workers, resting)
    own = set(alone.values())
    shared = tuple(worker for worker in range(workers) if worker not in own)
    places: dict[bytes, tuple[int, ...]] = {key: (worker,) for key, worker in alone.items()}
    for key, action, worker, width in overrides:
        if action == "pin" and worker is not None:
            if worker >= workers:
                resting[key] = _beyond(worker, workers)
            elif worker in own:
                resting[key] = f"worker {worker} belongs to another key alone"
            else:
                places[key] = (worker,)
        elif action in ("split", "whole"):
            home, most = worker_of(hash_key(key), len(shared)), len(shared)
            wide = 1 if action == "whole" else min(width or most, most)
            places[key] = tuple(shared[(home + step) % most] for step in range(wide))
    return Layout(workers, shared, places, resting)


def _isolated(overrides: Sequence[Override], workers: int, resting: dict[bytes, str]) -> dict[bytes, int]:
    """The keys with a worker of their own; at least one worker is left for all others."""
    wanted = [override for override in overrides if override.action == "isolate"]
    named = {override.worker for override in overrides if override.worker is not None}
    free = [worker for worker in reversed(range(workers)) if worker not in named]
    found: dict[bytes, int] = {}
    for override in sorted(wanted, key=lambda override: override.worker is None):
        worker = override.worker
        if worker is not None and worker >= workers:
            resting[override.key] = _beyond(worker, workers)
        elif worker is not None and worker in found.values():
            resting[override.key] = f"worker {worker} belongs to another key alone"
        elif len(found) + 1 >= workers or (worker is None and not free):
            resting[override.key] = f"of {workers} workers none is left for it alone"
        else:
            found[override.key] = free.pop(0) if worker is None else worker
    return found


def _beyond(worker: int, workers: int) -> str:
    return f"worker {worker} is not in use: there are {workers}, numbered from 0"


class Overrides:
    """Routes keys that have an override by it, and all others by a grouping of `len(layout.shared)` workers.

    Of the keys that have one the grouping learns the load of their workers only, so that it gives these less of the
    others. The workers of a key that is split take turns.
    """

    def __init__(self, overrides: Sequence[Override] = (), workers: int = 1) -> None:
        self.layout = lay_out(overrides, workers)
        self._shared = np.array(self.layout.shared, np.int32)
        self._moves = self.layout.shared != tuple(range(workers))
        self._turns = dict.fromkeys(self.layout.places, 0)
        self.carried: NDArray[np.int64] = np.zeros(workers, np.int64)
        """Events so far that went to each worker because an override says so."""

    def route_batch(
        self, grouping: Grouping, keys: Sequence[bytes], hashes: Hashes, weights: Weights | None, now: float
    ) -> Workers:
        """The workers of n events with these keys, as `Grouping.route_batch` gives them for n hashes."""
        at = self._found(keys)
        if not at:
            return self.numbered(grouping.route_batch(hashes, weights, now))
        if weights is not None:
            check_weights(weights)
        routed = np.empty(len(keys), np.int32)
        others = np.ones(len(keys), np.bool_)
        for key, positions in at.items():
            others[positions] = False
            routed[positions] = self._next(key, len(positions))
        self.carried += np.bincount(routed[~others], minlength=len(self.carried))
        grouping.bear(self._loads(routed[~others], None if weights is None else weights[~others]))
        if others.any():
            given = None if weights is None else weights[others]
            routed[others] = self.numbered(grouping.route_batch(hashes[others], given, now))
        return routed

    def numbered(self, workers: Workers) -> Workers:
        """The workers that the grouping's own numbers stand for."""
        return self._shared[workers] if self._moves else workers

    def _loads(self, routed: Workers, weights: Weights | None) -> Weights:
        """What went to each of the grouping's workers."""
        return np.bincount(routed, weights, self.layout.workers)[self._shared].astype(np.float64)

    def _found(self, keys: Sequence[bytes]) -> dict[bytes, list[int]]:
        """Where in a batch the keys with an override are."""
        places = self.layout.places
        found: dict[bytes, list[int]] = {}
        if places:
            for position, key in enumerate(keys):
                if key in places:
                    found.setdefault(key, []).append(position)
        return found

    def _next(self, key: bytes, events: int) -> NDArray[np.int32]:
        workers = np.array(self.layout.places[key], np.int32)
        turn = self._turns[key]
        self._turns[key] = (turn + events) % len(workers)
        return workers[(turn + np.arange(events)) % len(workers)]
