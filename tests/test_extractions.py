"""Whatever stands in an event, all who take a job's parts out of it take the same, and refuse it for the same reason.

The same hostile events go through the library one by one, the router and the native worker column by column, the
oracle's own reading; `spark-jobs/tests/test_expressions.py` puts them through the worker query.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from keygrouping.accumulator import Accumulator
from keygrouping.job import REASONS, Extracted, JobSpec, Rejection, extract_columns
from keygrouping.oracle.reading import read, read_key
from keygrouping_local.hostile_events import JOBS, NOW_MS, hostile_events
from keygrouping_service.events.extract import Extractor
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import Record

every_job = pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))


EVENTS = hostile_events()


def one_by_one(job: JobSpec, now_ms: int = NOW_MS) -> dict[int, Extracted | Rejection]:
    """What the library says, by offset."""
    return {e.offset: job.extract(e.key, e.value, e.headers, e.timestamp, now_ms) for e in EVENTS}


def usable(found: dict[int, Extracted | Rejection]) -> dict[int, Extracted]:
    return {offset: one for offset, one in found.items() if isinstance(one, Extracted)}


def refused(found: dict[int, Extracted | Rejection]) -> dict[int, str]:
    return {offset: one.reason for offset, one in found.items() if isinstance(one, Rejection)}


def columns(events: list[Record], *, undecoded_names: bool = True) -> Columns:
    return Columns.of("events", 0, [event[2:] for event in events], undecoded_names)


def test_the_events_are_hostile_in_every_way_there_is() -> None:
    told = Counter(reason for job in JOBS.values() for reason in refused(one_by_one(job)).values())
    assert told.keys() == set(REASONS)
    assert all(len(usable(one_by_one(job))) >= 6 for job in JOBS.values())


@every_job
async def test_the_router_takes_columns_as_the_library_takes_events(job: JobSpec) -> None:
    expected = one_by_one(job)
    judged = await Extractor(job).extract(columns(EVENTS), NOW_MS)
    good = usable(expected)
    weights = np.ones(len(good)) if judged.usable.weights is None else judged.usable.weights.floats()
    assert judged.usable.events.offsets.tolist() == list(good)
    assert list(judged.usable.keys) == [one.key for one in good.values()]
    assert judged.usable.times.tolist() == [one.time_ms for one in good.values()]
    assert weights.tolist() == [float(one.weight) for one in good.values()]
    assert {record.offset: why.reason for record, why in judged.rejected} == refused(expected)
    skipped = Counter(position for one in good.values() for position in one.skipped)
    assert {position: count for position, (count, _) in judged.skipped.items()} == skipped


@every_job
def test_an_event_alone_in_a_batch_is_taken_alike(job: JobSpec) -> None:
    """Where a job allows it whole columns are checked at once; one bad event is then enough to look at each."""
    for event in EVENTS:
        expected = job.extract(event.key, event.value, event.headers, event.timestamp, NOW_MS)
        odd_name = any("\udce9" in name for name, _ in event.headers)
        found = extract_columns(job, columns([event], undecoded_names=odd_name), NOW_MS)
        if isinstance(expected, Rejection):
            assert ([why for _, why in found.rejected], len(found.events)) == ([expected], 0)
        else:
            assert (list(found.keys), found.times.tolist()) == ([expected.key], [expected.time_ms])
            assert [*(found.weights or [1])] == [expected.weight] and not found.rejected
            assert [*(found.fields or [()])] == [expected.fields]


@every_job
def test_the_native_worker_takes_what_the_router_lets_through(job: JobSpec) -> None:
    expected = one_by_one(job, 1 << 62)  # the clock is asked only by the router
    accumulator = Accumulator(job, 0, "x" * 22)
    assert {row: why.reason for row, why in accumulator.add(columns(EVENTS))} == refused(expected)
    places: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for offset, one in usable(expected).items():
        places[job.window_of(one.time_ms), one.key].append(offset)
    good = usable(expected)
    found = {(partial.start, key): partial for key, partial in accumulator.partials(0)}
    assert found.keys() == places.keys()
    for place, offsets in places.items():
        partial = found[place]
        assert (partial.events, partial.first, partial.last) == (len(offsets), offsets[0], offsets[-1])
        assert partial.weight == sum(good[offset].weight for offset in offsets)
        for aggregate, positions in zip(job.aggregates, job.fields_of, strict=True):
            if aggregate.op == "count" and positions:
                there = [good[offset].fields[positions[0]] is not None for offset in offsets]
                assert partial.aggregates[aggregate.name] == sum(there)


@every_job
def test_the_oracles_own_reading_is_the_same(job: JobSpec) -> None:
    good = usable(one_by_one(job))
    for event in EVENTS:
        if one := good.get(event.offset):
            assert read(job, event.value, event.timestamp) == (one.time_ms, one.fields, one.skipped), event.value
            assert read_key(job, event.key, event.value, event.headers) == one.key, event.value
