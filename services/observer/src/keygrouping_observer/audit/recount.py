"""Events counted again from the input, beside the results of windows whose accounts add up. No I/O.

Receipts say which offsets hold a window's events, `late` and `dead-letters` which of them were left out. What is left
is read and counted by the oracle, which shares no code with the stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mmh3
import numpy as np
from keygrouping.identity import partition_seeds, tally
from keygrouping.job import JobSpec
from keygrouping.oracle.counting import Counting, Place
from keygrouping.oracle.reading import UNREADABLE, read, read_key
from keygrouping.partial import Result, encode_key
from keygrouping.receipt import NOTHING, Receipt, Tally
from keygrouping_service.errors import Fatal
from keygrouping_service.records.record import Record

from keygrouping_observer.audit.windows import Window

MOST_EVENTS = 1_000_000
"""So many events are counted again, those of the newest windows: their fields are kept until their result is seen."""

DOES_NOT_ADD_UP = "its account does not add up"
DEAD_AT_WORKER = "workers made dead letters of some of its events, and which of the input they were is not known"
TOO_MANY = f"more than {MOST_EVENTS:,} events from the newest window back to it: name a smaller share of the keys"
OTHER_TOPIC = "some of its events were in a topic that has been deleted"
NO_RECEIPTS = "the receipts of some of its events are no longer in the topic"
DELETED = "some of its events are no longer in the topic"
TWICE = "some of its events were routed twice"
LETTERS = "the late events and dead letters of its range of the input are not those that its receipts speak of"
UNREAD = "an event of its range of the input can't be read again"
NO_RESULTS = "results of it that the audit has found are no longer in the topic"

_SHOWN_KEYS = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that the results have and the recount has not; `aggregate` None: the number of events."""

    key: bytes
    aggregate: str | None
    recounted: Any
    found: Any

    def as_json(self) -> dict[str, Any]:
        """As the report has it."""
        return {
            "key": encode_key(self.key),
            "aggregate": self.aggregate,
            "recounted": self.recounted,
            "found": self.found,
        }


@dataclass(slots=True)
class Recounted:
    """A window: how many of its keys were compared, and where they differ; `why_not`: it was not recounted."""

    start: int
    why_not: str | None = None
    keys: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """What came of it."""
        if self.why_not is not None:
            return "not recounted"
        return "differs" if self.differing else "equal"

    def compare(self, found: Iterable[Difference]) -> None:
        """Takes in what differs of one more key."""
        differences = list(found)
        self.keys += 1
        if differences:
            self.differing += 1
            if self.differing <= _SHOWN_KEYS:
                self.differences += differences


@dataclass(slots=True)
class Range:
    """Offsets of a partition of the input that hold events of chosen windows, as a receipt says."""

    first: int
    after: int
    consumed: Tally
    left_out: Tally
    windows: set[int]


