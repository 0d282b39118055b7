"""The topics of an app, as a member that starts has to find them."""

from __future__ import annotations

import asyncio
import logging

from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.handlers import AppError
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.left import Left
from keygrouping_app.kafka.moving import Moving
from keygrouping_app.kafka.overflow import prepare_sharing
from keygrouping_app.kafka.partials import prepare_partials
from keygrouping_app.kafka.sharing import Sharing
from keygrouping_app.kafka.topics import all_topics

log = logging.getLogger(__name__)

_START_SECONDS = 30.0
"""For which a member that starts tries to see its topics."""


class Preparing:
    """By one member. `sharing`: None if no handler has `split`."""

    def __init__(
        self,
        settings: Settings,
        admin: AIOKafkaAdminClient,
        handling: Handling,
        moving: Moving,
        sharing: Sharing | None,
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._handling = handling
        self._moving = moving
        self._sharing = sharing
        self.marked: dict[str, int] = {}
        """How many partitions tell that they have begun, by input."""
        self.left = Left(admin, settings, handling.handlers, handling.topic_of)

    async def prepare(self) -> None:
        """Looks at topics and creates those of its own; a broker that is away then may be back soon.

        AppError for topics that are missing, or can't be used.
        """
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        for pause in backoff():
            try:
                with given_up_calls():
                    await self._prepare()
            except Exception as error:
                if not can_be_retried(error) or asyncio.get_running_loop().time() > deadline:
                    raise
                log.warning("topics can't be looked at or created, trying again: %r", error)
                await asyncio.sleep(pause)
            else:
                return

    async def _prepare(self) -> None:
        needed = (*self._handling.inputs, self._settings.dead_letters)
        there = await all_topics(self._admin, needed)
        missing = [topic for topic in needed if topic not in there]
        if missing:
            raise AppError(
                f"topic {topic!r} does not exist on {self._settings.brokers}: create it "
                f"(kafka-topics --create --topic {topic})"
                for topic in missing
            )
        self.marked = await prepare_partials(self._admin, self._settings, self._handling.inputs)
        await self._moving.prepare(self._admin)
        for topic, handler in self._handling.inputs.items():
            if handler.split and self._sharing is not None:
                self._sharing.largest = await prepare_sharing(self._admin, self._settings, topic)
        await self.left.find(there)
