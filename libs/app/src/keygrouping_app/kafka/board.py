"""What members tell each other of themselves: of each the last word counts, and who says nothing is forgotten.

Order between members means nothing, so nothing is fenced: whoever listens knows a while later what others know. It is a
topic here, so that nothing but Kafka is needed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Protocol, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from keygrouping_app.kafka.clients import Settings, new_producer, started

log = logging.getLogger(__name__)


class Board(Protocol):
    """One member's view of what all tell; it tells only what it has listened to."""

    async def tell(self, member: str, value: bytes) -> None:
        """Replaces what a member has told. KafkaError."""

    async def hear(self, seconds: float) -> None:
        """Takes note of what is told within this time, and returns early when something was. KafkaError."""

    def told(self, seconds: float) -> list[bytes]:
        """The last values of all members that have told one within so many seconds, the latest at the end."""

    async def withdraw(self, member: str) -> None:
        """The member ends: nothing that it has told counts any more, once others listen."""


class SlotsBoard(Board, Protocol):
    """One that also answers where slots end."""

    async def ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Behind the last records there are, committed or not. KafkaError."""


class TopicBoard:
    """A topic of which only the last record of each member counts, read from its end on. Use as an async context
    manager.

    `seconds`: who has not listened for so long begins at the end, as it can't know any more who is still there.
    """

    def __init__(self, settings: Settings, topic: str, seconds: float) -> None:
        self._settings = settings
        self._place = TopicPartition(topic, 0)
        self._seconds = seconds
        self._told: dict[bytes, tuple[float, bytes]] = {}
        self._clients = AsyncExitStack()
        self._clock = asyncio.get_running_loop().time
        self._listened = self._clock()

    async def __aenter__(self) -> Self:
        self._producer = await self._clients.enter_async_context(started(self._new_producer()))
        consumer = AIOKafkaConsumer(
            **self._settings.connection,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            # So the ends of slots are those of all that was written there, whatever is open.
            isolation_level="read_uncommitted",
        )
        self._consumer = await self._clients.enter_async_context(started(consumer))
        consumer.assign([self._place])
        await consumer.seek_to_end(self._place)
        return self

    def _new_producer(self) -> AIOKafkaProducer:
        """What a member tells is read by all of them, and much of it is the same word again."""
        return new_producer(self._settings, **{"compression_type": "gzip", **self._settings.options})

    async def __aexit__(self, *exception: object) -> None:
        await self._clients.aclose()

    async def tell(self, member: str, value: bytes | None) -> None:
        """See `Board`. None: it tells nothing any more."""
        await self._producer.send_and_wait(self._place.topic, value, member.encode(), self._place.partition)

    async def hear(self, seconds: float) -> None:
        """See `Board`."""
        if self._clock() - self._listened > self._seconds:
            await self._consumer.seek_to_end(self._place)
            self._told.clear()
        for raws in (await self._consumer.getmany(timeout_ms=int(1000 * seconds))).values():
            for raw in raws:
                self._told.pop(raw.key, None)
                if raw.value is not None and raw.key is not None:
                    self._told[raw.key] = self._clock(), raw.value
        self._listened = self._clock()

    def told(self, seconds: float) -> list[bytes]:
        """See `Board`."""
        since = self._clock() - seconds
        self._told = {member: each for member, each in self._told.items() if each[0] >= since}
        return [value for _, value in self._told.values()]

    async def ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """See `SlotsBoard`."""
        found: dict[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        return found

    async def withdraw(self, member: str) -> None:
        """See `Board`. If it can't be told, the member is forgotten after a while."""
        try:
            async with asyncio.timeout(self._seconds):
                await self.tell(member, None)
        except (KafkaError, TimeoutError) as error:
            log.warning("members are not told that this one ends: %r", error)
