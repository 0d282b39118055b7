"""Reading the partitions that are ours, as far as there is room for what is read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.events import Event, Raw
from keygrouping_app.handlers import AppError
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.fetched import give_bare_records
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.rooms import LEAST_READ, parts_of, rooms_of
from keygrouping_app.kafka.sharing import Sharing

log = logging.getLogger(__name__)

_POLL_MS = 100
_REST_MS = 10
"""Between two reads of a partition that has little room, and at most for others while it has none."""
_FULL_SECONDS = 0.1
"""For which room is waited for before it is looked again."""


def new_reader(settings: Settings) -> AIOKafkaConsumer:
    """For inputs and slots; to be started, see `started`."""
    return AIOKafkaConsumer(
        **settings.connection,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        # While a broker waits for events of some partitions it answers nothing else on the same connection: not
        # where those that come begin, nor what has come for those that have room again. While records flow it is
        # less, see `Reading.read`.
        fetch_max_wait_ms=_POLL_MS,
    )


class Reading:
    """By one member, of its `partitions`. `sharing`: None if no handler has `split`."""

    def __init__(
        self,
        settings: Settings,
        reader: AIOKafkaConsumer,
        partitions: Mapping[TopicPartition, Partition],
        handling: Handling,
        sharing: Sharing | None,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._partitions = partitions
        self._handling = handling
        self._sharing = sharing
        self._fetched = give_bare_records(reader)
        self._changed = False
        """Whether partitions are to be read from where they are, and no others."""
        self._flows = False
        """Whether the last read has found something."""

    def gain(self, partition: Partition) -> None:
        """A partition has come."""
        if self._sharing is not None and partition.topic.name == self._sharing.topic:
            self._sharing.gain(partition)
        self._changed = True
        self._handling.room.set()

    def begin_again(self) -> None:
        """Partitions have gone."""
        self._changed = True

    async def keep(self) -> None:
        """Reads until it is cancelled; raises what can't be retried, AppError if records are lost."""
        pauses = backoff()
        while True:
            try:
                with given_up_calls():
                    await self.read()
            except OffsetOutOfRangeError:
                await self._skip_deleted()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("reading failed, trying again: %r", error)
                self._changed = True  # what other partitions had given is gone with it, and read again
                await asyncio.sleep(next(pauses))

    async def read(self) -> None:
        """Takes what there is of partitions that have room; returns after a while if there is nothing."""
        if self._changed:
            self._assign()
        self._handling.look_at_memory()
        open_ones = [each for each in self._partitions.values() if not each.closed and not each.read]
        parts = parts_of(self._partitions, self._handling.inputs)
        rooms, rests = rooms_of(open_ones, parts, self._settings, self._clock() - _REST_MS / 1000)
        if not rooms:
            # Full, or nothing is ours: what is not asked for is not fetched either.
            self._fetched.wait_for(_POLL_MS)
            await self._handling.room.take(_REST_MS / 1000 if rests else _FULL_SECONDS)
            return
        owned = {tp: self._partitions[tp] for tp in rooms}
        self._fetched.rooms = rooms
        # The others have room soon, if calls end.
        soon = (self._handling.take_ended() or self._flows) and len(rooms) < len(open_ones)
        self._flows = False
        fetched = await self._reader.getmany(*rooms, timeout_ms=_REST_MS if soon else _POLL_MS)
        self._flows = bool(fetched)
        # Meanwhile it fetches nothing else, so where much is read it is short.
        much = any(len(records) >= LEAST_READ for records in fetched.values())
        self._fetched.wait_for(_REST_MS if soon or much else _POLL_MS)
        if not self._changed:  # or each has another share of the room now, and is read again from where it is
            await self._take(owned, fetched)

    def _clock(self) -> float:
        return asyncio.get_running_loop().time()

    def _assign(self) -> None:
        self._changed = False
        unread = {tp: partition for tp, partition in self._partitions.items() if not partition.read}
        self._reader.assign(list(unread))
        for tp, partition in unread.items():
            self._reader.seek(tp, partition.gaps.position)

    async def _take(
        self, owned: Mapping[TopicPartition, Partition], fetched: Mapping[TopicPartition, Sequence[Raw]]
    ) -> None:
        """Has what was read of partitions handled, unless they have been lost meanwhile."""
        for tp, partition in owned.items():
            position = await self._reader.position(tp)
            if self._partitions.get(tp) is not partition:
                continue  # lost meanwhile, and perhaps ours again from another position on
            if not partition.closed and position >= partition.gaps.position:
                if events := partition.take(fetched.get(tp, ()), position):
                    partition.read_at = self._clock()
                    self._offer(partition, events)
                self._changed |= partition.read
                if partition.gaps.position < position:
                    self._reader.seek(tp, partition.gaps.position)
                if (tp not in fetched or partition.read) and partition.due() is not None:
                    partition.dirty.set()

    def _offer(self, partition: Partition, events: list[Event]) -> None:
        taken = self._handling.offer(partition, events)
        if self._sharing is not None and self._handling.of(partition).handler.split:
            self._sharing.offered(partition, taken)

    async def _skip_deleted(self) -> None:
        """Goes on behind what retention has deleted unread. AppError if a partition ends before what was committed."""
        tps = [tp for tp, partition in self._partitions.items() if not partition.read]
        firsts, ends = await self._reader.beginning_offsets(tps), await self._reader.end_offsets(tps)
        for tp, partition in self._partitions.items():
            position = partition.gaps.position
            if tp in ends and position > ends[tp]:
                raise AppError(
                    [
                        f"{tp.topic}[{tp.partition}] ends at {ends[tp]}, before offset {position}, up to which group "
                        f"{self._settings.group} has read: the topic has lost records or was created again. To begin "
                        "at its beginning: kafka-consumer-groups --reset-offsets --to-earliest"
                    ]
                )
            if tp in firsts and position < firsts[tp]:
                partition.take((), firsts[tp])
                log.error("%s[%d]: retention deleted %d offsets unread", *tp, partition.gaps.position - position)
                partition.dirty.set()
        self._changed = True
