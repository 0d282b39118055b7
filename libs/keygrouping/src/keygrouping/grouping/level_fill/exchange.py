"""What the sources of level-fill tell each other inside of an interval.

A topic that is partitioned by key gives each source keys that no other one has. If each leveled its own part, light
keys would be split in one source to fill gaps that a hot key of another one fills. So they tell each other what they
have brought to each worker, and level the whole stream, where that is steady: where each source brings the same part of
it all the time, but for chance. Else what is known of the others is past too soon. They do so, too, where no key is hot
and all are too light to level the part of one source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from keygrouping.grouping.base import loads_from
from keygrouping.grouping.level_fill.shares import Counts
from keygrouping.grouping.level_fill.state import LIGHT
from keygrouping.grouping.protocol import Weights

_APART = 0.5
"""Sources whose keys are their own by less, where 0 is as in a stream dealt in turn and 1 is by key, see the same
stream: each levels its own part, and so all is level."""
_STEADY = 0.09
"""Part of the stream that may change its source between two exchanges; chance makes it 0.02 with 1,250 events between
them."""
_HEAVY = 0.2
"""Part of what a source brings from which on a key of it is heavy enough to fill the gaps between its others."""
_UNEVEN = 0.05
"""Of the stream: where sources without such a key bring less, each levels its own part more evenly than all together,
as each knows at once what it has brought itself."""
_LIGHT = 0.5
"""Where hot keys are few: part of the stream that has to come from sources whose keys are all light, so that none of
them can level its own part."""
_REMEMBERED = 2
"""Intervals: a stream that has changed inside of one may do so again."""
_FULL = 1.5
"""Of a worker over the average, by keys that no plan can move: the others are to share at least the rest alike."""
_MOST = 2.0**53
"""Load that no worker gets in an interval: a level far above it could not be counted up to."""


@dataclass(frozen=True)
class Report:
    """What a source has brought in this interval so far."""

    loads: Weights
    """To each worker."""
    outside: Weights
    """Of that, what it was told to bring there, as that of a pinned key."""
    fixed: Weights
    """Of it, too, that of keys that have one worker, with what is outside: that goes on as it is."""
    movable: float
    """Weight of its keys that have several workers: how much it can level out."""

    @classmethod
    def parsed(cls, data: Mapping[str, Any], workers: int) -> Self | None:
        """Out of JSON data; None if it is none, or for another number of workers."""
        try:
            movable = loads_from([data["movable"]], 1)
            loads, outside, fixed = (loads_from(data[name], workers) for name in ("loads", "outside", "fixed"))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        heaviest = max(float(each.max()) for each in (loads, outside, fixed))
        return None if heaviest > _MOST else cls(loads, outside, fixed, float(movable[0]))

    @classmethod
    def sum_of(cls, reports: Sequence[Self], workers: int) -> Self:
        """Of several sources, or of none."""
        nothing = np.zeros(workers)
        return cls(
            sum((report.loads for report in reports), nothing),
            sum((report.outside for report in reports), nothing),
            sum((report.fixed for report in reports), nothing),
            sum(report.movable for report in reports),
        )

    def to_data(self) -> dict[str, Any]:
        """As plain JSON data."""
        columns = {"loads": self.loads, "outside": self.outside, "fixed": self.fixed}
        return {**{name: column.tolist() for name, column in columns.items()}, "movable": self.movable}


@dataclass(frozen=True)
class Swing:
    """By how much a source's part of the stream changes, inside of intervals and from one to the next."""

    own: tuple[float, ...] = ()
    """Weight that this source brought up to each exchange of the interval."""
    all: tuple[float, ...] = ()
    """Weight that all brought."""
    fullest: float = 1.0
    """Load of the fullest worker over the average, at the last exchange."""
    before: float | None = None
    """Its part in the last interval; None: not known, as it heard nobody."""
    past: tuple[float, ...] = ()
    """By how much it changed inside of each of the last `_REMEMBERED` intervals; not from one to the next, as it does
    once where partitions change their source, or a skew ends."""

    def saw(self, own: float, all_: float, fullest: float = 1.0) -> Self:
        """After another exchange."""
        return replace(self, own=(*self.own, own), all=(*self.all, all_), fullest=fullest)

    def restarted(self) -> "Swing":
        """Inside of an interval, with other settings or workers; what the last ones were like still counts."""
        return Swing(past=self.past)

    def ended(self, *, tells: bool = True) -> "Swing":
        """In the next interval; unless the one before `tells` anything, as it has hardly had events, it is as none."""
        if not tells:
            return Swing(before=self.before, past=self.past)
        inside = self._inside
        past = self.past if inside is None else (*self.past, inside)
        alone = not self.all or self.own[-1] == self.all[-1]
        return Swing(before=None if alone else self.part, past=past[-_REMEMBERED:])

    @property
    def most(self) -> float | None:
        """The largest change of this and the last intervals; None: not known of this one, or nothing can be leveled."""
        inside = self._inside
        if inside is None or self.part is None or self.fullest > _FULL:
            return None
        since = 0.0 if self.before is None else abs(self.part - self.before)
        return max(inside + since, *self.past, 0.0)

    @property
    def part(self) -> float | None:
        """Of all weight, what this source had brought at the last exchange; None: not known."""
        return self.own[-1] / self.all[-1] if self.all and self.all[-1] else None

    @property
    def _inside(self) -> float | None:
        """Half the mean change between two exchanges of this interval, so that the sum over the sources is what changes
        hands; None: not known."""
        own, total = np.diff([0.0, *self.own]), np.diff([0.0, *self.all])
        told = total > 0
        if self.part is None or np.count_nonzero(told) < 2:
            return None
        own, total = own[told], total[told]
        return float(np.abs(own / total - own.sum() / total.sum()).mean() / 2)

    @classmethod
    def parsed(cls, data: Mapping[str, Any]) -> Self:
        """Out of JSON data; a KeyError, TypeError or ValueError if it is none."""
        own, total = (tuple(loads_from(data[name], len(data["all"])).tolist()) for name in ("own", "all"))
        before, past = data["before"], loads_from(data["past"], len(data["past"]))
        before = None if before is None else float(loads_from([before], 1)[0])
        return cls(own, total, float(loads_from([data["fullest"]], 1)[0]), before, tuple(past.tolist()))

    def to_data(self) -> dict[str, Any]:
        """As plain JSON data."""
        weights = {"own": list(self.own), "all": list(self.all)}
        return {**weights, "fullest": self.fullest, "before": self.before, "past": list(self.past)}


