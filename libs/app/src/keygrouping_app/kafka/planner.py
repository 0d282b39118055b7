"""Members that hand keys over by plan: what each tells, the one that plans, and how its plan is followed."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import islice

import msgspec
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_kafka.calls import backoff, given_up_calls
from keygrouping_kafka.errors import can_be_retried

from keygrouping_app.costs import CostsOfWork
from keygrouping_app.handlers import AppError
from keygrouping_app.kafka.board import Board, TopicBoard
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.moved import MovedPartition
from keygrouping_app.kafka.overflow import TOLD
from keygrouping_app.kafka.own_topics import Size, create, size_of, until_known
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.lanes import Lanes
from keygrouping_app.moves import BusyError
from keygrouping_app.planning import (
    ORDERED,
    PLANNERS,
    Balance,
    Chosen,
    Held,
    Planned,
    Promise,
    Report,
    imbalance_of,
    is_busy,
    plan_of,
)
from keygrouping_app.reports import name_of
from keygrouping_app.slowness import Slowness
from keygrouping_app.states import InputKey
from keygrouping_app.worked import Worked

log = logging.getLogger(__name__)

_PERIOD = 1.0
"""Seconds between reports of a member."""
_REMEMBERED = 5.0
"""Seconds for which a member counts that tells nothing any more."""
_TURNS = 2
"""Of a member, by which it has heard of all others."""
_MOST_KEYS = 1000
"""Of a member, those that cost most: others stay where they are."""
_MOST_TOLD, _LEAST_KEYS = 12_000, 100
"""Of all members, but so many of each at least: every member reads what all tell, each second."""
_SPAN = 10.0
"""Seconds of which at least is known what keys cost before anything is planned, and between two plans."""

_BEGIN = 5.0
"""Seconds for which nothing is planned once members have become busy."""


def planning_of(group: str, topic: str) -> str:
    """The name of the topic of reports on the keys of an input."""
    return f"{group}.{topic}.planning"


def planning_board(settings: Settings, topic: str) -> TopicBoard:
    """Where the members of a group tell each other what keys cost."""
    return TopicBoard(settings, planning_of(settings.group, topic), _REMEMBERED)


async def prepare_planning(admin: AIOKafkaAdminClient, settings: Settings, topic: str) -> None:
    """Creates the topic of reports on an input, with as many copies as that has. AppError if it can't be."""
    name, copies = planning_of(settings.group, topic), (await size_of(admin, topic)).copies
    if faults := await create(admin, name, Size(1, copies), TOLD, "where members tell what keys cost"):
        raise AppError(faults)
    await until_known(admin, name)


