"""Everything that sees the routed events of this replica: counts, loads, the sample and the shadow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from keygrouping.grouping import create
from keygrouping.hashing import SEED, hash_keys
from keygrouping.measure import KeySample, lambda_
from numpy.typing import NDArray

from keygrouping_router import metrics
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.data.usable import Routed, Usable
from keygrouping_router.knowledge.balance import Balance, Loads, Spread, capacities_of
from keygrouping_router.knowledge.keyspace import Knowledge
from keygrouping_router.knowledge.sampling import Recent, Sampler, Slice
from keygrouping_router.knowledge.shadow import Candidate, Shadow
from keygrouping_router.knowledge.tracker import PANES, Tracker
from keygrouping_router.knowledge.trial import usual
from keygrouping_router.times import Times

_RANKS = 10

_LOOKED_BACK = 5
"""Intervals by which it is judged how wide keys mostly are."""


class Traffic:
    """Takes account of each batch that was routed; nothing in here waits for anything."""

    def __init__(self, active: ActiveGrouping, capacity: int, times: Times) -> None:
        self._active = active
        self._times = times
        self._offset = times.wall() - times.steady()
        self._tracker = Tracker(capacity, times.wall())
        self._recent = Recent()
        self._past: deque[KeySample] = deque(maxlen=PANES - 1)
        self._earlier = KeySample()
        self._widths: deque[Mapping[int, int]] = deque(maxlen=_LOOKED_BACK)
        """Of the hot keys at the end of each of the last intervals, under this control document."""
        self.events = 0
        self._began, self._events_before, self._per_second = times.steady(), 0, 0.0
        self.follow([])

    def follow(self, made: Sequence[Candidate]) -> None:
        """The control document has changed: loads and comparisons start from zero, beside these groupings."""
        control = self._active.control
        if self.events:
            self._remember()
        self._balance = Balance(capacities_of(control.capacity_by_worker, control.workers))
        self._before = create("key", control.workers)
        self._loads_before: Loads = np.zeros(control.workers)
        self._whole_before: Loads | None = None
        self._widths.clear()
        self._sampler = Sampler(control.sample)
        self._sampler.expect(self._per_second)
        self.shadow = Shadow(control, made, self._balance)

    def record(self, usable: Usable, routed: Routed, now: float) -> None:
        """These events were routed like this at `now` (seconds of the steady clock)."""
        hashes = self._first_hashes(usable, routed)
        self._balance.current.add(hashes, routed.workers, usable.weights)
        at_home = self._before.route_batch(hashes.reshape(-1, 1), None, now)
        self._loads_before += np.bincount(at_home, usable.weights, len(self._loads_before))
        self._tracker.saw(usable.keys, hashes, usable.weights, now + self._offset)
        self.events += len(usable.keys)
        taken = self._sampler.take(usable.keys, hashes, usable.weights, now)
        if taken is not None:
            self._recent.add(taken)
            self.shadow.feed(taken)

    def end_interval(self) -> Iterator[None]:
        """An interval is over. Yields after each stretch of what that takes; batches may be routed in between."""
        self._offset = self._times.wall() - self._times.steady()
        self._widths.append(self._active.widths())
        self._remember()
        self._balance.end_interval()
        self._measure_rate()
        self._whole_before, self._loads_before = self._loads_before, np.zeros(len(self._loads_before))
        metrics.IMBALANCE.set(self._balance.recent.lambda_)
        metrics.LEAST_SHARE.set(self._balance.recent.least_share)
        metrics.IMBALANCE_BEFORE.set(lambda_(self._whole_before, self._balance.recent.capacities))
        self._tracker.end_interval()
        yield
        yield from self._tracker.forget()
        yield
        self.observe_widths()
        yield from self.shadow.end_interval(self._times.steady(), len(self._tracker.hot_since))
        self._sampler.expect(self._per_second)

    @property
    def sampled_part(self) -> float:
        """The part of all events that is sampled now."""
        return self._sampler.share

    def _measure_rate(self) -> None:
        """Events per second of the interval that is over."""
        now, began = self._times.steady(), self._began
        if now > began:
            self._per_second = (self.events - self._events_before) / (now - began)
        self._began, self._events_before = now, self.events

    def observe_widths(self) -> dict[int, int]:
        """Records which keys are hot now; gives their widths, by hash."""
        widths = self._active.widths()
        self._tracker.note_hot(widths, self._times.wall())
        _show_widths(widths)
        return widths

    def usual_widths(self) -> dict[int, int]:
        """How wide hot keys mostly were in the last intervals, by hash; how wide they are, if none has passed."""
        return usual(self._widths or [self._active.widths()], self._active.cold_width)

    def sample(self) -> list[Slice]:
        """The last of the sampled traffic."""
        return self._recent.slices()

    def knowledge(self, replica: str) -> Knowledge:
        """What this replica knows now."""
        tracker, recent = self._tracker, self._balance.recent
        counts, widths = tracker.counts(), self.observe_widths()
        metrics.TRACKED_KEYS.set(len(counts))
        return Knowledge(
            replica=replica,
            events=self.events,
            counts=counts,
            distinct=self._distinct(),
            sightings=tracker.sightings,
            last_seen=tracker.last_seen,
            hot_since=tracker.hot_since,
            widths=widths,
            loads=recent.loads.copy(),
            before=(self._loads_before if self._whole_before is None else self._whole_before).copy(),
            spread=recent.sample.copy(),
        )

    def _remember(self) -> None:
        """Keeps the sample of the keys for as long as counts look back."""
        self._past.append(self._balance.current.sample)
        self._earlier = KeySample()
        for sample in self._past:
            self._earlier.merge(sample)

    def _distinct(self) -> KeySample:
        merged = self._earlier.copy()
        merged.merge(self._balance.current.sample)
        return merged

    def _first_hashes(self, usable: Usable, routed: Routed) -> NDArray[np.int64]:
        """The hash by the first seed of each event, hashed here if the grouping looks at no key."""
        hashes = routed.hashes if routed.hashes.shape[1] else hash_keys(usable.keys, (SEED,))
        return np.ascontiguousarray(hashes[:, 0])


def warm_up() -> None:
    """Compiles the kernels that count."""
    hashes = hash_keys([b"key"], (SEED,))
    create("key", 1).route_batch(hashes, None, 0.0)
    tracker = Tracker(1, 0.0)
    for weights in (None, np.ones(1)):
        tracker.saw([b"key"], hashes[:, 0], weights, 0.0)
    tracker.counts().find(int(hashes[0, 0]))
    Spread(np.ones(1)).add(hashes[:, 0], np.zeros(1, np.int32), None)


def _show_widths(widths: Mapping[int, int]) -> None:
    """Shows the number of hot keys and the widths of the widest ones as metrics."""
    metrics.HOT_KEYS.set(len(widths))
    widest = sorted(widths.values(), reverse=True)[:_RANKS]
    for rank in range(_RANKS):
        metrics.WIDTH.labels(str(rank + 1)).set(widest[rank] if rank < len(widest) else 0)
