"""What must become of every event of an app whose keys move with their states.

As of another app exactly once. Besides, each event that was not rejected finds the state that the one before has left:
what is counted of a key goes up by one with each of them, wherever its state has been.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from .app_checker import ROUTED, AppChecker
from .checker import Finding, Record

COUNTED = "counted"


class MovedChecker(AppChecker):
    """Takes the records of such an app's topics, too: how many events its state has, after each event."""

    def __init__(self) -> None:
        super().__init__(exactly_once=True)
        self._counted: Counter[tuple[bytes, int]] = Counter()
        """Of a key in a partition of `events`: events without a key have a state in each."""
        self.counts |= {COUNTED: 0}

    def take_counted(self, records: Iterable[Record]) -> None:
        """Records of `late`, of which brokers remove none, in the order of their offsets: key, event and number."""
        for record in records:
            self.counts[COUNTED] += 1
            told = json.loads(record.value or b"")
            key = record.key or b"", told["partition"]
            before = self._counted[key]
            if told["events"] != before + 1:
                detail = f"{key} has {told['events']} events in its state, and had {before} before"
                self._wrong.append(Finding(COUNTED, "another state", (told["id"],), detail))
            self._counted[key] = told["events"]

    def judge(self, ended: bool = False) -> tuple[list[Finding], list[Finding]]:
        """What is wrong and was not told yet, and what is missing as of now: at last, what is in no state."""
        wrong, missing = super().judge(ended)
        left = self.counts[ROUTED] - self.counts[COUNTED]
        if missing or left <= 0:
            return wrong, missing
        return wrong, [Finding(COUNTED, "lost", (), f"{left} events that were passed on are in no state")]

    def write_off(self, missing: Iterable[Finding]) -> None:
        """Waits no longer for what is missing."""
        of_events = [each for each in missing if each.topic != COUNTED]
        super().write_off(of_events)
        if not of_events:
            self.counts[COUNTED] = self.counts[ROUTED]
