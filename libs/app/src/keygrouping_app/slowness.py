"""How much longer the same calls take at one member than at another: members are as able as they are seen to be.

A key has its calls at one member at a time. But keys are handed over, and what calls of the same key have cost at both
members tells how they compare: the logarithm of what an event costs is a part of the key and a part of the member,
found by least squares, in which members are alike as long as there is no evidence. The two costs are of different
times, so what has changed for all keys meanwhile is taken away first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from statistics import median
from typing import NamedTuple

_LEAST_EVENTS = 20
"""From which what a key has cost at a member is compared."""
_MOST_EVENTS = 500
"""That count: a key's calls may have become longer since, and one key alone proves little."""
_ALIKE = 4.0
"""Events that speak for a member like all others: its part is expected to be 0 with a standard deviation of 1/2, and
the cost of a single event is off by a standard deviation of 1."""
_LEAST_PART = 0.1
"""What is less is not acted on."""
_MOST_PART = math.log(16)
_SURE = 2.0
"""Standard deviations by which a part has to differ from 0."""
_ROUNDS, _EXACT = 50, 1e-3
_MOST_KEYS = 200
"""Of a member, the first ones that it tells of: those that cost most, as they are the ones that move."""
_MOST_SHARED = 1024
_LEAST_CHANGES = 10
"""Of which the median tells what has changed for all keys."""
_REMEMBERED = 600.0
"""Seconds."""


class Seen(NamedTuple):
    """Of a key at a member: the logarithm of an event's seconds, as told and less what has changed for all keys; of
    how many events, and when."""

    told: float
    cost: float
    events: int
    at: float


class Slowness:
    """What is remembered of a handler's keys; times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Seen] = {}
        """Of keys and members that were told of last."""
        self._shared: dict[str, dict[str, Seen]] = {}
        """Keys that were at several members."""
        self._changed = 0.0

    def note(self, told: Mapping[str, Iterable[tuple[str, float, int]]], now: float) -> None:
        """What members tell: what an event of each key has cost of late, in seconds, and of how many that is known."""
        found: dict[tuple[str, str], Seen] = {}
        new: dict[tuple[str, str], tuple[float, int]] = {}
        for member, costs in told.items():
            for key, cost, events in islice(costs, _MOST_KEYS):
                if events < _LEAST_EVENTS or not 0 < cost < math.inf:
                    continue
                before = self._last.get((key, member))
                if before is not None and events <= before.events and now - before.at <= _REMEMBERED:
                    found[key, member] = before  # it is there no more, or what is older was forgotten
                else:
                    new[key, member] = math.log(cost), events
        changes = [cost - self._last[each].told for each, (cost, _) in new.items() if each in self._last]
        self._changed += median(changes) if len(changes) >= _LEAST_CHANGES else 0.0
        found |= {each: Seen(cost, cost - self._changed, events, now) for each, (cost, events) in new.items()}
        self._share(self._last | found, now)
        self._last = found

    def _share(self, told: Mapping[tuple[str, str], Seen], now: float) -> None:
        """Remembers what is known of keys that are at several members, or were just now."""
        by_key: dict[str, dict[str, Seen]] = {}
        for (key, member), seen in told.items():
            by_key.setdefault(key, {})[member] = seen
        for key, seen_by in by_key.items():
            known = self._shared.pop(key, {})
            if len(members := {m: each for m, each in (known | seen_by).items() if now - each.at <= _REMEMBERED}) > 1:
                self._shared[key] = members
        for oldest in list(self._shared)[:-_MOST_SHARED]:
            del self._shared[oldest]

    def of(self, members: Iterable[str], now: float) -> Mapping[str, float]:
        """How much longer calls take at each member than at an average one; 1 where nothing is known."""
        parts = dict.fromkeys(members, 0.0)
        keys = [known for each in self._shared.values() if len(known := _known(each, parts, now - _REMEMBERED)) > 1]
        sums = [sum(events for _, _, events in key) for key in keys]
        weights, sure = dict.fromkeys(parts, _ALIKE), dict.fromkeys(parts, _ALIKE)
        for key, events_of_all in zip(keys, sums, strict=True):
            for member, _, events in key:
                weights[member] += events
                sure[member] += events * (events_of_all - events) / events_of_all
        for _ in range(_ROUNDS):
            totals = dict.fromkeys(parts, 0.0)
            for key, events_of_all in zip(keys, sums, strict=True):
                own = sum(events * (cost - parts[member]) for member, cost, events in key) / events_of_all
                for member, cost, events in key:
                    totals[member] += events * (cost - own)
            before, parts = parts, {member: totals[member] / weights[member] for member in parts}
            if all(abs(parts[member] - before[member]) < _EXACT for member in parts):
                break
        return {member: _acted_on(part, sure[member]) for member, part in parts.items()}


def _known(seen: Mapping[str, Seen], members: Mapping[str, float], since: float) -> list[tuple[str, float, int]]:
    """Member, cost and events that count; not of members that are gone."""
    return [
        (member, each.cost, min(each.events, _MOST_EVENTS))
        for member, each in seen.items()
        if member in members and each.at >= since
    ]


def _acted_on(part: float, events: float) -> float:
    if abs(part) <= max(_LEAST_PART, _SURE / math.sqrt(events)):
        return 1.0
    return math.exp(max(-_MOST_PART, min(_MOST_PART, part)))
