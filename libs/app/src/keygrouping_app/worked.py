"""How much members have really had to do of late, by what they tell each second: so plans can be compared with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from keygrouping_app.planning import Report


class Worked:
    """Of one handler's members. `span`: seconds of their clocks over which it is known what they have had to do."""

    def __init__(self, span: float) -> None:
        self._span = span
        self._told: dict[str, deque[tuple[float, float]]] = {}
        """Clock and seconds of calls of each member, the latest at the end."""

    def note(self, reports: Iterable[Report]) -> None:
        """What has been heard last of all members that count; others are forgotten."""
        told: dict[str, deque[tuple[float, float]]] = {}
        for each in reports:
            known = told[each.member] = self._told.get(each.member, deque())
            if each.worked is not None and (not known or each.clock > known[-1][0]):
                known.append((each.clock, each.worked))
            while len(known) > 2 and known[1][0] <= known[-1][0] - self._span:
                known.popleft()
        self._told = told

    def rates(self) -> dict[str, float] | None:
        """Seconds of calls per second of each member; None: not all have told for so long yet."""
        found: dict[str, float] = {}
        for member, known in self._told.items():
            if not known or (passed := known[-1][0] - known[0][0]) < self._span:
                return None
            found[member] = max(0.0, known[-1][1] - known[0][1]) / passed
        return found
