"""What must become of every event of an app: an account of its own that shares no code with the product.

The app passes each event on to `routed`, and rejects one in so many. Each has to be there once, or at least once; and
what is there of a key begins in the order of its events, unless its app has none.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from .checker import Finding, Place, Record
from .load import REJECTED

ROUTED = "routed"
_DEAD = "dead-letters"


class AppChecker:
    """Takes the records of all topics as they come, and judges them.

    Events are written in the order of their ids, so in each partition they stand in that order. `judge` may be called
    whenever all topics have been read: it tells each wrong thing once, and says what is still missing.
    """

    def __init__(self, exactly_once: bool, ordered: bool = True) -> None:
        self._exactly_once = exactly_once
        self._ordered = ordered
        self._sent: set[int] = set()
        self._done: set[int] = set()
        self._events: dict[int, Place] = {}
        self._fates: dict[int, list[Place]] = defaultdict(list)
        self._latest: dict[bytes, int] = {}
        self._wrong: list[Finding] = []
        self.counts = {"events": 0, ROUTED: 0, _DEAD: 0, "again": 0}

    def sent(self, ids: Iterable[int]) -> None:
        """Says which events are on their way."""
        self._sent.update(ids)

    def take_events(self, records: Iterable[Record]) -> None:
        """Records of `events`, in the order of their offsets."""
        for record in records:
            self.counts["events"] += 1
            number, place = id_of(record), _place("events", record)
            if number in self._events:
                self._wrong.append(Finding("events", "doubled", (number,), f"{self._events[number]}, {place}"))
            self._events.setdefault(number, place)

    def take_routed(self, records: Iterable[Record]) -> None:
        """Records of `routed`, in the order of their offsets."""
        for record in records:
            number = id_of(record)
            first = not self._fates[number]
            self._take(ROUTED, record)
            if record.key is None or not first or not self._ordered:
                continue
            latest = self._latest.get(record.key, -1)
            if number < latest:
                detail = f"in {self._fates[number][0]}, behind event {latest} of its key"
                self._wrong.append(Finding(ROUTED, "out of order", (number,), detail))
            self._latest[record.key] = max(number, latest)

    def take_dead_letters(self, records: Iterable[Record]) -> None:
        """Records of `dead-letters`."""
        for record in records:
            self._take(_DEAD, record)

    def _take(self, topic: str, record: Record) -> None:
        number, place = id_of(record), _place(topic, record)
        self.counts[topic] += 1
        before = self._fates[number]
        before.append(place)
        if len(before) > 1:
            self.counts["again"] += 1
            if self._exactly_once:
                self._wrong.append(Finding(topic, "doubled", (number,), ", ".join(map(str, before))))
        if number in self._done:
            self._compare(number, place)

    def judge(self, _ended: bool = False) -> tuple[list[Finding], list[Finding]]:
        """What is wrong and was not told yet, and what is missing as of now."""
        missing = []
        for number in sorted(self._sent):
            place, fates = self._events.get(number), self._fates.get(number)
            if place is None:
                missing.append(Finding("events", "lost", (number,), "it was sent, and nobody has it"))
            elif not fates:
                missing.append(Finding(ROUTED, "lost", (number,), f"nothing came of {place}", place=place))
            else:
                self._sent.discard(number)
                self._done.add(number)
                for fate in fates:
                    self._compare(number, fate)
        wrong, self._wrong = self._wrong, []
        return wrong, missing

    def write_off(self, missing: Iterable[Finding]) -> None:
        """Waits no longer for what is missing."""
        for finding in missing:
            self._sent.discard(finding.ids[0])

    def _compare(self, number: int, fate: Place) -> None:
        right = _DEAD if number % REJECTED == 0 else ROUTED
        if fate.topic != right:
            self._wrong.append(Finding(fate.topic, f"belongs in {right}", (number,), str(fate)))
        if fate.content != self._events[number].content:
            self._wrong.append(Finding(fate.topic, "changed", (number,), f"{self._events[number]}, {fate}"))


def id_of(record: Record) -> int:
    """Which event it is."""
    return int(json.loads(record.value or b"")["id"])


def _place(topic: str, record: Record) -> Place:
    return Place(topic, record.partition, record.offset, hash((record.key, record.value, record.timestamp)))