def may_level_together(sources: Sequence[Counts]) -> bool:
    """Whether sources that have counted this tell each other, and in time, what they don't know of the stream."""
    if len(sources) < 2 or _swinging(sources) + _unheard(sources) > _STEADY:
        return False
    return _uneven(sources) >= _UNEVEN and _apart(sources) >= _APART


def parts_swing(sources: Sequence[Counts]) -> bool:
    """Whether the stream comes from now this source and now that one, as if each read what has waited in turn.

    Then no source is level by the targets that it has by what it brings on average, so keys keep their workers.
    """
    return len(sources) > 1 and _unheard(sources) <= _STEADY < _swinging(sources)


def light_in_each(sources: Sequence[Counts], workers: int, *, already: bool) -> bool:
    """Whether most sources have but light keys, by the part of each, so that one plan for all needs fewer pairs.

    Light keys of one source are few and may have two workers each, so its part stays uneven. Heavier ones may have
    more, and level it. `already`: they level the whole stream, and go on until a key has nearly a fair share.
    """
    limit = (LIGHT[1] if already else LIGHT[0]) * workers
    light = sum(source.mass for source in sources if source.counts.max(initial=0.0) * limit < source.mass)
    return light >= _LIGHT * sum(source.mass for source in sources)


def _swinging(sources: Sequence[Counts]) -> float:
    """The part of the stream that changes its source between two exchanges; all, where one source does not know."""
    swings = [source.swing for source in sources if source.swing is not None]
    return sum(swings) if len(swings) == len(sources) else 1.0


def _unheard(sources: Sequence[Counts]) -> float:
    """The part of the stream that was not heard of by all.

    Beside a source that isn't heard, or tells something else than what it has counted, the others take their own parts
    for larger or smaller than they are.
    """
    mass = sum(source.mass for source in sources)
    parts = [(source.part, source.mass / mass) for source in sources if mass]
    told = [abs(heard - counted) for heard, counted in parts if heard is not None]
    return sum(told) if len(told) == len(sources) else 1.0


def _uneven(sources: Sequence[Counts]) -> float:
    """The part of the stream that comes from sources without a heavy key: their own parts can't be leveled by them."""
    light = sum(source.mass for source in sources if source.counts.max(initial=0.0) < _HEAVY * source.mass)
    return light / sum(source.mass for source in sources)


def _apart(sources: Sequence[Counts]) -> float:
    """By how much rather than any two events those of one key come to the same source: 1 if topics go by key.

    Without the event itself, so that few events don't look like few sources.
    """
    mass = sum(source.mass for source in sources)
    if not mass:
        return 0.0
    unit = sum(source.squares for source in sources) / mass
    same = sum((source.mass / mass) ** 2 for source in sources)
    hashes, index = np.unique(np.concatenate([source.hashes for source in sources]), return_inverse=True)
    counts = np.concatenate([source.counts for source in sources])
    others = (np.bincount(index, counts, len(hashes)) - unit)[index]
    told = (counts > 0) & (others > 0)
    if not told.any() or same >= 1.0:
        return 0.0
    again = np.clip((counts[told] - unit) / others[told], 0.0, 1.0)
    together = float((counts[told] * again).sum() / counts[told].sum())
    return (together - same) / (1.0 - same)
