"""A look at offsets: how far the workers are, and where `partials` ends."""

from __future__ import annotations

from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_service.kafka.progress import partitions_of, read_progress
from keygrouping_service.settings import ServiceSettings

from keygrouping_observer.identities import Source


class Look(NamedTuple):
    """What was found, in the order in which it was asked for: whoever has read `ends` has read all that the workers
    had written when they had committed `committed`."""

    at: int
    """When the look began, in ms."""
    committed: dict[Source, int]
    """By id of `routed` and worker, if it has committed anything: the offset of its next event."""
    lags: list[int]
    """By partition of `routed`: offsets (transaction markers among them) that the worker has not processed."""
    ends: dict[int, int]
    """By partition of `partials`: its end, open transactions included."""


async def look(settings: ServiceSettings, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer, now: int) -> Look:
    """Asks the broker; `probe` reads uncommitted, `now` is the time in ms. Raises Kafka errors."""
    routed, partials = settings.routed_topic, settings.partials_topic
    workers = await partitions_of(admin, routed)
    progress = await read_progress(admin, settings.group("worker"), routed, workers)
    committed = {(e.topic_id, worker): e.offset for worker, e in progress.items() if e.offset is not None}
    tps = [TopicPartition(partials, partition) for partition in await partitions_of(admin, partials)]
    ends = await probe.end_offsets([*tps, *(TopicPartition(routed, worker) for worker in workers)])
    lags = [ends[TopicPartition(routed, worker)] - (progress[worker].offset or 0) for worker in workers]
    return Look(now, committed, [max(0, lag) for lag in lags], {tp.partition: ends[tp] for tp in tps})
