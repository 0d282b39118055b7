"""The member that plans, and those that follow: each plan once, by loads that all know."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest
from aiokafka import TopicPartition
from keygrouping_app.costs import Costs
from keygrouping_app.kafka import planner
from keygrouping_app.kafka.planner import Planning
from keygrouping_app.kept import Kept
from keygrouping_app.moves import Place
from keygrouping_app.planning import Report
from keygrouping_app.states import InputKey
from keygrouping_app.virtual_time import VirtualTime

from .test_moves import INPUT_PLACES, PLACES, SLOT, Given, Owner, World, app_of, new_runner

LANES = 16


class Wire:
    """What members tell each other."""

    def __init__(self) -> None:
        self.told: dict[str, bytes] = {}


class WireBoard:
    """One member's view of it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def tell(self, member: str, value: bytes) -> None:
        self._wire.told[member] = value

    async def hear(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def told(self, _: float) -> list[bytes]:
        return list(self._wire.told.values())

    async def withdraw(self, member: str) -> None:
        self._wire.told.pop(member, None)


class Member:
    """With some partitions, and calls that are made up."""

    def __init__(self, wire: Wire, world: World, tps: list[TopicPartition]) -> None:
        runner = new_runner(app_of([Given(0, "a", 0.0, 0, rejected=False)]))
        self.owners = {tp: Owner(runner, world, tp) for tp in tps}
        (self._lanes,) = runner.lanes
        board: Any = WireBoard(wire)
        self.partitions = runner.partitions
        self.planning = Planning("mixed", self._lanes, runner.partitions, board)

    def works(self, *calls: tuple[InputKey, float]) -> None:
        """Has had calls of these keys, with so many seconds."""
        costs = self._lanes.costs_here
        assert costs is not None
        for key, seconds in calls:
            costs.add(key, seconds, 1, asyncio.get_running_loop().time())

    def has(self, tp: TopicPartition, *keys: str) -> None:
        """These have a state there."""
        for key in keys:
            states = self.partitions[tp].states
            assert states is not None
            states.keep(InputKey(tp.partition, key.encode()), None, b"{}", 1)

    @property
    def asked(self) -> dict[Any, int]:
        """Keys that are to be handed over, with where to."""
        moves = [each.moves for each in self.partitions.values() if each.moves is not None]
        return dict(itertools.chain.from_iterable(each.asked.items() for each in moves))

    def forget(self) -> None:
        for each in self.partitions.values():
            if each.moves is not None:
                each.moves.forget()


A, B = InputKey(0, b"a"), InputKey(0, b"b")


async def turns(count: int, *members: Member) -> None:
    for _ in range(count):
        await asyncio.gather(*(each.planning._take_turn() for each in members))


async def pair(wire: Wire) -> tuple[Member, Member]:
    """One with both inputs, of which two keys fill its lanes, and one with both slots."""
    world = World([])
    first, second = Member(wire, world, INPUT_PLACES), Member(wire, world, PLACES[len(INPUT_PLACES) :])
    first.has(INPUT_PLACES[0], "a", "b")
    await turns(1, first, second)
    return first, second


async def busy(seconds: int, first: Member, second: Member) -> None:
    for _ in range(seconds):
        first.works((A, LANES / 2), (B, LANES / 2))
        await turns(1, first, second)


async def test_nothing_is_planned_until_all_know_what_their_keys_cost() -> None:
    with VirtualTime():
        first, second = await pair(Wire())
        await busy(int(planner._SPAN) - 2, first, second)
        assert first.asked == {}
        await busy(4, first, second)
        assert len(first.asked) == 1
        slot = TopicPartition(SLOT, 0)
        gone = second.partitions.pop(slot)
        await busy(int(planner._REMEMBERED) + 2, first, second)
        first.forget()
        second.partitions[slot] = gone
        await busy(int(planner._SPAN) - 2, first, second)
        assert first.asked == {}, "the other one has had it for a moment"


async def test_each_plan_is_followed_once_and_the_next_one_again() -> None:
    with VirtualTime():
        first, second = await pair(Wire())
        await busy(int(planner._SPAN) + 3, first, second)
        wanted = first.asked
        assert len(wanted) == 1
        first.forget()
        await busy(4, first, second)
        assert first.asked == {}, "somebody has ordered otherwise"
        await busy(int(planner._SPAN), first, second)
        assert first.asked == wanted


async def test_who_comes_later_does_not_follow_a_plan_that_is_past() -> None:
    with VirtualTime():
        wire = Wire()
        first, second = await pair(wire)
        await busy(int(planner._SPAN) + 3, first, second)
        assert first.asked
        told = [planner._report_of(each) for each in wire.told.values()]
        assert any(each is not None and each.plan for each in told)
        await busy(int(planner._REMEMBERED) + 1, first, second)
        told = [planner._report_of(each) for each in wire.told.values()]
        assert not any(each is not None and each.plan for each in told)


async def test_a_key_that_has_moved_counts_where_it_is() -> None:
    with VirtualTime():
        first, second = await pair(Wire())
        moves = first.partitions[INPUT_PLACES[0]].moves
        slot = second.partitions[TopicPartition(SLOT, 1)]
        assert moves is not None
        assert slot.states is not None
        moves.places[A] = Place(1)
        slot.states.arrive(A, Kept(b"{}", 1, 1))
        for _ in range(int(planner._SPAN) + 5):
            first.works((B, LANES / 2))
            second.works((A, LANES / 2))
            await turns(1, first, second)
        assert first.asked == {}
        leader = min(first, second, key=lambda each: each.planning._member)
        assert leader.planning.plan.before == pytest.approx(1.0, abs=0.02)


async def test_reports_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_MOST_KEYS", 10)
    with VirtualTime():
        first, _ = await pair(Wire())
        chance = random.Random(1)
        keys = [InputKey(0, b"%d" % number) for number in range(100)]
        first.has(INPUT_PLACES[0], *(key.key.decode() for key in keys if isinstance(key.key, bytes)))
        costs = {key: chance.random() for key in keys}
        first.works(*costs.items())
        report: Report = first.planning._report(first.planning._names())
        assert len(report.held) == len(report.places) == 10
        span = first._lanes.costs_here
        assert isinstance(span, Costs)
        total = report.rest + sum(each.seconds for each in report.held.values())
        assert total * max(1e-3, span.span(asyncio.get_running_loop().time())) == pytest.approx(
            sum(costs.values()), rel=0.01
        )
