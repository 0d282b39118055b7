"""One member's part in handing keys over: what handlers with `State(moves=...)` need besides lanes and partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from keygrouping_app.events import Event
from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.kafka.changelog import LARGEST_RECORD, Copy, prepare, slots_of
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.moved import (
    Answers,
    MovedPartition,
    NotHereError,
    Slots,
    forwards,
    prepare_slots,
    topics_of,
)
from keygrouping_app.kafka.partials import PartialsPartition, largest_partial
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.planner import Planning, planning_board, prepare_planning
from keygrouping_app.kafka.ranges import End
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.lanes import Lanes
from keygrouping_app.moves import HOME, Done, Moves, Visits
from keygrouping_app.partials import Merger
from keygrouping_app.planning import ORDERED, PLANNERS, Balance, JustBegunError, NotPlannedError, check
from keygrouping_app.scheduler import Failure


class Moving:
    """Of one member. `handlers` by topic; `resume` is given events that are to be handled at home again, `refuse`
    those that no slot takes."""

    def __init__(
        self,
        settings: Settings,
        handlers: Mapping[str, Handler],
        partitions: Mapping[TopicPartition, Partition],
        resume: Callable[[Partition, list[Event]], None],
        refuse: Callable[[Event, Failure], None],
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._partitions = partitions
        self._able = {topic: handler for topic, handler in handlers.items() if handler.moves}
        self.declared: dict[str, str] = {
            topic: handler.kept.moves
            for topic, handler in handlers.items()
            if handler.kept is not None and handler.kept.moves is not None
        }
        """As `moves`, by topic."""
        self.inputs = {slots_of(settings.group, topic): topic for topic in self._able}
        """The topic whose handler works on the events of each topic of slots."""
        self._refuse = refuse
        self.slots: dict[str, Slots] = {}
        """By input."""
        self._answers = Answers(settings, resume)
        self.plannings: dict[str, Planning] = {}
        """By topic, of those of which keys are handed over by plan."""
        self.done: dict[str, Done] = {topic: Done() for topic in self._able}
        """What has been done, by topic."""

    @property
    def states(self) -> dict[str, Handler]:
        """The handlers by topics that have a changelog, those of slots among them."""
        found = {topic: handler for topic, handler in self._handlers.items() if handler.kept is not None}
        return found | {slots: self._handlers[topic] for slots, topic in self.inputs.items()}

    @property
    def groupings(self) -> dict[str, str]:
        """What plans now, by topic; ORDERED: nothing does."""
        return self.declared | {topic: planning.grouping for topic, planning in self.plannings.items()}

    @property
    def balances(self) -> dict[str, Balance]:
        """How even the work of all members is, by topic, where keys are handed over by plan."""
        return {topic: planning.balance for topic, planning in self.plannings.items()}

    async def prepare(self, admin: AIOKafkaAdminClient) -> None:
        """Creates all topics that are missing, changelogs among them. AppError."""
        planned = [self._handlers[topic] for topic in self._planned()]
        for handler in planned:
            check(handler)
        self.slots = await prepare_slots(admin, self._settings, self._able.values())
        for handler in planned:
            await prepare_planning(admin, self._settings, handler.topic.name)
        await prepare(admin, self._settings.group, self.states)

    async def begin(
        self, stack: AsyncExitStack, lanes: Mapping[str, Lanes]
    ) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """What is to be kept going while the member works. `stack`: of what it opens."""
        loops: list[Callable[[], Coroutine[Any, Any, None]]] = [self._answers.keep]
        for topic in self._planned():
            board = await stack.enter_async_context(planning_board(self._settings, topic))
            planning = Planning(self.declared[topic], lanes[topic], self._partitions, board)
            self.plannings[topic] = planning
            loops.append(planning.keep)
        return loops

    def _planned(self) -> list[str]:
        """Inputs whose handlers declare a grouping that plans."""
        return [topic for topic, moves in self.declared.items() if moves in PLANNERS]

    def partition(
        self,
        tp: TopicPartition,
        found: OffsetAndMetadata,
        end: End | None,
        transactions: Transactions | None,
        copy: Copy,
    ) -> Partition:
        """One with states, of an input or a slot."""
        topic = self.inputs.get(tp.topic, tp.topic)
        handler, topics, dirty = self._handlers[topic], topics_of(self._settings.group, topic), asyncio.Event()
        if tp.topic == topics.slots:
            visits = Visits(topics, tp.partition, copy.states, self.done[topic], copy.found)
            slot = MovedPartition(tp, handler.topic, found, dirty, visits, transactions, copy.states)
            slot.urgent = asyncio.Event()
            if copy.found:
                slot.hurry()  # they are to be written, as soon as they can be
            return slot
        kind = PartialsPartition if isinstance(handler.function, Merger) else Partition
        partition = kind(tp, handler.topic, found, dirty, end, transactions, copy.states)
        if handler.moves:
            partition.urgent = asyncio.Event()
            forward = forwards(partition, topics.slots, self.slots[topic].largest, self._refuse)
            partition.moves = Moves(
                topics, tp.partition, copy.states, copy.places, forward, self.done[topic], copy.parts
            )
            self.follow(partition, copy.position or 0)
        elif copy.places:
            raise AppError([_away(tp, len(copy.places), handler)])
        return partition

    def follow(self, partition: Partition, position: int) -> None:
        """Has answers read from this offset of a partition's changelog on, if it waits for some."""
        if partition.moves is not None and partition.moves.called:
            self._answers.follow(partition, position)

    def largest(self, handler: Handler) -> int:
        """Bytes of a record that a transaction of its may have at least; 0: as the client has it."""
        slots = self.slots.get(handler.topic.name)
        partial = largest_partial(handler.state) if handler.partials and handler.state is not None else 0
        return max(LARGEST_RECORD if handler.kept else 0, partial, 0 if slots is None else slots.largest)

    def move(self, key: bytes, slot: int | None, topic: str | None = None) -> list[str]:
        """Has a key handed over to a slot with its state, or home if it is None; gives the partitions that it is of.

        `topic`: of its handler only. Nothing is done if NotHereError, BusyError, or ValueError (there is no such slot).
        """
        wanted = self._input_of(topic)
        able = [each for each in self._partitions.values() if wanted in (None, each.tp.topic)]
        found = [(each, group) for each in able for group in each.movable(key)]
        if not found:
            raise NotHereError
        most = min(self.slots[each.tp.topic].count for each, _ in found)
        if slot is not None and not 0 <= slot < most:
            raise ValueError(f"there are slots 0 to {most - 1}")
        for each, group in found:
            each.ask(group, HOME if slot is None else slot)
        return sorted({f"{each.tp.topic}[{each.tp.partition}]" for each, _ in found})

    def _input_of(self, topic: str | None) -> str | None:
        """Where the keys of a topic's handler have their states: where states merge, the topic of partial states."""
        handler = None if topic is None else self._handlers.get(topic)
        return topic if handler is None else handler.partials or topic

    def choose(self, grouping: str, topic: str | None = None) -> None:
        """Has this grouping plan from the next plan on, in all members; ORDERED: none does.

        `topic`: for its handler only. Nothing is done if NotPlannedError, JustBegunError, or ValueError (no such one).
        """
        if grouping not in (*PLANNERS, ORDERED):
            raise ValueError(f"there are the groupings {', '.join(PLANNERS)}; by {ORDERED} nothing is planned")
        wanted = self._input_of(topic)
        topics = [each for each in self._planned() if wanted in (None, each)]
        if not topics:
            raise NotPlannedError
        plannings = [self.plannings[each] for each in topics if each in self.plannings]
        if len(plannings) < len(topics) or not all(each.hears for each in plannings):
            raise JustBegunError
        for planning in plannings:
            planning.choose(grouping)


def _away(tp: TopicPartition, keys: int, handler: Handler) -> str:
    return (
        f"{tp.topic}[{tp.partition}]: {keys} keys are at slots, and {handler.name} has no State(moves=...) any more: "
        "run it with moves='ordered', and have them go home by PUT /keys/KEY/slot, before you leave it out"
    )
