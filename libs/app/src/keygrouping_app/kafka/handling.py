"""The lanes of all handlers: what they are given, when calls may start in them, and what becomes of events that end."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

from aiokafka import TopicPartition

from keygrouping_app.events import Event, Outgoing
from keygrouping_app.handlers import Handler
from keygrouping_app.kafka.changelog import with_place
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.partition import Partition, Returned
from keygrouping_app.kafka.refusals import letters_of
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.lanes import Lanes, LoopLanes, OnEnd
from keygrouping_app.partials import with_mergers
from keygrouping_app.scheduler import Failure
from keygrouping_app.tally import UNREADABLE
from keygrouping_app.tracing import traced

log = logging.getLogger(__name__)

Declared: TypeAlias = Mapping[str, tuple[Handler, Callable[[OnEnd], Lanes]]]
"""Handlers with what makes the lanes in which they run, by topic."""


class Handling:
    """Of one member. `partitions`: what it has."""

    def __init__(self, settings: Settings, declared: Declared, partitions: Mapping[TopicPartition, Partition]) -> None:
        self._settings = settings
        self._partitions = partitions
        self.inputs = {topic: handler for topic, (handler, _) in declared.items()}
        """The app's handlers by topic."""
        self.handlers = with_mergers(self.inputs)
        """These, and those that merge states."""
        self.topic_of = {topic: topic for topic in self.handlers}
        """The topic whose handler works on the events of each topic that is read; slots are added as they are known."""
        self.room = Signal()
        """Set when events have ended or were written, so that there may be room for others."""
        self.lanes = self._new_lanes(declared)
        """By the topic of their handler."""
        self._until = math.inf
        """From when on nothing may start, by the event loop's clock, as far as the group says."""
        self._full = self._ended = False
        """Whether what is to be written fills the memory; whether events have ended since it was asked."""

    def _new_lanes(self, declared: Declared) -> dict[str, Lanes]:
        merging = {topic: self.handlers[topic] for topic in self.mergers}
        group = self._settings.group
        return {
            **{topic: lanes_with(self._end) for topic, (_, lanes_with) in declared.items()},
            **{
                topic: LoopLanes(each, traced(each, each.function, group), self._end) for topic, each in merging.items()
            },
        }

    @property
    def mergers(self) -> set[str]:
        """The topics of states that are merged."""
        return self.handlers.keys() - self.inputs.keys()

    def of(self, partition: Partition) -> Lanes:
        """The lanes that a partition's events run in."""
        return self.lanes[partition.topic.name]

    def handler_of(self, tp: TopicPartition) -> Handler:
        """Who handles the events of a partition, be it of an input or of slots."""
        return self.handlers[self.topic_of[tp.topic]]

    async def begin(self, stack: AsyncExitStack) -> None:
        """Returns when all lanes can work; they end with the stack. AppError if they can't."""
        for lanes in self.lanes.values():
            stack.push_async_callback(lanes.end)
            await lanes.begin()

    def close(self) -> None:
        """Starts nothing any more, and stops what can be stopped."""
        for lanes in self.lanes.values():
            lanes.close()

    # What lanes are given, and when.

    def offer(self, partition: Partition, events: list[Event]) -> list[Event]:
        """Has events handled, and gives those that were taken; those of which the outputs are refused end at once."""
        return self.of(partition).offer(self._end_refused(partition, events) if partition.refused else events)

    def _end_refused(self, partition: Partition, events: list[Event]) -> list[Event]:
        for event in events:
            if (failure := partition.refused.get(event.raw.offset)) is not None:
                self.refuse(event, failure)
        return [event for event in events if event.raw.offset not in partition.refused]

    def resume(self, partition: Partition, events: list[Event]) -> None:
        """Has events handled that were held, unless their partition is no longer ours."""
        if events and not partition.closed and not partition.lost:
            self.of(partition).resume(events)

    def may_start(self, until: float) -> None:
        """No event may start from this moment of the event loop's clock on."""
        self._until = until
        self._let_start()

    def look_at_memory(self) -> None:
        """Has calls start again if what handlers have returned has filled the memory for it, and does so no more."""
        if self._full:
            self._let_start()

    def _let_start(self) -> None:
        self._full = sum(each.unwritten_bytes for each in self._partitions.values()) >= self._settings.max_bytes
        for lanes in self.lanes.values():
            lanes.may_start(-math.inf if self._full else self._until)

    # What has ended.

    def take_ended(self) -> bool:
        """Whether events have ended since this was asked last."""
        ended, self._ended = self._ended, False
        return ended

    def _end(self, ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        partition = ended[0].source
        assert isinstance(partition, Partition)
        self.room.set()
        self._ended = True
        if partition.lost:
            return
        if failure is not None:
            if failure.reason == UNREADABLE and partition.states is not None:
                key = partition.states.key_of(ended[0].group)
                failure = with_place(failure, self._settings.group, partition.tp, key)
            self._tell_dead(ended, failure)
            outputs = letters_of(ended, failure, self._settings)
        partition.end(ended, outputs, letters=failure is not None)
        partition.dirty.set()
        if outputs and not self._full:
            self._let_start()

    def refuse(self, event: Event, failure: Failure) -> None:
        """An event that no handler is given is a dead letter."""
        tally = self.lanes[event.source.topic.name].tally
        tally.ended += 1
        tally.dead[failure.reason] += 1
        self._end([event], [], failure)

    def wrote(self, refused: Sequence[tuple[Returned, Failure]]) -> None:
        """Something was written, so there is room again. Instead of what was refused its dead letters were."""
        self.room.set()
        self.look_at_memory()
        for returned, failure in refused:
            if not returned.letters:
                self.lanes[returned.events[0].source.topic.name].tally.dead[failure.reason] += len(returned.events)
                self._tell_dead(returned.events, failure)

    def _tell_dead(self, events: Sequence[Event], failure: Failure) -> None:
        log.warning("%r goes to %s: %s: %s", events[0], self._settings.dead_letters, failure.reason, failure.detail)
