"""Reads where the replay stands from the broker, after making sure that nobody can move it any more."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka.errors import CoordinatorLoadInProgressError, UnknownTopicOrPartitionError
from keygrouping_service import kafka
from keygrouping_service.progress import partitions_of

from keygrouping_producer.position import Place
from keygrouping_producer.settings import ProducerSettings


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
    """Shuts out the slots from `first` on that earlier starts have used, and settles their transactions."""
    stored, _ = await read_places(settings)
    slots = max((place.run.slots for place in stored.values() if place), default=0)
    for slot in range(first, slots):
        async with kafka.started(
            kafka.producer(settings, transactional_id=settings.transactional_id("producer", slot))
        ):
            pass
