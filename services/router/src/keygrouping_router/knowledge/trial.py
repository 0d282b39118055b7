"""Tries a change on the last of the sampled traffic, beside what is in force; nothing in force changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median, median_low
from typing import NamedTuple

import numpy as np
from keygrouping.grouping import CHECKS, Grouping, create
from keygrouping.hashing import SEED, hash_keys
from numpy.typing import NDArray

from keygrouping_router.control.groupings import new_grouping, successor
from keygrouping_router.control.overrides import diverted
from keygrouping_router.control.state import Control
from keygrouping_router.knowledge.balance import Spread, capacities_of
from keygrouping_router.knowledge.rehearsal import Rehearsal
from keygrouping_router.knowledge.sampling import Slice
from keygrouping_router.knowledge.shadow import ShadowResult

INTERVALS = (13, 30)
"""Fewest and most intervals that are played."""

LEAST_SECONDS = 200.0
"""Time that they take at least on the groupings' clock, so that what depends on time comes about."""

MOST_EVENTS = 500_000
"""Events of a play, so that an answer takes about a second; intervals with more events are shortened."""

_MEASURED = 10
"""The last of the intervals, by which the outcome is judged.

Where light keys are let be λ differs by some hundredths from interval to interval: its mean is to be exact to one.
"""

_PLAYS = 3
"""Times that a change is played, each with other events: the middle one counts, and what they differ in is chance."""

_LASTING = 5
"""Intervals that a sample has to hold to be played as it came."""

_CUTS = (0.0, *CHECKS, 0.75, 1.0)
"""Between these parts of an interval routers may ask for a plan.

They are few: after each call of a kernel the thread may have to wait for the routing's turn to end.
"""

_MOST_WIDTHS = 100
_SEED = 17


@dataclass(frozen=True)
class InForce:
    """What a change is made from: `grouping` is a copy that may be changed, `interval` that of routers unless set."""

    control: Control
    grouping: Grouping
    interval: float
    widths: Mapping[int, int]
    """How wide the hot keys mostly were in the last intervals, by hash."""


class Change(NamedTuple):
    """A number with the present settings, and with those that were tried; None where there was nothing to try on."""

    before: float | None
    after: float | None


class WidthChange(NamedTuple):
    """A key (its name is None if only the hash is known) that would be spread over another number of workers."""

    name: bytes | None
    hash: int
    before: int
    after: int


@dataclass(frozen=True)
class Changes:
    """What another control document does to a sample of the present traffic; `widths`: largest share first."""

    hot_keys: Change
    cold_width: Change
    """The most workers of each key that isn't hot."""
    widths: list[WidthChange]
    lambda_: Change
    dist_cost: Change
    sampled_events: int


