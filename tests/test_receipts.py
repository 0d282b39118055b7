"""What receipts prove: each fault that once gave wrong results silently is named by the audit. No Kafka is needed."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.accumulator import Accumulator
from keygrouping.identity import partition_seeds, tally
from keygrouping.job import JobSpec
from keygrouping.partial import Partial, Result
from keygrouping.receipt import MODULUS, NOTHING, SHARES, WINDOWS, Receipt
from keygrouping_observer.audit.books import Books, Origin
from keygrouping_observer.audit.inputs import Lane, Letters
from keygrouping_observer.audit.reading import enter_letter
from keygrouping_observer.audit.windows import Window
from keygrouping_service.events.receipts import Ledger
from keygrouping_service.kafka.progress import END
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import Record
from numpy.typing import NDArray

JOB = JobSpec.from_json('{"window": 1000, "aggregates": [{"name": "n", "op": "count"}]}')
EVENTS, ROUTED, ROUTED_AGAIN = "e" * 22, "r" * 22, "n" * 22
WORKERS = 3
Identity = tuple[bytes, int, int, int]


def record(topic: str, partition: int, offset: int, key: bytes | None, time_ms: int) -> Record:
    return Record(topic, partition, offset, time_ms, key, b"")


def columns(records: Sequence[Record]) -> Columns:
    return Columns.of("any", 0, [record[2:] for record in records])


def offsets_of(records: Sequence[Record]) -> NDArray[np.int64]:
    return np.array([record.offset for record in records], np.int64)


class Line:
    """A pipeline without Kafka: the stages' own accounting on lists of records, and an audit that reads all of it."""

    def __init__(self) -> None:
        self.routed_id = ROUTED
        self.routed: list[list[Record]] = [[] for _ in range(WORKERS)]
        self.worked = [0] * WORKERS
        self.partials: list[tuple[bytes, Partial]] = []
        self.receipts: list[bytes] = []
        self.books = Books("events", "routed", JOB, ROUTED, lambda: 0)
        self.ledger = self.new_ledger(0)

    def new_ledger(self, first: int) -> Ledger:
        return Ledger(EVENTS, 0, ("routed", self.routed_id), JOB, first)

    def route(self, events: Iterable[Record], late: Callable[[Record], bool] = lambda _: False) -> None:
        """One transaction of a router."""
        records = list(events)
        entry = self.ledger.entry(0)
        entry.consume(offsets_of(records))
        tardy, rest = [r for r in records if late(r)], [r for r in records if not late(r)]
        entry.set_late(offsets_of(tardy))
        for letter in tardy:
            self.books.letter("late", Origin("events", 0, letter.offset), b"", letter.timestamp)
        workers = np.array([r.offset % WORKERS for r in rest], np.int32)
        entry.route(offsets_of(rest), np.array([r.timestamp for r in rest], np.int64), workers)
        self.ledger.close(entry, records[-1].offset + 1)
        written = {}
        for worker in sorted(set(workers.tolist())):
            share = [r for r in rest if r.offset % WORKERS == worker]
            written["routed", worker] = [(len(self.routed[worker]), len(share))]
            self.write(worker, share)
        for value in entry.records(written):
            self.receipts.append(value)
            self.books.receipt(value, len(self.receipts))

    def write(self, worker: int, records: list[Record]) -> None:
        log = self.routed[worker]
        log += [record("routed", worker, len(log) + i, r.key, r.timestamp) for i, r in enumerate(records)]

    def work(self, job: JobSpec = JOB) -> None:
        """The workers read on, and flush."""
        for worker, log in enumerate(self.routed):
            accumulator = Accumulator(job, worker=worker, topic=self.routed_id)
            accumulator.add(columns(log[self.worked[worker] :]))
            self.worked[worker] = len(log)
            self.partials += accumulator.partials(0)

    def aggregate(self) -> list[Result]:
        """The results of all windows, of each partial once."""
        merged: dict[tuple[bytes, int], list[Partial]] = {}
        seen: set[Identity] = set()
        for key, partial in self.partials:
            identity = (key, partial.worker, partial.start, partial.first)
            if identity not in seen:
                seen.add(identity)
                merged.setdefault((key, partial.start), []).append(partial)
        return [
            Result(key, start, start + 1000, n := sum(p.events for p in ps), n, True, {}, sum_of(ps))
            for (key, start), ps in merged.items()
        ]

    def publish(self, results: Iterable[Result]) -> None:
        for result in results:
            self.books.result(result.encode(), 0)

    def differing(self) -> dict[int, int]:
        """Windows that differ, with how many events are missing."""
        self.books.judge(END)
        return {window.start: window.missing.events for window in self.books.windows.differing}

    def ranges(self) -> list[tuple[str, int, int, int]]:
        return [(d.kind, d.first, d.after, d.events) for d in self.books.differences]


