"""What a version before has left: events in slots of an app that shares none any more, and topics it does not read.

Events in slots are of the one handler that had `split`, and which one that is can be seen as soon as there are some.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from functools import partial
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.handlers import Handler
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.overflow import first_unread, handler_of_slots, overflow_of
from keygrouping_app.kafka.ranges import partitions_of

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_ANSWER_SECONDS = 30.0
"""For which an answer is waited for at the start."""


class Left:
    """In slots. `handlers` by topic; `topic_of`: the topic whose handler works on each topic that is read."""

    def __init__(
        self,
        admin: AIOKafkaAdminClient,
        settings: Settings,
        handlers: Mapping[str, Handler],
        topic_of: MutableMapping[str, str],
    ) -> None:
        self._admin = admin
        self._settings = settings
        self._handlers = handlers
        self._topic_of = topic_of
        self._overflow = overflow_of(settings.group)
        self._there = False
        self._ends: Mapping[TopicPartition, int] = {}
        """Where slots ended when they held nothing that tells."""

    @property
    def unclaimed(self) -> set[str]:
        """The topic of slots, if there is one and it is not known yet whose events it gets."""
        return {self._overflow} - self._topic_of.keys() if self._there else set()

    async def find(self, there: Collection[str]) -> None:
        """Looks at the start; `there` are all topics. AppError if slots hold what no handler can be given."""
        self._there = self._overflow in there
        if self._there:
            await _answer(self._claim, "what slots hold can't be seen, trying again while the app runs")

    async def look(self, reader: AIOKafkaConsumer) -> bool:
        """Looks again: a member of a version before may be the first one that shares anything. Whether it is known now
        whose that is, and was not before. AppError as `find`."""
        if not self.unclaimed:
            return False
        ends = await reader.end_offsets(await partitions_of(self._admin, [self._overflow]))
        if ends != self._ends:
            await self._claim()
            self._ends = ends
        return not self.unclaimed

    async def _claim(self) -> None:
        topic = await handler_of_slots(self._admin, self._settings, self._handlers)
        if topic is not None:
            self._topic_of[self._overflow] = topic


async def tell_unread(admin: AIOKafkaAdminClient, settings: Settings, topics: Collection[str]) -> None:
    """Warns of records that the group has still to handle of topics that it has begun to read, others than these."""
    otherwise = "whether the group has left anything in other topics can't be seen"
    try:
        unread = await _answer(partial(_unread, admin, settings, topics), otherwise)
    except KafkaError as failed:  # the app does not need the right to read what it reads no more
        log.warning("%s: %r", otherwise, failed)
        return
    for topic in sorted(unread or ()):
        log.warning(
            "topic %r holds records that group %s has not handled, and this app does not read it any more: run a "
            "version with the handler that did, or, if nobody misses them, kafka-consumer-groups --group %s "
            "--delete-offsets --topic %s",
            *(topic, settings.group, settings.group, topic),
        )


async def _unread(admin: AIOKafkaAdminClient, settings: Settings, topics: Collection[str]) -> set[str]:
    committed = {
        tp: at for tp, at in (await admin.list_consumer_group_offsets(settings.group)).items() if tp.topic not in topics
    }
    there = {tp.topic for tp in committed} & set(await admin.list_topics())
    tps = committed.keys() & set(await partitions_of(admin, there)) if there else set()
    return {tp.topic for tp in await first_unread(settings, tps, committed)} if tps else set()


async def _answer(ask: Callable[[], Awaitable[_Answer]], otherwise: str) -> _Answer | None:
    """Asks again while the broker has no answer, but not for ever: then a warning says so."""
    deadline = asyncio.get_running_loop().time() + _ANSWER_SECONDS
    for pause in backoff():
        try:
            with given_up_calls():
                return await ask()
        except Exception as failed:
            if not can_be_retried(failed):
                raise
            if asyncio.get_running_loop().time() > deadline:
                log.warning("%s: %r", otherwise, failed)
                return None
            await asyncio.sleep(pause)
    raise AssertionError
