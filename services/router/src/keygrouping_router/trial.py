"""Tries a change on the last of the sampled traffic, beside what is in force; nothing in force changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

import numpy as np
from keygrouping.grouping import CHECKS, Grouping, Overrides, create
from keygrouping.hashing import SEED, hash_keys
from numpy.typing import NDArray

from keygrouping_router.balance import Spread, capacities_of
from keygrouping_router.control import Control, Values
from keygrouping_router.models import Change, Changes, ShadowResult, WidthChange
from keygrouping_router.naming import named
from keygrouping_router.overriding import diverted, orders_of
from keygrouping_router.rehearsal import Rehearsal
from keygrouping_router.sampling import Slice
from keygrouping_router.steering import new_grouping, successor, widths_with

INTERVALS = (8, 30)
"""Fewest and most intervals that are played."""

LEAST_SECONDS = 150.0
"""Time that they take at least on the groupings' clock, so that what depends on time comes about."""

MOST_EVENTS = 1_000_000
"""Events that are played, so that an answer takes about a second; intervals with more events are shortened."""

_MEASURED = 5
"""The last of the intervals, by which the outcome is judged: as somebody who looks on would see it."""

_CUTS = (0.0, *CHECKS, 0.75, 1.0)
"""Between these parts of an interval routers may ask for a plan.

They are few: after each call of a kernel the thread may have to wait for the routing's turn to end.
"""

_MOST_WIDTHS = 100
_SEED = 17
_RUN = 256
"""Events that are played in the order in which they came."""


@dataclass(frozen=True)
class InForce:
    """What a change is made from: `grouping` is a copy that may be changed, `interval` that of routers unless set."""

    control: Control
    grouping: Grouping
    interval: float


class _Stream:
    """The sampled events one after the other, and from the first one again after the last."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._keys = [key for taken in slices for key in taken.keys]
        self._weights = None
        if any(taken.weights is not None for taken in slices):
            self._weights = np.concatenate([_weights(taken) for taken in slices])
        self.hashes = np.concatenate([taken.hashes for taken in slices])
        self._stand_for = np.repeat([taken.stands_for for taken in slices], [len(taken.keys) for taken in slices])
        self.now = slices[-1].now
        self._seconds = self.now - slices[0].now

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def per_second(self) -> float:
        """Events of the traffic that they stand for, in a second."""
        return float(self._stand_for.sum()) / self._seconds if self._seconds > 0 else math.inf

    def without(self, keys: Collection[bytes]) -> _Stream:
        """The same time without the events of these keys."""
        if not keys:
            return self
        rest, kept = copy(self), [place for place, key in enumerate(self._keys) if key not in keys]
        rest._keys = self.keys(kept)
        rest._weights = None if self._weights is None else self._weights[kept]
        rest._stand_for, rest.hashes = self._stand_for[kept], self.hashes[kept]
        return rest

    def keys(self, places: Iterable[int]) -> list[bytes]:
        """Of the events there."""
        return [self._keys[place] for place in places]

    def hashed(self, seeds: tuple[int, ...]) -> NDArray[np.int64]:
        """The hashes of all, shape (n, len(seeds))."""
        return self.hashes.reshape(-1, 1) if seeds == (SEED,) else hash_keys(self._keys, seeds)

    def places(self, intervals: int, events: int) -> Iterator[NDArray[np.int64]]:
        """Where the events of each of so many intervals stand.

        One after the other where they last for what is measured; else runs of them from random places on: played again
        and again, the same few would vary less from interval to interval than the traffic does.
        """
        random, run = np.random.default_rng(_SEED), np.arange(_RUN)
        for number in range(intervals):
            if _MEASURED * events > len(self):
                starts = random.integers(len(self), size=(-(-events // _RUN), 1))
                yield (starts + run).ravel()[:events] % len(self)
            else:
                yield np.arange(number * events, (number + 1) * events) % len(self)

    def weights(self, places: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Of the events there; None: ones."""
        return None if self._weights is None else self._weights[places]

    def weight_and_name(self, hashed: int) -> tuple[float, bytes | None]:
        """All weight of a key, and what it is called if it is among the events."""
        places = np.flatnonzero(self.hashes == hashed)
        weights = self.weights(places)
        weight = float(len(places)) if weights is None else float(weights.sum())
        return weight, self._keys[int(places[0])] if len(places) else None


def _weights(taken: Slice) -> NDArray[np.float64]:
    return np.ones(len(taken.keys)) if taken.weights is None else taken.weights


@dataclass(frozen=True)
class _Outcome:
    """What a grouping makes of an interval of the stream on average, and how wide which keys mostly are at its end.

    `events` are those of all intervals by which that was measured.
    """

    lambda_: float
    std_dev: float
    dist_cost: float
    events: int
    widths: dict[int, int]
    cold_width: int