def sum_of(partials: list[Partial]) -> int:
    return sum(partial.hashes for partial in partials) % MODULUS


def events(count: int, start: int = 0) -> list[Record]:
    """Events of 7 keys, ten per window."""
    return [record("events", 0, n, b"key-%d" % (n % 7), n * 100) for n in range(start, start + count)]


def finish(line: Line) -> None:
    line.work()
    line.publish(line.aggregate())


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.sets(st.integers(0, 99)), st.booleans())
def test_a_sound_run_is_proven_to_the_last_event(sizes: list[int], late: set[int], restarts: bool) -> None:
    line, total = Line(), sum(sizes)
    rest = events(total)
    for size in sizes:
        line.route(rest[:size], lambda r: r.offset in late)
        del rest[:size]
        line.work()
        if restarts:
            line.books = restored(line.books)
    line.publish(line.aggregate())
    assert (line.differing(), line.ranges()) == ({}, [])
    (lane,) = line.books.lanes.values()
    tardy = len([offset for offset in late if offset < total])
    assert (lane.since, lane.proven, lane.consumed, lane.routed, lane.late) == (0, total, total, total - tardy, tardy)
    assert line.books.windows.open == 0


def restored(books: Books) -> Books:
    rows = dict(books.records())
    again = Books("events", "routed", JOB, ROUTED, lambda: 0)
    again.restore({key: value for key, value in rows.items() if value is not None})
    for start, window in books.windows._known.items():
        if window.key not in rows:
            again.windows.restore(Window.decode(books.windows._known[start].encode()))
    return again


def test_an_aggregator_whose_offsets_were_forgotten_writes_each_result_twice() -> None:
    line = Line()
    line.route(events(30))
    finish(line)
    assert line.differing() == {}
    line.publish(line.aggregate())
    assert line.differing() == {0: -10, 1000: -10, 2000: -10}
    assert "hold 10 events more" in line.books.explain(line.books.windows.differing[0])


def test_a_router_whose_offsets_were_forgotten_routes_the_input_twice() -> None:
    line = Line()
    line.route(events(20))
    line.route(events(10, start=20))
    line.ledger = line.new_ledger(0)
    line.route(events(30))
    line.route(events(5, start=30))
    finish(line)
    line.differing()
    assert line.ranges() == [("doubled", 0, 30, 30)]


def test_a_delayed_commit_leaves_half_a_transaction_in_routed() -> None:
    line = Line()
    line.route(events(10))
    stray = events(10, start=10)
    line.write(0, [r for r in stray if r.offset % WORKERS == 0])  # The session ended; its batch is routed again.
    line.route(stray)
    finish(line)
    assert line.differing() == {1000: -3}
    assert line.ranges() == [], "every offset of the input was accounted for once"


def test_routed_that_is_made_again_in_an_open_window_loses_events_as_duplicates() -> None:
    line = Line()
    line.route(events(10))
    line.work()
    line.routed, line.worked, line.routed_id = [[] for _ in range(WORKERS)], [0] * WORKERS, ROUTED_AGAIN
    line.ledger = line.new_ledger(10)
    line.route([record("events", 0, 10 + n, b"key-%d" % (n + 1), 500) for n in range(6)])
    line.work()
    results = line.aggregate()
    lost = 16 - sum(result.events for result in results)
    line.publish(results)
    assert lost > 0
    assert line.differing() == {0: lost}


