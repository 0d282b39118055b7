"""A partial counts once, whoever asks: the observer, and the view of a run on one machine."""

from __future__ import annotations

import pytest
from keygrouping.job import JobSpec
from keygrouping.partial import NO_TOPIC, Partial, RecordError
from keygrouping_observer.counting import Counted, Counting
from keygrouping_observer.offsets import Look
from keygrouping_service.records.record import Record

JOB = JobSpec.from_json('{"window": 1000, "aggregates": [{"name": "events", "op": "count"}]}')
FIRST = Partial(0, 0, 1000, 2, 2, 0, 1, 1, {"events": 2})
NEXT = Partial(0, 0, 1000, 3, 3, 2, 4, 1, {"events": 3})


def record(value: bytes, offset: int = 0, key: bytes | None = b"key") -> Record:
    return Record("partials", 0, offset, 0, key, value)


def looked(committed: int, end: int) -> Look:
    return Look(0, {(NO_TOPIC, 0): committed}, [0], {0: end})


def test_a_partial_counts_once() -> None:
    counting = Counting(JOB)
    assert counting.count(record(FIRST.encode())) == Counted(b"key", FIRST)
    assert counting.count(record(FIRST.encode(), 1)) is None
    assert counting.count(record(NEXT.encode(), 2)) == Counted(b"key", NEXT)
    assert counting.count(record(FIRST.encode(), 3, b"other")) == Counted(b"other", FIRST)


@pytest.mark.parametrize("key", [b"key", None])
@pytest.mark.parametrize("value", [b"{", Partial(0, 0, 60_000, 2, 2, 0, 1, 1, {"events": 2}).encode()])
def test_what_is_no_partial_of_the_job_is_told(value: bytes, key: bytes | None) -> None:
    with pytest.raises(RecordError):
        Counting(JOB).count(record(value, 0, key))


def test_what_is_forgotten_still_counts_once() -> None:
    counting = Counting(JOB)
    counting.count(record(FIRST.encode(), 0))
    assert counting.oldest() == {0: 0}
    counting.look(looked(2, 1))
    counting.look(looked(5, 9))
    counting.forget(lambda ends: ends[0] <= 1)
    assert (counting.floors, counting.oldest()) == ({(NO_TOPIC, 0): 2}, {})
    assert counting.count(record(FIRST.encode(), 1)) is None
    again = Counting(JOB, counting.floors)
    assert again.count(record(FIRST.encode(), 1)) is None
    assert again.count(record(NEXT.encode(), 2)) == Counted(b"key", NEXT)


def test_nothing_is_forgotten_before_all_that_was_written_by_then_is_counted() -> None:
    counting = Counting(JOB)
    counting.count(record(FIRST.encode(), 0))
    counting.look(looked(2, 2))
    counting.forget(lambda ends: ends[0] <= 1)
    assert counting.floors == {}
    assert counting.oldest() == {0: 0}
