"""Reads what comes to a topic, slice by slice of time, so that every record has the same chance to be seen."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping.inspection import Range

from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.kafka.topic_fetching import WAIT_MS, Fetching, KeptEvent
from keygrouping_service.kafka.topic_ids import read_topic_id, same_topic
from keygrouping_service.records.aiokafka_adapter import create_no_topics
from keygrouping_service.records.record import Record
from keygrouping_service.settings import ServiceSettings

MOST = 50_000
"""Offsets of a slice that are read, of all partitions together."""

_SECONDS = 1.0
_LOOK_SECONDS = 10.0
"""How often it is asked whether the topic is still the same, and has more partitions."""
_FETCH_BYTES = 512 << 10
_ANSWER_BYTES = 8 << 20


class TopicGone(Exception):
    """The topic was deleted, or another one has its name by now."""


class Slice(NamedTuple):
    """The records that came within about a second, or the last ones of each partition, the same part of all."""

    events: list[KeptEvent]
    partitions: int
    """Of the topic."""
    scale: float
    """Offsets that there were for each that was read."""


class TopicSlices:
    """A topic from now on. Memory: one slice, and what was fetched."""

    def __init__(self, settings: ServiceSettings, topic: str, kept: Callable[[Record], KeptEvent], most: int) -> None:
        self._settings = settings
        self._topic = topic
        self._kept = kept
        self._most = most

    async def topic_id(self) -> str:
        """The topic's id as text; UnknownTopicOrPartitionError if there is no such topic."""
        async with clients.started(clients.admin(self._settings)) as admin:
            return await read_topic_id(admin, self._topic)

    async def slices(self, topic_id: str) -> AsyncGenerator[Slice, None]:
        """What comes to the topic of this id; TopicGone when it is gone, a KafkaError or OSError if Kafka is."""
        source = clients.source(
            self._settings,
            wait_ms=WAIT_MS,
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_bytes=_ANSWER_BYTES,
        )
        create_no_topics(source.consumer)
        async with clients.started(clients.admin(self._settings)) as admin, clients.started(source.consumer):
            reading = _Reading(admin, self._topic, Fetching(source, self._kept), self._most)
            await reading.look(topic_id)
            looked = time.monotonic()
            while True:
                began = time.monotonic()
                if began - looked > _LOOK_SECONDS:
                    await reading.look(topic_id)
                    looked = began
                yield await reading.next()
                await asyncio.sleep(max(0.0, began + _SECONDS - time.monotonic()))


class _Reading:
    """The topic's partitions, and up to where each was read."""

    def __init__(self, admin: AIOKafkaAdminClient, topic: str, fetching: Fetching, most: int) -> None:
        self._admin = admin
        self._consumer = fetching.consumer
        self._topic = topic
        self._fetching = fetching
        self._most = most
        self._places: dict[TopicPartition, int] = {}

    async def look(self, topic_id: str) -> None:
        """Takes those that are there, from now on; later those that were added, from their beginning."""
        if not same_topic(await read_topic_id(self._admin, self._topic), topic_id):
            raise TopicGone(f"topic {self._topic} was created again")
        tps = [TopicPartition(self._topic, number) for number in await partitions_of(self._admin, self._topic)]
        added = [tp for tp in tps if tp not in self._places]
        if not added:
            return
        self._consumer.assign(tps)
        self._places |= dict.fromkeys(added, 0) if self._places else await self._consumer.end_offsets(added)
        self._fetching.seek(self._places)

    async def next(self) -> Slice:
        """What has come since the last slice."""
        ends = await self._consumer.end_offsets(list(self._places))
        sizes = {tp: max(0, ends[tp] - place) for tp, place in self._places.items()}
        part = min(1.0, self._most / max(1, sum(sizes.values())))
        ranges = {tp: Range(ends[tp] - math.ceil(part * size), ends[tp]) for tp, size in sizes.items()}
        if part < 1:
            self._fetching.seek({tp: wanted.start for tp, wanted in ranges.items()})
        events = await self._fetching.read(ranges)
        self._places |= ends
        return Slice(events, len(self._places), sum(sizes.values()) / max(1, sum(map(len, ranges.values()))))
