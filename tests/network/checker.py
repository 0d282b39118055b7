"""What must become of every event: an account of its own that shares no code with the product.

It follows each event by the id in its value through `events`, `routed`, `late`, `dead-letters` and `results`, and
names every one that is lost, doubled, changed or in a place where it does not belong.
"""

from __future__ import annotations

import calendar
import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from .load import CONFIRMATIONS, LATENESS_MS, WINDOW_MS

IDLE = "partition-was-idle"
_ROUTED = "routed"
_LATE = "late"
_DEAD = "dead-letters"
_NAMED = 20


class Record(Protocol):
    """A Kafka record, as any client gives it."""

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def timestamp(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


@dataclass(frozen=True)
class Finding:
    """Something that is not as it must be: in which topic, what is wrong, of which events, and where it was seen."""

    topic: str
    fault: str
    ids: tuple[int, ...]
    detail: str
    window: Window | None = None
    place: Place | None = None

    def __str__(self) -> str:
        more = f" and {len(self.ids) - _NAMED} more" if len(self.ids) > _NAMED else ""
        events = f"event {', '.join(map(str, self.ids[:_NAMED]))}{more}: " if self.ids else ""
        return f"{self.topic}: {self.fault}: {events}{self.detail}"


class Place(NamedTuple):
    """Where a record stands; what it holds, to see whether it was changed on its way; and why it is there."""

    topic: str
    partition: int
    offset: int
    content: int
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True)
class Event:
    """An event as it stands in `events`."""

    id: int
    key: str | None
    time_ms: int
    n: int
    place: Place

    @property
    def window(self) -> Window:
        """The key and window that it counts in."""
        return Window(self.key or "", self.time_ms // WINDOW_MS * WINDOW_MS)


class Window(NamedTuple):
    """A result's place: the key and the window's start in ms."""

    key: str
    start: int

    def __str__(self) -> str:
        return f"key {self.key}, window at {self.start}"


@dataclass
class Expected:
    """What must come of the events of one key in one window."""

    numbers: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    def values(self) -> dict[str, int]:
        """The result's values."""
        return {
            "events": len(self.ids),
            "n": sum(self.numbers),
            "least": min(self.numbers),
            "most": max(self.numbers),
            "ids": sum(self.ids),
            "squares": sum(number * number for number in self.ids),
        }


class Found(NamedTuple):
    """A final result as it was read."""

    values: dict[str, Any]
    place: str


@dataclass
class PartitionTime:
    """How far a partition's events have come: the latest time that c of the last 2c have reached, never going back."""

    last: deque[int] = field(default_factory=lambda: deque(maxlen=2 * CONFIRMATIONS))
    confirmed: int = -1

    def is_late(self, time_ms: int) -> bool:
        """Whether an event that comes now is late."""
        return time_ms < self.confirmed - LATENESS_MS

    def saw(self, time_ms: int) -> None:
        """Takes an event, late ones included."""
        self.last.append(time_ms)
        if len(self.last) >= CONFIRMATIONS:
            self.confirmed = max(self.confirmed, sorted(self.last, reverse=True)[CONFIRMATIONS - 1])


class Checker:
    """Takes the records of all topics as they come, and judges them.

    Events are written in the order of their ids, so in each partition they stand in that order. `judge` may be called
    whenever all topics have been read: it tells each wrong thing once, and says what is still missing.
    """

    def __init__(self) -> None:
        self._sent: set[int] = set()
        self._events: dict[int, list[Event]] = defaultdict(list)
        self._fates: dict[int, list[Place]] = defaultdict(list)
        self._judged: set[int] = set()
        self._times: dict[int, PartitionTime] = defaultdict(PartitionTime)
        self._last: dict[int, int] = {}
        self._watermark = -1
        self._expected: dict[Window, Expected] = defaultdict(Expected)
        self._found: dict[Window, list[Found]] = defaultdict(list)
        self._verified: set[Window] = set()
        self._wrong: list[Finding] = []
        self.counts = {"events": 0, _ROUTED: 0, _LATE: 0, IDLE: 0, _DEAD: 0, "results": 0}

    def sent(self, ids: Iterable[int]) -> None:
        """Says which events are on their way."""
        self._sent.update(ids)

    # what was read

    def take_events(self, records: Iterable[Record]) -> None:
        """Records of `events`, in the order of their offsets."""
        for record in records:
            self.counts["events"] += 1
            event = self._event(record)
            if event.id <= self._last.get(record.partition, -1):
                self._wrong.append(Finding("events", "out of order", (event.id,), str(event.place)))
            self._last[record.partition] = max(event.id, self._last.get(record.partition, -1))
            self._events[event.id].append(event)

    def take_routed(self, records: Iterable[Record]) -> None:
        """Records of `routed`."""
        self._take(_ROUTED, records)

    def take_late(self, records: Iterable[Record]) -> None:
        """Records of `late`."""
        self._take(_LATE, records)

    def take_dead_letters(self, records: Iterable[Record]) -> None:
        """Records of `dead-letters`."""
        self._take(_DEAD, records)

    def take_results(self, records: Iterable[Record]) -> None:
        """Records of `results`."""
        for record in records:
            data = json.loads(record.value or b"")
            if not data["final"]:
                continue
            self.counts["results"] += 1
            window = Window(data["key"], data["start"])
            place = f"results-{record.partition}@{record.offset}"
            if data["end"] != data["start"] + WINDOW_MS or data["start"] % WINDOW_MS:
                self._wrong.append(Finding("results", "no such window", (), f"{window} to {data['end']} in {place}"))
            values = data["aggregates"] | {"events": data["events"]}
            if values != values | {"events": data["aggregates"]["events"]}:
                self._wrong.append(Finding("results", "wrong", (), f"{window} counts differently in itself, {place}"))
            self._found[window].append(Found(values, place))

    def _event(self, record: Record) -> Event:
        data = json.loads(record.value or b"")
        time_ms = milliseconds(data["at"])
        place = Place("events", record.partition, record.offset, _content(record))
        expected_key = None if data["key"] is None else data["key"].encode()
        if (record.key, record.timestamp) != (expected_key, time_ms):
            self._wrong.append(Finding("events", "changed", (data["id"],), f"key {record.key!r} in {place}"))
        return Event(data["id"], data["key"], time_ms, data["n"], place)

    def _take(self, topic: str, records: Iterable[Record]) -> None:
        for record in records:
            self.counts[topic] += 1
            number = json.loads(record.value or b"")["id"]
            reason = next((v or b"" for name, v in record.headers if name == "keygrouping-reason"), b"").decode()
            place = Place(topic, record.partition, record.offset, _content(record), reason)
            if number in self._judged:
                self._wrong.append(Finding(topic, "doubled", (number,), f"again in {place}"))
            else:
                self._fates[number].append(place)

    def take_passed(self, offsets: Mapping[int, int]) -> None:
        """How far who reads `events` had come in each partition, as was known before all else was read.

        For pipelines without `routed`: what stands before that and in no other topic has been counted.
        """
        for number in self._sent:
            places = [event.place for event in self._events.get(number, [])]
            passed = [place for place in places if place.offset < offsets.get(place.partition, 0)]
            fates = self._fates[number]
            fates += [place._replace(topic=_ROUTED) for place in passed[len(fates) :]]

    # judging

    def judge(self, ended: bool = False) -> tuple[list[Finding], list[Finding]]:
        """What is wrong and was not told yet, and what is missing as of now.

        `ended`: no event will come any more, and every window is closed.
        """
        missing: list[Finding] = []
        waiting: set[int] = set()
        for number in sorted(self._sent):
            missing += self._judge_event(number, waiting)
        if not missing:
            # Only then is it known how far event time has come.
            self._watermark = min((time.confirmed for time in self._times.values()), default=-1) - LATENESS_MS
            missing = self._judge_windows(ended)
        wrong, self._wrong = self._wrong, []
        return wrong, missing

    def write_off(self, missing: Iterable[Finding]) -> None:
        """Waits no longer for what is missing."""
        for finding in missing:
            if finding.window is not None:
                self._verified.add(finding.window)
                self._expected.pop(finding.window, None)
            else:
                self._close(finding.ids[0])

    def _judge_event(self, number: int, waiting: set[int]) -> list[Finding]:
        """Judges one event; tells what is missing of it.

        What becomes of the events before it in its partition decides whether it is late, so those behind one that is
        missing wait for it: `waiting` are their partitions.
        """
        events, fates = self._events.get(number, []), self._fates.get(number, [])
        if not events:
            return [Finding("events", "lost", (number,), "it was sent, and nobody has it")]
        place = events[0].place
        if len(fates) < len(events):
            waiting.add(place.partition)
            detail = f"{place} is in none of the topics behind the router"
            return [Finding(_ROUTED, "lost", (number,), detail, place=place)]
        if place.partition in waiting:
            return []
        if len(events) > 1:
            self._tell("events", "doubled", number, [event.place for event in events])
        if len(fates) > len(events):
            self._tell(fates[-1].topic, "doubled", number, fates)
        for fate in fates:
            self._judge_fate(events[0], fate)
        self._close(number)
        return []

    def _judge_fate(self, event: Event, fate: Place) -> None:
        right = _DEAD if event.key is None else _LATE if self._is_late(event) else _ROUTED
        if fate.topic != right and not (fate.reason == IDLE and right == _ROUTED):
            self._tell(fate.topic, f"belongs in {right}", event.id, [event.place, fate])
        if fate.content != event.place.content:
            self._tell(fate.topic, "changed", event.id, [event.place, fate])

    def _close(self, number: int) -> None:
        """Counts an event in its window, as often as it must be, and forgets about it."""
        self._sent.discard(number)
        self._judged.add(number)
        fates = self._fates.pop(number, [])
        idle = any(fate.reason == IDLE for fate in fates)
        self.counts[IDLE] += idle
        for event in self._events.pop(number, []):
            if event.key is None:
                continue
            late = idle or self._is_late(event)
            self._times[event.place.partition].saw(event.time_ms)
            if late:
                continue
            expected = self._expected[event.window]
            expected.numbers.append(event.n)
            expected.ids.append(event.id)

    def _is_late(self, event: Event) -> bool:
        return self._times[event.place.partition].is_late(event.time_ms)

    def _tell(self, topic: str, fault: str, number: int, places: Iterable[Place]) -> None:
        self._wrong.append(Finding(topic, fault, (number,), ", ".join(map(str, places))))

    def _judge_windows(self, ended: bool) -> list[Finding]:
        missing = []
        for window in sorted(self._found.keys() | self._expected.keys()):
            if not ended and window.start + WINDOW_MS >= self._watermark:
                continue
            found, expected = self._found.get(window, []), self._expected.get(window)
            if not found and expected:
                ids = tuple(expected.ids)
                missing.append(Finding("results", "lost", ids, str(window), window))
                continue
            self._found.pop(window)
            self._expected.pop(window, None)
            self._judge_window(window, found, expected)
        return missing

    def _judge_window(self, window: Window, found: list[Found], expected: Expected | None) -> None:
        places = ", ".join(each.place for each in found)
        if window in self._verified:
            self._wrong.append(Finding("results", "doubled", (), f"{window}, again in {places}"))
            return
        self._verified.add(window)
        if expected is None:
            self._wrong.append(Finding("results", "unexpected", (), f"{window} in {places}"))
            return
        if len(found) > 1:
            self._wrong.append(Finding("results", "doubled", (), f"{window} in {places}"))
        for each in found:
            values = expected.values()
            different = {name: each.values[name] for name in values if each.values[name] != values[name]}
            if different:
                wanted = {name: values[name] for name in different}
                text = (
                    f"{window} in {each.place} has {different} instead of {wanted}: {_culprits(each.values, expected)}"
                )
                self._wrong.append(Finding("results", "wrong", (), text))


def milliseconds(text: str) -> int:
    """A time such as 2013-01-01T00:26:40.020Z in ms since the epoch."""
    date, _, rest = text.removesuffix("Z").partition("T")
    clock, _, fraction = rest.partition(".")
    year, month, day = map(int, date.split("-"))
    hour, minute, second = map(int, clock.split(":"))
    return calendar.timegm((year, month, day, hour, minute, second)) * 1000 + int(fraction)


def _content(record: Record) -> int:
    return hash((record.key, record.value, record.timestamp))


def _culprits(found: dict[str, Any], expected: Expected) -> str:
    """Names the events that a result has too many or too few, as far as one or two of them explain it."""
    values = expected.values()
    more, ids, squares = (found[name] - values[name] for name in ("events", "ids", "squares"))
    if more == 0 and ids and squares % ids == 0:
        total = squares // ids
        return f"event {(total - ids) // 2} is lost, event {(total + ids) // 2} is one too many"
    sign, word = (1, "too many") if more > 0 else (-1, "missing")
    ids, squares = sign * ids, sign * squares
    if abs(more) == 1 and ids * ids == squares:
        return f"event {int(ids)} is {word}" + ("" if ids in expected.ids or sign < 0 else ", and belongs elsewhere")
    if abs(more) == 2:
        for one in expected.ids:
            if one * one + (ids - one) ** 2 == squares:
                return f"events {one} and {int(ids - one)} are {word}"
    return f"{abs(more)} events {word}"
