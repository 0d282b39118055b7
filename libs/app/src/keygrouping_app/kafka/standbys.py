"""Copies of the states of partitions that other members have, so that one of them takes over without reading all.

A copy follows the changelog, as far as its transactions are committed. Who becomes the owner restores as always, from
where the copy is: one that is behind, or has begun again, costs time and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence, Set

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.events import Raw
from keygrouping_app.handlers import Handler
from keygrouping_app.kafka.assignor import Place, places_of
from keygrouping_app.kafka.changelog import Copy, changelog_of, new_reader
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kept import UnusableStateError

log = logging.getLogger(__name__)

_POLL_MS = 200
_MOST_RECORDS = 2000
_LONGEST_PAUSE = 3600.0
"""Seconds after which a copy begins again. What says that a state has gone stays in the changelog for a day by default:
a copy that has missed it would have that state for ever."""


class Standbys:
    """Those of one member. `handlers` by topic."""

    def __init__(self, settings: Settings, handlers: Mapping[str, Handler]) -> None:
        self._settings = settings
        self._handlers = handlers
        self._copies: dict[TopicPartition, Copy] = {}
        """By partition of the input."""
        self._left: dict[TopicPartition, int] = {}
        self._unusable: set[str] = set()
        """Topics whose states can't be kept here."""
        self._changed = asyncio.Event()

    def left_of(self, topic: str) -> list[int]:
        """For each partition of a handler that is followed, how many offsets of its changelog are still to be read.

        Slots of the handler are among them; those of which it is not known yet are not.
        """
        return [left for tp, left in self._left.items() if self._handlers[tp.topic].topic.name == topic]

    @property
    def places(self) -> Set[Place]:
        """See `assignor.Copies`."""
        return places_of(self._copies)

    @property
    def wanted(self) -> Mapping[str, int]:
        """See `assignor.Copies`."""
        states = {topic: handler.state for topic, handler in self._handlers.items() if topic not in self._unusable}
        return {topic: state.standbys for topic, state in states.items() if state is not None}

    def follow(self, places: set[Place]) -> None:
        """See `assignor.Copies`."""
        tps = {TopicPartition(*place) for place in places if place[0] not in self._unusable}
        for tp in set(self._copies) - tps:
            self._drop(tp)
        for tp in sorted(tps - set(self._copies)):
            self._copies[tp] = Copy.of(self._handlers[tp.topic], tp)
            self._changed.set()

    def take(self, tp: TopicPartition) -> Copy | None:
        """The copy of a partition that is ours now, followed no more; None if there is none that can be used."""
        self._left.pop(tp, None)
        if (copy := self._copies.pop(tp, None)) is None:
            return None
        self._changed.set()
        if time.time() > copy.seen_at + _LONGEST_PAUSE:
            copy.states.close()
            return None
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
                log.warning("changelogs are read again, as one has lost records or was created again: %r", error)
                for tp in list(self._copies):
                    self._begin_again(tp)
            except Exception as error:
                if not can_be_retried(error):
                    raise
                log.warning("states of other members can't be followed, trying again: %r", error)
            await asyncio.sleep(next(pauses))

    async def _read_all(self) -> None:
        """While there are copies."""
        async with started(new_reader(self._settings)) as reader:
            followed: dict[TopicPartition, Copy] = {}
            self._changed.set()
            while self._copies:
                if self._changed.is_set():
                    self._changed.clear()
                    followed = dict(self._copies)
                    await self._assign(reader, followed)
                fetched = await reader.getmany(timeout_ms=_POLL_MS, max_records=_MOST_RECORDS)
                positions = {tp: await reader.position(self._changelog(tp)) for tp in followed}
                # From here on nothing else runs, and what has been taken meanwhile is not touched.
                for tp, copy in followed.items():
                    if self._copies.get(tp) is copy and self._is_current(tp, copy, reader):
                        self._fill(tp, copy, fetched.get(self._changelog(tp), ()), positions[tp])
                        self._note_left(tp, reader, positions[tp])

    async def _assign(self, reader: AIOKafkaConsumer, followed: Mapping[TopicPartition, Copy]) -> None:
        fresh = [self._changelog(tp) for tp, copy in followed.items() if copy.position is None]
        firsts = await reader.beginning_offsets(fresh) if fresh else {}
        reader.assign([self._changelog(tp) for tp in followed])
        for tp, copy in followed.items():
            changelog = self._changelog(tp)
            reader.seek(changelog, firsts[changelog] if copy.position is None else copy.position)

    def _is_current(self, tp: TopicPartition, copy: Copy, reader: AIOKafkaConsumer) -> bool:
        """Whether nothing can have gone from the changelog unseen; if it can, the copy begins again."""
        seen: int | None = reader.last_poll_timestamp(self._changelog(tp))
        if seen is None:  # not answered since it was assigned
            return True
        if seen / 1000 > copy.seen_at + _LONGEST_PAUSE:
            log.warning("%s[%d]: its changelog was not seen for long, so its states are read from the beginning", *tp)
            self._begin_again(tp)
            return False
        copy.seen_at = seen / 1000
        return True

    def _fill(self, tp: TopicPartition, copy: Copy, records: Sequence[Raw], position: int) -> None:
        try:
            for raw in records:
                copy.read(raw)
            copy.position = position
        except UnusableStateError as error:
            log.warning("%s[%d]: this member can't have copies of its states: %s", *tp, error)
            self._unusable.add(tp.topic)
            for each in [each for each in self._copies if each.topic == tp.topic]:
                self._drop(each)

    def _note_left(self, tp: TopicPartition, reader: AIOKafkaConsumer, position: int) -> None:
        end = reader.last_stable_offset(self._changelog(tp))
        if end is not None and tp in self._copies:
            self._left[tp] = max(0, end - position)

    def _begin_again(self, tp: TopicPartition) -> None:
        self._drop(tp)
        self.follow({*self.places, (tp.topic, tp.partition)})

    def _drop(self, tp: TopicPartition) -> None:
        self._left.pop(tp, None)
        if (copy := self._copies.pop(tp, None)) is not None:
            copy.states.close()
            self._changed.set()

    def _changelog(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(changelog_of(self._settings.group, tp.topic), tp.partition)
