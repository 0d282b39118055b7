"""How much longer the same calls take at one member than at another: members are as able as they are seen to be.

A key has its calls at one member at a time. But keys are handed over, and what calls of the same key have cost at both
members tells how they compare: the logarithm of what an event costs is a part of the key and a part of the member,
found by least squares, in which members are alike as long as there is no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

_LEAST_EVENTS = 20
"""From which what a key has cost at a member is compared."""
_MOST_EVENTS = 500
"""That count: a key's calls may have become longer since, and one key alone proves little."""
_ALIKE = 4.0
"""Events that speak for a member like all others: its part is expected to be 0 with a standard deviation of 1/2, and
the cost of a single event is off by a standard deviation of 1."""
_LEAST_PART = 0.1
"""What is less is not acted on."""
_SURE = 2.0
"""Standard deviations by which a part has to differ from 0."""
_ROUNDS = 50
_MOST_KEYS = 4096
_REMEMBERED = 600.0
"""Seconds."""

Seen = tuple[float, int, float]
"""Of a key at a member: seconds of an event, of how many, and when that was told."""


class Slowness:
    """What is remembered of a handler's keys; times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, Seen]] = {}

    def note(self, member: str, costs: Iterable[tuple[str, float, int]], now: float) -> None:
        """What an event of each key has cost at a member of late, in seconds, and how many events that is known of."""
        for key, cost, events in costs:
            if events >= _LEAST_EVENTS and cost > 0:
                self._seen[key] = {**self._seen.pop(key, {}), member: (cost, min(events, _MOST_EVENTS), now)}
        for oldest in list(self._seen)[:-_MOST_KEYS]:
            del self._seen[oldest]

    def of(self, members: Iterable[str], now: float) -> Mapping[str, float]:
        """How much longer calls take at each member than at an average one; 1 where nothing is known."""
        parts = dict.fromkeys(members, 0.0)
        keys = [found for each in self._seen.values() if len(found := _known(each, parts, now - _REMEMBERED)) > 1]
        weights = dict.fromkeys(parts, _ALIKE)
        for _ in range(_ROUNDS):
            sums, weights = dict.fromkeys(parts, 0.0), dict.fromkeys(parts, _ALIKE)
            for key in keys:
                own = sum(events * (cost - parts[member]) for member, cost, events in key)
                own /= sum(events for _, _, events in key)
                for member, cost, events in key:
                    sums[member] += events * (cost - own)
                    weights[member] += events
            parts = {member: sums[member] / weights[member] for member in parts}
        return {
            member: math.exp(part) if abs(part) > max(_LEAST_PART, _SURE / math.sqrt(weights[member])) else 1.0
            for member, part in parts.items()
        }


def _known(seen: Mapping[str, Seen], members: Mapping[str, float], since: float) -> list[tuple[str, float, int]]:
    """Where else than at members that are gone: member, logarithm of what an event costs, events."""
    return [
        (member, math.log(cost), events)
        for member, (cost, events, at) in seen.items()
        if member in members and at >= since
    ]
