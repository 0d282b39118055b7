"""What a split of hot keys would give, from the seconds of handlers that keys need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_WORTH = 1.05
"""Times as fast, from which on a split is worth a word."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a handler has to do in one member: seconds of calls in all, and of the key that needs most; its lanes."""

    seconds: float
    hottest: float
    lanes: int

    @property
    def even(self) -> float:
        """The time that it takes at least when all lanes share it."""
        return self.seconds / self.lanes

    @property
    def least(self) -> float:
        """The time that it takes at least when the events of a key run one after another."""
        return max(self.hottest, self.even)


@dataclass(frozen=True, slots=True)
class Split:
    """The time in seconds that the measured work takes at least, by who shares the hot keys.

    `now`: nobody, their events run one after another; `lanes`: the lanes of their member; `members`: all lanes of all
    members.
    """

    now: float
    lanes: float
    members: float

    @property
    def gain(self) -> float:
        """How many times as fast it would be at best if all members shared hot keys."""
        return self.now / self.members if self.members else 1.0


def split_of(loads: Sequence[Load]) -> Split:
    """Of one handler in one member or several."""
    return Split(
        now=max((each.least for each in loads), default=0.0),
        lanes=max((each.even for each in loads), default=0.0),
        members=_even(loads),
    )


def _even(loads: Iterable[Load]) -> float:
    lanes = sum(each.lanes for each in loads)
    return sum(each.seconds for each in loads) / lanes if lanes else 0.0


def split_words(loads: Sequence[Load], span: float) -> str:
    """The same for people; `span` are the seconds of time in which the work came up."""
    split = split_of(loads)
    if split.gain < _WORTH:
        return "No key holds up the others: a split would give nothing."
    whole = any(load.hottest >= split.now for load in loads)
    why = "which the hottest key needs alone" if whole else "as one member has more than its share"
    lanes = sum(load.lanes for load in loads)
    words = (
        f"The work of {seconds(span)} takes {seconds(split.now)} at least, {why}. "
        f"Shared by all {lanes:,} lanes it takes {seconds(split.members)}, {split.gain:,.1f} times as fast"
    )
    words += f"; shared within each member {seconds(split.lanes)}." if len(loads) > 1 else "."
    return words if split.now > span else f"{words} Now it keeps up."


def seconds(value: float) -> str:
    """A time for people."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value / 60:,.1f} min"
