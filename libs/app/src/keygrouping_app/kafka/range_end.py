"""When an app with `until` is done: the group has committed all that there is to be handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_kafka.calls import given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.left import Left
from keygrouping_app.kafka.overflow import slots_are_over
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.ranges import is_over

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5


class RangeEnd:
    """As one member sees it. `partitions`: what it has; `slots`: the input of each topic of slots of keys that move."""

    def __init__(
        self,
        settings: Settings,
        admin: AIOKafkaAdminClient,
        partitions: Mapping[TopicPartition, Partition],
        handling: Handling,
        slots: Mapping[str, str],
        left: Left,
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._partitions = partitions
        self._handling = handling
        self._slots = slots
        self._left = left

    async def reach(self) -> None:
        """Returns when the group has committed all up to the end; never if there is none."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            inputs = [each for each in self._partitions.values() if each.tp.topic in self._handling.inputs]
            if self._settings.until is None or not all(each.read for each in inputs):
                continue
            try:
                with given_up_calls():
                    if await self._is_over():
                        log.info("every event up to the end of the range is handled (until: %s)", self._settings.until)
                        return
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("cannot check whether the range has been handled, trying again: %r", error)

    async def _is_over(self) -> bool:
        """The inputs first: when they are, nothing more comes to slots."""
        if not await is_over(self._settings, self._admin, self._handling.inputs) or not await self._left.is_over():
            return False
        for topics in self._behind_inputs():
            if topics and not await slots_are_over(self._admin, self._settings, topics):
                return False
        return True

    def _behind_inputs(self) -> list[Collection[str]]:
        """Topics of the app's own that are read, in an order in which nothing comes to those that are over."""
        inputs, mergers = self._handling.inputs.keys(), self._handling.mergers
        behind = {slots for slots, topic in self._slots.items() if topic in mergers}
        return [self._handling.topic_of.keys() - inputs - mergers - behind, mergers, behind]
