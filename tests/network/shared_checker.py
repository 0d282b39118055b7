"""What must become of every event of an app whose members share hot keys, and whose states merge.

As of another app exactly once, but without order. Besides, each event that was not rejected counts once in the state of
its key, in what was published of it last, and in no other; and an event is given away once at most.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from .app_checker import AppChecker, id_of
from .checker import Finding, Place, Record
from .load import REJECTED

OVERFLOW = "overflow"
STATES = "states"
PUBLISHED = "published"


class Sums(Counter[str]):
    """Of the events of a key: how many there are, their ids and the squares of these."""

    def add(self, number: int) -> None:
        """Counts an event."""
        self.update(events=1, ids=number, squares=number * number)


class SharedChecker(AppChecker):
    """Takes the records of the topics of such an app, too, and judges them: states when all events have ended."""

    def __init__(self) -> None:
        super().__init__(exactly_once=True, ordered=False)
        self._given_away: dict[int, Place] = {}
        self._expected: defaultdict[str, Sums] = defaultdict(Sums)
        self._found: dict[str, dict[str, Sums]] = {STATES: {}, PUBLISHED: {}}
        self._told: set[tuple[str, str]] = set()
        self.counts |= {OVERFLOW: 0, STATES: 0, PUBLISHED: 0}

    def take_events(self, records: Iterable[Record]) -> None:
        """Records of `events`: what has to be in states."""
        all_of_them = list(records)
        super().take_events(all_of_them)
        for record in all_of_them:
            if id_of(record) % REJECTED:
                self._expected[(record.key or b"").decode()].add(id_of(record))

    def take_overflow(self, records: Iterable[Record]) -> None:
        """Records of `overflow`: events that a member has given to another one."""
        for record in records:
            self.counts[OVERFLOW] += 1
            number, place = id_of(record), Place(OVERFLOW, record.partition, record.offset, 0)
            if before := self._given_away.get(number):
                self._wrong.append(Finding(OVERFLOW, "doubled", (number,), f"{before}, {place}"))
            self._given_away[number] = place

    def take_states(self, records: Iterable[Record]) -> None:
        """Records of the changelog: the key and its state as JSON, the last one is what counts."""
        for record in records:
            self.counts[STATES] += 1
            self._found[STATES][json.loads(record.key or b"")] = _sums(record)

    def take_published(self, records: Iterable[Record]) -> None:
        """Records of `results`: each state of a key has more in it than the one before."""
        for record in records:
            self.counts[PUBLISHED] += 1
            key, sums = (record.key or b"").decode(), _sums(record)
            before = self._found[PUBLISHED].get(key, Sums())
            if sums["events"] <= before["events"]:
                place = Place(PUBLISHED, record.partition, record.offset, 0)
                detail = f"{key} has {sums['events']} events in {place}, and had {before['events']} before"
                self._wrong.append(Finding(PUBLISHED, "not more than before", (), detail))
            self._found[PUBLISHED][key] = sums

    def judge(self, ended: bool = False) -> tuple[list[Finding], list[Finding]]:
        """What is wrong and was not told yet, and what is missing as of now: last of all what is to be merged."""
        wrong, missing = super().judge(ended)
        if missing:
            return wrong, [self._where(each) for each in missing]
        different = self._different()
        over = [each for each in different if self._has_too_many(*each)]
        self._told.update(over)
        found = [self._finding(*each, "wrong") for each in over]
        return [*wrong, *found], [self._finding(*each, "lost") for each in different if each not in over]

    def write_off(self, missing: Iterable[Finding]) -> None:
        """Waits no longer for what is missing."""
        of_events = [each for each in missing if each.topic not in self._found]
        super().write_off(of_events)
        if not of_events:
            self._told.update(self._different())

    def _where(self, finding: Finding) -> Finding:
        """Of an event that was given away, where it is to be read."""
        place = self._given_away.get(finding.ids[0])
        return finding if place is None else replace(finding, detail=f"nothing came of {place}", place=place)

    def _different(self) -> list[tuple[str, str]]:
        """Topics and keys of the states that are not as they have to be and were not told of."""
        both = {(topic, key) for topic, found in self._found.items() for key in (*found, *self._expected)}
        return sorted((t, key) for t, key in both - self._told if self._sums(t, key) != self._expected[key])

    def _sums(self, topic: str, key: str) -> Sums:
        return self._found[topic].get(key, Sums())

    def _has_too_many(self, topic: str, key: str) -> bool:
        return self._sums(topic, key)["events"] > self._expected[key]["events"]

    def _finding(self, topic: str, key: str, fault: str) -> Finding:
        found, expected = self._sums(topic, key), self._expected[key]
        return Finding(
            topic, fault, (), f"{key!r} has {dict(found)}, not {dict(expected)}: {_culprits(found, expected)}"
        )


def _sums(record: Record) -> Sums:
    return Sums() if record.value is None else Sums(json.loads(record.value))


def _culprits(found: Sums, expected: Sums) -> str:
    """Names the event that a state has too many or too few, as far as one explains it."""
    more, ids, squares = (found[name] - expected[name] for name in ("events", "ids", "squares"))
    word = "too many" if more > 0 else "missing"
    if more == 0:
        return "some are missing, as many are too many"
    if abs(more) == 1 and ids * ids == abs(squares):
        return f"event {abs(ids)} is {word}"
    return f"{abs(more)} events are {word}"
