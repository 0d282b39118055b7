"""The app on Kafka: reading into the lanes, writing what handlers return, committing what has ended.

An event's life: it is read, waits for its key and a lane, runs (and runs again after a failure), and has ended when its
handler has returned or its dead letter is made. What it returned is written, and then it is committed as ended: alone,
by the gaps in the commit's metadata, whatever still runs before it. Until then it counts as not ended. With
`exactly_once` both happen in one transaction.

Each part of this is a module beside this one: `assignment` has the partitions, which `opening` begins and `draining`
ends; `reading` reads them into the lanes of `handling`; and `committing` or `transacting` writes and commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_kafka.calls import cancel

from keygrouping_app.kafka.assignment import Assignment
from keygrouping_app.kafka.changelog import Restoring
from keygrouping_app.kafka.clients import Settings, started
from keygrouping_app.kafka.committing import Committing
from keygrouping_app.kafka.draining import GRACE, Draining
from keygrouping_app.kafka.giving import GIVE_SECONDS, keep_giving
from keygrouping_app.kafka.handling import Declared, Handling
from keygrouping_app.kafka.known import KnownRefusals
from keygrouping_app.kafka.looking import Looking
from keygrouping_app.kafka.member import Member
from keygrouping_app.kafka.moving import Moving
from keygrouping_app.kafka.opening import Opening
from keygrouping_app.kafka.overflow import overflow_of
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.positions import Positions
from keygrouping_app.kafka.preparing import Preparing
from keygrouping_app.kafka.range_end import RangeEnd
from keygrouping_app.kafka.ranges import begin
from keygrouping_app.kafka.reading import Reading, new_reader
from keygrouping_app.kafka.restores import Restores
from keygrouping_app.kafka.sharing import Sharing, board_of
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.kafka.standbys import Standbys
from keygrouping_app.kafka.topics import Topics
from keygrouping_app.kafka.transacting import Transacting
from keygrouping_app.kafka.writing import Writer
from keygrouping_app.lanes import Lanes

_Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Runner:
    """One member's work. `handlers` with what makes the lanes in which they run, by topic."""

    def __init__(self, settings: Settings, handlers: Declared) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.restoring: dict[TopicPartition, Restoring] = {}
        """Partitions that are ours and wait for their states."""
        self._settings = settings
        self._topics = Topics()
        self._dirty, self._committed = asyncio.Event(), Signal()
        self._known = KnownRefusals(settings.group, self.partitions)
        self.handling = Handling(settings, handlers, self.partitions)
        self.moving = Moving(
            settings, self.handling.handlers, self.partitions, self.handling.resume, self.handling.refuse
        )
        self.handling.topic_of.update(self.moving.inputs)
        self.sharing = self._new_sharing()
        """None: no handler has `split`."""
        self.standbys = Standbys(settings, self.moving.states)
        self.transacting = Transacting(
            settings,
            self.handling,
            self.sharing,
            self._known,
            self.moving.follow,
            self._committed,
            self._lose_all,
        )
        self._looking = Looking(self.partitions, self.handling.inputs)
        self._member: Member | None = None
        """None: it has not begun yet."""

    def _new_sharing(self) -> Sharing | None:
        for topic, handler in self.handling.inputs.items():
            if handler.split:
                self.handling.topic_of[overflow_of(self._settings.group)] = topic
                return Sharing(self._settings, self.handling.lanes[topic], self.partitions)
        return None

    @property
    def name(self) -> str:
        """The app's."""
        return self._settings.group

    @property
    def until(self) -> str:
        """Where the app ends; empty if it runs on."""
        return str(self._settings.until or "")

    @property
    def seen(self) -> float:
        """When it last saw its partitions in Kafka, as a member of the group; at first, when it began."""
        return self._looking.seen

    @property
    def held(self) -> list[Partition]:
        """All its partitions."""
        return list(self.partitions.values())

    @property
    def lanes(self) -> list[Lanes]:
        """Of all handlers."""
        return list(self.handling.lanes.values())

    @property
    def joined(self) -> bool:
        """Whether the group has given it its partitions."""
        return self._member is not None and self._member.joined

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set or the range is over; then what runs ends, all is committed, and the group is left.

        Raises what can't be retried, AppError for topics that are missing.
        """
        settings = self._settings
        async with AsyncExitStack() as stack:
            await self.handling.begin(stack)
            admin = await stack.enter_async_context(started(AIOKafkaAdminClient(**settings.connection)))
            preparing = Preparing(settings, admin, self.handling, self.moving, self.sharing)
            await preparing.prepare()
            reader = await stack.enter_async_context(started(new_reader(settings)))
            if settings.start != "earliest":
                await begin(settings, admin, reader, self.handling.inputs, stop)
            writer = await stack.enter_async_context(Writer(settings, self._topics))
            feeding, others = await self._begin_sharing(stack)
            others += await self.moving.begin(stack, self.handling.lanes)
            stack.callback(self.handling.close)
            stack.callback(self.standbys.close)
            reading = Reading(settings, reader, self.partitions, self.handling, self.sharing)
            assignment = self._new_assignment(admin, reader, reading, preparing.marked)
            member = self._member = self._new_member(assignment)
            committing = Committing(
                settings, self.partitions, self.handling, writer, member.commit, self._dirty, self._committed
            )
            looking = partial(self._looking.keep, reader, preparing.left, member)
            feeding.append(reading.keep)
            others += [committing.keep, looking, member.keep, self.standbys.keep]
            end = RangeEnd(settings, admin, self.partitions, self.handling, self.moving.inputs, preparing.left)
            await self._work(stop, end, assignment, member, feeding, others)

    async def _begin_sharing(self, stack: AsyncExitStack) -> tuple[list[_Loop], list[_Loop]]:
        """What is to be kept going: what has others give events to this member, and what gives them some."""
        if self.sharing is None:
            return [], []
        board = await stack.enter_async_context(board_of(self._settings))
        # Begun when there is something to be given.
        giver = Writer(self._settings, self._topics, GIVE_SECONDS)
        stack.push_async_exit(giver)
        giving = partial(keep_giving, self.sharing, self.partitions, giver, self._settings.commit_interval)
        return [partial(self.sharing.keep, board)], [giving]

    def _new_assignment(
        self, admin: AIOKafkaAdminClient, reader: AIOKafkaConsumer, reading: Reading, marked: Mapping[str, int]
    ) -> Assignment:
        settings, handling = self._settings, self.handling
        positions = Positions(settings, admin, reader, marked)
        restores = Restores(settings, admin, handling, self._known, self.restoring)
        opening = Opening(settings, self._topics, handling, self.moving, positions, restores, self._dirty)
        draining = Draining(handling, self._committed)
        return Assignment(self.partitions, handling, opening, reading, self.transacting, draining, self.standbys)

    def _new_member(self, assignment: Assignment) -> Member:
        topics = self.handling.topic_of
        apart = {overflow_of(self._settings.group), *topics} - self.handling.inputs.keys()
        return Member(self._settings, topics, assignment, apart, self.standbys)

    def _lose_all(self) -> None:
        if self._member is not None:
            self._member.lose_all()

    async def _work(
        self,
        stop: asyncio.Event,
        end: RangeEnd,
        assignment: Assignment,
        member: Member,
        feeding: Sequence[_Loop],
        others: Sequence[_Loop],
    ) -> None:
        fed = [asyncio.create_task(each()) for each in feeding]
        loops = [*fed, *(asyncio.create_task(each()) for each in others)]
        stopping, over = asyncio.create_task(stop.wait()), asyncio.create_task(end.reach())
        failures = [assignment.failure, member.failure, *(lanes.failure for lanes in self.lanes)]
        ends: list[asyncio.Future[Any]] = [stopping, over, *loops, *failures]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() or over.done():
                for task in fed:  # nobody is to give it anything from now on
                    task.cancel()
                await assignment.end(lambda: member.is_cut_off)
                await asyncio.wait(fed, timeout=GRACE)  # the last word is that this member ends
        finally:
            await cancel([stopping, over, *loops, *assignment.tasks])
        for each in ends:
            if each.done() and not each.cancelled():
                each.result()
