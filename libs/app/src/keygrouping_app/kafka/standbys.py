"""Copies of the states of partitions that other members have, so that one of them takes over without reading all.

A copy follows the changelog, as far as its transactions are committed. Who becomes the owner restores as always, from
where the copy is: one that is behind, or has begun again, costs time and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.events import Raw
from keygrouping_app.handlers import Handler
from keygrouping_app.kafka.changelog import Copy, changelog_of, new_reader
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kept import UnusableStateError

log = logging.getLogger(__name__)

_POLL_MS = 200
_MOST_RECORDS = 2000
_LONGEST_PAUSE = 3600.0
"""Seconds. Brokers drop the records that say that a state has gone, a day after they were written by default."""


class Standbys:
    """Those of one member. `handlers` by topic."""

    def __init__(self, settings: Settings, handlers: Mapping[str, Handler]) -> None:
        self._settings = settings
        self._handlers = handlers
        self._copies: dict[TopicPartition, Copy] = {}
        """By partition of the input."""
        self._left: dict[TopicPartition, int] = {}
        self._changed = asyncio.Event()

    @property
    def left(self) -> Mapping[TopicPartition, int]:
        """For each partition that is followed, how many offsets of its changelog are still to be read, once known."""
        return dict(self._left)

    def follow(self, tps: set[TopicPartition]) -> None:
        """These from now on, and no others."""
        for tp in set(self._copies) - tps:
            self._drop(tp)
        for tp in sorted(tps - set(self._copies)):
            self._copies[tp] = Copy.of(self._handlers[tp.topic])
            self._changed.set()

    def take(self, tp: TopicPartition) -> Copy | None:
        """The copy of a partition that is ours now; None if there is none. It is followed no more."""
        self._left.pop(tp, None)
        if (copy := self._copies.pop(tp, None)) is not None:
            self._changed.set()
        return copy

    def close(self) -> None:
        """Frees what they take."""
        self.follow(set())

    async def keep(self) -> None:
        """Reads for ever; raises what can't be retried."""
        pauses = backoff()
        while True:
            while not self._copies:
                self._changed.clear()
                await self._changed.wait()
            try:
                with given_up_calls():
                    await self._read_all()
                pauses = backoff()
            except OffsetOutOfRangeError as error:
                log.warning(
                    "a changelog has lost records or was created again: it is read from its beginning (%r)", error
                )
                self._begin_again()
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("states of other members can't be followed, trying again: %r", error)
            await asyncio.sleep(next(pauses))

    async def _read_all(self) -> None:
        """While there are copies."""
        loop = asyncio.get_running_loop()
        async with started(new_reader(self._settings)) as reader:
            followed: dict[TopicPartition, Copy] = {}
            read_at = loop.time()
            self._changed.set()
            while self._copies:
                if loop.time() > read_at + _LONGEST_PAUSE:
                    self._begin_again()
                if self._changed.is_set():
                    self._changed.clear()
                    followed = dict(self._copies)
                    await self._assign(reader, followed)
                fetched = await reader.getmany(timeout_ms=_POLL_MS, max_records=_MOST_RECORDS)
                read_at = loop.time()
                positions = {tp: await reader.position(self._changelog(tp)) for tp in followed}
                # From here on nothing else runs, and what has been taken meanwhile is not touched.
                for tp, copy in followed.items():
                    if self._copies.get(tp) is copy:
                        changelog = self._changelog(tp)
                        end = reader.last_stable_offset(changelog)
                        self._left[tp] = max(0, (positions[tp] if end is None else end) - positions[tp])
                        self._fill(tp, copy, fetched.get(changelog, ()), positions[tp])

    async def _assign(self, reader: AIOKafkaConsumer, followed: Mapping[TopicPartition, Copy]) -> None:
        fresh = [self._changelog(tp) for tp, copy in followed.items() if copy.position is None]
        firsts = await reader.beginning_offsets(fresh) if fresh else {}
        reader.assign([self._changelog(tp) for tp in followed])
        for tp, copy in followed.items():
            changelog = self._changelog(tp)
            reader.seek(changelog, firsts[changelog] if copy.position is None else copy.position)

    def _fill(self, tp: TopicPartition, copy: Copy, records: Sequence[Raw], position: int) -> None:
        try:
            for raw in records:
                copy.read(raw)
            copy.position = position
        except UnusableStateError as error:
            log.warning("%s[%d]: this member can't have a copy of its states: %s", *tp, error)
            self._drop(tp)

    def _begin_again(self) -> None:
        followed = set(self._copies)
        self.close()
        self.follow(followed)

    def _drop(self, tp: TopicPartition) -> None:
        if (copy := self.take(tp)) is not None:
            copy.states.close()

    def _changelog(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(changelog_of(self._settings.group, tp.topic), tp.partition)
