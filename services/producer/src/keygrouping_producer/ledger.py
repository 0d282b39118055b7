"""Reads where the replay stands from the broker, after making sure that nobody can move it any more."""

from __future__ import annotations

import asyncio

from aiokafka import TopicPartition
from aiokafka.errors import CoordinatorLoadInProgressError, UnknownTopicOrPartitionError
from keygrouping_service import kafka
from keygrouping_service.progress import partitions_of

from keygrouping_producer.position import Place
from keygrouping_producer.settings import MOST_PROCESSES, ProducerSettings

_FENCED_AT_ONCE = 8


async def read_places(settings: ProducerSettings) -> tuple[dict[int, Place | None], int]:
    """What is committed for each partition of the events topic, and how many partitions it has."""
    topic = settings.events_topic
    async with kafka.started(kafka.admin(settings)) as admin:
        partitions = [TopicPartition(topic, partition) for partition in await partitions_of(admin, topic)]
        if not partitions:
            raise UnknownTopicOrPartitionError(f"there is no topic {topic!r} yet")
        found = await admin.list_consumer_group_offsets(settings.positions_group, partitions=partitions)
    if any(partition not in found for partition in partitions):
        raise CoordinatorLoadInProgressError(f"offsets of group {settings.positions_group!r} are not available yet")
    return {tp.partition: Place.decode(found[tp]) for tp in partitions}, len(partitions)


async def fence_predecessors(settings: ProducerSettings, first: int) -> None:
    """Shuts out the slots from `first` on that earlier starts may have used, and settles their transactions.

    There are no more slots than partitions, or than processes may be. An earlier start may have ended before it had
    recorded how many it had.
    """
    _, partitions = await read_places(settings)
    at_once = asyncio.Semaphore(_FENCED_AT_ONCE)

    async def fence(slot: int) -> None:
        identity = settings.transactional_id("producer", slot)
        async with at_once, kafka.started(kafka.producer(settings, transactional_id=identity)):
            pass

    try:
        async with asyncio.TaskGroup() as group:
            for slot in range(first, min(partitions, MOST_PROCESSES)):
                group.create_task(fence(slot))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
