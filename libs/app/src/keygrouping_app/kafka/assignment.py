"""The partitions that the group has given a member, from when they are gained until they are given up or lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from typing import Any

from aiokafka import TopicPartition

from keygrouping_app.kafka.changelog import Copy
from keygrouping_app.kafka.draining import Draining
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.opening import Opening
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.reading import Reading
from keygrouping_app.kafka.standbys import Standbys
from keygrouping_app.kafka.transacting import Transacting
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.scheduler import Failure

log = logging.getLogger(__name__)


class Assignment:
    """An `Owner`, see `Member`. `partitions`: what it has, at which others look."""

    def __init__(
        self,
        partitions: MutableMapping[TopicPartition, Partition],
        handling: Handling,
        opening: Opening,
        reading: Reading,
        transacting: Transacting,
        draining: Draining,
        standbys: Standbys,
    ) -> None:
        self.partitions = partitions
        self._handling = handling
        self._opening = opening
        self._reading = reading
        self._transacting = transacting
        self._draining = draining
        self._standbys = standbys
        self._copies: dict[TopicPartition, Copy] = {}
        """Of partitions that are ours now, until that is begun with."""
        self._beginning: dict[TopicPartition, asyncio.Task[None]] = {}
        self._committing: dict[Partition, asyncio.Task[None]] = {}
        """Of partitions with transactions."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with what can't be retried."""

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is under way."""
        return [*self._beginning.values(), *self._committing.values()]

    def gain(self, tp: TopicPartition) -> None:
        """See `Owner`."""
        if (copy := self._standbys.take(tp)) is not None:
            self._copies[tp] = copy
        self._start(tp, self._begin(tp))

    async def give_up(self, tp: TopicPartition) -> None:
        """See `Owner`."""
        await self._drain(tp)
        if (partition := self.partitions.pop(tp, None)) is not None:
            self._stop_committing(partition)
            self._reading.begin_again()

    def lose(self, tp: TopicPartition) -> None:
        """See `Owner`."""
        self._stop_beginning(tp)
        if (partition := self.partitions.pop(tp, None)) is not None:
            log.warning(
                "%s[%d] is another member's, or may be: what runs of it is stopped if it can be, and runs again there",
                *tp,
            )
            self._draining.abandon(partition)
            self._stop_committing(partition)
            self._reading.begin_again()

    def may_start(self, until: float) -> None:
        """See `Owner`."""
        self._handling.may_start(until)

    async def end(self, is_in_vain: Callable[[], bool]) -> None:
        """Returns when what runs of all partitions has ended and is committed, and has none after that.

        `is_in_vain`: whether it is clear that nothing can be committed any more.
        """
        await asyncio.gather(*(self._drain(each, is_in_vain) for each in {*self.partitions, *self._beginning}))
        self.partitions.clear()

    async def _drain(self, tp: TopicPartition, is_in_vain: Callable[[], bool] = lambda: False) -> None:
        """Returns when all of it is committed; what begins again meanwhile is stopped, or drained as well."""
        drained = None
        while True:
            self._stop_beginning(tp)
            partition = self.partitions.get(tp)
            if partition is None or partition is drained:
                return
            await self._draining.drain(partition, is_in_vain)
            drained = partition

    # How a partition begins.

    def _start(self, tp: TopicPartition, beginning: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(beginning)
        self._beginning[tp] = task
        task.add_done_callback(self._begun)

    async def _begin(self, tp: TopicPartition, refused: Mapping[int, Failure] | None = None) -> None:
        partition = await self._opening.open(tp, self._copies.pop(tp, None))
        partition.refused |= refused or {}
        if partition.transactions is not None:
            task = asyncio.create_task(self._commit(partition, partition.transactions))
            self._committing[partition] = task
            task.add_done_callback(self._fail_with)
        self.partitions[tp] = partition
        self._reading.gain(partition)

    def _begun(self, task: asyncio.Task[None]) -> None:
        for tp in [tp for tp, other in self._beginning.items() if other is task]:
            del self._beginning[tp]
        self._fail_with(task)

    def _stop_beginning(self, tp: TopicPartition) -> None:
        if (task := self._beginning.pop(tp, None)) is not None:
            task.cancel()
        if (copy := self._copies.pop(tp, None)) is not None:
            copy.states.close()

    def _spoil(self, partition: Partition, refused: Mapping[int, Failure]) -> None:
        """Has it begin again from what is committed, without these events, by offset: others have met their states."""
        log.warning(
            "%s[%d] begins again from what is committed, without %d events of which outputs or states are refused: %s",
            *(*partition.tp, len(refused), next(iter(refused.values())).detail),
        )
        partition.spoilt = True
        partition.refused |= refused
        self._handling.of(partition).withdraw(partition)
        self._start(partition.tp, self._begin_again(partition))

    async def _begin_again(self, partition: Partition) -> None:
        await self._draining.let_end(partition)
        if self.partitions.get(partition.tp) is partition:  # not lost or given up as it ended
            del self.partitions[partition.tp]
            await self._begin(partition.tp, partition.refused)

    # How it is committed in transactions.

    async def _commit(self, partition: Partition, transactions: Transactions) -> None:
        try:
            refused = await self._transacting.keep(partition, transactions)
            if refused and self.partitions.get(partition.tp) is partition:  # not lost or given up meanwhile
                self._spoil(partition, refused)
        finally:
            del self._committing[partition]
            if partition.states is not None:
                partition.states.close()
            await transactions.close()

    def _stop_committing(self, partition: Partition) -> None:
        if (task := self._committing.get(partition)) is not None:
            # Once it has begun: one that is cancelled before closes nothing.
            asyncio.get_running_loop().call_soon(task.cancel)

    def _fail_with(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self.failure.done():
            self.failure.set_exception(error)
