"""Where a stage goes on: at what its group has committed, if that can be believed.

A missing offset is a first start only if there is no copy of one either (see `keygrouping_service.kafka.positions`),
and an offset is one of the topic of today only if the topic still has the id that was committed with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import Committed, read_progress
from keygrouping_service.kafka.topic_ids import read_topic_id, same_topic
from keygrouping_service.settings import PREFIX, ServiceSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """Offset (None: the beginning), progress and topic id; `moved`: it is not what the broker holds, so commit it."""

    committed: Committed
    moved: bool = False


async def read_last(
    admin: AIOKafkaAdminClient,
    probe: AIOKafkaConsumer,
    positions: Positions,
    group: str,
    tps: Iterable[TopicPartition],
    *,
    stable: bool = True,
) -> dict[TopicPartition, Start]:
    """What a group has committed last in partitions of one topic, the copy where the broker has forgotten the offset.

    `stable` as for `read_offsets`.
    """
    wanted = list(tps)
    if not wanted:
        return {}
    topic = wanted[0].topic
    committed = await read_progress(admin, group, topic, [tp.partition for tp in wanted], stable=stable)
    found = {tp: Start(committed[tp.partition]) for tp in wanted}
    missing = [tp for tp, start in found.items() if start.committed.offset is None]
    copies = await positions.find(admin, probe, missing) if missing else {}
    return found | {tp: Start(Committed.decode(copy), moved=True) for tp, copy in copies.items()}


async def find_starts(
    admin: AIOKafkaAdminClient,
    probe: AIOKafkaConsumer,
    settings: ServiceSettings,
    positions: Positions,
    group: str,
    tps: Iterable[TopicPartition],
) -> dict[TopicPartition, Start]:
    """Where a group goes on in partitions of one topic; the id of each is that of the topic now.

    `Fatal` where its position is not one of this topic, unless the setting says to begin again in it: then that
    partition's offset is None, and the progress stays, so that what is final stays so.
    """
    found = await read_last(admin, probe, positions, group, tps)
    if not found:
        return {}
    topic_id = await read_topic_id(admin, next(iter(found)).topic)
    ends = await probe.end_offsets(list(found))
    return {tp: _judged(start, tp, topic_id, ends[tp], settings, positions, group) for tp, start in found.items()}


def _judged(
    start: Start,
    tp: TopicPartition,
    topic_id: str,
    end: int,
    settings: ServiceSettings,
    positions: Positions,
    group: str,
) -> Start:
    last = start.committed
    here = replace(last, topic_id=topic_id)
    if last.offset is None:
        return Start(here)
    if not same_topic(last.topic_id, topic_id):
        fault = created_again(tp.topic, group, last.topic_id, topic_id)
    elif last.offset > end:
        fault = beyond_end(tp, group, last.offset, topic_id)
    else:
        if start.moved:
            log.warning(
                "%s[%d]: the broker has forgotten what group %s had committed; going on at offset %d, a copy of which "
                "is in %s",
                *(tp.topic, tp.partition, group, last.offset, positions.topic),
            )
        return Start(here, start.moved)
    if topic_id not in settings.begin_again_in:
        raise Fatal(fault)
    log.warning("%s[%d] begins again at its beginning, as %sBEGIN_AGAIN says", tp.topic, tp.partition, PREFIX)
    return Start(replace(here, offset=None), moved=True)


def created_again(topic: str, group: str, before: str, now: str) -> str:
    """What is told of a topic that has another id than the one whose offsets a group has committed."""
    return (
        f"topic {topic} was deleted and created again (its id was {before}, is {now}): the offsets of group {group} "
        f"mean nothing in it. To begin again at its beginning set {PREFIX}BEGIN_AGAIN={now}, or use another "
        "application name"
    )


def beyond_end(tp: TopicPartition, group: str, offset: int, topic_id: str) -> str:
    """What is told of a partition that has lost records which a group has read."""
    return (
        f"{tp.topic}[{tp.partition}] ends before offset {offset}, up to which group {group} has committed: it has lost "
        f"records. To begin again at its beginning set {PREFIX}BEGIN_AGAIN={topic_id}, or use another application name"
    )
