"""What retention deletes of a query's input before it is read: Spark fails at it, and can't say how much it was."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.retention import Retention
from keygrouping_service.observability.metrics import EXPIRED_OFFSETS, EXPIRING

log = logging.getLogger(__name__)

SHOWN_SECONDS = 60.0
"""A driver that can't go on stays this long, so that its metrics are seen before it ends."""


class Unread:
    """The records of a topic that a group has yet to read, and what was lost of them, by the metrics of all stages.

    `positions` gives the next offset of each partition of which one is known.
    """

    def __init__(
        self,
        admin: AIOKafkaAdminClient,
        probe: AIOKafkaConsumer,
        group: str,
        topic: str,
        positions: Callable[[], Mapping[int, int]],
    ) -> None:
        self._probe = probe
        self._retention = Retention(admin, probe, topic)
        self._group = group
        self._topic = topic
        self._positions = positions
        self._counted: dict[int, int] = {}
        """Up to where losses of each partition have been counted."""

    async def look(self) -> None:
        """Counts what has been lost since the last time, and shows what is about to be; raises Kafka errors."""
        positions = {TopicPartition(self._topic, partition): at for partition, at in self._positions().items()}
        if not positions:
            return
        firsts = await self._probe.beginning_offsets(list(positions))
        ends = await self._probe.end_offsets(list(positions))
        for tp, first in firsts.items():
            self._count(tp, max(positions[tp], self._counted.get(tp.partition, 0)), first)
        await self._see_retention({tp.partition: (max(at, firsts[tp]), ends[tp]) for tp, at in positions.items()})

    async def require(self, positions: Mapping[int, int], checkpoint: str, stop: asyncio.Event) -> None:
        """`Fatal`, after a while or at `stop`, if a checkpoint that has read up to these offsets can't go on there."""
        lost = {partition: self._counted.get(partition, 0) - at for partition, at in positions.items()}
        deleted = sum(max(0, offsets) for offsets in lost.values())
        if not deleted:
            return
        fault = (
            f"retention deleted {deleted} offsets of {self._topic} that group {self._group} had not read, and the "
            f"checkpoint {checkpoint} can't go on without them: to leave them out of the results, set "
            "KEYGROUPING_SPARK_CHECKPOINT to a new folder"
        )
        log.error("%s", fault)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHOWN_SECONDS):
                await stop.wait()
        raise Fatal(fault)

    async def _see_retention(self, unread: Mapping[int, tuple[int, int]]) -> None:
        try:
            expiring = await self._retention.expiring(unread, int(time.time() * 1000))
        except KafkaError as error:
            # Whatever is wrong with it, the query can work.
            log.warning("cannot read which offsets of %s retention deletes next: %r", self._topic, error)
            return
        if expiring is not None:
            EXPIRING.labels(self._group).set(expiring)

    def _count(self, tp: TopicPartition, begin: int, first: int) -> None:
        if first > begin:
            log.error("%s[%d]: retention deleted %d offsets unread", tp.topic, tp.partition, first - begin)
            EXPIRED_OFFSETS.labels(self._group).inc(first - begin)
            self._counted[tp.partition] = first
