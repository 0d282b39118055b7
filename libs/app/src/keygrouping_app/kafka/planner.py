"""Members that hand keys over by plan: what each tells, the one that plans, and how its plan is followed."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest

import msgspec
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.handlers import AppError
from keygrouping_app.kafka.board import Board
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.moved import MovedPartition
from keygrouping_app.kafka.overflow import TOLD, create
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.lanes import Lanes
from keygrouping_app.moves import BusyError
from keygrouping_app.planning import Held, Planned, Report, plan_of
from keygrouping_app.reports import name_of
from keygrouping_app.states import Visitor

log = logging.getLogger(__name__)

_PERIOD = 1.0
"""Seconds between reports of a member."""
_REMEMBERED = 5.0
"""Seconds for which a member counts that tells nothing any more."""
_MOST_KEYS = 1000
"""Of a member, those that cost most: others stay where they are."""
_SPAN = 10.0
"""Seconds of which at least is known what keys cost before anything is planned, and between two plans."""


def planning_of(group: str, topic: str) -> str:
    """The name of the topic of reports on the keys of an input."""
    return f"{group}.{topic}.planning"


def planning_board(settings: Settings, topic: str) -> Board:
    """Where the members of a group tell each other what keys cost."""
    return Board(settings, planning_of(settings.group, topic), _REMEMBERED)


async def prepare_planning(admin: AIOKafkaAdminClient, settings: Settings, topic: str) -> None:
    """Creates the topic of reports on an input, with as many copies as that has. AppError if it can't be."""
    (described,) = await admin.describe_topics([topic])
    copies = len(described["partitions"][0]["replicas"])
    new = NewTopic(planning_of(settings.group, topic), 1, copies, topic_configs=TOLD)
    if faults := await create(admin, new, "where members tell what keys cost"):
        raise AppError(faults)


class Planning:
    """Of one handler. `partitions`: what the member has."""

    def __init__(
        self, planner: str, lanes: Lanes, partitions: Mapping[TopicPartition, Partition], board: Board
    ) -> None:
        self._board = board
        self._planner = planner
        self._lanes = lanes
        self._partitions = partitions
        self._clock = asyncio.get_running_loop().time
        self._member = uuid.uuid4().hex
        self._planned_at = self._clock()
        self._followed: dict[str, int] = {}
        self.plan = Planned({}, 1.0, 1.0, 0)
        """The last that this member has made, if it plans."""

    async def keep(self) -> None:
        """Goes on until it is cancelled; raises what can't be retried."""
        pauses = backoff()
        try:
            while True:
                try:
                    with given_up_calls():
                        await self._take_turn()
                    pauses = backoff()
                except Exception as error:
                    if not can_be_retried(error):
                        raise
                    log.warning("keys are not handed over by plan, trying again: %r", error)
                    await asyncio.sleep(next(pauses))
        finally:
            await self._board.withdraw(self._member)

    async def _take_turn(self) -> None:
        board = self._board
        names = self._names()
        report = self._report(names)
        await board.tell(self._member, msgspec.json.encode(report))
        until = self._clock() + _PERIOD
        while (left := until - self._clock()) > 0:
            await board.hear(left)
        told = [each for data in board.told(_REMEMBERED) if (each := _read(data)) is not None]
        others = {each.member: each for each in told if each.member != self._member}
        reports = [report, *others.values()]
        leader = min(reports, key=lambda each: each.member)
        if leader is report:
            self._plan(reports)
            self._follow(self.plan.targets, names)
        else:
            self._follow(leader.plan, names)

    def _plan(self, reports: Sequence[Report]) -> None:
        now = self._clock()
        if now < self._planned_at + _SPAN or any(each.moving for each in reports):
            return
        self._planned_at = now
        self.plan = plan_of(reports, self._planner)
        if self.plan.targets:
            log.info(
                "%d keys with %d bytes of states are to be handed over: imbalance %.3f, then %.3f",
                *(len(self.plan.targets), self.plan.bytes, self.plan.before, self.plan.after),
            )

    def _follow(self, targets: Mapping[str, int], names: Mapping[str, tuple[Partition, Hashable]]) -> None:
        """Each plan once: who has ordered otherwise since is not contradicted."""
        if targets == self._followed:
            return
        self._followed = dict(targets)
        for name, target in targets.items():
            if name not in names:
                continue
            partition, group = names[name]
            with suppress(BusyError):
                partition.ask(group, target)

    def _names(self) -> dict[str, tuple[Partition, Hashable]]:
        """Costly keys of this member's inputs, and all that are at slots, by their names in reports."""
        found: dict[str, tuple[Partition, Hashable]] = {}
        costly = self._costly()
        for each in self._mine():
            groups = {*each.moves.places, *costly.get(each, ())} if each.moves is not None else set()
            for group in groups:
                found[name_of((each.tp.partition, group))] = each, group
        return found

    def _costly(self) -> dict[Partition, list[Hashable]]:
        """Keys that cost most at home, by their input."""
        keys = [key for key, _, _ in nlargest(_MOST_KEYS, self._lanes.costs.by_key(), key=lambda each: each[1])]
        found: dict[Partition, list[Hashable]] = {}
        for each in self._mine():
            if each.states is not None:
                found[each] = [
                    key for key in keys if not isinstance(key, Visitor) and each.states.peek(key) is not None
                ]
        return found

    def _report(self, names: Mapping[str, tuple[Partition, Hashable]]) -> Report:
        costs, span = self._lanes.costs, max(1e-3, self._lanes.costs.span(self._clock()))
        if span < _SPAN:
            return Report(self._member, float(self._lanes.handler.concurrency), slots=self._slots())
        held = {name: Held(costs.of(group)[0] / span, _size(each, group)) for name, (each, group) in names.items()}
        for group, seconds, _ in costs.by_key():
            if isinstance(group, Visitor):
                held[name_of(tuple(group))] = Held(seconds / span, sum(_size(each, group) for each in self._visited()))
        inputs = self._mine()
        return Report(
            self._member,
            float(self._lanes.handler.concurrency),
            max(0.0, costs.seconds / span - sum(each.seconds for each in held.values())),
            held,
            {name: each.moves.of(group) for name, (each, group) in names.items() if each.moves is not None},
            self._slots(),
            sum(len(each.moves.asked) + len(each.moves.called) for each in inputs if each.moves is not None),
            dict(self.plan.targets),
        )

    def _slots(self) -> list[int]:
        return [each.tp.partition for each in self._visited()]

    def _mine(self) -> list[Partition]:
        return [each for each in self._of_handler() if each.moves is not None and not each.closed]

    def _visited(self) -> list[MovedPartition]:
        return [each for each in self._of_handler() if isinstance(each, MovedPartition) and not each.closed]

    def _of_handler(self) -> list[Partition]:
        name = self._lanes.handler.topic.name
        return [each for each in self._partitions.values() if each.topic.name == name]


def _size(partition: Partition, group: Hashable) -> int:
    kept = None if partition.states is None else partition.states.peek(group)
    return 0 if kept is None else len(kept.data)


def _read(told: bytes) -> Report | None:
    try:
        return msgspec.json.decode(told, type=Report)
    except msgspec.DecodeError as error:
        log.debug("a report of another member can't be read, so it is left out: %s", error)
        return None
