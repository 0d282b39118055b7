"""All accounts of the proof, and what has been found to differ. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import orjson
from keygrouping.identity import partition_seeds, tally
from keygrouping.job import JobSpec
from keygrouping.partial import RecordError
from keygrouping.receipt import Receipt, Tally, time_of_window
from keygrouping_service.kafka.progress import END, MIN_TIME
from keygrouping_service.records.record import DeadLetter

from keygrouping_observer import metrics
from keygrouping_observer.audit.inputs import KINDS, Difference, Lane, Letters
from keygrouping_observer.audit.windows import PREFIX, Window, Windows

log = logging.getLogger(__name__)

_STATE_KEY = b"state %d"
_VERSION = 1
_MOST_BYTES = 1 << 19
"""Of a record: what has been read in a backlog and is yet to be compared may be more than a topic takes at once."""

_MOST_DIFFERENCES = 100


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a late event or dead letter came from, as its headers say."""

    topic: str
    partition: int
    offset: int


@dataclass
class Books:
    """What has been read so far: receipts by input partition, results by window, records that went elsewhere.

    Of the lanes of one partition the last one is that of the topic as it is now, the others are of topics that were
    deleted.

    `time` (ms) is how far windows have been compared; `positions` holds the next offset by topic and partition.
    """

    events_topic: str
    routed_topic: str
    job: JobSpec
    routed_id: str
    clock: Callable[[], int]
    windows: Windows = field(default_factory=lambda: Windows(MIN_TIME, MIN_TIME))
    lanes: dict[tuple[str, int], Lane] = field(default_factory=dict)
    letters: dict[int, Letters] = field(default_factory=dict)
    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    found: int = 0
    """Differences of the input there ever were; the last of them are kept."""
    time: int = MIN_TIME
    unplaced: int = 0
    """Dead letters of routed events whose window can't be told."""
    uncompared: list[str] = field(default_factory=list)
    """Kinds of letters of which the first are deleted: those that are read until the first comparison prove nothing."""
    changed: bool = False
    _pieces: int = 0
    """Records that the state was written in last."""

    # what is read

    def receipt(self, value: bytes | None, offset: int) -> None:
        """A record of `receipts`."""
        try:
            receipt = Receipt.decode(value)
        except RecordError as error:
            return self._note([Difference("unreadable", 0, offset, offset + 1, 0, f"receipts: {error}")])
        place = (receipt.topic, receipt.partition)
        lane = self.lanes.get(place) or self.lanes.setdefault(place, Lane.of(receipt))
        self._note(lane.add(receipt))
        self.changed = True
        for start, routed in receipt.by_window().items():
            if not self.windows.routed(start, routed):
                detail = (
                    f"{routed.events} events went into the window that starts at {start} ms, long after it was final"
                )
                self._note([Difference("after-final", receipt.partition, receipt.first, receipt.after, 0, detail)])

    def result(self, value: bytes | None, offset: int) -> None:
        """A record of `results`; one that is deleted says nothing."""
        if value is None:
            return
        try:
            start, counted = held_by(value)
        except (KeyError, TypeError, ValueError) as error:
            return self._note([Difference("unreadable", 0, offset, offset + 1, 0, f"results: {error!r}"[:200])])
        if not self.windows.found(start, counted):
            detail = f"a result of the window that starts at {start} ms, long after it was final"
            self._note([Difference("after-final", 0, offset, offset + 1, counted.events, detail)])

    def letter(self, kind: str, origin: Origin, value: bytes | None, timestamp: int) -> None:
        """A record of `late` or `dead-letters`."""
        if origin.topic == self.events_topic:
            letters = self.letters.setdefault(origin.partition, {kind: {} for kind in KINDS})[kind]
            letters[origin.offset] = letters.get(origin.offset, 0) + 1
            self.changed = True
        elif origin.topic == self.routed_topic:
            self._dead_at_worker(origin, value, timestamp)

    def _dead_at_worker(self, origin: Origin, value: bytes | None, timestamp: int) -> None:
        time_ms = self.job.event_time(value, timestamp)
        if time_ms is None:
            self.unplaced += 1
        else:
            seeds = partition_seeds(self.routed_id, origin.partition)
            self.windows.dead(self.job.window_of(time_ms), tally(np.array([origin.offset], np.int64), seeds))

    def lost_unread(self, topic: str, partition: int, first: int, after: int) -> None:
        """Records of a topic of the proof were deleted before they were read."""
        detail = f"{topic}[{partition}]: these offsets were deleted before they were read: what they say is not known"
        self._note([Difference("unread", partition, first, after, 0, detail)])

    def unreadable(self, left_out: DeadLetter) -> None:
        """What a topic of the proof holds can't be read, or is too large."""
        place = f"{left_out.record.topic}[{left_out.record.partition}]"
        detail = f"{place}: what these offsets say is not known: {left_out.detail}"
        self._note([Difference("unreadable", left_out.record.partition, left_out.offset, left_out.after, 0, detail)])

    # what is compared

    def judge(self, time: int) -> list[Window]:
        """Compares everything: all has been read that belongs to windows that end at `time` (ms) or before.

        Gives the windows that were compared.
        """
        self.time = max(self.time, time)
        newest = {partition: lane for (_, partition), lane in self.lanes.items()}
        for (_, partition), lane in self.lanes.items():
            letters = self.letters.setdefault(partition, {kind: {} for kind in KINDS})
            if lane is not newest[partition]:
                lane.end(letters)
                continue
            before = lane.ranges
            bad = list(lane.judge(letters, self.uncompared))
            self._note(bad)
            metrics.AUDIT_RANGES.labels("proven").inc(max(0, lane.ranges - before - len(bad)))
        self.uncompared = []
        judged = list(self.windows.judge(self.time if self.time >= END else self.time - self.job.window_ms + 1))
        for window in judged:
            if window.verdict != "unknown":
                metrics.AUDIT_WINDOWS.labels(window.verdict).inc()
            if window.verdict == "differs":
                log.error("window [%d, %d): %s", window.start, window.start + self.job.window_ms, self.explain(window))
        self.changed = self.changed or bool(judged)
        self.show()
        return judged

    def explain(self, window: Window) -> str:
        """What differs in a window, in one line."""
        maybe = f"; of {self.unplaced} dead letters of workers the window isn't known" if self.unplaced else ""
        return window.explain() + maybe

    def show(self) -> None:
        """Sets the gauges."""
        metrics.AUDIT_DIFFERENCES.labels("window").set(len(self.windows.differing))
        metrics.AUDIT_DIFFERENCES.labels("input").set(self.found)
        metrics.AUDIT_OPEN.set(self.windows.open)
        if self.time > MIN_TIME:
            metrics.AUDIT_PROVEN.set(self.time / 1000)

    def _note(self, found: Iterable[Difference]) -> None:
        for difference in found:
            log.error(
                "%s: partition %d of the input, offsets [%d, %d), %d events: %s",
                *(difference.kind, difference.partition, difference.first, difference.after),
                *(difference.events, difference.detail),
            )
            metrics.AUDIT_RANGES.labels("differs").inc()
            self.differences.append(replace(difference, at=self.clock()))
            self.found += 1
            self.changed = True
        del self.differences[:-_MOST_DIFFERENCES]

    # what survives a restart

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Key and value of all records that have changed since the last time."""
        yield from self.windows.records()
        state = self._state()
        pieces = -(-len(state) // _MOST_BYTES)
        for number in range(max(pieces, self._pieces)):
            yield _STATE_KEY % number, state[number * _MOST_BYTES : (number + 1) * _MOST_BYTES] or None
        self._pieces, self.changed = pieces, False

    def _state(self) -> bytes:
        data = {
            "v": _VERSION,
            "since": self.windows.since,
            "forgotten": self.windows.forgotten,
            "time": self.time,
            "unplaced": self.unplaced,
            "uncompared": self.uncompared,
            "found": self.found,
            "positions": self.positions,
            "letters": self.letters,
            "lanes": [lane.as_json() for lane in self.lanes.values()],
            "differences": [asdict(difference) for difference in self.differences],
        }
        return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)

    def restore(self, rows: Mapping[bytes, bytes]) -> None:
        """Takes over the records as they were; KeyError, TypeError, ValueError or AttributeError if they are none."""
        found = [piece for number in range(len(rows)) if (piece := rows.get(_STATE_KEY % number)) is not None]
        if not found:
            return
        self._pieces = len(found)
        windows = [value for key, value in rows.items() if key.startswith(PREFIX)]
        data: dict[str, Any] = orjson.loads(b"".join(found))
        if data["v"] != _VERSION:
            raise ValueError("it is of another version")
        self.windows = Windows(data["since"], data["forgotten"])
        for value in windows:
            self.windows.restore(Window.decode(value))
        self.time, self.unplaced, self.found = data["time"], data["unplaced"], data["found"]
        self.positions = {topic: _numbered(places) for topic, places in data["positions"].items()}
        self.uncompared = list(data["uncompared"])
        kinds = data["letters"].items()
        self.letters = {int(p): {kind: _numbered(found[kind]) for kind in KINDS} for p, found in kinds}
        lanes = map(Lane.from_json, data["lanes"])
        self.lanes = {(lane.topic, lane.partition): lane for lane in lanes}
        self.differences = [Difference(**difference) for difference in data["differences"]]
        self.show()


def held_by(value: bytes) -> tuple[int, Tally]:
    """The start of a result's window and the events in it; KeyError, TypeError or ValueError if it doesn't say them."""
    data = orjson.loads(value)
    return time_of_window(data["start"]), Tally.from_json([data["events"], data["receipt"]])


def _numbered(data: dict[str, int]) -> dict[int, int]:
    return {int(number): value for number, value in data.items()}
