"""Reads where the replay stands from the broker, after making sure that nobody can move it any more."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError
from keygrouping_kafka.calls import together
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import partitions_of, read_offsets
from keygrouping_service.kafka.topic_ids import read_topic_id

from keygrouping_producer.position import Place
from keygrouping_producer.settings import MOST_PROCESSES, ProducerSettings

_FENCED_AT_ONCE = 8


class Stored(NamedTuple):
    """What is committed for each partition of the events topic, how many partitions it has, and its id."""

    places: dict[int, Place | None]
    partitions: int
    topic_id: str


def copy_of(settings: ProducerSettings, topic_id: str, partition: int) -> TopicPartition:
    """What the copy of a partition's position is kept under: a topic that is created again is filled from the start."""
    return TopicPartition(f"{settings.events_topic} {topic_id}", partition)


async def read_places(settings: ProducerSettings, share: tuple[int, int] | None = None) -> Stored:
    """Where the replay stands; the copies count where the broker has forgotten the positions.

    A transaction's positions can be seen some time after it has ended. For a `share` (slot, slots) this waits until
    those of the slot's partitions can: whoever goes on from them must have fenced the slot before. A retriable
    KafkaError after 15 s.
    """
    topic, group = settings.events_topic, settings.positions_group
    async with (
        clients.started(clients.admin(settings)) as admin,
        clients.started(clients.reader(settings, committed=False)) as probe,
    ):
        partitions = [TopicPartition(topic, partition) for partition in await partitions_of(admin, topic)]
        if not partitions:
            raise UnknownTopicOrPartitionError(f"there is no topic {topic!r} yet")
        topic_id = await read_topic_id(admin, topic)
        if share is not None:
            slot, slots = share
            await read_offsets(admin, group, [tp for tp in partitions if tp.partition % slots == slot], stable=True)
        found = await read_offsets(admin, group, partitions)
        missing = {tp: copy_of(settings, topic_id, tp.partition) for tp, entry in found.items() if entry.offset < 0}
        copies = await Positions(settings, group).find(admin, probe, missing.values()) if missing else {}
    found |= {tp: copies[copy] for tp, copy in missing.items() if copy in copies}
    return Stored({tp.partition: Place.decode(found[tp]) for tp in partitions}, len(partitions), topic_id)


async def fence_predecessors(settings: ProducerSettings, first: int) -> None:
    """Shuts out the slots from `first` on that earlier starts may have used, and ends their transactions.

    There are no more slots than partitions, or than processes may be. An earlier start may have ended before it had
    recorded how many it had.
    """
    partitions = (await read_places(settings)).partitions
    at_once = asyncio.Semaphore(_FENCED_AT_ONCE)

    async def fence(slot: int) -> None:
        identity = settings.transactional_id("producer", slot)
        async with at_once, clients.started(clients.producer(settings, transactional_id=identity)):
            pass

    await together(fence(slot) for slot in range(first, min(partitions, MOST_PROCESSES)))
