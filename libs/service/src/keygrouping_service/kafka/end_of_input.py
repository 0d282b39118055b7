"""Declares a finite input finished, so that all of its windows become final."""

from __future__ import annotations

from contextlib import AsyncExitStack

from aiokafka import AIOKafkaConsumer, TopicPartition

from keygrouping_service.kafka import clients
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import END, Committed, Progress, commit_progress, partitions_of
from keygrouping_service.kafka.starts import read_last
from keygrouping_service.kafka.topic_ids import read_topic_id
from keygrouping_service.settings import ServiceSettings


class InputNotRoutedError(RuntimeError):
    """An input can't be declared finished while the routers have not committed all of it."""


async def finish_input(settings: ServiceSettings) -> None:
    """Declares that no more events will come, so that all windows become final.

    To be called when the application's routers have consumed all events and have stopped: every partition's progress
    becomes END. Raises InputNotRoutedError if events are left that no router has committed (they would be lost for the
    results), a KafkaError if the group still has members.
    """
    group, topic = settings.group("router"), settings.events_topic
    positions = Positions(settings, group)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(clients.started(clients.admin(settings)))
        probe = await stack.enter_async_context(clients.started(clients.reader(settings, committed=False)))
        producer = await stack.enter_async_context(clients.started(clients.producer(settings)))
        member = AIOKafkaConsumer(**settings.kafka_options(), group_id=group, enable_auto_commit=False)
        await stack.enter_async_context(clients.started(member))
        partitions = [TopicPartition(topic, p) for p in await partitions_of(admin, topic)]
        member.assign(partitions)
        ends = await probe.end_offsets(partitions)
        last = await clients.retry(
            lambda: read_last(admin, probe, positions, group, partitions), f"reading group {group}"
        )
        behind = sorted(tp.partition for tp, end in ends.items() if (last[tp].committed.offset or 0) < end)
        if behind:
            raise InputNotRoutedError(f"topic {topic!r} is not routed up to its end in partitions {behind}")
        topic_id = await read_topic_id(admin, topic)
        finished = {tp.partition: Committed(end, Progress(END), topic_id) for tp, end in ends.items()}
        await commit_progress(member, topic, finished)
        await positions.send(producer, [(TopicPartition(topic, p), entry.encode()) for p, entry in finished.items()])
