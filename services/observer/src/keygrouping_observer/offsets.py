"""A look at offsets: how far the workers are, and where `partials` ends."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_service.kafka.progress import partitions_of, read_progress
from keygrouping_service.kafka.topic_ids import UNKNOWN, read_topic_ids, topic_id_text
from keygrouping_service.settings import StagesSettings

from keygrouping_observer.identities import Source


class Look(NamedTuple):
    """What was found, in the order in which it was asked for: whoever has read `ends` has read all that the workers
    had written when they had committed `committed`."""

    at: int
    """When the look began, in ms."""
    committed: dict[Source, int]
    """By id and partition of `events` and `routed`, if anything is committed: the offset of the next event. Workers may
    have read the other topic before, and may do so again."""
    lags: list[int]
    """By partition of the topic that workers read now: offsets (transaction markers among them) that its worker has not
    processed."""
    ends: dict[int, int]
    """By partition of `partials`: its end, open transactions included."""
    topics: frozenset[str] = frozenset()
    """The ids of topics that partials still come of; empty while nothing is committed in the one that workers read."""
    aggregated: str = UNKNOWN
    """The id of the topic that workers read now."""
    names: Mapping[str, str] = MappingProxyType({})
    """The names of `events` and `routed`, as far as there are such topics, by their ids. Without ids: of the topic that
    workers read now."""


async def look(settings: StagesSettings, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer, now: int) -> Look:
    """Asks the broker; `probe` reads uncommitted, `now` is the time in ms. Raises Kafka errors."""
    (_, topic), partials = settings.aggregated, settings.partials_topic
    groups = {settings.events_topic: settings.group("router"), settings.routed_topic: settings.group("worker")}
    ids = {name: topic_id_text(found) for name, found in (await read_topic_ids(admin, groups)).items()}
    progress = {name: await read_progress(admin, groups[name], name, await partitions_of(admin, name)) for name in ids}
    committed = {
        (entry.topic_id, worker): entry.offset
        for entries in progress.values()
        for worker, entry in entries.items()
        if entry.offset is not None
    }
    workers = progress.get(topic, {})
    tps = [TopicPartition(partials, partition) for partition in await partitions_of(admin, partials)]
    ends = await probe.end_offsets([*tps, *(TopicPartition(topic, worker) for worker in workers)])
    lags = [max(0, ends[TopicPartition(topic, worker)] - (entry.offset or 0)) for worker, entry in workers.items()]
    known = any(entry.offset is not None for entry in workers.values())
    topics = frozenset({*ids.values(), *(topic_id for topic_id, _ in committed)} if known else ())
    names = {ids[name]: name for name in sorted(ids, key=lambda name: name == topic)}
    of_partials = {tp.partition: ends[tp] for tp in tps}
    return Look(now, committed, lags, of_partials, topics, ids.get(topic, UNKNOWN), names)
