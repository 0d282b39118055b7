"""What handlers return and the offsets of partitions without transactions, at least once: written, then committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError
from aiokafka.structs import OffsetAndMetadata
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.member import NotNowError
from keygrouping_app.kafka.partition import Partition, Returned
from keygrouping_app.kafka.refusals import instead_of, records_in
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.kafka.writing import Writer
from keygrouping_app.scheduler import Failure

log = logging.getLogger(__name__)

_NOT_NOW_SECONDS = 0.1
"""After which a commit is tried again that the group takes later."""


class Committing:
    """By one member, of its `partitions`. `commit` commits offsets in the group, NotNowError if it takes none now.

    `dirty`: set when there may be something to be committed; `committed` is set whenever something is.
    """

    def __init__(
        self,
        settings: Settings,
        partitions: Mapping[TopicPartition, Partition],
        handling: Handling,
        writer: Writer,
        commit: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], Awaitable[None]],
        dirty: asyncio.Event,
        committed: Signal,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._handling = handling
        self._writer = writer
        self._commit_offsets = commit
        self._dirty = dirty
        self._committed = committed

    async def keep(self) -> None:
        """Goes on until it is cancelled; raises what can't be retried."""
        pauses = backoff()
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            pause = self._settings.commit_interval
            try:
                with given_up_calls():
                    await self._commit()
                pauses = backoff()
            except (NotNowError, CommitFailedError):
                pause = _NOT_NOW_SECONDS
                self._dirty.set()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                pause = next(pauses)
                self._dirty.set()
                log.warning("cannot commit progress, trying again in %.1f s: %r", pause, error)
            await asyncio.sleep(pause)

    async def _commit(self) -> None:
        partitions = [each for each in self._partitions.values() if not each.lost and each.transactions is None]
        # Taken in one go: a commit speaks of nothing whose outputs are not written.
        due = {partition: what for partition in partitions if (what := partition.due()) is not None}
        await self._write({partition: partition.take_returned() for partition in due})
        offsets = {partition.tp: what for partition, what in due.items() if not partition.lost}
        if offsets:
            await self._commit_offsets(offsets)
        for partition, what in due.items():
            partition.committed(what)
        self._committed.set()

    async def _write(self, returned: Mapping[Partition, list[Returned]]) -> None:
        refused: list[tuple[Returned, Failure]] = []
        left = [one for each in returned.values() for one in each]
        try:
            while left:
                instead = instead_of(left, await self._writer.write(records_in(left)), self._settings)
                refused += [(left[place], failure) for place, (failure, _) in instead.items()]
                left = [each for _, each in instead.values()]
        except BaseException:
            # Some may be written: they are written again, which at least once allows.
            for partition, each in returned.items():
                partition.keep(each)
            raise
        for partition, each in returned.items():
            partition.wrote(each)
        self._handling.wrote(refused)