class _Stream:
    """The sampled events one after the other, and from the first one again after the last."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._keys = [key for taken in slices for key in taken.keys]
        self._weights = None
        if any(taken.weights is not None for taken in slices):
            self._weights = np.concatenate([_weights(taken) for taken in slices])
        self.hashes = np.concatenate([taken.hashes for taken in slices])
        self.now = slices[-1].now
        seconds = self.now - slices[0].now
        traffic = sum(taken.stands_for * len(taken.keys) for taken in slices)
        self.per_second = traffic / seconds if seconds > 0 else math.inf

    def __len__(self) -> int:
        return len(self._keys)

    def hashed(self, seeds: tuple[int, ...]) -> NDArray[np.int64]:
        """The hashes of all, shape (n, len(seeds))."""
        return self.hashes.reshape(-1, 1) if seeds == (SEED,) else hash_keys(self._keys, seeds)

    def places(self, intervals: int, events: int, play: int) -> Iterator[NDArray[np.int64]]:
        """Where the events of each of so many intervals stand; others in each play.

        One after the other where they last for several intervals. Else each interval has its own, drawn at random: the
        same few would vary less from interval to interval than the traffic does. Runs of events would vary more, as
        each is mostly of one input partition, which brings the same part of the traffic all along.
        """
        random, first = np.random.default_rng(_SEED + play), play * len(self) // _PLAYS
        for number in range(intervals):
            if _LASTING * events > len(self):
                yield np.sort(random.integers(len(self), size=events))
            else:
                yield (first + np.arange(number * events, (number + 1) * events)) % len(self)

    def keys(self, places: NDArray[np.int64]) -> list[bytes]:
        """Of the events there."""
        return [self._keys[place] for place in places.tolist()]

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
    """What a grouping makes of an interval of the stream on average, and how wide which keys mostly are at its end."""

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
    in_force: Mapping[int, int] | None = now.widths
    if before.observe_only and after.observe_only:
        before, after = before.as_if(before.grouping, before.settings), after.as_if(after.grouping, after.settings)
        given, in_force = new_grouping(before), None
    if not slices:
        nothing = Change(before=None, after=None)
        return Changes(
            hot_keys=nothing, cold_width=nothing, widths=[], lambda_=nothing, dist_cost=nothing, sampled_events=0
        )
    plays = [_Play(before, _twin(before, given), number) for number in range(_PLAYS)]
    plays += [_Play(after, successor(_twin(before, given), before, after)[0], number) for number in range(_PLAYS)]
    outcomes = _play_all(plays, slices, now.interval)
    old, new = outcomes[:_PLAYS], outcomes[_PLAYS:]
    present = old if in_force is None else [replace(old[0], widths=dict(in_force))]
    stream = _Stream(slices)
    return Changes(
        hot_keys=Change(
            before=median_low(len(one.widths) for one in old), after=median_low(len(one.widths) for one in new)
        ),
        cold_width=Change(before=old[0].cold_width, after=new[0].cold_width),
        widths=_width_changes(present, old, new, stream),
        lambda_=Change(before=median(one.lambda_ for one in old), after=median(one.lambda_ for one in new)),
        dist_cost=Change(before=median(one.dist_cost for one in old), after=median(one.dist_cost for one in new)),
        sampled_events=len(stream),
    )


def _twin(control: Control, given: Grouping) -> Grouping:
    twin = new_grouping(control)
    twin.adopt(given)
    return twin


def side_by_side(now: InForce, after: Control, slices: Sequence[Slice]) -> list[ShadowResult]:
    """What the grouping in force and those that are compared by the control document after give for the sample."""
    if not slices:
        return []
    settings = {} if after.observe_only else after.settings
    rows = [(after.routed_by, settings, now.grouping)]
    rows += [(one.name, one.settings, create(one.name, after.grouped, one.used)) for one in after.compared]
    outcomes = _play_all([_Play(after, grouping) for _, _, grouping in rows], slices, now.interval)
    found = []
    for number, ((name, shown, _), outcome) in enumerate(zip(rows, outcomes, strict=True)):
        found.append(
            ShadowResult(
                name=name,
                settings=shown,
                in_force=number == 0,
                lambda_=outcome.lambda_,
                std_dev=outcome.std_dev,
                dist_cost=outcome.dist_cost,
                hot_keys=len(outcome.widths),
                events=outcome.events,
            )
        )
    return found


class _Play(NamedTuple):
    """A grouping to be played, and which of the plays that differ by their events."""

    control: Control
    grouping: Grouping
    number: int = 0


def _play_all(plays: Sequence[_Play], slices: Sequence[Slice], default_interval: float) -> list[_Outcome]:
    """All of them at once.

    After each of some hundred calls of kernels a play waits for the routing to give the interpreter back, which takes
    it up to 5 ms and most of its time; in that time the others are not kept waiting.
    """
    with ThreadPoolExecutor(len(plays)) as threads:
        return list(threads.map(lambda play: _play(play, slices, default_interval), plays))


def _play(play: _Play, slices: Sequence[Slice], default_interval: float) -> _Outcome:
    control, grouping, _ = play
    cold = min(grouping.cold_width, grouping.workers)
    slices = _without(diverted(control.overrides), slices)
    if not slices:
        return _Outcome(1.0, 0.0, 1.0, 0, {}, cold)
    stream = _Stream(slices)
    interval = control.interval or default_interval
    fewest, most = INTERVALS
    intervals = min(max(fewest, math.ceil(LEAST_SECONDS / interval)), most)
    events = max(1, int(min(interval * stream.per_second, MOST_EVENTS / intervals)))
    seconds = max(interval, LEAST_SECONDS / intervals)
    rehearsal, hashes = Rehearsal(grouping, control), stream.hashed(grouping.seeds)
    spreads: list[Spread] = []
    widths: list[dict[int, int]] = []
    for number, interval_places in enumerate(stream.places(intervals, events, play.number)):
        spread = Spread(capacities_of(control.capacity_by_worker, control.workers))
        for start, stop in pairwise(_CUTS):
            places = interval_places[int(start * events) : int(stop * events)]
            at = stream.now + seconds * (number + start)
            rehearsal.check(at, seconds)
            weights = stream.weights(places)
            keys = stream.keys(places) if control.overrides else ()
            workers = rehearsal.route(keys, hashes[places], weights, at)
            if number >= intervals - _MEASURED:
                spread.add(stream.hashes[places], workers, weights)
        widths = [*widths, rehearsal.widths()][-_MEASURED:]
        rehearsal.end_interval(stream.now + seconds * (number + 1))
        spreads = [*spreads, spread][-_MEASURED:]
    return _Outcome(
        float(np.mean([spread.lambda_ for spread in spreads])),
        float(np.mean([spread.std_dev for spread in spreads])),
        float(np.mean([spread.dist_cost for spread in spreads])),
        sum(spread.events for spread in spreads),
        usual(widths, cold),
        cold,
    )


def _without(keys: Collection[bytes], slices: Sequence[Slice]) -> list[Slice]:
    """The sample without the events of these keys."""
    if not keys:
        return list(slices)
    found = []
    for taken in slices:
        at = [position for position, key in enumerate(taken.keys) if key not in keys]
        weights = None if taken.weights is None else taken.weights[at]
        kept = [taken.keys[position] for position in at]
        found.append(taken._replace(keys=kept, hashes=taken.hashes[at], weights=weights))
    return [taken for taken in found if taken.keys]


def usual(widths: Sequence[Mapping[int, int]], cold: int) -> dict[int, int]:
    """The median width of each key that mostly is hot; keys that aren't have at most `cold` workers."""
    seen = {hashed for each in widths for hashed in each}
    medians = {hashed: median_low(each.get(hashed, cold) for each in widths) for hashed in seen}
    return {hashed: width for hashed, width in medians.items() if width > cold}


def _width_changes(
    now: Sequence[_Outcome], old: Sequence[_Outcome], new: Sequence[_Outcome], stream: _Stream
) -> list[WidthChange]:
    """Keys that are hot before or after, and that the change gives another width than they have; the heaviest first.

    Than they have now, and would have if all went on as it is, whichever of the plays come true: of several keys that
    are nearly alike it is chance which one has a worker more, and nobody can tell that of the next time.
    """
    known = {hashed for outcome in (*now, *old, *new) for hashed in outcome.widths}
    rows = []
    for hashed in known:
        before, after = _widths(now, hashed), _widths(new, hashed)
        if not {*after} & {*before, *_widths(old, hashed)}:
            weight, name = stream.weight_and_name(hashed)
            rows.append((-weight, hashed, name, median_low(before), median_low(after)))
    return [WidthChange(name, hashed, *widths) for _, hashed, name, *widths in sorted(rows)[:_MOST_WIDTHS]]


def _widths(outcomes: Sequence[_Outcome], hashed: int) -> list[int]:
    return [outcome.widths.get(hashed, outcome.cold_width) for outcome in outcomes]
