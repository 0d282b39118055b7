"""The member that plans, and those that follow: each plan once, by loads that all know."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from keygrouping_app.costs import CostsOfWork
from keygrouping_app.kafka import planner
from keygrouping_app.kafka.planner import Planning
from keygrouping_app.kept import Kept
from keygrouping_app.moves import Place
from keygrouping_app.planning import ORDERED, PLANNERS, Balance, Chosen, Planned, Report, plan_of
from keygrouping_app.states import InputKey
from keygrouping_app.tally import HANDLED

from .boards import MemoryBoard, Wire
from .simulated_group import PureTime
from .test_moves import INPUT_PLACES, PLACES, SLOT, Given, Owner, World, app_of, new_runner

pytestmark = pytest.mark.usefixtures("planners")

LANES = 16


class Member:
    """With some partitions, and calls that are made up."""

    def __init__(self, wire: Wire, world: World, tps: list[TopicPartition]) -> None:
        runner = new_runner(app_of([Given(0, "a", 0.0, 0, rejected=False)]))
        self.owners = {tp: Owner(runner, world, tp) for tp in tps}
        (self._lanes,) = runner.lanes
        self.partitions = runner.partitions
        self.planning = Planning("mixed", self._lanes, runner.partitions, MemoryBoard(wire))

    def works(self, *calls: tuple[InputKey, float]) -> None:
        """Has had calls of these keys, with so many seconds."""
        costs = self._lanes.costs_here
        assert costs is not None
        for key, seconds in calls:
            costs.add(key, seconds, 1, asyncio.get_running_loop().time())
            self._lanes.tally.add(HANDLED, seconds)

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
    with PureTime():
        first, second = await pair(Wire())
        await busy(int(planner._SPAN) - 2, first, second)
        assert first.asked == {}
        await busy(4, first, second)
        assert len(first.asked) == 1
        gone = dict(second.partitions)
        second.partitions.clear()
        await busy(int(planner._REMEMBERED) + 2, first, second)
        first.forget()
        second.partitions.update(gone)
        await busy(int(planner._SPAN) - 2, first, second)
        assert first.asked == {}, "the other one has had it for a moment"


@pytest.mark.parametrize("idle", range(100, 110))
async def test_work_that_comes_after_idle_time_is_planned_for_soon_but_not_by_its_first_seconds(idle: int) -> None:
    with PureTime():
        first, second = await pair(Wire())
        await turns(idle, first, second)
        # Half of the lanes are full after five seconds, by an average of ten.
        await busy(int(planner._BEGIN) + 3, first, second)
        assert first.asked == {}
        await busy(int(planner._SPAN) + 2, first, second)
        assert len(first.asked) == 1


async def test_each_plan_is_followed_once_and_the_next_one_again() -> None:
    with PureTime():
        first, second = await pair(Wire())
        await busy(int(planner._SPAN) + 3, first, second)
        wanted = first.asked
        assert len(wanted) == 1
        first.forget()
        await busy(4, first, second)
        assert first.asked == {}, "somebody has ordered otherwise"
        await busy(int(planner._SPAN), first, second)
        assert first.asked == wanted


async def test_a_key_that_is_long_on_its_way_keeps_no_other_from_going() -> None:
    with PureTime():
        first, second = await pair(Wire())
        first.has(INPUT_PLACES[0], "c", "d")
        await busy(int(planner._SPAN) + 3, first, second)
        (going,) = first.asked
        (slot,) = set(first.asked.values())
        reports = [planner._report_of(each) for each in first.planning._board._wire.told.values()]  # type: ignore[attr-defined]
        (its,) = [each for each in reports if each is not None and each.leaving]
        assert [its.places[name] for name in its.leaving] == [slot]
        others = [InputKey(0, name) for name in (b"c", b"d")]
        for _ in range(2 * int(planner._SPAN)):
            first.works(*((each, LANES / 2) for each in others))
            await turns(1, first, second)
        assert first.asked[going] == slot
        assert len(first.asked) > 1


async def test_who_comes_later_does_not_follow_a_plan_that_is_past() -> None:
    with PureTime():
        wire = Wire()
        first, second = await pair(wire)
        await busy(int(planner._SPAN) + 3, first, second)
        assert first.asked
        told = [planner._report_of(each) for each in wire.told.values()]
        assert any(each is not None and each.plan for each in told)
        await busy(int(planner._REMEMBERED) + 1, first, second)
        told = [planner._report_of(each) for each in wire.told.values()]
        assert not any(each is not None and each.plan for each in told)


async def test_who_leads_once_more_does_not_follow_its_plan_of_long_ago() -> None:
    with PureTime():
        wire = Wire()
        first, second = await pair(wire)
        first.planning._member, second.planning._member = "b", "c"
        wire.told.clear()
        await busy(int(planner._SPAN) + 3, first, second)
        assert first.asked
        first.forget()
        third = Member(wire, World([]), [])
        third.planning._member = "a"
        for _ in range(3):
            await turns(1, first, second, third)
        await third.planning._board.withdraw("a")
        await turns(3, first, second)
        assert first.asked == {}


async def test_every_member_remembers_who_is_slow_as_it_may_be_the_next_to_plan() -> None:
    with PureTime():
        members = await pair(Wire())
        for member, cost in zip(members, (0.01, 0.04), strict=True):  # the keys have moved from one to the other
            for _ in range(int(planner._SPAN) + 2):
                for key in (A, B):
                    costs = member._lanes.costs_here
                    assert costs is not None
                    costs.add(key, 50 * cost, 50, asyncio.get_running_loop().time())
                await turns(1, *members)
        names, now = [each.planning._member for each in members], asyncio.get_running_loop().time()
        known = [each.planning._slowness.of(names, now) for each in members]
        assert known[0] == known[1]
        assert known[0][names[1]] > 1.5 > known[0][names[0]]


def told_of(*members: Member) -> list[Any]:
    """The version of the last plan that each knows of, and λ now."""
    return [(each.planning.balance.promise.version, each.planning.balance.now) for each in members]


async def test_all_members_tell_what_was_promised_and_what_is_whoever_plans() -> None:
    with PureTime():
        wire = Wire()
        first, second = await pair(wire)
        assert told_of(first, second) == [(0, None)] * 2
        await busy(int(planner._SPAN) + 4, first, second)
        assert told_of(first, second) == [(1, pytest.approx(2.0))] * 2
        (promise,) = {each.planning.balance.promise for each in (first, second)}
        assert [promise.before, promise.after] == pytest.approx([2.0, 1.0])
        assert promise.keys == 1
        late = Member(wire, World([]), [])
        await turns(3, late, first, second)
        assert late.planning.balance == first.planning.balance
        assert (late.planning.balance.promise, late.planning.balance.now) == (promise, None), (
            "not heard for long enough"
        )
        await busy_of(int(planner._SPAN), {A: first, B: second}, first, second, late)
        assert [now for _, now in told_of(first, second, late)] == [pytest.approx(1.0)] * 3, "it has no slots"


async def busy_of(seconds: int, where: Mapping[InputKey, Member], *members: Member) -> None:
    """Each key has its calls at a member."""
    for _ in range(seconds):
        for key, member in where.items():
            member.works((key, LANES / 2))
        await turns(1, *members)


async def test_once_the_member_that_plans_is_dead_the_next_one_tells_what_is() -> None:
    with PureTime():
        wire = Wire()
        members = [*await pair(wire)]
        await busy(int(planner._SPAN) + 3, *members)
        dead = leader_of(*members)
        (left,) = [each for each in members if each is not dead]
        promise = left.planning.balance.promise
        for _ in range(int(planner._REMEMBERED) + 3):
            left.works((A, 1.0))
            await turns(1, left)
        assert told_of(left) == [(promise.version, pytest.approx(1.0))], "the only one that is left"
        await turns(int(planner._SPAN) + 2, left)
        assert left.planning.balance == Balance(promise, None), "it has nothing to do"


async def test_what_is_not_heard_any_more_is_not_told() -> None:
    with PureTime():
        first, second = await pair(Wire())
        await busy(int(planner._SPAN) + 3, first, second)
        assert first.planning.balance.now is not None
        await asyncio.sleep(planner._REMEMBERED + 1)
        assert first.planning.balance.now is None
        assert first.planning.balance.promise.version == 1


def groupings(*members: Member) -> list[str]:
    return [each.planning.grouping for each in members]


def leader_of(*members: Member) -> Member:
    return min(members, key=lambda each: each.planning._member)


@pytest.mark.parametrize("asked", [0, 1])
async def test_all_members_plan_by_what_one_of_them_was_told(asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    planned_by: list[str] = []

    def noted(reports: Any, grouping: str, slowness: Any) -> Planned:
        planned_by.append(grouping)
        return plan_of(reports, grouping, slowness)

    monkeypatch.setattr(planner, "plan_of", noted)
    with PureTime():
        wire = Wire()
        members = await pair(wire)
        assert groupings(*members) == ["mixed", "mixed"]
        members[asked].planning.choose("llfd")
        assert members[asked].planning.grouping == "llfd"
        await busy(2, *members)
        assert groupings(*members) == ["llfd", "llfd"]
        told = [planner._report_of(each) for each in wire.told.values()]
        chosen = {each.chosen for each in told if each is not None}
        assert chosen == {Chosen(1, members[asked].planning._member, "llfd")}, "passed on as it was made"
        await busy(int(planner._SPAN) + 1, *members)
        assert planned_by == ["llfd"]
        assert len(members[0].asked) == 1
        late = Member(wire, World([]), [])
        await turns(1, late, *members)
        assert late.planning.grouping == "llfd"


async def test_of_two_that_are_chosen_at_once_all_members_have_one_and_the_next_one_holds() -> None:
    with PureTime():
        wire = Wire()
        first, second = await pair(wire)
        third = Member(wire, World([]), [])
        await turns(1, third)
        for members in itertools.permutations((first, second, third)):
            one, other, _ = members
            one.planning.choose("llfd")
            other.planning.choose("minmig")
            # One turn after another, in any order: nobody is told of both at the same moment.
            for _ in range(3):
                for each in members:
                    await turns(1, each)
            assert len({*groupings(*members)}) == 1
            one.planning.choose("mintable")
            await turns(1, one)
            await other.planning._board.hear(0.1)
            other.planning.choose("mixed")
            await turns(2, *members)
            assert groupings(*members) == ["mixed"] * 3, "the later one: it knew of the other"


async def test_what_was_chosen_holds_while_one_member_runs() -> None:
    with PureTime():
        wire = Wire()
        first, second = await pair(wire)
        first.planning.choose(ORDERED)
        await turns(2, first, second)
        await first.planning._board.withdraw(first.planning._member)
        third = Member(wire, World([]), [])
        await turns(1, second, third)
        assert groupings(second, third) == [ORDERED, ORDERED]
        wire.told.clear()
        after_all = Member(wire, World([]), [])
        await turns(2, after_all)
        assert after_all.planning.grouping == "mixed"


async def test_by_orders_only_nothing_is_planned_and_nothing_told_of_a_plan() -> None:
    with PureTime():
        wire = Wire()
        first, second = await pair(wire)
        second.planning.choose(ORDERED)
        await busy(2 * int(planner._SPAN), first, second)
        assert first.asked == {}
        second.planning.choose("mintable")
        await busy(3, first, second)
        wanted = first.asked
        assert len(wanted) == 1
        assert told_plans(wire) == [wanted_names(first)]
        leader_of(first, second).planning.choose(ORDERED)
        await turns(1, first, second)
        assert told_plans(wire) == []
        assert first.asked == wanted, "it is not undone"
        await busy(2 * int(planner._SPAN), first, second)
        assert first.asked == wanted


def told_plans(wire: Wire) -> list[set[str]]:
    reports = [planner._report_of(each) for each in wire.told.values()]
    return [set(each.plan) for each in reports if each is not None and each.plan]


def wanted_names(member: Member) -> set[str]:
    return {member.planning._name(group) for group in member.asked}


async def test_orders_only_hold_against_a_plan_of_a_member_that_does_not_know_of_them() -> None:
    with PureTime():
        first, second = await pair(Wire())
        await busy(3, first, second)
        first.planning.choose(ORDERED)
        leader = Report("0", 1.0, plan=dict.fromkeys(first.planning._names(), 1), number=1)
        first.planning._follow(leader, first.planning._names())
        assert first.asked == {}
        first.planning.choose("mixed")
        first.planning._follow(leader, first.planning._names())
        assert first.asked == {}, "that plan is past"


async def test_a_grouping_that_a_later_version_knows_plans_nothing_here() -> None:
    with PureTime():
        first, second = await pair(Wire())
        first.planning.choose("of-tomorrow")
        assert "of-tomorrow" not in PLANNERS
        await busy(2 * int(planner._SPAN), first, second)
        assert groupings(first, second) == ["of-tomorrow"] * 2
        assert first.asked == {}


async def test_a_key_that_has_moved_counts_where_it_is() -> None:
    with PureTime():
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
        assert leader_of(first, second).planning.plan.before == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("most", "all_together", "least", "told"), [(10, 99, 1, 10), (99, 30, 1, 15), (99, 8, 6, 6)])
async def test_reports_are_bounded(
    monkeypatch: pytest.MonkeyPatch, most: int, all_together: int, least: int, told: int
) -> None:
    """By what one tells, and by what all do, as each reads it."""
    monkeypatch.setattr(planner, "_MOST_KEYS", most)
    monkeypatch.setattr(planner, "_MOST_TOLD", all_together)
    monkeypatch.setattr(planner, "_LEAST_KEYS", least)
    with PureTime():
        first, second = await pair(Wire())
        await turns(2, first, second)
        chance = random.Random(1)
        keys = [InputKey(0, b"%d" % number) for number in range(100)]
        first.has(INPUT_PLACES[0], *(key.key.decode() for key in keys if isinstance(key.key, bytes)))
        costs = {key: chance.random() for key in keys}
        first.works(*costs.items())
        report: Report = first.planning._report(first.planning._names())
        assert len(report.held) == len(report.places) == told
        span = first._lanes.costs_here
        assert isinstance(span, CostsOfWork)
        total = report.rest + sum(each.seconds for each in report.held.values())
        assert total * max(1e-3, span.work_span(asyncio.get_running_loop().time())) == pytest.approx(
            sum(costs.values()), rel=0.01
        )


def test_calls_that_wait_for_a_thread_have_not_worked() -> None:
    """Those that were handed over first run."""
    calls = [SimpleNamespace(started=float(number)) for number in range(10)]
    lanes = SimpleNamespace(
        scheduler=SimpleNamespace(running=calls),
        handler=SimpleNamespace(concurrency=2),
        tally=SimpleNamespace(seconds={"ended": 5.0}),
    )
    planning: Any = SimpleNamespace(_lanes=lanes)
    assert Planning._worked_until(planning, 10.0) == 5.0 + 10.0 + 9.0
