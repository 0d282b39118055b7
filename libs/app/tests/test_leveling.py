"""Who writes what to which slot: as much as evenness needs, of hot keys only, and nothing where there is no skew."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app.leveling import LEAST_LEVEL, Flow, HotKey, Plan, Report, Slot, plan_of

EXACT = 1e-6


def report(
    name: str, demand: float, *hot: float, lanes: float = 16, slots: tuple[int, ...] = (), cost: float = 0.005
) -> Report:
    keys = [HotKey(f"{name}-{rank}", each, cost, 1000) for rank, each in enumerate(hot)]
    return Report(name, lanes, demand, 1e9, keys, {slot: Slot(0) for slot in slots})


@st.composite
def groups(draw: st.DrawFn) -> list[Report]:
    """Members with loads from none to many times what they can do; part of it by hot keys; some have no slots."""
    slots, found = count(), []
    for number in range(draw(st.integers(1, 7))):
        lanes = draw(st.sampled_from([1.0, 8.0, 16.0]))
        hot = draw(st.lists(st.floats(0.01, 40), max_size=3))
        rest = draw(st.floats(0, 20))
        mine = tuple(next(slots) for _ in range(draw(st.integers(0, 2))))
        found.append(report(f"m{number}", rest + sum(hot), *hot, lanes=lanes, slots=mine))
    return found


def loads_after(reports: list[Report], plan: Plan, pace: float) -> dict[str, float]:
    """By an account of its own: what each member has to do then, relative to its lanes."""
    owner = {slot: each.member for each in reports for slot in each.slots}
    loads = {each.member: each.demand for each in reports}
    for flow in plan.flows:
        loads[flow.member] -= flow.load * pace
        loads[owner[flow.slot]] += flow.load * pace
    return {each.member: loads[each.member] / each.lanes for each in reports}


def even_level(reports: list[Report]) -> float:
    """The lowest level that all could have if hot keys' events could be anywhere but at members without slots, by
    trying levels from below."""
    low, high = 0.0, max(each.demand / each.lanes for each in reports)
    for _ in range(60):
        level = (low + high) / 2
        above = below = 0.0
        for each in reports:
            hot = sum(key.demand for key in each.keys)
            excess = each.demand - level * each.lanes
            above += min(max(0.0, excess), hot)
            below += max(0.0, -excess) if each.slots else 0.0
        low, high = (level, high) if above > below else (low, level)
    return max(high, LEAST_LEVEL)


@given(groups())
def test_loads_are_as_even_as_hot_keys_allow_and_no_more_is_moved(reports: list[Report]) -> None:
    plan, level = plan_of(reports), even_level(reports)
    after = loads_after(reports, plan, max(1.0, level))
    giving = {flow.member for flow in plan.flows}
    moved = {name: sum(flow.load for flow in plan.flows if flow.member == name) for name in giving}
    for each in reports:
        hot = sum(key.demand for key in each.keys)
        before = each.demand / each.lanes
        if each.member in giving:
            fixed = (each.demand - hot) / each.lanes
            assert after[each.member] == pytest.approx(max(level, fixed), rel=1e-4, abs=1e-4)
            assert moved[each.member] > 0
        elif each.keys and before > level * 1.021:
            assert not any(other.slots and other is not each for other in reports) or after[each.member] == before
        assert after[each.member] <= max(before, level) * (1 + 1e-4) + 1e-4


@given(groups())
def test_a_plan_is_of_few_pairs_and_never_to_who_gives(reports: list[Report]) -> None:
    plan = plan_of(reports)
    owner = {slot: each.member for each in reports for slot in each.slots}
    demands = {key.name: key.demand for each in reports for key in each.keys}
    giving = {flow.member for flow in plan.flows}
    assert not giving & {owner[flow.slot] for flow in plan.flows}
    assert len({(flow.key, flow.slot) for flow in plan.flows}) == len(plan.flows)
    keys, slots = {flow.key for flow in plan.flows}, {flow.slot for flow in plan.flows}
    assert len(plan.flows) <= max(0, len(keys) + len(slots) - 1)
    for key in keys:
        assert sum(flow.load for flow in plan.flows if flow.key == key) <= demands[key] * (1 + EXACT)
    assert all(flow.load > 0 and flow.rate == pytest.approx(flow.load / 0.005) for flow in plan.flows)


@given(groups(), st.randoms())
def test_all_members_make_the_same_plan(reports: list[Report], chance: random.Random) -> None:
    other = [*reports]
    chance.shuffle(other)
    assert plan_of(other) == plan_of(reports)


def test_a_load_too_small_for_a_mean_is_none() -> None:
    assert plan_of([report("m0", 0.0), report("m1", 5e-324)]) == Plan()


def test_one_key_of_40_percent_among_12_members_is_spread_over_all() -> None:
    whole = 12 * 16 * 0.9
    others = 0.6 * whole / 12
    reports = [report(f"m{number:02}", others, slots=(number,)) for number in range(1, 12)]
    plan = plan_of([report("m00", others + 0.4 * whole, 0.4 * whole, slots=(0,)), *reports])
    assert plan.before == pytest.approx(0.45 * 12)
    assert plan.after == pytest.approx(1)
    assert sum(flow.load for flow in plan.flows) == pytest.approx((0.45 - 1 / 12) * whole)
    assert [flow.slot for flow in plan.flows] == list(range(1, 12))


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [report("a", 0.0, slots=(0,)), report("b", 0.0, slots=(1,))],
        [report("a", 40.0, 30.0, slots=(0,))],
        [report("a", 15.0, 5.0, slots=(0,)), report("b", 15.0, 5.0, slots=(1,))],
        [report("a", 15.0, slots=(0,)), report("b", 5.0, slots=(1,))],
        [report("a", 7.9, 7.0, slots=(0,)), report("b", 0.0, slots=(1,))],
        [report("a", 40.0, 30.0), report("b", 0.0)],
    ],
    ids=["nobody", "nothing to do", "alone", "even", "no hot keys", "lanes to spare", "no slots"],
)
def test_without_need_or_place_nothing_flows(reports: list[Report]) -> None:
    assert not plan_of(reports).flows


def test_what_few_events_say_is_taken_for_chance() -> None:
    def flows(events: float) -> list[Flow]:
        members = [report("a", 14.0, 5.0, slots=(0,)), report("b", 10.0, slots=(1,))]
        few = Report("a", 16, 14.0, events, members[0].keys, members[0].slots)
        return list(plan_of([few, members[1]]).flows)

    assert not flows(100)
    assert flows(1000)


def test_a_member_whose_calls_take_longer_gets_less() -> None:
    """By the cost of the same key in both, though it says that it has as many lanes."""
    hot = report("a", 32.0, 31.0, slots=(0,))
    quick, slow = (
        Report(name, 16, 0.0, 1e9, [HotKey("a-0", 0.0, cost, 1000)], {slot: Slot(0)})
        for name, cost, slot in (("b", 0.005, 1), ("c", 0.01, 2))
    )
    loads = {flow.slot: flow.load for flow in plan_of([hot, quick, slow]).flows}
    assert loads[1] == pytest.approx(2 * loads[2], rel=1e-3)
