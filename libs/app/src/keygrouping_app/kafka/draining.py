"""Partitions that are to be another member's: what runs of them ends, and is committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.signals import Signal

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds beyond a handler's timeout that what runs is waited for, and what is on its way to slots."""
_COMMIT_SECONDS = 1.0
"""Until a commit is asked for again."""
_ASK_SECONDS = 0.1
"""Until a write to slots is asked for again."""


class Draining:
    """By one member. `committed`: set whenever something is."""

    def __init__(self, handling: Handling, committed: Signal) -> None:
        self._handling = handling
        self._committed = committed

    def abandon(self, partition: Partition) -> None:
        """It is another member's: what runs of it is stopped if it can be, and nothing of it is waited for."""
        partition.lost = True
        self._handling.of(partition).abandon(partition)
        self._committed.set()

    async def drain(self, partition: Partition, is_in_vain: Callable[[], bool] = lambda: False) -> None:
        """Starts nothing of it any more, and returns when what runs has ended or is too late, and all is committed.

        Or as soon as nothing of it can be committed any more, which `is_in_vain` may know of the group.
        """
        await self.let_end(partition)
        await self.let_be_given(partition)
        while not (partition.lost or partition.spoilt) and partition.due() is not None:
            if is_in_vain():
                log.warning(
                    "%s[%d]: the group does not answer, so what ended since the last commit runs again", *partition.tp
                )
                return
            partition.dirty.set()
            await self._committed.take(_COMMIT_SECONDS)

    async def let_end(self, partition: Partition) -> None:
        """Starts nothing of it any more, and returns when what runs has ended or is too late."""
        lanes = self._handling.of(partition)
        lanes.withdraw(partition)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + lanes.handler.timeout + GRACE
        while partition.running and loop.time() < deadline and not partition.lost:
            await self._handling.room.take(deadline - loop.time())
        if partition.running:
            log.warning(
                "%s[%d]: %d handlers did not end in time; their events will be handled again",
                *partition.tp,
                partition.running,
            )

    async def let_be_given(self, partition: Partition) -> None:
        """Returns when what is on its way to slots is there, or is too late: its next owner handles it once more."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GRACE
        while partition.giving and loop.time() < deadline and not partition.lost:
            partition.dirty.set()
            await self._committed.take(_ASK_SECONDS)
        if partition.giving and not partition.lost:
            log.warning(
                "%s[%d]: %d events are on their way to slots; its next owner handles them, so they may run twice",
                *partition.tp,
                partition.giving,
            )
