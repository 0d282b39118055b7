"""Measures of a stream of any keys as it goes by, per interval and over the whole run."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keygrouping.measure.measures import Measures


class Counts(NamedTuple):
    """Distinct things of an interval or the run; the fields of `Measures`."""

    events: int
    keys: int
    pairs: int
    copies: int
    width_changes: int


class _Part:
    """What adds up, of an interval or the run."""

    def __init__(self, workers: int) -> None:
        self.loads: NDArray[np.float64] = np.zeros(workers)
        self.moved_keys = 0
        self.moved_state = 0.0

    def fit(self, workers: int) -> None:
        """Have a load for at least this many workers."""
        if workers > self.loads.size:
            self.loads = np.concatenate([self.loads, np.zeros(workers - self.loads.size)])

    def measures(self, counts: Counts, partials: int) -> Measures:
        return Measures(
            **counts._asdict(),
            partials=partials,
            moved_keys=self.moved_keys,
            moved_state=self.moved_state,
            loads=tuple(self.loads.tolist()),
        )


class Collector(ABC):
    """Collects who got what and gives the measures; workers without events count as loads of 0.

    How keys and pairs are counted is left to the classes for all kinds of keys and for numbered ones.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._interval = _Part(workers)
        self._run = _Part(workers)
        self._flushed = 0
        """Partials of the intervals that are over."""

    def moved(self, keys: int, state: float) -> None:
        """So many keys were moved to other workers, and with them state of this weight."""
        for part in (self._interval, self._run):
            part.moved_keys += keys
            part.moved_state += state

    def resize(self, workers: int) -> None:
        """There are this many workers from now on; those that have gone still count where they had events."""
        self._workers = workers
        for part in (self._interval, self._run):
            part.fit(workers)

    def interval(self) -> Measures:
        """The measures since the last call of this, and the start of a new interval."""
        counts = self._interval_counts()
        measures = self._interval.measures(counts, counts.pairs)
        self._flushed += counts.pairs
        self._interval = _Part(self._workers)
        self._begin_interval()
        return measures

    def run(self) -> Measures:
        """The measures of everything so far."""
        return self._run.measures(self._run_counts(), self._flushed + self._interval_counts().pairs)

    @property
    def run_loads(self) -> NDArray[np.float64]:
        """Weight of each worker's events so far; not to be written to."""
        return self._run.loads

    def _add_loads(self, loads: NDArray[np.float64]) -> None:
        for part in (self._interval, self._run):
            part.fit(loads.size)
            part.loads[: loads.size] += loads

    @abstractmethod
    def _interval_counts(self) -> Counts: ...

    @abstractmethod
    def _run_counts(self) -> Counts: ...

    @abstractmethod
    def _begin_interval(self) -> None:
        """Forget the counts of the interval."""


class _Members:
    """The workers of each key, in an interval or the run."""

    def __init__(self) -> None:
        self.width_changes = 0
        self._masks: dict[Hashable, int] = {}
        self._events: dict[Hashable, int] = {}

    def add(self, key: Hashable, worker: int, events: int) -> bool:
        """Count events of a pair; whether it is a new one of a known key."""
        mask = self._masks.get(key, 0)
        self._masks[key] = mask | 1 << worker
        self._events[key] = self._events.get(key, 0) + events
        return mask != 0 and not mask >> worker & 1

    def counts(self) -> Counts:
        widths = {key: mask.bit_count() for key, mask in self._masks.items()}
        copies = sum(events * widths[key] for key, events in self._events.items())
        return Counts(sum(self._events.values()), len(widths), sum(widths.values()), copies, self.width_changes)


class Distribution(Collector):
    """Collects events whose keys are of any kind.

    Memory grows with the number of distinct keys (an integer of W bits and a count each, twice); where there are
    millions, or many events per second, number the keys and take `IndexedDistribution`.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._interval_members = _Members()
        self._run_members = _Members()

    def add(self, worker: int, key: Hashable, weight: float = 1.0, events: int = 1) -> None:
        """`events` events of one key, together of this weight, went to this worker."""
        loads = np.zeros(worker + 1)
        loads[worker] = weight
        self._add_loads(loads)
        self._add_pair(key, worker, events)

    def add_many(
        self, workers: NDArray[np.integer], keys: Sequence[Hashable], weights: ArrayLike | None = None
    ) -> None:
        """One event each: keys[i] of weights[i] (1 if not given) went to workers[i]."""
        given = None if weights is None else np.asarray(weights, np.float64)
        for key, worker in zip(keys, workers.tolist(), strict=True):
            self._add_pair(key, worker, 1)
        self._add_loads(np.bincount(workers, given).astype(np.float64))

    def _add_pair(self, key: Hashable, worker: int, events: int) -> None:
        self._interval_members.add(key, worker, events)
        if self._run_members.add(key, worker, events):
            self._interval_members.width_changes += 1
            self._run_members.width_changes += 1

    def _interval_counts(self) -> Counts:
        return self._interval_members.counts()

    def _run_counts(self) -> Counts:
        return self._run_members.counts()

    def _begin_interval(self) -> None:
        self._interval_members = _Members()