def compare(now: InForce, after: Control, slices: Sequence[Slice]) -> Changes:
    """What the control document after gives for the sample, and what goes on as it is.

    Both begin from what the grouping in force has learned, as a change does, play the sample in intervals of as many
    events as there are in truth, and plan as a router that is alone. Takes up to seconds: not for the event loop.
    """
    before, given = now.control, now.grouping
    if before.observe_only and after.observe_only:
        before, after = before.as_if(before.grouping, before.settings), after.as_if(after.grouping, after.settings)
        given = new_grouping(before)
    if not slices:
        nothing = Change(before=None, after=None)
        return Changes(hot_keys=nothing, widths=[], lambda_=nothing, dist_cost=nothing, sampled_events=0)
    stream, going_on = _Stream(slices), new_grouping(before)
    going_on.adopt(given)
    old = _play(before, going_on, stream, now.interval)
    new = _play(after, successor(given, before, after)[0], stream, now.interval)
    return Changes(
        hot_keys=Change(before=len(old.widths), after=len(new.widths)),
        widths=_width_changes(old, new, stream),
        lambda_=Change(before=old.lambda_, after=new.lambda_),
        dist_cost=Change(before=old.dist_cost, after=new.dist_cost),
        sampled_events=len(stream),
    )


def side_by_side(now: InForce, after: Control, slices: Sequence[Slice]) -> list[ShadowResult]:
    """What the grouping in force and those to compare with give for the sample; nothing without a sample.

    The one in force goes on from what it has learned, the others begin from nothing, as shadows do. They share the
    events that are played for `compare`, so that many of them take no longer.
    """
    if not slices:
        return []
    control, stream = now.control, _Stream(slices)
    played = [(control.routed_by, {} if control.observe_only else control.settings, now.grouping)]
    played += [(name, settings, create(name, after.grouped, used)) for name, settings, used in after.compared]
    most = min(MOST_EVENTS, 2 * MOST_EVENTS // len(played))
    return [
        _result(name, settings, _play(after, grouping, stream, now.interval, most), in_force=number == 0)
        for number, (name, settings, grouping) in enumerate(played)
    ]


def _result(name: str, settings: Values, outcome: _Outcome, *, in_force: bool) -> ShadowResult:
    return ShadowResult(
        name=name,
        settings=settings,
        in_force=in_force,
        lambda_=outcome.lambda_,
        std_dev=outcome.std_dev,
        dist_cost=outcome.dist_cost,
        hot_keys=len(outcome.widths),
        events=outcome.events,
    )


def _play(
    control: Control, grouping: Grouping, stream: _Stream, default_interval: float, most_events: int = MOST_EVENTS
) -> _Outcome:
    stream = stream.without(diverted(control.overrides))
    interval = control.interval or default_interval
    fewest, most = INTERVALS
    intervals = min(max(fewest, math.ceil(LEAST_SECONDS / interval)), most)
    events = max(1, int(min(interval * stream.per_second, most_events / intervals))) if len(stream) else 0
    seconds = max(interval, LEAST_SECONDS / intervals)
    rehearsal, hashes = Rehearsal(grouping), stream.hashed(grouping.seeds)
    overrides = Overrides(orders_of(control.overrides), control.workers)
    spreads: list[Spread] = []
    widths: list[dict[int, int]] = []
    for number, interval_places in enumerate(stream.places(intervals, events)):
        spread = Spread(capacities_of(control.capacity_by_worker, control.workers))
        for start, stop in pairwise(_CUTS):
            places = interval_places[int(start * events) : int(stop * events)]
            at = stream.now + seconds * (number + start)
            rehearsal.check(at, seconds)
            weights = stream.weights(places)
            # Names take as long as all the rest, so they are looked up only where something depends on them.
            keys = stream.keys(places.tolist()) if overrides.layout.places else []
            workers = rehearsal.route(overrides, keys, hashes[places], weights, at)
            if number >= intervals - _MEASURED:
                spread.add(stream.hashes[places], workers, weights)
        widths = [*widths, widths_with(overrides, grouping)][-_MEASURED:]
        rehearsal.end_interval(stream.now + seconds * (number + 1))
        spreads = [*spreads, spread][-_MEASURED:]
    cold = min(grouping.cold_width, grouping.workers)
    return _Outcome(
        float(np.mean([spread.lambda_ for spread in spreads])),
        float(np.mean([spread.std_dev for spread in spreads])),
        float(np.mean([spread.dist_cost for spread in spreads])),
        sum(spread.events for spread in spreads),
        _usual(widths, cold),
        cold,
    )


def _usual(widths: Sequence[Mapping[int, int]], cold: int) -> dict[int, int]:
    """The median width of each key that mostly is hot."""
    seen = {hashed for each in widths for hashed in each}
    usual = {hashed: median_low(each.get(hashed, cold) for each in widths) for hashed in seen}
    return {hashed: width for hashed, width in usual.items() if width > cold}


def _width_changes(old: _Outcome, new: _Outcome, stream: _Stream) -> list[WidthChange]:
    """Keys whose width differs, the heaviest first."""
    known = old.widths.keys() | new.widths.keys()
    differing = [hashed for hashed in known if _width(old, hashed) != _width(new, hashed)]
    rows = sorted((-weight, hashed, name) for hashed in differing for weight, name in [stream.weight_and_name(hashed)])
    return [
        WidthChange(**named(name, hashed), before=_width(old, hashed), after=_width(new, hashed))
        for _, hashed, name in rows[:_MOST_WIDTHS]
    ]


def _width(outcome: _Outcome, hashed: int) -> int:
    return outcome.widths.get(hashed, outcome.cold_width)