def test_events_that_were_swapped_are_seen_though_the_numbers_are_right() -> None:
    line = Line()
    line.route(events(10))
    line.routed[0][0] = record("routed", 0, 77, b"key-0", 0)
    finish(line)
    assert line.differing() == {0: 0}
    assert "other events" in line.books.explain(line.books.windows.differing[0])


def test_a_worker_that_rounds_an_event_into_another_window_than_the_router_is_seen() -> None:
    line = Line()
    line.route(events(20))
    line.routed[1] = [r if r.timestamp != 700 else record("routed", 1, r.offset, r.key, 1000) for r in line.routed[1]]
    finish(line)
    assert line.differing() == {0: 1, 1000: -1}


def test_a_time_that_router_and_worker_read_alike_is_not_judged() -> None:
    line = Line()
    line.route([record("events", 0, 0, b"k", round(999.6))])
    finish(line)
    assert line.differing() == {}, "receipts account for events, not for what is computed of them"


def test_offsets_that_nobody_has_read_are_lost() -> None:
    line = Line()
    line.route(events(10))
    line.ledger = line.new_ledger(14)
    line.route(events(6, start=14))
    finish(line)
    assert line.differing() == {}
    assert line.ranges() == [("lost", 10, 14, 4)]


def test_an_event_that_a_router_drops_is_not_accounted_for() -> None:
    line = Line()
    line.route(events(10))
    receipt = Receipt.decode(line.receipts[0])
    dropped = Receipt(EVENTS, 0, 10, 20, *(receipt.consumed, receipt.late, receipt.late, receipt.dead))
    line.books.receipt(dropped.encode(), 1)
    assert line.ranges() == [("unaccounted", 10, 20, 10)]


@pytest.mark.parametrize("kind", ["late", "dead"])
def test_late_events_and_dead_letters_are_counted_where_they_are(kind: str) -> None:
    topic = {"late": "late", "dead": "dead-letters"}[kind]
    line = Line()
    line.books.letter(kind, Origin("events", 0, 4), b"", 0)  # before its receipt, as topics are read side by side
    ledger = line.new_ledger(0)
    for first, missing in ((0, False), (10, True)):
        entry = ledger.entry(0)
        batch = events(10, start=first)
        entry.consume(offsets_of(batch))
        (entry.set_late if kind == "late" else entry.dead_letter)([batch[4].offset])
        rest = [r for r in batch if r is not batch[4]]
        entry.route(offsets_of(rest), np.zeros(9, np.int64), np.zeros(9, np.int32))
        ledger.close(entry, first + 10)
        for value in entry.records({("routed", 0): [(first, 9)]}):
            line.books.receipt(value, 0)
        line.books.judge(0)
        assert line.ranges() == ([(topic, 10, 20, 1)] if missing else [])
    line.books.letter(kind, Origin("events", 0, 4), b"", 0)
    line.books.letter(kind, Origin("elsewhere", 0, 5), b"", 0)
    line.books.judge(0)
    assert line.ranges()[1:] == [(topic, 4, 5, 1)]


def test_what_a_worker_could_not_use_is_a_dead_letter_and_not_missing() -> None:
    line = Line()
    line.route(events(10))
    (unusable,) = [r for r in line.routed[2] if r.timestamp == 500]
    line.routed[2].remove(unusable)
    finish(line)
    assert line.differing() == {0: 1}
    line.books.letter("dead", Origin("routed", 2, unusable.offset), b"", unusable.timestamp)
    assert line.differing() == {}


def test_many_windows_take_several_records() -> None:
    line = Line()
    line.route(record("events", 0, n, b"k", n * 1000) for n in range(12_000))
    assert [len(Receipt.decode(value).by_window()) for value in line.receipts] == [5000, 5000, 2000]
    finish(line)
    assert (line.differing(), line.ranges()) == ({}, [])


