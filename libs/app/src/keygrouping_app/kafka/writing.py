"""Records to Kafka, and which of them a broker refuses for good.

A broker refuses a whole batch, however few of its records are to blame. So what was refused is sent again, each record
by itself, or in a transaction in smaller and smaller pieces. And a batch that was refused has used up numbers of an
idempotent producer that the broker never saw: it takes nothing of that producer for the partition any more, and another
producer has to go on. What was never sent, as its topic or its partition does not exist, has used up none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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
from keygrouping_app.kafka.clients import Settings, new_producer, started, timeout_within
from keygrouping_app.kafka.topics import MissingTopicError, Topics

log = logging.getLogger(__name__)

AT_ONCE: Mapping[str, int] = {}
"""All records of a topic."""
_LARGE = 100_000
"""Bytes of a record, after which others of the event loop have their turn."""
OF_TOPIC = (InvalidTopicError, MissingTopicError, TopicAuthorizationFailedError)
"""What refuses all records of a topic."""
_REFUSALS = (
    *OF_TOPIC,
    InvalidPartitionsError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)


class RefusedError(KafkaError):  # type: ignore[misc]
    """A broker has refused records for good.

    `why`: of those that are surely to blame, by their place. `together`: the places of others that were refused with
    them or in their batches; `topics`: theirs; `suspects`: those others, and what else of these topics is
    not written; `sent`: whether any of them was sent.
    """

    def __init__(
        self,
        why: Mapping[int, BaseException],
        suspects: Sequence[int],
        topics: frozenset[str],
        *,
        sent: bool,
        together: Sequence[int] = (),
    ) -> None:
        reasons = "; ".join(sorted({repr(each) for each in why.values()})) or "one of a batch, or all of it"
        super().__init__(f"records for {', '.join(sorted(topics))} are refused: {reasons}")
        self.why = why
        self.together = together
        self.suspects = suspects
        self.topics = topics
        self.sent = sent


class Writer:
    """Writes at least once. Use as an async context manager.

    `seconds`: how long an answer of a broker, or a leader, is waited for at most; None: as long as the app says.
    """

    def __init__(self, settings: Settings, topics: Topics, seconds: float | None = None) -> None:
        self._settings = settings
        self._topics = topics
        self._timeout = {} if seconds is None else timeout_within(settings, seconds)
        self._clients = AsyncExitStack()
        self._beginning = asyncio.Lock()
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
            await write_all(await self._begun(), outgoing, self._topics)
        except RefusedError as error:
            if error.sent:
                await self._end()
            return await self._write_alone(outgoing, error)
        except KafkaError as error:
            if not error.retriable:
                await self._end()
            raise
        return {}

    async def try_to_write(self, outgoing: Sequence[Outgoing]) -> Mapping[int, BaseException]:
        """Sends each record once, in no order; gives the errors of those that may not be written, by their place.

        May be called while another such call goes on: neither waits for the other.
        """
        producer, sent = await self._begun(), list[asyncio.Future[RecordMetadata]]()
        missing = await self._topics.missing(producer, {one.topic for one in outgoing})
        for one in outgoing:
            try:
                sent.append(_failed(missing[one.topic]) if one.topic in missing else await _sent(producer, one))
            except KafkaError as error:
                sent.append(_failed(error))
        results = await asyncio.gather(*sent, return_exceptions=True)
        failed = {place: each for place, each in enumerate(results) if isinstance(each, BaseException)}
        if failed and self._producer is producer:
            await self._end()
        return failed

    async def _write_alone(self, outgoing: Sequence[Outgoing], refused: RefusedError) -> dict[int, BaseException]:
        found = dict(refused.why)
        if not refused.suspects:
            return found
        # Without numbers, so that it goes on after a refusal.
        async with started(new_producer(self._settings)) as producer:
            for place in refused.suspects:
                try:
                    await write_all(producer, [outgoing[place]], self._topics)
                except RefusedError as error:
                    found[place] = error.why[0]
        return found

    async def _begun(self) -> AIOKafkaProducer:
        async with self._beginning:
            if self._producer is None:
                numbered = new_producer(self._settings, enable_idempotence=True, **self._timeout)
                self._producer = await self._clients.enter_async_context(started(numbered))
            return self._producer

    async def _end(self) -> None:
        clients, self._clients, self._producer = self._clients, AsyncExitStack(), None
        await clients.aclose()


async def write_all(
    producer: AIOKafkaProducer, outgoing: Sequence[Outgoing], topics: Topics, pieces: Mapping[str, int] = AT_ONCE
) -> list[int]:
    """Gives the offsets of all records, once they are written; what fails is named in the log by its topic.

    `pieces`: how many records of a topic are sent until those are written. RefusedError if a broker refuses some.
    """
    sent: list[asyncio.Future[RecordMetadata]] = []
    pending: defaultdict[str, list[asyncio.Future[RecordMetadata]]] = defaultdict(list)
    unsent: set[int] = set()
    ended: BaseException | None = None
    missing = await topics.missing(producer, {one.topic for one in outgoing})
    for place, one in enumerate(outgoing):
        if one.topic in missing:
            sent.append(_failed(missing[one.topic]))
            unsent.add(place)
            continue
        try:
            sent.append(await _sent(producer, one))
        except _REFUSALS as error:
            sent.append(_failed(error))
            unsent.add(place)
        except IllegalOperation as error:  # the transaction has failed; what was sent may tell why
            ended = error
            break
        if one.value is not None and len(one.value) > _LARGE:
            await asyncio.sleep(0)
        if one.topic in pieces and not await _is_fine(pending[one.topic], sent[-1], pieces[one.topic]):
            break
    # All are heard, so that none is told of as never looked at.
    results = await asyncio.gather(*sent, return_exceptions=True)
    failed = {place: each for place, each in enumerate(results) if isinstance(each, BaseException)}
    if failed:
        _raise(outgoing, failed, unsent, len(sent))
    if ended is not None:
        raise KafkaError("the transaction has ended") from ended
    return [written.offset for written in results if not isinstance(written, BaseException)]


async def _is_fine(
    pending: list[asyncio.Future[RecordMetadata]], last: asyncio.Future[RecordMetadata], most: int
) -> bool:
    """Whether records go on: once so many of a topic are pending, when they are written."""
    pending.append(last)
    if len(pending) < most:
        return True
    await asyncio.wait(pending)
    fine = all(each.exception() is None for each in pending)
    pending.clear()
    return fine


def _raise(outgoing: Sequence[Outgoing], failed: Mapping[int, BaseException], unsent: set[int], tried: int) -> None:
    refused = {place: error for place, error in failed.items() if _is_refusal(error, outgoing[place])}
    topics = {outgoing[place].topic for place in failed}
    if not refused:
        error = next(iter(failed.values()))
        log.warning("records for %s are not written: %r", ", ".join(sorted(topics)), error)
        raise error
    of_topic = {outgoing[place].topic: error for place, error in refused.items() if isinstance(error, OF_TOPIC)}
    why = {place: of_topic[one.topic] for place, one in enumerate(outgoing) if one.topic in of_topic}
    # A batch fails as a whole, so one that is the only one of its topic to fail so was alone in it.
    alike = Counter((outgoing[place].topic, type(error)) for place, error in failed.items() if place not in unsent)
    for place, error in refused.items():
        if place in unsent or alike[outgoing[place].topic, type(error)] == 1:
            why[place] = error
    left = [place for place in range(len(outgoing)) if place in failed or place >= tried]
    suspects = [place for place in left if outgoing[place].topic in topics and place not in why]
    together = [place for place in refused if place not in why]
    named = frozenset(outgoing[place].topic for place in refused)
    raise RefusedError(why, suspects, named, sent=not failed.keys() <= unsent, together=together)


def _is_refusal(error: BaseException, one: Outgoing) -> bool:
    """An error that the client does not know is what a compacted topic answers to a record without a key."""
    return isinstance(error, _REFUSALS) or (type(error) is UnknownError and one.key is None)


async def _sent(producer: AIOKafkaProducer, one: Outgoing) -> asyncio.Future[RecordMetadata]:
    """Raises for what isn't sent, as it would be refused."""
    if one.partition is not None and not await _has_partition(producer, one.topic, one.partition):
        raise InvalidPartitionsError(f"topic {one.topic!r} has no partition {one.partition}")
    time = one.time if one.time >= 0 else None
    sent: asyncio.Future[RecordMetadata] = await producer.send(
        one.topic, one.value, one.key, one.partition, time, headers=list(one.headers)
    )
    return sent


def _failed(error: BaseException) -> asyncio.Future[RecordMetadata]:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


async def _has_partition(producer: AIOKafkaProducer, topic: str, partition: int) -> bool:
    if partition in await producer.partitions_for(topic):
        return True
    await producer.client.force_metadata_update()  # it may be a new one
    return partition in await producer.partitions_for(topic)