class Recount:
    """The recount of a `share` of the keys; it is given receipts, late events and dead letters, events and results, in
    this order.

    `windows` are those that the audit has compared, `topic` is the id of the input.
    """

    def __init__(self, job: JobSpec, topic: str, windows: Iterable[Window], share: float) -> None:
        self.ranges: dict[int, list[Range]] = {}
        """By partition, in the order of their offsets."""
        compared = [window for window in windows if window.verdict != "open"]
        self.windows = dict(_chosen(compared, share))
        self._share = share
        self._job = job
        self._topic = topic
        self._counting = Counting(job)
        self._counted = 0
        self._letters: dict[int, set[int]] = {}
        self._newest: dict[int, Range] = {}
        self._missing = {window.start: window.routed for window in compared}
        self._unseen = {window.start: window.found for window in compared}

    # what is read, in this order

    def receipt(self, receipt: Receipt) -> None:
        """A receipt; those of a partition come in order."""
        into = {start: routed for start, routed in receipt.by_window().items() if self._is_wanted(start)}
        for start, routed in into.items():
            self._missing[start] = self._missing[start].minus(routed)
        if receipt.topic != self._topic:
            return self._leave(into, OTHER_TOPIC)
        if receipt.after > receipt.first:  # Otherwise these are further windows of the range before.
            left_out = receipt.late.plus(receipt.dead)
            found = Range(receipt.first, receipt.after, receipt.consumed, left_out, set())
            self._newest[receipt.partition] = found
        newest = self._newest.get(receipt.partition)
        if newest is None or newest.after != receipt.after:
            self._leave(into, NO_RECEIPTS)
        elif into:
            self._enter(receipt.partition, newest, into)

    def _enter(self, partition: int, found: Range, into: Iterable[int]) -> None:
        ranges = self.ranges.setdefault(partition, [])
        if not found.windows:
            if ranges and found.first < ranges[-1].after:
                return self._leave(into, TWICE)
            ranges.append(found)
        found.windows.update(into)

    def end_receipts(self) -> None:
        """All receipts have been read."""
        self._leave((start for start, missing in self._missing.items() if missing != NOTHING), NO_RECEIPTS)

    def letter(self, partition: int, offset: int) -> None:
        """An event that was left out, as late or as a dead letter."""
        ranges = self.ranges.get(partition)
        if ranges and ranges[0].first <= offset < ranges[-1].after:
            self._letters.setdefault(partition, set()).add(offset)
            self._bound(len(self._letters[partition]))

    def deleted(self, found: Range) -> None:
        """A range of which events are no longer in the topic."""
        self._leave(found.windows, DELETED)

    def events(self, partition: int, records: Iterable[Record]) -> None:
        """Records of the input that lie in a range."""
        letters = self._letters.get(partition, set())
        for record in records:
            if record.offset not in letters:
                self._count(record)

    def end_range(self, partition: int, found: Range, offsets: Sequence[int], unread: Sequence[range]) -> None:
        """All of a range has been read: records at these offsets, and some that the reader has left `unread`.

        Each of the latter is a record, or all offsets of a batch that can't be decoded: a router that could not do so
        either has counted it once, at its first offset.
        """
        letters = self._letters.get(partition, set())
        inside = [offset for offset in range(found.first, found.after) if offset in letters]
        put_aside = [max(span.start, found.first) for span in unread]
        seeds = partition_seeds(self._topic, partition)
        if _tally([*offsets, *put_aside], seeds) != found.consumed:
            self._leave(found.windows, UNREAD if unread else DELETED)
        elif _tally(inside, seeds) != found.left_out:
            self._leave(found.windows, LETTERS)
        elif not letters.issuperset(put_aside):
            self._leave(found.windows, UNREAD)

    def seen(self, start: int, counted: Tally) -> None:
        """A result of a window is there and holds so much, as the audit reads it."""
        if start in self._unseen:
            self._unseen[start] = self._unseen[start].minus(counted)

    def result(self, result: Result) -> None:
        """A result that has been seen."""
        if self._is_wanted(result.start) and self._is_sampled(result.key):
            self.windows[result.start].compare(self._differences(result))

    def finish(self) -> None:
        """All has been read: what has no result is missing, unless results were deleted since the audit read them.

        What differs in those that are left differs all the same.
        """
        gone = {start for start, unseen in self._unseen.items() if unseen.events > 0}
        self._leave((start for start in gone if not self.windows[start].differing), NO_RESULTS)
        for place in self._counting.places:
            if self._is_wanted(place[1]) and place[1] not in gone:
                missing = Difference(place[0], None, self._counting.take(place).events, 0)
                self.windows[place[1]].compare([missing])

    # what came of it

    def report(self, limit: int) -> dict[str, Any]:
        """What came of it, with at most so many windows: those that differ first."""
        order = ("differs", "not recounted", "equal")
        listed = sorted(self.windows.values(), key=lambda window: (order.index(window.verdict), -window.start))
        counts = Counter(window.verdict for window in listed)
        return {
            "share": self._share,
            "equal": counts["equal"],
            "differing": counts["differs"],
            "not_recounted": dict(Counter(w.why_not for w in listed if w.why_not is not None)),
            "windows": [
                {
                    "start": window.start,
                    "end": window.start + self._job.window_ms,
                    "verdict": window.verdict,
                    "keys": window.keys,
                    "differing_keys": window.differing,
                    "differences": [difference.as_json() for difference in window.differences],
                    "detail": window.why_not,
                }
                for window in listed[:limit]
            ],
        }

    # how

    def _is_wanted(self, start: int) -> bool:
        window = self.windows.get(start)
        return window is not None and window.why_not is None

    def _is_sampled(self, key: bytes) -> bool:
        return self._share >= 1 or mmh3.hash(key, signed=False) < self._share * 2**32

    def _leave(self, starts: Iterable[int], why: str) -> None:
        for start in starts:
            if (window := self.windows[start]).why_not is None:
                self.windows[start] = Recounted(window.start, why)

    def _count(self, record: Record) -> None:
        job = self._job
        try:
            key = read_key(job, record.key, record.value, record.headers)
            if not self._is_sampled(key):
                return
            event = read(job, record.value, record.timestamp)
        except UNREADABLE:
            ranges = self.ranges[record.partition]
            return self._leave(next(r for r in ranges if record.offset < r.after).windows, UNREAD)
        if self._is_wanted(self._counting.window_of(event.time_ms)):
            self._counting.add(key, event)
            self._counted += 1
            self._bound(self._counted)

    def _bound(self, events: int) -> None:
        if events > 2 * MOST_EVENTS:
            raise Fatal(f"more than {2 * MOST_EVENTS:,} events are to be kept: recount a smaller share of the keys")

    def _differences(self, result: Result) -> Iterator[Difference]:
        place: Place = (result.key, result.start)
        try:
            wanted = self._counting.take(place)
        except KeyError:
            yield Difference(result.key, None, 0, result.events)
            return
        if wanted.events != result.events:
            yield Difference(result.key, None, wanted.events, result.events)
        for name, answer in wanted.answers.items():
            found = result.aggregates.get(name)
            if not answer.accept(found):
                yield Difference(result.key, name, answer.value, found)


def _chosen(windows: Iterable[Window], share: float) -> Iterator[tuple[int, Recounted]]:
    """All of these windows: the newest of those that are proven are recounted, up to the bound."""
    expected = 0.0
    for window in sorted(windows, key=lambda window: -window.start):
        why_not = None
        if window.verdict != "proven":
            why_not = DOES_NOT_ADD_UP
        elif window.dead != NOTHING:
            why_not = DEAD_AT_WORKER
        else:
            expected += window.routed.events * share
            why_not = TOO_MANY if expected > MOST_EVENTS else None
        yield window.start, Recounted(window.start, why_not)


def _tally(offsets: Sequence[int], seeds: Any) -> Tally:
    return tally(np.array(offsets, np.int64), seeds) if offsets else NOTHING