def test_an_event_in_a_window_of_its_own_costs_the_router_no_more_than_any_other() -> None:
    """CPU time of the account of 500 events, the best of some: with an object for each window it was tenfold."""

    def seconds(window_of: Callable[[int], int]) -> float:
        ledger = Line().ledger
        batch = columns([record("events", 0, n, b"k", window_of(n) * 1000) for n in range(500)])
        begun = time.process_time()
        entry = ledger.entry(0)
        entry.consume(batch.offsets)
        entry.route(batch.offsets, batch.timestamps, np.zeros(500, np.int32))
        ledger.close(entry, 500)
        list(entry.records({("routed", 0): [(0, 500)]}))
        return time.process_time() - begun

    pairs = [(seconds(lambda n: n), seconds(lambda _: 0)) for _ in range(200)]
    each, one = (min(column) for column in zip(*pairs, strict=True))
    assert each < 3 * one


def test_a_result_of_a_window_that_is_known_no_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keygrouping_observer.audit.windows.KEPT", 2)
    line = Line()
    line.route(events(50))
    finish(line)
    assert line.differing() == {}
    deleted = [key for key, value in line.books.records() if value is None]
    assert deleted == [b"window 0", b"window 1000", b"window 2000"]
    line.publish(line.aggregate()[:1])
    assert line.ranges() == [("after-final", 0, 1, 2)]


def test_windows_whose_receipts_may_be_deleted_are_proven_or_unknown_and_never_condemned() -> None:
    line = Line()
    line.route(events(30))
    line.books.windows.since = 2000
    line.books.windows._known.pop(0)  # its receipt was deleted
    line.work()
    line.publish(line.aggregate()[:-1])
    line.books = restored(line.books)
    assert line.differing() == {2000: 1}
    verdicts = {window.start: window.verdict for window in line.books.windows.listed(9)}
    assert verdicts == {0: "unknown", 1000: "proven", 2000: "differs"}


def test_letters_of_which_the_first_are_deleted_are_compared_from_the_first_comparison_on() -> None:
    line = Line()
    line.books.uncompared = ["dead"]
    line.books.receipt(dead(EVENTS, 0, 10).encode(), 0)
    line.books = restored(line.books)
    line.books.judge(0)
    assert line.ranges() == []
    line.books.receipt(dead(EVENTS, 10, 13).encode(), 1)
    line.books.judge(0)
    assert line.ranges() == [("dead-letters", 10, 13, 3)]


RESULT = Result(b"k", 1000, 2000, 1, 1, True, {}).encode()


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{}", b"[]", b'{"start": 1}', None),
        RESULT.replace(b'"start":1000', b'"start":1e30'),
        RESULT.replace(b'"events":1', b'"events":18446744073709551615'),
    ],
)
def test_what_can_not_be_read_is_a_difference_too(value: bytes | None) -> None:
    line = Line()
    line.books.receipt(value, 7)
    line.books.result(value, 8)
    assert [(kind, first) for kind, first, _, _ in line.ranges()] == [("unreadable", 7), ("unreadable", 8)][
        : 1 if value is None else 2
    ]
    assert list(line.books.records())


@pytest.mark.parametrize("place", [(b"0", b"9" * 30), (b"-1", b"5"), (b"9" * 30, b"5"), (b"0", b""), (b"0", b"x")])
@pytest.mark.parametrize("topic", [b"events", b"routed"])
def test_a_letter_from_where_no_event_can_be_is_none_of_the_proof(topic: bytes, place: tuple[bytes, bytes]) -> None:
    line = Line()
    enter_letter(line.books, "dead", letter(topic, *place))
    line.books.judge(END)
    assert (line.ranges(), line.books.windows.open) == ([], 0)
    assert list(line.books.records())


