"""What a version before has left: events in slots of an app that shares none any more.

They are of the one handler that had `split`, and which one that is can be seen as soon as there are some.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, MutableMapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.handlers import Handler
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.overflow import handler_of_slots, overflow_of
from keygrouping_app.kafka.ranges import partitions_of

log = logging.getLogger(__name__)

_FIND_SECONDS = 30.0
"""For which an answer is waited for at the start."""
_LOOK_SECONDS = 5.0
"""For which it is later: a slot may have no leader."""
_THERE_SECONDS = 60.0
"""After which it is looked again whether there are slots, as all topics are asked for."""


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
        self._there = self._is_new = False
        self._asked_at = -math.inf
        """When it was looked last whether there are slots, by the event loop's clock."""
        self._ends: Mapping[TopicPartition, int] = {}
        """Where slots ended when they held nothing that tells."""

    @property
    def unclaimed(self) -> set[str]:
        """The topic of slots, if there is one and it is not known yet whose events it gets."""
        return {self._overflow} - self._topic_of.keys() if self._there else set()

    async def find(self, there: Collection[str]) -> None:
        """Looks at the start; `there` are all topics. AppError if slots hold what no handler can be given."""
        self._there = self._overflow in there
        self._asked_at = asyncio.get_running_loop().time()
        deadline = asyncio.get_running_loop().time() + _FIND_SECONDS
        for pause in backoff() if self._there else ():
            try:
                with given_up_calls():
                    await self._claim()
            except Exception as failed:
                if not can_be_retried(failed):
                    raise
                if asyncio.get_running_loop().time() > deadline:
                    log.warning("what slots hold can't be seen, trying again while the app runs: %r", failed)
                    return
                await asyncio.sleep(pause)
            else:
                self._is_new = False
                return

    async def look(self, reader: AIOKafkaConsumer) -> bool:
        """Looks again: a member of another version may be the first one that shares anything. Whether it is known now
        whose that is, and was not before. AppError as `find`."""
        if asyncio.get_running_loop().time() > self._asked_at + _THERE_SECONDS:
            await self._ask()
        if self.unclaimed:
            async with asyncio.timeout(_LOOK_SECONDS):
                ends = await reader.end_offsets(await partitions_of(self._admin, [self._overflow]))
            if ends != self._ends:
                await self._claim()
                self._ends = ends
        is_new, self._is_new = self._is_new, False
        return is_new

    async def is_over(self) -> bool:
        """Whether there is nothing to be handled of which it is not known yet whose it is. AppError as `find`."""
        await self._ask()
        if self.unclaimed:
            await self._claim()
        return not self._is_new

    async def _ask(self) -> None:
        """Whether there are slots by now."""
        if self._overflow not in self._topic_of:
            self._there = self._overflow in await self._admin.list_topics()
        self._asked_at = asyncio.get_running_loop().time()

    async def _claim(self) -> None:
        topic = await handler_of_slots(self._admin, self._settings, self._handlers)
        if topic is not None:
            self._topic_of[self._overflow] = topic
            self._is_new = True
