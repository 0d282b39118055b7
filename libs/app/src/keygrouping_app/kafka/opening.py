"""What it takes to begin with a partition that has become ours."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from keygrouping_app.handlers import Handler
from keygrouping_app.kafka.changelog import Copy
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.moving import Moving
from keygrouping_app.kafka.overflow import SlotPartition
from keygrouping_app.kafka.partials import MarkedPartition
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.positions import Positions
from keygrouping_app.kafka.ranges import End
from keygrouping_app.kafka.restores import Restores
from keygrouping_app.kafka.topics import Topics
from keygrouping_app.kafka.transactions import Transactions


class Opening:
    """By one member. `topics`: what the app has found of topics; `dirty` wakes who commits at least once."""

    def __init__(
        self,
        settings: Settings,
        topics: Topics,
        handling: Handling,
        moving: Moving,
        positions: Positions,
        restores: Restores,
        dirty: asyncio.Event,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._handling = handling
        self._moving = moving
        self._positions = positions
        self._restores = restores
        self._dirty = dirty

    async def open(self, tp: TopicPartition, followed: Copy | None) -> Partition:
        """The partition as it was committed, with its states; `followed`: a copy of these, if there is one.

        Nothing of it is open after an error. Raises what can't be retried.
        """
        handler = self._handling.handler_of(tp)
        async with AsyncExitStack() as begun:
            if followed is not None:
                begun.callback(followed.states.close)
            transactions = None
            if handler.in_transactions:
                transactions = self._transactions(tp, handler)
                begun.push_async_callback(transactions.close)
            bounded = tp.topic in self._handling.inputs
            found, end = await self._positions.find(tp, transactions, bounded=bounded)
            copy = None if handler.kept is None else await self._restores.restored(tp, handler, found, followed)
            if copy is not None:
                begun.callback(copy.states.close)
            partition = self._partition(tp, found, end, transactions, copy)
            begun.pop_all()
        if end is not None:
            partition.dirty.set()  # from now on it stays
        return partition

    def _transactions(self, tp: TopicPartition, handler: Handler) -> Transactions:
        find, largest = partial(self._positions.start_of, tp), self._moving.largest(handler)
        return Transactions(self._settings, self._topics, tp, find, largest)

    def _partition(
        self,
        tp: TopicPartition,
        found: OffsetAndMetadata,
        end: End | None,
        transactions: Transactions | None,
        copy: Copy | None,
    ) -> Partition:
        if copy is not None:
            return self._moving.partition(tp, found, end, transactions, copy)
        handler = self._handling.handler_of(tp)
        dirty = self._dirty if transactions is None else asyncio.Event()
        if tp.topic not in self._handling.inputs:
            return SlotPartition(tp, handler.topic, found, dirty, self._handling.handlers, transactions)
        kind = MarkedPartition if self._positions.is_marked(tp) else Partition
        partition = kind(tp, handler.topic, found, dirty, end, transactions)
        if isinstance(partition, MarkedPartition):
            partition.tell(self._settings.group, found)
        return partition