@pytest.mark.parametrize(("own", "missing"), [(b"500", {}), (b"", {0: 1}), (b"x", {0: 1}), (b"9" * 40, {0: 1})])
def test_what_a_worker_left_out_counts_in_the_window_of_its_event(own: bytes, missing: dict[int, int]) -> None:
    line = Line()
    line.route(events(10))
    (unusable,) = [r for r in line.routed[2] if r.timestamp == 500]
    line.routed[2].remove(unusable)
    finish(line)
    left_out = letter(b"routed", b"2", str(unusable.offset).encode(), own)
    enter_letter(line.books, "dead", left_out)
    assert {start: events for start, events in line.differing().items() if events > 0} == missing


def letter(topic: bytes, partition: bytes, offset: bytes, own: bytes | None = None) -> Record:
    """A dead letter that was written a minute after its event."""
    said = {"topic": topic, "partition": partition, "offset": offset, "timestamp": own}
    headers = tuple((f"keygrouping-{name}", value) for name, value in said.items() if value is not None)
    return record("dead-letters", 0, 0, b"k", 60_500)._replace(headers=headers)


def test_what_is_known_of_a_large_backlog_fits_into_records_that_any_topic_takes() -> None:
    line, rows = Line(), dict[bytes, bytes]()

    def save() -> None:
        for key, value in line.books.records():
            assert len(value or b"") <= 1 << 19
            rows[key] = value or b""

    receipt = Receipt.decode(next(iter(line.new_ledger(0).entry(0).records({}))))
    for number in range(20_000):
        line.books.receipt(replace(receipt, first=number, after=number + 1).encode(), number)
    save()
    assert sum(map(len, rows.values())) > 1 << 20
    again = Books("events", "routed", JOB, ROUTED, lambda: 0)
    again.restore({key: value for key, value in rows.items() if value})
    assert again.lanes == line.books.lanes
    line.books = again
    line.books.judge(0)
    save()
    assert sum(map(len, rows.values())) < 1000


def dead(topic_id: str, first: int, after: int) -> Receipt:
    """All of a range of the input were dead letters."""
    counted = tally(np.arange(first, after), partition_seeds(topic_id, 0))
    return Receipt(topic_id, 0, first, after, counted, NOTHING, NOTHING, counted)


@pytest.mark.parametrize("compared", [True, False])
def test_a_topic_that_is_made_again_has_its_own_letters_at_the_same_offsets(compared: bool) -> None:
    line = Line()
    before, now = dead(EVENTS, 0, 100), dead("f" * 22, 0, 10)
    if compared:
        for offset in range(100):
            line.books.letter("dead", Origin("events", 0, offset), b"", 0)
    else:
        before = replace(before, routed=before.dead, dead=NOTHING, shares=np.array((0, 100), SHARES).tobytes())
        row = (0, 100, *divmod(before.routed.hashes, 2**64))
        before = replace(before, windows=np.array(row, WINDOWS).tobytes())
    line.books.receipt(before.encode(), 0)
    if compared:
        line.books.judge(0)
    line.books.receipt(now.encode(), 0)
    for offset in range(10):
        line.books.letter("dead", Origin("events", 0, offset), b"", 0)
    line.books.judge(0)
    assert line.ranges() == []
    line.books.letter("dead", Origin("events", 0, 9), b"", 0)
    line.books.judge(0)
    assert line.ranges() == [("dead-letters", 9, 10, 1)]


class Counted(dict[int, int]):
    """Counts how often all of it is gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[int]:
        self.rounds += 1
        return super().__iter__()


def test_a_backlog_of_letters_is_gone_through_once_and_not_for_each_receipt() -> None:
    lane, many = Lane.of(dead(EVENTS, 0, 10)), Counted(dict.fromkeys(range(500), 1))
    letters: Letters = {"late": {}, "dead": many}
    for first in range(0, 500, 10):
        assert list(lane.add(dead(EVENTS, first, first + 10))) == []
    assert list(lane.judge(letters)) == []
    assert letters == {"late": {}, "dead": {}}
    assert many.rounds == 1
