"""Which hot keys' events members write to which slots, so that all lanes have as much to do: the plan of `split=True`.

Members tell what their own inputs need, in seconds of calls per second, and each of them makes the same plan of what
all have told. A plan is level-fill: members above the common level pour what they have above it into the slots of those
below, the hottest key first, slot by slot in their order. So it moves no more than evenness needs, and K keys that are
poured into S slots have at most K + S - 1 pairs of key and slot. Where no member is above the level by more than chance
explains, or all have lanes to spare, there is no flow.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

LEAST_LEVEL = 0.5
"""Of its lanes: members with less to do have queues that are as short as they would be with any plan."""
_TOLERANCE = 0.02
_NOISE = 2.0
"""Standard deviations by which a member's load may exceed the level by chance."""
_HALVINGS = 40
_LEAST_EVENTS = 20
"""From which a key's cost is compared between members."""


class HotKey(msgspec.Struct, frozen=True):
    """A key as one member sees it. `demand`: seconds of calls per second that its own inputs bring; `cost`: seconds of
    an event, the mean of the last `events`; 0 if none has ended."""

    name: str
    demand: float
    cost: float = 0.0
    events: int = 0


class Slot(msgspec.Struct, frozen=True):
    """A slot as its owner sees it. It has read all before the offset `position`; `open` is how many events of each
    input have been read and are not committed as ended; `grants`: how many open events each member may have in it;
    `idle`: how many any other may have, as lanes have nothing to do."""

    position: int
    open: dict[int, int] = {}
    grants: dict[str, int] = {}
    idle: int = 0


class Report(msgspec.Struct, frozen=True):
    """What a member tells the others. `lanes`: seconds of calls per second that it can do; `demand`: that its inputs
    bring; `events`: from how many that was estimated; `excess`: seconds of calls that wait for its lanes, without
    those that usually do, if others may have some of them; `spare`: lanes that have nothing to do."""

    member: str
    lanes: float
    demand: float = 0.0
    events: float = 0.0
    keys: list[HotKey] = []
    slots: dict[int, Slot] = {}
    excess: float = 0.0
    spare: float = 0.0


@dataclass(frozen=True, slots=True)
class Flow:
    """What of a member's key is written to a slot: `load` in seconds of calls per second as that member measures them,
    `rate` in events per second."""

    member: str
    key: str
    slot: int
    load: float
    rate: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`before`, `after`: λ, the largest load of a member over the mean, without the flows and with them."""

    flows: Sequence[Flow] = ()
    before: float = 1.0
    after: float = 1.0


@dataclass(slots=True)
class _Member:
    """Loads in seconds of calls on an average member; `slowness`: how much longer calls take here than there."""

    report: Report
    slowness: float
    capacity: float
    load: float
    hot: float
    moved: float = 0.0

    @property
    def fixed(self) -> float:
        return self.load - self.hot


def plan_of(reports: Iterable[Report]) -> Plan:
    """The plan that all members make of these reports, in whatever order they are."""
    members = _members(sorted(reports, key=lambda each: each.member))
    capacity = sum(each.capacity for each in members)
    mean = sum(each.load for each in members) / capacity if capacity else 0.0
    if not mean:
        return Plan()
    level = max(_level(members), LEAST_LEVEL)
    giving = [each for each in members if each.hot and _is_above(each, level)]
    rooms = _rooms([each for each in members if each not in giving], level)
    flows = _pour(giving, rooms, level) if rooms else []
    before = max(each.load / each.capacity for each in members) / mean
    after = max((each.load + each.moved) / each.capacity for each in members) / mean
    return Plan(flows, before, after)


def _members(reports: Sequence[Report]) -> list[_Member]:
    costs: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for report in reports:
        for key in report.keys:
            if key.events >= _LEAST_EVENTS and key.cost > 0:
                costs[key.name].append((key.cost, key.events))
    usual = {
        name: sum(cost * events for cost, events in each) / sum(events for _, events in each)
        for name, each in costs.items()
        if len(each) > 1
    }
    found = []
    for report in reports:
        slowness = _slowness(report, usual)
        load, hot = report.demand / slowness, sum(key.demand for key in report.keys) / slowness
        found.append(_Member(report, slowness, max(report.lanes, 1e-9) / slowness, load, min(hot, load)))
    return found


def _slowness(report: Report, usual: dict[str, float]) -> float:
    shared = [key for key in report.keys if key.name in usual and key.events >= _LEAST_EVENTS]
    expected = sum(usual[key.name] * key.events for key in shared)
    return sum(key.cost * key.events for key in shared) / expected if expected else 1.0


def _level(members: Sequence[_Member]) -> float:
    """The part of all lanes to which hot keys fill up: what is above it fits into what is free below it."""
    low, high = 0.0, max(each.load / each.capacity for each in members)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = sum(max(0.0, each.load - max(middle * each.capacity, each.fixed)) for each in members)
        below = sum(max(0.0, middle * each.capacity - each.load) for each in members if each.report.slots)
        if above > below:
            low = middle
        else:
            high = middle
    return high


def _is_above(member: _Member, level: float) -> bool:
    chance = _TOLERANCE + _NOISE / math.sqrt(max(1.0, member.report.events))
    return member.load > level * member.capacity * (1 + chance)


def _rooms(members: Iterable[_Member], level: float) -> list[tuple[int, float, _Member]]:
    """Slots with what each takes, in their order."""
    found = []
    for each in members:
        room = level * each.capacity - each.load
        if room > 0:
            found += [(slot, room / len(each.report.slots), each) for slot in each.report.slots]
    return sorted(found, key=lambda room: room[0])


def _pour(giving: Sequence[_Member], rooms: list[tuple[int, float, _Member]], level: float) -> list[Flow]:
    # Where there is more to do than lanes can, all of it takes so many times as long.
    pace = max(1.0, level)
    flows: list[Flow] = []
    rooms = rooms[::-1]
    for member in giving:
        left = member.load - max(level * member.capacity, member.fixed)
        for key in sorted(member.report.keys, key=lambda key: (-key.demand, key.name)):
            of_key = min(left, key.demand / member.slowness)
            left -= of_key
            while of_key > 0 and rooms:
                slot, room, taker = rooms.pop()
                amount = min(of_key, room)
                of_key -= amount
                member.moved -= amount
                taker.moved += amount
                if amount < room:
                    rooms.append((slot, room - amount, taker))
                load = amount * member.slowness / pace
                if key.cost > 0:
                    flows.append(Flow(member.report.member, key.name, slot, load, load / key.cost))
    return flows
