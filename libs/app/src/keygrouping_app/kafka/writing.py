"""Records to Kafka, and which of them a broker refuses for good.

A broker refuses a whole batch, however few of its records are to blame. So what was refused is sent again, each record
by itself. And a batch that was refused has used up numbers of an idempotent producer that the broker never saw: it
takes nothing of that producer for the partition any more, and another producer has to go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    IllegalOperation,
    InvalidPartitionsError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnsupportedForMessageFormatError,
)
from aiokafka.structs import RecordMetadata

from keygrouping_app.events import Outgoing
from keygrouping_app.kafka.clients import Settings, new_producer, started

log = logging.getLogger(__name__)

_OF_TOPIC = (InvalidTopicError, TopicAuthorizationFailedError)
"""What refuses all records of a topic."""
_REFUSALS = (
    *_OF_TOPIC,
    InvalidPartitionsError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)


class RefusedError(KafkaError):  # type: ignore[misc]
    """A broker has refused records for good.

    `why`: of those that are surely to blame, by their place. `suspects`: the places of those that were refused
    together, and of what comes after them in their topics; `topics`: theirs.
    """

    def __init__(self, why: Mapping[int, BaseException], suspects: Sequence[int], topics: frozenset[str]) -> None:
        super().__init__(f"records for {', '.join(sorted(topics))} are refused")
        self.why = why
        self.suspects = suspects
        self.topics = topics


class Writer:
    """Writes at least once. Use as an async context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients = AsyncExitStack()
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        await self._begun()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._end()

    async def write(self, outgoing: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        """Gives why records are refused for good, by their place; all others are written when it returns.

        After an error some are written.
        """
        if not outgoing:
            return {}
        try:
            await write_all(await self._begun(), outgoing)
        except RefusedError as error:
            await self._end()
            return await self._write_alone(outgoing, error)
        except KafkaError as error:
            if not error.retriable:
                await self._end()
            raise
        return {}

    async def _write_alone(self, outgoing: Sequence[Outgoing], refused: RefusedError) -> dict[int, BaseException]:
        found = dict(refused.why)
        # Without numbers, so that it goes on after a refusal.
        async with started(new_producer(self._settings)) as producer:
            for place in refused.suspects:
                try:
                    await write_all(producer, [outgoing[place]])
                except RefusedError as error:
                    found[place] = error.why[0]
        return found

    async def _begun(self) -> AIOKafkaProducer:
        if self._producer is None:
            numbered = new_producer(self._settings, enable_idempotence=True)
            self._producer = await self._clients.enter_async_context(started(numbered))
        return self._producer

    async def _end(self) -> None:
        clients, self._clients, self._producer = self._clients, AsyncExitStack(), None
        await clients.aclose()


async def write_all(
    producer: AIOKafkaProducer, outgoing: Sequence[Outgoing], alone: Container[str] = frozenset()
) -> list[int]:
    """Gives the offsets of all records, once they are written; what fails is named in the log by its topic.

    `alone`: topics of which a record is sent when the one before is written. RefusedError if a broker refuses some.
    """
    sent: list[asyncio.Future[RecordMetadata]] = []
    ended: BaseException | None = None
    for one in outgoing:
        try:
            sent.append(await _sent(producer, one))
        except IllegalOperation as error:  # the transaction has failed; what was sent may tell why
            ended = error
            break
        if one.topic in alone:
            await asyncio.wait(sent[-1:])
            if sent[-1].exception() is not None:
                break
    # All are heard, so that none is told of as never looked at.
    results = await asyncio.gather(*sent, return_exceptions=True)
    failed = {place: each for place, each in enumerate(results) if isinstance(each, BaseException)}
    if failed:
        _raise(outgoing, failed, alone)
    if ended is not None:
        raise KafkaError("the transaction has ended") from ended
    return [written.offset for written in results if not isinstance(written, BaseException)]


def _raise(outgoing: Sequence[Outgoing], failed: Mapping[int, BaseException], alone: Container[str]) -> None:
    refused = {place: error for place, error in failed.items() if _is_refusal(error, outgoing[place])}
    topics = frozenset(outgoing[place].topic for place in failed)
    if not refused:
        error = next(iter(failed.values()))
        log.warning("records for %s are not written: %r", ", ".join(sorted(topics)), error)
        raise error
    of_topic = {outgoing[place].topic: error for place, error in refused.items() if isinstance(error, _OF_TOPIC)}
    why = {place: of_topic[one.topic] for place, one in enumerate(outgoing) if one.topic in of_topic}
    for place, error in refused.items():
        if len(outgoing) == 1 or outgoing[place].topic in alone or isinstance(error, InvalidPartitionsError):
            why[place] = error
    first = min(failed)
    suspects = [n for n, one in enumerate(outgoing) if n >= first and one.topic in topics and n not in why]
    raise RefusedError(why, suspects, topics)


def _is_refusal(error: BaseException, one: Outgoing) -> bool:
    """An error that the client does not know is what a compacted topic answers to a record without a key."""
    return isinstance(error, _REFUSALS) or (type(error) is UnknownError and one.key is None)


async def _sent(producer: AIOKafkaProducer, one: Outgoing) -> asyncio.Future[RecordMetadata]:
    """A future that fails at once for what isn't sent, as it would be refused."""
    try:
        if one.partition is not None and not await _has_partition(producer, one.topic, one.partition):
            raise InvalidPartitionsError(f"topic {one.topic!r} has no partition {one.partition}")
        time = one.time if one.time >= 0 else None
        sent: asyncio.Future[RecordMetadata] = await producer.send(
            one.topic, one.value, one.key, one.partition, time, headers=list(one.headers)
        )
    except _REFUSALS as error:
        sent = asyncio.get_running_loop().create_future()
        sent.set_exception(error)
    return sent


async def _has_partition(producer: AIOKafkaProducer, topic: str, partition: int) -> bool:
    if partition in await producer.partitions_for(topic):
        return True
    await producer.client.force_metadata_update()  # it may be a new one
    return partition in await producer.partitions_for(topic)
