"""Where a partition that has become ours begins, and where it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.partials import check_begun
from keygrouping_app.kafka.ranges import End, committed_of, offsets_at, split_end
from keygrouping_app.kafka.transactions import Transactions

log = logging.getLogger(__name__)


class Positions:
    """As Kafka tells them. `marked`: how many partitions tell that they have begun, by input."""

    def __init__(
        self, settings: Settings, admin: AIOKafkaAdminClient, reader: AIOKafkaConsumer, marked: Mapping[str, int]
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._reader = reader
        self._marked = marked

    def is_marked(self, tp: TopicPartition) -> bool:
        """Whether the partition tells that it has begun; one that has come since the start has nowhere to tell it."""
        return bool(tp.partition < self._marked.get(tp.topic, 0))

    async def start_of(self, tp: TopicPartition) -> OffsetAndMetadata:
        """What is committed; the first record there is if nothing is."""
        committed = await committed_of(self._admin, self._settings.group, [tp])
        if tp in committed:
            return committed[tp]
        return OffsetAndMetadata((await offsets_at(self._reader, [tp], "earliest"))[tp], "")

    async def find(
        self, tp: TopicPartition, transactions: Transactions | None, *, bounded: bool
    ) -> tuple[OffsetAndMetadata, End | None]:
        """What is committed when nobody else commits any more, and where the partition ends, if it does.

        `transactions`: those of it, if it has some, which begin by it. `bounded`: whether it may end. Tries again while
        brokers are away; raises what can't be retried, AppError if what is committed does not know of partial states.
        """
        for pause in backoff():
            try:
                with given_up_calls():
                    found = await (self.start_of(tp) if transactions is None else transactions.begin())
                    if self.is_marked(tp):
                        await check_begun(self._settings, tp, found)
                    return found, await self._end_of(tp, found) if bounded else None
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("%s[%d]: cannot read the committed offset, trying again: %r", *tp, error)
            await asyncio.sleep(pause)
        raise AssertionError

    async def _end_of(self, tp: TopicPartition, found: OffsetAndMetadata) -> End | None:
        """As it was committed, or as it is decided now; None if there is none."""
        until = self._settings.until
        if until is None:
            return None
        _, stored = split_end(found.metadata)
        if stored is not None and stored.asked == until:
            return stored
        return End((await offsets_at(self._reader, [tp], until))[tp], until)
