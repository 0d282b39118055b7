"""How far Kafka's partitions go, and what has come to be there, as a member sees it every few seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping_kafka.calls import given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.kafka.left import Left
from keygrouping_app.kafka.member import Member
from keygrouping_app.kafka.partition import Partition

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class Looking:
    """Of one member. `partitions`: what it has; `inputs`: the topics of its handlers."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition], inputs: Collection[str]) -> None:
        self._partitions = partitions
        self._inputs = inputs
        self.seen = time.time()
        """When it last saw its partitions in Kafka, as a member of the group; at first, when it began."""

    async def keep(self, reader: AIOKafkaConsumer, left: Left, member: Member) -> None:
        """Goes on until it is cancelled; raises what can't be retried."""
        while True:
            try:
                with given_up_calls():
                    if member.joined:
                        await self._look(reader)
                        if await left.look(reader):
                            member.join()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("the ends of the partitions can't be seen, trying again: %r", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self, reader: AIOKafkaConsumer) -> None:
        """Also at those that are not read for now; at its topics, if it has none."""
        ends = await reader.end_offsets([*self._partitions] or [TopicPartition(each, 0) for each in self._inputs])
        for tp, end in ends.items():
            if tp in self._partitions:
                self._partitions[tp].log_end = end
        self.seen = time.time()
