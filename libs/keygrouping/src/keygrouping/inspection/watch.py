"""Follows a stream that goes on for good: what its keys have been like in the last minutes, in bounded memory."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping import CHECKS
from keygrouping.hashing import SEED, hash_keys
from keygrouping.inspection.batch import Batch
from keygrouping.inspection.ceiling import Ceiling, Split, Tried
from keygrouping.inspection.names import KeyNaming
from keygrouping.inspection.top_keys import HeavyKey, TopKeys
from keygrouping.inspection.trial import Trial
from keygrouping.measure import lambda_

SPLITTING = "level-fill"
"""The grouping that shows what splitting the hot keys would do."""

PANES = 6
"""Parts of the window; the oldest is forgotten as a whole."""

_CAPACITY = 1024
_BY_KEY = "key"

Loads = NDArray[np.float64]


class _Course:
    """A grouping on this stream, and the loads of its workers by pane.

    Its first interval with events doesn't count: nobody judges a router by the seconds in which it learned the keys.
    """

    def __init__(self, name: str, workers: int) -> None:
        self.trial = Trial(name, workers, {})
        self._learned = name == _BY_KEY
        self._panes = [np.zeros(workers) for _ in range(PANES)]

    @property
    def loads(self) -> Loads:
        """Of the workers, in the window."""
        return np.asarray(np.sum(self._panes, axis=0))

    def end_interval(self) -> None:
        loads = self.trial.end_interval()
        if self._learned:
            self._panes[-1] += loads
        self._learned = self._learned or bool(loads.sum())

    def slide(self) -> None:
        self._panes = [*self._panes[1:], np.zeros(self.trial.workers)]


class Watch:
    """Feeds key grouping and one that splits keys with a stream, for each number of workers, and counts its keys.

    All figures are of the last `window` seconds; a sixth of them is forgotten at a time. Plans are made each `interval`
    seconds, as a router does. The number of the topic's partitions is tried as a number of workers, too.
    Time is what the caller says, in seconds on a clock that never goes back. Memory: that of the groupings and of one
    sketch a pane.
    """

    def __init__(self, workers: Sequence[int], naming: KeyNaming, window: float, interval: float) -> None:
        self._wanted = list(workers)
        self._interval = interval
        self._pane = max(window / PANES, interval)
        self._keys = TopKeys(naming, _CAPACITY, PANES)
        self._partitions = [np.zeros(0) for _ in range(PANES)]
        self._events = [0.0] * PANES
        self._courses: dict[int, tuple[_Course, _Course]] = {}
        self._count = 0
        self._interval_begin: float | None = None
        self._pane_begin = 0.0
        self._now = 0.0
        self._checked = 0
        self._try_all()

    def set_partitions(self, count: int) -> None:
        """The topic has so many partitions by now."""
        if count != self._count:
            self._count = count
            self._partitions = [np.pad(each[:count], (0, max(0, count - len(each)))) for each in self._partitions]
            self._try_all()

    def forget(self) -> None:
        """What the partitions and keys were like: another topic has the name by now."""
        for _ in range(PANES):
            self._slide()
        self._courses.clear()
        self._try_all()

    def add(self, batch: Batch, records: NDArray[np.int64], scale: float = 1.0) -> None:
        """Events, and how many records each partition brought, be they of use or not, shape (partitions,).

        `scale`: each stands for so many. Records without a usable key burden their partition like the average one.
        """
        events = len(batch.keys)
        self._events[-1] += scale * float(records.sum())
        weights = np.ones(events) if batch.weights is None else batch.weights
        average = float(weights.mean()) if events else 1.0
        self._load_partitions(batch, weights, records, average, scale)
        if not events:
            return
        hashes = hash_keys(batch.keys, (SEED,))
        self._keys.add(batch.keys, np.ascontiguousarray(hashes[:, 0]), weights * scale)
        for course in self._all():
            course.trial.route(hashes, hashes[:, 0], weights * scale, self._now)

    def advance(self, now: float) -> None:
        """It is so late; plans that are due are made, and what is older than the window is forgotten."""
        if self._interval_begin is None:
            self._interval_begin = self._pane_begin = now
        self._now = now
        passed = (now - self._interval_begin) / self._interval
        due = sum(check <= passed for check in CHECKS)
        if passed >= 1:
            for course in self._all():
                course.end_interval()
            self._interval_begin, due = now, 0
        elif due > self._checked:
            for course in self._all():
                course.trial.check()
        self._checked = due
        for _ in range(min(PANES, int((now - self._pane_begin) / self._pane))):
            self._slide()
        self._pane_begin = now - (now - self._pane_begin) % self._pane

    def ceiling(self, top: int) -> Ceiling:
        """How far the stream scales, by what is known of the window, with so many keys."""
        heaviest = self._keys.heaviest(top)
        return Ceiling(
            events=sum(self._events),
            partitions=np.sum(self._partitions, axis=0).tolist(),
            keys=heaviest,
            tried=[self._tried(*self._courses[workers], heaviest) for workers in sorted(self._courses)],
        )

    def _tried(self, by_key: _Course, splitting: _Course, heaviest: Sequence[HeavyKey]) -> Tried:
        names = {key.hash: key for key in heaviest}
        grouping = splitting.trial.grouping
        wide = [key for key in grouping.hot(len(heaviest)) if key.width > grouping.cold_width and key.hash in names]
        return Tried(
            workers=by_key.trial.workers,
            by_key=_lambda(by_key.loads),
            split=_lambda(splitting.loads),
            splitting=SPLITTING,
            splits=sorted(
                (Split(names[key.hash].name, names[key.hash].share, key.width) for key in wide),
                key=lambda each: -each.share,
            ),
        )

    def _load_partitions(
        self, batch: Batch, weights: Loads, records: NDArray[np.int64], average: float, scale: float
    ) -> None:
        partitions = batch.partitions if batch.partitions is not None else np.zeros(0, np.int64)
        used = np.bincount(partitions, minlength=len(records))
        weighed = np.bincount(partitions, weights, len(records)) + average * (records - used)
        self._partitions[-1][: len(records)] += scale * weighed[: self._count]

    def _slide(self) -> None:
        self._keys.slide()
        self._partitions = [*self._partitions[1:], np.zeros(self._count)]
        self._events = [*self._events[1:], 0.0]
        for course in self._all():
            course.slide()

    def _try_all(self) -> None:
        """What was tried already goes on."""
        wanted = {*self._wanted, self._count} - {0}
        self._courses = {
            workers: self._courses.get(workers) or (_Course(_BY_KEY, workers), _Course(SPLITTING, workers))
            for workers in wanted
        }

    def _all(self) -> list[_Course]:
        return [course for pair in self._courses.values() for course in pair]


def _lambda(loads: Loads) -> float | None:
    return lambda_(loads) if loads.sum() else None