class Planning:
    """Of one handler. `declared`: the grouping that plans unless another one is chosen; `partitions`: what the member
    has."""

    def __init__(
        self, declared: str, lanes: Lanes, partitions: Mapping[TopicPartition, Partition], board: Board
    ) -> None:
        self._board = board
        self._declared = declared
        self._chosen = Chosen()
        self._turns = 0
        self._lanes = lanes
        self._partitions = partitions
        self._clock = asyncio.get_running_loop().time
        self._member = uuid.uuid4().hex
        self._had: dict[TopicPartition, float] = {}
        """The member's partitions, with when it had them last."""
        self._planned_at = -math.inf
        self._idle_at = -math.inf
        self._number = 0
        self._slowness = Slowness()
        self._noted_at = -math.inf
        self._followed: tuple[str, int] | None = None
        self._others: list[Report] = []
        """What has been heard last."""
        self._promise = Promise()
        self._worked = Worked(_SPAN)
        self._slow: Mapping[str, float] = {}
        """Of members, as in the last plan that was made here."""
        self._imbalance: float | None = None
        """As the one that plans has told last, and when that was."""
        self._told_at = -math.inf
        self.plan = Planned({}, 1.0, 1.0, 0)
        """The last that this member has made."""

    @property
    def grouping(self) -> str:
        """What plans now, as far as is known here; ORDERED: nothing does."""
        return self._chosen.grouping or self._declared

    @property
    def balance(self) -> Balance:
        """What the last plan by which keys move has promised, and what is: all members tell the same, within seconds.

        What is not known is told of for some seconds at most, as when the member that plans has died.
        """
        is_known = self._clock() <= self._told_at + _REMEMBERED
        return Balance(self._promise, self._imbalance if is_known else None)

    @property
    def hears(self) -> bool:
        """Whether it has listened for long enough to know what others have chosen."""
        return self._turns >= _TURNS

    def choose(self, grouping: str) -> None:
        """From the next plan on this one plans, in all members: it is told to them within seconds."""
        self._hear()
        self._adopt(Chosen(self._chosen.version + 1, self._member, grouping))

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
        self._note_partitions()
        names = self._names()
        report = self._report(names)
        await self._board.tell(self._member, msgspec.json.encode(report))
        until = self._clock() + _PERIOD
        while (left := until - self._clock()) > 0:
            await self._board.hear(left)
        self._hear()
        self._turns += 1
        reports = [report, *self._others]
        self._note_costs(reports)
        self._worked.note(reports)
        leader = min(reports, key=lambda each: each.member)
        if leader is report:
            self._plan(reports)
            leader = msgspec.structs.replace(
                report, plan=self._published(), number=self._number, imbalance=self._measured(reports)
            )
        self._imbalance, self._told_at = leader.imbalance, self._clock()
        self._follow(leader, names)

    def _hear(self) -> None:
        """Takes note of what others tell; what they have chosen holds here, too."""
        told = [each for data in self._board.told(_REMEMBERED) if (each := _report_of(data)) is not None]
        self._others = [each for each in told if each.member != self._member]
        self._adopt(max((each.chosen for each in self._others), default=Chosen()))
        self._promise = max([self._promise, *(each.promise for each in self._others)])

    def _adopt(self, chosen: Chosen) -> None:
        if chosen > self._chosen:
            self._chosen = chosen
            log.info("%s: the grouping is %s from now on", self._lanes.handler.topic.name, chosen.grouping)

    def _note_partitions(self) -> None:
        """What keys have cost counts from when the member has got the last of its partitions.

        One that is gone for a moment only, as it begins again, is the same.
        """
        now = self._clock()
        held = dict.fromkeys((each.tp for each in self._of_handler()), now)
        if held.keys() - self._had.keys():
            self._lanes.costs_here = CostsOfWork(now, self._lanes.handler.concurrency)
        self._had = {tp: last for tp, last in (self._had | held).items() if last > now - _REMEMBERED}

    def _note_costs(self, reports: Sequence[Report]) -> None:
        """Every member remembers who is slow: any of them may be the next one to plan."""
        now = self._clock()
        if self.grouping in PLANNERS and now >= self._noted_at + _SPAN:
            self._noted_at = now
            told = {each.member: ((key, held.cost, held.events) for key, held in each.held.items()) for each in reports}
            self._slowness.note(told, now)

    def _plan(self, reports: Sequence[Report]) -> None:
        now, busy = self._clock(), is_busy(reports)
        if not busy:
            self._idle_at = now
        # While work begins, members seem to have more or less of it as their reports are a second newer or older.
        begins = busy and now < self._idle_at + _BEGIN
        if self.grouping not in PLANNERS or begins or now < self._planned_at + _SPAN:
            return
        if not all(each.known for each in reports):
            return
        self._planned_at = now
        self._number += 1
        self._slow = self._slowness.of([each.member for each in reports], now)
        self.plan = plan_of(reports, self.grouping, self._slow)
        if self.plan.targets:
            self._promise = Promise(
                self._promise.version + 1,
                self._member,
                at=time.time(),
                keys=len(self.plan.targets),
                before=self.plan.before,
                after=self.plan.after,
            )
            log.info(
                "%d keys with %d bytes of states are to be handed over by %s: imbalance %.3f, then %.3f",
                *(len(self.plan.targets), self.plan.bytes, self.grouping, self.plan.before, self.plan.after),
            )

    def _measured(self, reports: Sequence[Report]) -> float | None:
        rates = self._worked.rates()
        return None if rates is None else imbalance_of(reports, rates, self._slow)

    def _published(self) -> dict[str, int]:
        """The plan, for a few reports only: who comes later, or comes back, finds it past."""
        past = self.grouping == ORDERED or self._clock() >= self._planned_at + _REMEMBERED
        return {} if past else self.plan.targets

    def _follow(self, leader: Report, names: Mapping[str, tuple[Partition, InputKey]]) -> None:
        if (leader.member, leader.number) == self._followed:
            return
        self._followed = leader.member, leader.number
        if self.grouping == ORDERED:
            return
        for name, target in leader.plan.items():
            if name in names:
                partition, group = names[name]
                with suppress(BusyError):
                    partition.ask(group, target)

    def _names(self) -> dict[str, tuple[Partition, InputKey]]:
        """Keys of this member's inputs that cost much, here or at their slots, by their names in reports."""
        inputs = {each.tp.partition: each for each in self._mine()}
        found: dict[str, tuple[Partition, InputKey]] = {}
        for group, *_ in self._costly():
            each = inputs.get(group.source)
            if each is not None and each.moves is not None and each.moves.knows(group):
                found[self._name(group)] = each, group
        elsewhere = {name for report in self._others for name in report.held}
        for each in inputs.values():
            for key in each.moves.places if each.moves is not None else ():
                assert isinstance(key, InputKey)
                if (name := self._name(key)) in elsewhere:
                    found[name] = each, key
        return found

    def _costly(self) -> list[tuple[InputKey, float, int]]:
        """Keys that cost most here, with their seconds and events; those that are here no more among them."""
        costs = self._lanes.costs_here
        if costs is None or not self._of_handler():
            return []
        keys = [(key, cost, events) for key, cost, events in costs.by_key() if isinstance(key, InputKey)]
        share = _MOST_TOLD // (1 + len(self._others))
        return nlargest(max(_LEAST_KEYS, min(_MOST_KEYS, share)), keys, key=lambda each: each[1])

    def _report(self, names: Mapping[str, tuple[Partition, InputKey]]) -> Report:
        lanes, costs, now = float(self._lanes.handler.concurrency), self._lanes.costs_here, self._clock()
        assert costs is not None
        span = max(1e-3, costs.work_span(now))
        held = {
            self._name(group): Held(seconds / span, self._bytes(group), seconds / max(1, events), events)
            for group, seconds, events in self._costly()
        }
        places = [(name, each.moves, group) for name, (each, group) in names.items() if each.moves is not None]
        return Report(
            self._member,
            lanes,
            max(0.0, costs.seconds / span - sum(each.seconds for each in held.values())),
            held,
            {name: moves.destination(group) for name, moves, group in places},
            [each.tp.partition for each in self._visited()],
            [name for name, moves, group in places if moves.is_held(group)],
            costs.span(now) >= _SPAN,
            self._published(),
            self._number,
            self._chosen,
            self._promise,
            self._worked_until(now),
            now,
            span,
            self.balance.now,
        )

    def _worked_until(self, now: float) -> float:
        """Seconds of all calls. Threads and processes are handed calls ahead: as many run as there are lanes."""
        calls = islice(self._lanes.scheduler.running, self._lanes.handler.concurrency)
        return sum(self._lanes.tally.seconds.values()) + sum(now - each.started for each in calls)

    def _bytes(self, group: InputKey) -> int:
        """Of the state of a key that is here."""
        at_slots = (each.states for each in self._visited() if group in each.visits.here)
        at_home = (each.states for each in self._mine() if each.tp.partition == group.source)
        return max((states.length(group) or 0 for states in (*at_slots, *at_home) if states is not None), default=0)

    def _name(self, group: InputKey) -> str:
        """The same for all members: equal keys may be of several types."""
        states = next(each.states for each in self._of_handler() if each.states is not None)
        return name_of((group.source, states.in_input(group)))

    def _mine(self) -> list[Partition]:
        return [each for each in self._of_handler() if each.moves is not None and not each.closed]

    def _visited(self) -> list[MovedPartition]:
        return [each for each in self._of_handler() if isinstance(each, MovedPartition) and not each.closed]

    def _of_handler(self) -> list[Partition]:
        name = self._lanes.handler.topic.name
        return [each for each in self._partitions.values() if each.topic.name == name]


def _report_of(told: bytes) -> Report | None:
    try:
        return msgspec.json.decode(told, type=Report)
    except msgspec.DecodeError as error:
        log.debug("a report of another member can't be read, so it is left out: %s", error)
        return None
