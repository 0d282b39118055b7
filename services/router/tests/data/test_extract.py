"""Laws of sorting out and routing a batch, without any broker."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.grouping import names
from keygrouping.job import JobSpec
from keygrouping_router.control.state import Control
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.data.usable import Usable
from keygrouping_service.events.extract import Extractor, Judged, parts, sort_out_late
from keygrouping_service.events.lateness import PartitionClock
from keygrouping_service.kafka.progress import Progress
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import Record

NOW_MS = 1_000_000_000
PLAIN: dict[str, Any] = {"aggregates": [{"name": "events", "op": "count"}], "lateness": "1s", "max_future": "1h"}
JSON_JOB = PLAIN | {
    "key": {"field": "user"},
    "weight": {"field": "cost"},
    "aggregates": [{"name": "total", "op": "sum", "field": "amount"}],
}


def record(offset: int, key: bytes | None, value: bytes | None, timestamp: int = NOW_MS) -> Record:
    return Record("events", 0, offset, timestamp, key, value)


def batch_of(records: Sequence[Record], *, undecoded_names: bool = False) -> Columns:
    return Columns.of("events", 0, [record[2:] for record in records], undecoded_names)


random_bytes = st.one_of(st.none(), st.binary(max_size=12))
timestamps = st.one_of(st.integers(NOW_MS - 5000, NOW_MS), st.integers(-(2**62), 2**62), st.just(-1))
numbers = st.one_of(st.integers(-5, 5), st.floats(), st.booleans(), st.none(), st.text(max_size=3))
documents = st.dictionaries(st.sampled_from(["user", "cost", "amount"]), numbers).map(
    lambda document: json.dumps(document).encode()
)


def records_of(values: st.SearchStrategy[bytes | None]) -> st.SearchStrategy[list[Record]]:
    rows = st.lists(st.tuples(random_bytes, values, timestamps), max_size=20)
    return rows.map(lambda drawn: [record(i, *row) for i, row in enumerate(drawn)])


async def sorted_out(job: dict[str, Any], records: list[Record]) -> Judged:
    spec = JobSpec.from_json(job)
    judged = await Extractor(spec).extract(batch_of(records), NOW_MS)
    return sort_out_late(judged, PartitionClock(Progress(), spec.lateness_ms, spec.confirmations, 15, 0))


@pytest.mark.parametrize("job", [PLAIN, JSON_JOB], ids=["plain", "json"])
@given(records=records_of(st.one_of(random_bytes, documents)))
async def test_every_record_ends_in_one_place_whatever_its_bytes(job: dict[str, Any], records: list[Record]) -> None:
    judged = await sorted_out(job, records)
    places = [*judged.usable.events, *(late.record for late in judged.late), *(r for r, _ in judged.rejected)]
    assert sorted(r.offset for r in places) == [r.offset for r in records]
    assert len(judged.usable.keys) == len(judged.usable.events) == len(judged.usable.times)
    if judged.usable.weights is not None:
        assert all(math.isfinite(weight) and weight >= 0 for weight in judged.usable.weights.floats())


@given(records=records_of(random_bytes))
async def test_whole_columns_and_single_records_are_judged_alike(records: list[Record]) -> None:
    extractor = Extractor(JobSpec.from_json(PLAIN))
    assert extractor.plain
    fast = await extractor.extract(batch_of(records), NOW_MS)
    slow = await extractor.extract(batch_of(records, undecoded_names=True), NOW_MS)
    assert list(fast.usable.keys) == list(slow.usable.keys)
    assert fast.usable.times.tolist() == slow.usable.times.tolist()
    assert [r.offset for r, _ in fast.rejected] == [r.offset for r, _ in slow.rejected]


async def test_weights_and_keys_come_from_where_the_job_says() -> None:
    good = record(0, b"ignored", b'{"user": "ann", "cost": 2.5, "amount": 1}')
    nan = record(1, None, b'{"user": "bob", "cost": NaN}')
    wrong = record(2, None, b'{"user": "bob", "cost": 1, "amount": "much"}')
    judged = await sorted_out(JSON_JOB, [good, nan, wrong])
    assert judged.usable.keys == [b"ann", b"bob"]
    assert judged.usable.weights is not None and judged.usable.weights.floats().tolist() == [2.5, 1]
    assert [rejection.reason for _, rejection in judged.rejected] == ["invalid-json"]
    assert judged.skipped == {0: (1, wrong)}


@settings(deadline=None)  # the first call compiles
@given(
    st.sampled_from(names()),
    st.integers(1, 9),
    st.lists(st.binary(max_size=4), min_size=1, max_size=60),
)
def test_every_event_of_a_batch_gets_one_of_the_workers(grouping: str, workers: int, keys: list[bytes]) -> None:
    usable = Usable(batch_of([record(i, key, b"") for i, key in enumerate(keys)]), keys, np.zeros(len(keys), np.int64))
    routed = ActiveGrouping(Control(grouping=grouping, workers=workers)).route(usable, 0.0).workers
    assert len(routed) == len(keys)
    assert all(0 <= worker < workers for worker in routed.tolist())


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_parts_are_small_and_together_the_batch(sizes: list[int], most: int) -> None:
    records = [
        record(i, None if size % 2 else b"k" * (size // 2), bytes(-(-size // 2))) for i, size in enumerate(sizes)
    ]
    cut = list(parts(batch_of(records), most))
    assert [record for part in cut for record in part] == records
    for part in cut:
        assert len(part) == 1 or part.sizes().sum() <= most
    for part, following in pairwise(cut):
        assert part.sizes().sum() + following.sizes()[0] > most, "no smaller than need be"
