"""What a recount compares, and which windows it leaves out, as it can't know them. No Kafka is needed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from keygrouping.identity import partition_seeds, tally
from keygrouping.job import JobSpec
from keygrouping.partial import Result
from keygrouping.receipt import NOTHING, WINDOWS, Receipt, Tally
from keygrouping_observer.audit import recount as module
from keygrouping_observer.audit.recount import Recount
from keygrouping_observer.audit.recounting import enter_result, read_again
from keygrouping_observer.audit.windows import Window
from keygrouping_service.errors import Fatal
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import UNDECODABLE, DeadLetter, Record, UndecodableError

TOPIC, DELETED_TOPIC = "e" * 22, "d" * 22
JOB = JobSpec.from_json(
    {"window": 1000, "aggregates": [{"name": "n", "op": "count"}, {"name": "x", "op": "sum", "field": "x"}]}
)
EACH = 10
"""Events of a window, and of a receipt."""


def event(offset: int, value: bytes | None = None) -> Record:
    """Ten per window, of two keys."""
    return Record("events", 0, offset, offset * 100, b"k%d" % (offset % 2), value or b'{"x": %d}' % offset)


def sum_of(offsets: Iterable[int], topic: str = TOPIC) -> Tally:
    found = np.array(list(offsets), np.int64)
    return tally(found, partition_seeds(topic, 0)) if len(found) else NOTHING


def receipt(first: int, topic: str = TOPIC, late: Sequence[int] = (), windows: Sequence[int] = ()) -> Receipt:
    """That of a window's events, or of these windows."""
    offsets = range(first, first + EACH)
    routed = [offset for offset in offsets if offset not in late]
    rows = np.array([(start, EACH, 0, 0) for start in windows or (first // EACH * 1000,)], WINDOWS)
    consumed, sent, tardy = (sum_of(found, topic) for found in (offsets, routed, late))
    return Receipt(topic, 0, first, first + EACH, consumed, sent, tardy, NOTHING, windows=rows.tobytes())


@dataclass
class Run:
    """Three windows that are proven, and what there is of them; a test changes it before `report`."""

    windows: list[Window] = field(
        default_factory=lambda: [Window(start, verdict="proven") for start in (0, 1000, 2000)]
    )
    receipts: list[Receipt] = field(default_factory=lambda: [receipt(first) for first in (0, 10, 20)])
    letters: list[int] = field(default_factory=list)
    events: list[Record] = field(default_factory=lambda: [event(offset) for offset in range(30)])
    unread: list[range] = field(default_factory=list)
    results: list[Result] = field(
        default_factory=lambda: [
            result(b"k%d" % key, start, sum(range(start // 100 + key, start // 100 + EACH, 2)))
            for start in (0, 1000, 2000)
            for key in (0, 1)
        ]
    )
    share: float = 1.0
    deleted_receipts: int = 0
    """Events of each window that were routed by other receipts."""
    deleted_results: dict[int, int] = field(default_factory=dict)
    """Events of a window, by its start, in results that only the audit has read."""

    def begun(self) -> Recount:
        """One that has everything that comes before the events."""
        for window in self.windows:
            routed = [each.by_window().get(window.start, NOTHING).events for each in self.receipts]
            window.routed = Tally(sum(routed) + self.deleted_receipts)
            there = [each.events for each in self.results if each.start == window.start]
            window.found = Tally(sum(there) + self.deleted_results.get(window.start, 0))
        recount = Recount(JOB, TOPIC, self.windows, self.share)
        for each in self.receipts:
            recount.receipt(each)
        recount.end_receipts()
        for offset in self.letters:
            recount.letter(0, offset)
        return recount

    def ended(self, recount: Recount) -> dict[str, Any]:
        """The report of one that has read the events."""
        for each in self.results:
            recount.seen(each.start, Tally(each.events))
            recount.result(each)
        recount.finish()
        return recount.report(100)

    def report(self) -> dict[str, Any]:
        recount = self.begun()
        for found in recount.ranges.get(0, []):
            records = [record for record in self.events if found.first <= record.offset < found.after]
            recount.events(0, records)
            unread = [span for span in self.unread if span.start < found.after and found.first < span.stop]
            recount.end_range(0, found, [record.offset for record in records], unread)
        return self.ended(recount)

    def left(self) -> dict[int, str | None]:
        """Why windows are not recounted, by their start; all others are equal."""
        return left(self.report())


def left(report: dict[str, Any]) -> dict[int, str | None]:
    assert report["differing"] == 0, report
    return {w["start"]: w["detail"] for w in report["windows"] if w["verdict"] == "not recounted"}


def result(key: bytes, start: int, x: float, events: int = EACH // 2) -> Result:
    return Result(key, start, start + 1000, events, events, True, {"n": events, "x": x})


def test_all_windows_that_are_proven_are_equal() -> None:
    report = Run().report()
    assert (report["equal"], report["differing"], report["not_recounted"]) == (3, 0, {})
    assert [window["keys"] for window in report["windows"]] == [2, 2, 2]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (result(b"k1", 1000, 75.5), (b"k1", "x", 75, 75.5)),
        (result(b"k1", 1000, 75, events=6), (b"k1", None, 5, 6)),
        (result(b"other", 1000, 75), (b"other", None, 0, 5)),
    ],
)
def test_what_differs_is_named(change: Result, expected: tuple[bytes, str | None, object, object]) -> None:
    run = Run()
    run.results[3] = change
    report = run.report()
    (window,) = [window for window in report["windows"] if window["verdict"] == "differs"]
    key, *rest = expected
    assert (report["equal"], report["differing"], window["start"]) == (2, 1, 1000)
    assert {"key": key.decode(), **dict(zip(("aggregate", "recounted", "found"), rest, strict=True))} in window[
        "differences"
    ]


def test_a_key_without_a_result_is_named() -> None:
    run = Run()
    del run.results[3]
    (window, *_) = run.report()["windows"]
    assert window["differences"] == [{"key": "k1", "aggregate": None, "recounted": 5, "found": 0}]


def test_a_few_keys_of_many_that_differ_are_shown() -> None:
    run = Run(results=[result(b"x%d" % number, 0, 0) for number in range(20)])
    window = next(window for window in run.report()["windows"] if window["start"] == 0)
    assert (window["differing_keys"], len(window["differences"])) == (22, 5)


def test_late_events_are_left_out_as_the_topic_says() -> None:
    run = Run(letters=[13])
    run.receipts[1] = receipt(10, late=[13])
    run.results[3] = result(b"k1", 1000, 75 - 13, events=4)
    assert run.left() == {}


def test_late_events_that_are_not_those_of_the_receipts_say_nothing_of_the_window() -> None:
    run = Run(letters=[13])
    assert run.left() == {1000: module.LETTERS}


def test_events_that_are_no_longer_there() -> None:
    run = Run()
    del run.events[25]
    assert run.left() == {2000: module.DELETED}


def test_events_of_a_topic_that_was_deleted() -> None:
    run = Run()
    run.receipts.insert(0, receipt(20, DELETED_TOPIC, windows=(0,)))
    assert run.left() == {0: module.OTHER_TOPIC}


def test_events_that_were_routed_twice() -> None:
    run = Run()
    run.receipts.append(receipt(20))
    assert run.left() == {2000: module.TWICE}


def test_events_that_only_a_stage_could_read() -> None:
    run = Run()
    run.events[4] = event(4, b"{")
    run.unread = [range(17, 18)]
    del run.events[17]
    assert run.left() == {0: module.UNREAD, 1000: module.UNREAD}


def test_results_that_were_deleted_since_the_audit_read_them() -> None:
    run = Run(deleted_results={1000: 5})
    del run.results[3]
    assert run.left() == {1000: module.NO_RESULTS}
    run.results[2] = result(b"k0", 1000, 70.5)
    (window, *_) = run.report()["windows"]
    assert window["differences"] == [{"key": "k0", "aggregate": "x", "recounted": 70, "found": 70.5}]


def test_windows_that_do_not_add_up_and_those_of_which_a_worker_has_used_not_all() -> None:
    run = Run()
    run.windows[0].verdict, run.windows[1].dead = "unknown", Tally(1, 1)
    run.windows.append(Window(3000))
    assert run.left() == {0: module.DOES_NOT_ADD_UP, 1000: module.DEAD_AT_WORKER}


def test_further_windows_of_a_receipt_belong_to_its_range() -> None:
    run = Run()
    whole, rest = receipt(10, windows=(1000,)), receipt(10, windows=(2000,))
    rest.first, rest.consumed = 20, NOTHING
    run.receipts = [receipt(0), whole, rest, receipt(20)]
    del run.events[15]
    assert run.left() == {1000: module.DELETED, 2000: module.DELETED}
    run = Run()
    run.receipts.insert(0, rest)
    assert run.left() == {2000: module.NO_RECEIPTS}, "the range that it belongs to is not known"
    run = Run()
    run.receipts[1:] = [rest, receipt(20)]
    del run.windows[1], run.results[2:4]
    assert run.left()[2000] == module.NO_RECEIPTS, "it belongs to a range behind that of the receipt before"


def test_windows_of_which_receipts_are_deleted_meanwhile() -> None:
    assert set(Run(deleted_receipts=1).left().values()) == {module.NO_RECEIPTS}


def test_the_newest_windows_are_recounted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENTS", 2 * EACH)
    assert Run().left() == {0: module.TOO_MANY}
    run = Run(share=0.6)
    sampled = run.report()
    assert sampled["not_recounted"] == {}
    assert sum(window["keys"] for window in sampled["windows"]) == 3


def test_more_than_is_believed_of_the_receipts_ends_the_recount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENTS", 11)
    run = Run(windows=[Window(0, verdict="proven")], receipts=[receipt(0)])
    run.receipts[0].after, run.events = 1000, [event(0)] * 23
    with pytest.raises(Fatal, match="smaller share"):
        run.report()


@dataclass
class Damaged:
    """A source of which a batch can't be decoded; once a position has been reached, all before another is deleted."""

    records: list[Record]
    batch: range = range(0)
    reached: int = 1000
    first_kept: int = 0
    _position: int = 0

    async def poll(self, most: int, timeout: float) -> Columns:
        del most, timeout
        here = self._position
        if here < await self.first():
            raise OffsetOutOfRangeError({TopicPartition("events", 0): here})
        if here in self.batch:
            record = Record("events", 0, here, -1, None, b"as it is")
            raise UndecodableError(DeadLetter(record, UNDECODABLE, "can't be read"), self.batch.stop)
        taken = [record for record in self.records if here <= record.offset < here + 4]
        taken = [record for record in taken if here >= self.batch.start or record.offset < self.batch.start]
        self._position = taken[-1].offset + 1
        return Columns.of("events", 0, [record[2:] for record in taken])

    async def position(self) -> int:
        return self._position

    async def first(self) -> int:
        return self.first_kept if self._position >= self.reached else 0

    def end(self) -> int | None:
        return None

    def seek(self, offset: int) -> None:
        self._position = offset

    def left_out(self) -> list[DeadLetter]:
        return []


async def reread(run: Run, source: Damaged) -> dict[int, str | None]:
    recount = run.begun()
    await read_again(source, 30, 0, recount)
    return left(run.ended(recount))


async def test_a_batch_that_only_the_router_could_decode_is_told_of_each_range_that_it_reaches_into() -> None:
    run = Run(letters=[13])
    run.receipts[1] = receipt(10, late=[13])
    for first in (13, 14):
        unread = await reread(run, Damaged(run.events, batch=range(first, 22)))
        assert unread == {1000: module.UNREAD, 2000: module.UNREAD}


async def test_a_batch_that_the_router_could_not_decode_either_is_one_dead_letter() -> None:
    run = Run(letters=[13])
    read, letter = [10, 11, 12, 17, 18, 19], [13]
    run.receipts[1].consumed, run.receipts[1].routed = sum_of(read + letter), sum_of(read)
    run.receipts[1].dead = sum_of(letter)
    run.results[2:4] = [result(b"k0", 1000, 10 + 12 + 18, events=3), result(b"k1", 1000, 11 + 17 + 19, events=3)]
    assert await reread(run, Damaged(run.events, batch=range(13, 17))) == {}


async def test_a_batch_that_the_router_could_decode_only_at_first() -> None:
    run = Run(letters=[20])
    read, letter = range(22, 30), [20]
    run.receipts[2].consumed, run.receipts[2].routed = sum_of([*letter, *read]), sum_of(read)
    run.receipts[2].dead = sum_of(letter)
    run.results[4:6] = [result(b"k%d" % key, 2000, sum(read[key::2]), events=4) for key in (0, 1)]
    assert await reread(run, Damaged(run.events, batch=range(18, 22))) == {1000: module.UNREAD}


async def test_a_result_that_nobody_can_read_is_none_that_was_deleted() -> None:
    run = Run()
    recount = run.begun()
    await read_again(Damaged(run.events), 30, 0, recount)
    for each in run.results:
        value = each.encode()
        enter_result(recount, value.replace(b'"v":1', b'"v":0') if each is run.results[3] else value)
    recount.finish()
    (window, *rest) = recount.report(100)["windows"]
    assert window["differences"] == [{"key": "k1", "aggregate": None, "recounted": 5, "found": 0}]
    assert [window["verdict"] for window in rest] == ["equal"] * 2


async def test_events_that_are_deleted_while_they_are_read() -> None:
    run = Run()
    deleted = await reread(run, Damaged(run.events, reached=4, first_kept=15))
    assert deleted == {0: module.DELETED, 1000: module.DELETED}
