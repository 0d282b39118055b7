"""What a consumer of an app gives, beside what aiokafka gives: it relies on aiokafka's inside."""

from __future__ import annotations

import gc
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from weakref import ref

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchError, FetchResult, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from keygrouping_app import App, Event
from keygrouping_app.kafka.fetched import give_bare_records
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.reading import Reading

TP = TopicPartition("t", 3)
ROWS = [(b"k", b"v", 7, [("h", b"1"), ("h", None)]), (None, b"v", 8, []), (b"k", None, 9, [])]


def new_format(compression: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 1 << 16)
    for offset, (key, value, time, headers) in enumerate(ROWS):
        assert builder.append(offset, time, key, value, headers)
    return bytes(builder.build())


def moved(batch: bytes, first: int) -> bytes:
    """The same records from another offset on."""
    return first.to_bytes(8, "big") + batch[8:]


def old_format() -> bytes:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 16)
    for offset, (key, value, time, _) in enumerate(ROWS):
        assert builder.append(offset, time, key, value)
    return bytes(builder.build())


def result(data: bytes, first: int) -> FetchResult:
    records = PartitionRecords(TP, MemoryRecords(data), [], first, None, None, True, 1)
    state = SimpleNamespace(paused=False, position=first)
    state.consumed_to = lambda position: setattr(state, "position", position)
    assignment = SimpleNamespace(active=True, state_value=lambda _: state)
    return FetchResult(TP, assignment=assignment, partition_records=records, backoff=0.1)


def told(records: list[Any]) -> list[tuple[Any, ...]]:
    return [(each.offset, each.timestamp, each.key, each.value, [*each.headers]) for each in records]


@pytest.mark.parametrize("data", [new_format(), new_format(1), old_format()], ids=["new", "compressed", "old"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_bare_record_says_what_aiokafkas_says(data: bytes, first: int) -> None:
    fetcher = SimpleNamespace(_records=OrderedDict[TopicPartition, Any]())
    give_bare_records(SimpleNamespace(_fetcher=fetcher))
    fetcher._records[TP] = result(data, first)
    bare = fetcher._records[TP].getall()
    usual = result(data, first).getall(10)
    assert told(bare) == told(usual)
    assert len(bare) == len(ROWS) - first
    assert not any(isinstance(one, type(other)) for one, other in zip(bare, usual, strict=True))
    assert not fetcher._records[TP].has_more()


@pytest.mark.parametrize(
    "data",
    [new_format() + moved(new_format(), 5), new_format(1) + moved(new_format(1), 3), old_format() * 2],
    ids=["new", "compressed", "old"],
)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_it_goes_on_behind_the_records_that_were_given(data: bytes, first: int, most: int) -> None:
    """Whole batches are fetched, and as many records are given as there is room for."""
    fetcher = SimpleNamespace(_records=OrderedDict[TopicPartition, Any]())
    given = give_bare_records(SimpleNamespace(_fetcher=fetcher))
    given.rooms = {TP: most}
    fetcher._records[TP] = bare = result(data, first)
    usual = result(data, first)
    while usual.has_more():
        assert told(bare.getall()) == told(usual.getall(most))
        positions = [each._assignment.state_value(TP).position for each in (bare, usual)]
        assert positions[0] == positions[1] > first
    assert not bare.has_more()


def test_what_was_given_is_in_memory_no_longer() -> None:
    """Megabytes, of which the collector knows as a handful of objects."""
    fetcher = SimpleNamespace(_records=OrderedDict[TopicPartition, Any]())
    given = give_bare_records(SimpleNamespace(_fetcher=fetcher))
    gc.disable()
    try:
        given[TP] = result(new_format(), 0)
        left = [ref(given[TP]), ref(given[TP]._partition_records)]
        assert len(given[TP].getall()) == len(ROWS)
        del given[TP]
        assert [each() for each in left] == [None, None]
    finally:
        gc.enable()


def test_what_is_left_of_one_partition_holds_up_the_others_for_a_moment_only() -> None:
    """Until then nothing else of its broker is fetched, by default for 0.1 s."""
    given = give_bare_records(SimpleNamespace(_fetcher=SimpleNamespace()))
    assert result(new_format(), 0)._backoff == 0.1
    given[TP] = result(new_format(), 0)
    assert given[TP].calculate_backoff() <= 0.002


def test_what_waits_to_be_given_is_not_held_up_by_a_long_wait_for_others() -> None:
    """What comes after it is fetched once they are answered, as they are asked for on the same connection."""
    fetcher = SimpleNamespace(_fetch_max_wait_ms=500)
    given = give_bare_records(SimpleNamespace(_fetcher=fetcher))
    given.wait_for(100)
    given[TP] = result(new_format(), 0)
    assert fetcher._fetch_max_wait_ms == 10
    given.wait_for(100)
    assert fetcher._fetch_max_wait_ms == 100


async def test_while_nothing_has_room_brokers_wait_for_records_as_usual() -> None:
    app = App("group")

    @app.on("in")
    async def work(_: Event) -> None:
        pass

    (handler,) = app.handlers
    handling = Handling(app.settings(), {"in": (handler, app._lanes(handler, {}))}, {})
    fetcher: Any = SimpleNamespace(_fetch_max_wait_ms=500)
    reading = Reading(app.settings(), SimpleNamespace(_fetcher=fetcher), {}, handling, None)
    fetcher._records[TP] = result(new_format(), 0)
    await reading.read()
    assert fetcher._fetch_max_wait_ms == 100


def test_an_error_that_was_fetched_stays_one() -> None:
    fetcher = SimpleNamespace(_records=OrderedDict[TopicPartition, Any]())
    give_bare_records(SimpleNamespace(_fetcher=fetcher))
    error = FetchError(error=ValueError("gone"), backoff=0.1)
    fetcher._records[TP] = error
    assert fetcher._records[TP] is error


async def test_a_broker_is_asked_to_wait_as_long_as_it_is_told() -> None:
    fetcher = Fetcher(MagicMock(_metadata_max_age_ms=1000), MagicMock(), fetch_max_wait_ms=100)
    try:
        given = give_bare_records(SimpleNamespace(_fetcher=fetcher))
        assert fetcher._fetch_max_wait_ms == 100
        given.wait_for(10)
        assert fetcher._fetch_max_wait_ms == 10
    finally:
        fetcher._fetch_task.cancel()
