"""What a consumer of an app gives, beside what aiokafka gives: it relies on aiokafka's inside."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchError, FetchResult, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from keygrouping_app.kafka.fetched import give_bare_records

TP = TopicPartition("t", 3)
ROWS = [(b"k", b"v", 7, [("h", b"1"), ("h", None)]), (None, b"v", 8, []), (b"k", None, 9, [])]


def new_format(compression: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 1 << 16)
    for offset, (key, value, time, headers) in enumerate(ROWS):
        assert builder.append(offset, time, key, value, headers)
    return bytes(builder.build())


def old_format() -> bytes:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 16)
    for offset, (key, value, time, _) in enumerate(ROWS):
        assert builder.append(offset, time, key, value)
    return bytes(builder.build())


def result(data: bytes, first: int) -> FetchResult:
    records = PartitionRecords(TP, MemoryRecords(data), [], first, None, None, True, 1)
    state = SimpleNamespace(paused=False, position=first, consumed_to=lambda _: None)
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
    bare = fetcher._records[TP].getall(10)
    usual = result(data, first).getall(10)
    assert told(bare) == told(usual)
    assert len(bare) == len(ROWS) - first
    assert not any(isinstance(one, type(other)) for one, other in zip(bare, usual, strict=True))
    assert not fetcher._records[TP].has_more()


def test_an_error_that_was_fetched_stays_one() -> None:
    fetcher = SimpleNamespace(_records=OrderedDict[TopicPartition, Any]())
    give_bare_records(SimpleNamespace(_fetcher=fetcher))
    error = FetchError(error=ValueError("gone"), backoff=0.1)
    fetcher._records[TP] = error
    assert fetcher._records[TP] is error
