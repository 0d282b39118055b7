"""States of partitions that have become ours, as they were when what is committed was."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from contextlib import ExitStack

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.handlers import Handler
from keygrouping_app.kafka.changelog import Copy, Restoring, changelog_of, check_partitions, restore
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.known import KnownRefusals
from keygrouping_app.kafka.ranges import split_states

log = logging.getLogger(__name__)

_MOST_RESTORES = 4
"""Partitions whose states are restored at once."""


class Restores:
    """By one member. `restoring`: where it stands which partitions wait for their states, while they do."""

    def __init__(
        self,
        settings: Settings,
        admin: AIOKafkaAdminClient,
        handling: Handling,
        known: KnownRefusals,
        restoring: MutableMapping[TopicPartition, Restoring],
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._handling = handling
        self._known = known
        self._restoring = restoring
        self._turns = asyncio.Semaphore(_MOST_RESTORES)

    async def restored(
        self, tp: TopicPartition, handler: Handler, found: OffsetAndMetadata, followed: Copy | None
    ) -> Copy:
        """The states that belong to what is committed; `followed`: those that were followed, if any.

        Raises what can't be retried, AppError if the handler can't be given them.
        """
        copy = await self._restored(tp, handler, found, followed)
        self._known.tell(tp, copy.states)
        if (fit := self._handling.lanes[handler.topic.name].fit) is not None:
            with ExitStack() as unfit:
                unfit.callback(copy.states.close)
                fit.check(copy.states, f"{changelog_of(self._settings.group, tp.topic)}[{tp.partition}]")
                unfit.pop_all()
        return copy

    async def _restored(
        self, tp: TopicPartition, handler: Handler, found: OffsetAndMetadata, followed: Copy | None
    ) -> Copy:
        progress = self._restoring[tp] = Restoring(handler.topic.name)
        copy = followed or Copy.of(handler, tp)
        try:
            for pause in backoff():
                try:
                    async with self._turns:
                        with given_up_calls():
                            await check_partitions(self._admin, self._settings.group, tp.topic)
                            await restore(self._settings, tp, copy, split_states(found.metadata)[1], progress, handler)
                    return copy
                except BaseException as error:
                    if not can_be_retried(error) or isinstance(error, OffsetOutOfRangeError):
                        copy.states.close()
                        # What was followed may be of a changelog that is there no more.
                        if not can_be_retried(error) and (followed is None or not isinstance(error, Exception)):
                            raise
                        copy, followed = Copy.of(handler, tp), None
                    log.warning("%s[%d]: cannot restore its states, trying again: %r", *tp, error)
                await asyncio.sleep(pause)
            raise AssertionError
        finally:
            if self._restoring.get(tp) is progress:
                del self._restoring[tp]
