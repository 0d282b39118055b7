"""What routers have routed and no worker has read: where workers read the input itself, it is in no partial."""

from __future__ import annotations

import logging

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from keygrouping_service.kafka.positions import Positions
from keygrouping_service.kafka.progress import Committed, partitions_of
from keygrouping_service.kafka.starts import read_last
from keygrouping_service.kafka.topic_ids import read_topic_ids, same_topic, topic_id_text
from keygrouping_service.settings import ServiceSettings

log = logging.getLogger(__name__)


class Leftovers:
    """Counts the offsets of `routed` that are in no partial, and tells the figure whenever it is another one.

    A group without members is forgotten by the broker after a while, so the copies of its offsets count, too.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._topic = settings.routed_topic
        self._group = settings.group("worker")
        self._positions = Positions(settings, self._group)
        self._read_to: tuple[str, dict[TopicPartition, int]] | None = None
        self._told = 0

    async def count(self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer) -> int:
        """How many offsets workers have to read yet; 0 if there is no such topic. `probe` reads uncommitted."""
        ids = await read_topic_ids(admin, [self._topic])
        if self._topic not in ids:
            return 0
        topic_id = topic_id_text(ids[self._topic])
        tps = [TopicPartition(self._topic, partition) for partition in await partitions_of(admin, self._topic)]
        ends: dict[TopicPartition, int] = await probe.end_offsets(tps) if tps else {}
        if self._read_to == (topic_id, ends):
            return 0
        left = await self._unread(admin, probe, topic_id, ends)
        if left != self._told:
            self._tell(left)
        self._read_to = None if left else (topic_id, ends)
        return left

    async def _unread(
        self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer, topic_id: str, ends: dict[TopicPartition, int]
    ) -> int:
        firsts = await probe.beginning_offsets(list(ends)) if ends else {}
        filled = [tp for tp, end in ends.items() if end > firsts[tp]]
        found = await read_last(admin, probe, self._positions, self._group, filled, stable=False)
        return sum(max(0, ends[tp] - _next(found[tp].committed, topic_id, firsts[tp])) for tp in filled)

    def _tell(self, left: int) -> None:
        self._told = left
        if left:
            log.warning(
                "%d offsets of %s are in no partial, so no window becomes final: start workers with "
                "KEYGROUPING_STAGES=route until they have read them",
                *(left, self._topic),
            )
        else:
            log.info("all of %s is in partials: windows become final", self._topic)


def _next(last: Committed, topic_id: str, first: int) -> int:
    """What a worker reads next, in the topic of this id: an offset of one that was deleted means nothing in it."""
    return last.offset if last.offset is not None and same_topic(last.topic_id, topic_id) else first
