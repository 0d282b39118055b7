"""Where the observer's reading begins."""

from __future__ import annotations

import logging
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.kafka.topic_ids import read_topic_id, same_topic
from keygrouping_service.observability.metrics import EXPIRED_OFFSETS
from keygrouping_service.records.aiokafka_adapter import PartitionsSource

from keygrouping_observer.settings import ObserverSettings
from keygrouping_observer.snapshots import KEPT
from keygrouping_observer.state import LaneState, RunState

log = logging.getLogger(__name__)

_OFFSETS_PER_SNAPSHOT = 2  # its own, and that of its transaction's marker
_WAIT_SECONDS = 0.2


async def read_snapshots(source: PartitionsSource, topic: str, observer: str) -> list[dict[str, Any]]:
    """The snapshots that this observer has written last, the oldest first; one that can't be read is told."""
    tp, reader = TopicPartition(topic, 0), source.consumer
    (first,) = (await reader.beginning_offsets([tp])).values()
    (end,) = (await reader.end_offsets([tp])).values()
    reader.assign([tp])
    reader.seek(tp, max(first, end - _OFFSETS_PER_SNAPSHOT * KEPT))
    found: list[dict[str, Any]] = []
    while await reader.position(tp) < end:
        for record in (await source.poll(tp, most=KEPT, timeout=_WAIT_SECONDS)).get(tp, ()):
            if record.key == observer.encode():
                found.append(orjson.loads(record.value or b""))
        for letter in source.left_out():
            log.warning("%s[0]: offset %d is no snapshot to show: %s", topic, letter.offset, letter.detail)
    return found[-KEPT:]


async def place(
    reader: AIOKafkaConsumer, owned: OwnedPartition, settings: ObserverSettings, state: RunState
) -> list[int]:
    """Assigns the partitions of `partials` to the reader, each where the state says; gives their numbers.

    A partition without state begins with its first record. What retention has deleted unread is told and passed over.
    """
    topic = settings.partials_topic
    topic_id = await read_topic_id(owned.admin, topic)
    if state.partials and not same_topic(state.partials, topic_id):
        raise Fatal(
            f"topic {topic} was deleted and created again (its id was {state.partials}, is {topic_id}): delete "
            f"{settings.state_topic} to begin a new run"
        )
    state.partials = topic_id
    tps = [TopicPartition(topic, partition) for partition in await partitions_of(owned.admin, topic)]
    firsts, ends = await reader.beginning_offsets(tps), await reader.end_offsets(tps)
    reader.assign(tps)
    for tp in tps:
        known = tp.partition in state.lanes
        lane = state.lanes.setdefault(tp.partition, LaneState())
        if ends[tp] < lane.next:
            raise Fatal(
                f"{topic}[{tp.partition}] ends before offset {lane.next}, up to which it has been counted: it has lost "
                f"records. Delete {settings.state_topic} to begin a new run"
            )
        if known and firsts[tp] > lane.next:
            log.error("%s[%d]: retention deleted %d offsets unread", topic, tp.partition, firsts[tp] - lane.next)
            EXPIRED_OFFSETS.labels(settings.group("observer")).inc(firsts[tp] - lane.next)
        lane.next = max(lane.next, firsts[tp])
        lane.again = max(lane.again, firsts[tp])
        reader.seek(tp, lane.again)
    return [tp.partition for tp in tps]
