"""Fetches the records of a micro-batch in Spark's Python processes, by the compiled reader of the native stages.

Spark's Kafka source says which offsets a micro-batch has, and the checkpoint keeps that. It would read record by
record, make a row of each and send all rows to Python.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from keygrouping_kafka.calls import given_up_calls, start
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.kafka import clients
from keygrouping_service.records.aiokafka_adapter import PartitionSource
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import DeadLetter, UndecodableError
from keygrouping_service.records.unpacking import LARGEST_OF_ANY, Unpacking

from keygrouping_spark.access import Access

_FETCH_WAIT_MS = 20
"""A sought position waits for the fetch that is on its way, which the broker holds for so long at a partition's end."""
_FETCH_BYTES = 4 << 20
_POLL_RECORDS, _POLL_SECONDS = 100_000, 0.2
_TIMEOUT_SECONDS = 120.0
"""Without progress for so long a task fails, as one of Spark's own source does."""

Found = TypeVar("Found")


class Range(NamedTuple):
    """Offsets of a partition: from `begin` to before `end`."""

    partition: int
    begin: int
    end: int


class BrokerAwayError(Exception):
    """What is wrong may pass by itself: the query may try again."""


class LostRecordsError(Exception):
    """The records of a micro-batch are not there any more."""


class UnreadableError(Exception):
    """What is there can't be read."""


@dataclass(frozen=True)
class Fetching:
    """A topic, and how to reach it."""

    access: Access
    topic: str

    def read(self, wanted: Range) -> Iterator[RecordBatch]:
        """All committed records of a range in their order: as a replay must find the same, all of them or an error.

        BrokerAwayError, LostRecordsError, UnreadableError; KafkaError and others if an attempt is as good as the next.
        """
        where = f"{self.topic}[{wanted.partition}]"
        try:
            yield from _client_of(self.access).read(TopicPartition(self.topic, wanted.partition), wanted)
        except OffsetOutOfRangeError:
            forget_client()
            raise LostRecordsError(
                f"{where} has not all of the offsets {wanted.begin} to {wanted.end - 1} any more, which a batch needs: "
                "they were deleted, or the topic was"
            ) from None
        except Exception as error:
            forget_client()
            if isinstance(error, KafkaError | TimeoutError | ConnectionError) and can_be_retried(error):
                raise BrokerAwayError(f"reading {where}: {error!r}") from error
            raise


class _Client:
    """A consumer whose event loop has a thread of its own: what comes next is fetched while a task computes."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._unpacking = Unpacking(LARGEST_OF_ANY)
        self._loop = asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, daemon=True).start()
        self._consumer = self._run(self._started())

    async def _started(self) -> AIOKafkaConsumer:
        consumer = clients.reader(
            self.access,
            wait_ms=_FETCH_WAIT_MS,
            unpacking=self._unpacking,
            max_partition_fetch_bytes=_FETCH_BYTES,
        )
        try:
            with given_up_calls():
                await start(consumer)
        except BaseException:
            await clients.close(consumer)
            raise
        return consumer

    def read(self, tp: TopicPartition, wanted: Range) -> Iterator[RecordBatch]:
        """See `Fetching.read`."""
        source = PartitionSource(self._consumer, tp, self._unpacking)
        self._run(self._seek(tp, wanted.begin))
        position, moved, doubted = wanted.begin, time.monotonic(), -1
        while position < wanted.end:
            try:
                batch, reached = self._run(_next(source))
            except UndecodableError as error:
                # It may have been damaged on its way: it is fetched a second time.
                if (offset := error.letter.record.offset) == doubted:
                    raise UnreadableError(_unreadable(tp, offset, error.letter.detail)) from None
                doubted = offset
                self._run(self._seek(tp, position))
                continue
            _refuse_left_out(tp, source.left_out(), wanted.end)
            if reached >= wanted.end:
                self._run(self._rest(tp))
            if rows := int(np.searchsorted(batch.offsets, wanted.end)):
                yield batch.cut(0, rows)
            if reached > position:
                position, moved = reached, time.monotonic()
            elif time.monotonic() > moved + _TIMEOUT_SECONDS:
                raise TimeoutError(f"nothing has come from offset {position} on for {_TIMEOUT_SECONDS:.0f} s")

    async def _seek(self, tp: TopicPartition, offset: int) -> None:
        self._consumer.assign([tp])
        self._consumer.seek(tp, offset)

    async def _rest(self, tp: TopicPartition) -> None:
        """Nothing more is fetched until the next task has its partition, for which no metadata are asked."""
        self._consumer.pause(tp)

    def close(self) -> None:
        """Ends it, whatever state it is in."""
        self._run(clients.close(self._consumer))
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, action: Coroutine[Any, Any, Found]) -> Found:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result()


async def _next(source: PartitionSource) -> tuple[RecordBatch, int]:
    """The next records, and where reading goes on."""
    with given_up_calls():
        return await source.poll(_POLL_RECORDS, _POLL_SECONDS), await source.position()


def _refuse_left_out(tp: TopicPartition, letters: Iterable[DeadLetter], end: int) -> None:
    for letter in letters:
        if letter.record.offset < end:
            raise UnreadableError(_unreadable(tp, letter.record.offset, letter.detail))


def _unreadable(tp: TopicPartition, offset: int, detail: str) -> str:
    return (
        f"{tp.topic}[{tp.partition}] has something at offset {offset} that can't be read ({detail}): no router has "
        "written it like that. With a new checkpoint and without the records up to there (kafka-delete-records) the "
        "job goes on behind the batch that it was in"
    )


_opened: list[_Client] = []
"""That of this process, once it has one: processes stay for many tasks."""


def _client_of(access: Access) -> _Client:
    if not _opened or _opened[0].access != access:
        forget_client()
        _opened.append(_Client(access))
    return _opened[0]


def forget_client() -> None:
    """Closes that of this process: what it is waiting for is nothing to the next task."""
    while _opened:
        _opened.pop().close()
