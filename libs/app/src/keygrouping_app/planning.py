"""Which keys are to be handed over, by what they cost and what state they have: the plan of `State(moves="mixed")`.

Each member tells what its keys have cost of late, and where its inputs' keys are; one of them plans for all. The
planners are those of the library's groupings by a routing table: Fang et al., "Parallel Stream Processing Against
Workload Skewness and Variance" (HPDC 2017, arXiv 1610.05121), with members as workers, and a key's home where its
input is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any
from zlib import crc32

import msgspec

from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.moves import HOME

PLANNERS = ("llfd", "mintable", "minmig", "mixed")
ORDERED = "ordered"
"""Instead of one of them: nothing is planned, keys move when the API is told to."""
LEAST_BUSY = 0.5
"""Of a member's lanes: while none is busier, keys wait no longer where they are than anywhere else."""
_TOLERANCE = 0.08
"""As in the library's settings: what is no overload."""
_NO_LANES = 1e-9
_NONE: Mapping[str, float] = {}


class Held(msgspec.Struct, frozen=True):
    """A key that a member has, or had of late: seconds of its calls per second, and bytes of the state that it has.
    `cost`: seconds of an event, the mean of `events`."""

    seconds: float
    bytes: int
    cost: float = 0.0
    events: int = 0


class Chosen(msgspec.Struct, frozen=True, order=True):
    """The grouping that somebody has chosen while the app runs. Of several the greatest one holds, for all members."""

    version: int = 0
    """Greater than all that were known where it was chosen; 0: nobody has chosen."""
    member: str = ""
    """Where it was chosen."""
    grouping: str = ""


class Promise(msgspec.Struct, frozen=True, order=True):
    """What the last plan by which keys move has said. Of several the greatest one holds, for all members."""

    version: int = 0
    """Greater than all that were known where it was made; 0: there is none."""
    member: str = ""
    """That has planned."""
    at: float = 0.0
    """Seconds since 1970, by that member's clock."""
    keys: int = 0
    before: float = 1.0
    after: float = 1.0
    """λ, as in `Planned`."""


class Report(msgspec.Struct, frozen=True):
    """What a member tells of a handler. `held`: the keys that cost most, by name, and `rest` seconds per second of all
    others; `places`: the slots of its inputs' keys among the costly ones, or HOME; `slots`: those that it owns."""

    member: str
    lanes: float
    rest: float = 0.0
    held: dict[str, Held] = {}
    places: dict[str, int] = {}
    slots: list[int] = []
    leaving: list[str] = []
    """Keys of its inputs among the costly ones that are on their way: to where `places` says."""
    known: bool = True
    """Whether it has had its partitions for long enough to know what their keys cost."""
    plan: dict[str, int] = {}
    """If it has planned just now: where keys are to be."""
    number: int = 0
    """Of that plan: each is followed once."""
    chosen: Chosen = Chosen()
    """The greatest that it has made or heard of."""
    promise: Promise = Promise()
    """The same."""
    worked: float | None = None
    """Seconds of all its calls since it began, those that run included. None: it is of an earlier version."""
    clock: float = 0.0
    """When it had worked so much, in seconds of a clock of its own."""
    span: float = 0.0
    """Seconds of time in which the calls were that `rest` and `held` are of. 0: it is of an earlier version."""
    imbalance: float | None = None
    """What it knows of `imbalance_of`: of the member that plans it is what holds."""


class Balance(msgspec.Struct, frozen=True):
    """How even the work of members is whose keys move by plan. `now`: λ of the calls that they have had in the last
    ten seconds; None: nothing is known of them, or there were none."""

    promise: Promise = Promise()
    now: float | None = None


class NotPlannedError(LookupError):
    """No handler of the app has a plan."""


class JustBegunError(Exception):
    """The member may not have heard yet what others have chosen."""


class Planned(msgspec.Struct, frozen=True):
    """Where keys are to be, a slot or HOME, by name: those that are to move. λ of members' loads before and after.

    Members without slots to which nothing can be moved count only as far as they have work.
    """

    targets: dict[str, int]
    before: float
    after: float
    bytes: int
    """Of the states that move."""


def check(handler: Handler) -> None:
    """AppError if nothing can be planned here."""
    try:
        import keygrouping.grouping.table.placing  # noqa: F401
    except ModuleNotFoundError:
        raise AppError(
            [f"{handler.name}: its State(moves=...) plans by the library's groupings: pip install keygrouping"]
        ) from None


def is_busy(reports: Iterable[Report]) -> bool:
    """Whether the calls of late have filled so much of a member's lanes that something may be planned."""
    return any(
        each.rest + sum(held.seconds for held in each.held.values()) >= LEAST_BUSY * each.lanes for each in reports
    )


def plan_of(reports: Iterable[Report], planner: str, slowness: Mapping[str, float] = _NONE) -> Planned:
    """A plan by these reports, of one member at least: the same, whatever their order.

    `slowness`: of members whose calls take so many times longer than they do elsewhere. What a key costs is by that of
    the member that tells of it, and will be by that of the one to which it goes.
    """
    members = _members(reports, slowness)
    known = _keys(members)
    rests = _rests(members, {key.name for key in known})
    leaving = {name for each in members for name in each.leaving}
    for key in known:
        rests[key.worker] += key.seconds if key.name in leaving else 0.0
    keys = [key for key in known if key.name not in leaving]
    loads = _loads(rests, keys, [key.worker for key in keys])
    able = _able(members, keys, loads)
    before = _imbalance(loads, able)
    busiest = max(load / max(each.lanes, _NO_LANES) for load, each in zip(loads, members, strict=True))
    if not keys or busiest < LEAST_BUSY or before <= 1 + _TOLERANCE:
        return Planned({}, before, before, 0)
    after: list[int] = []
    targets: dict[str, int] = {}
    for key, to in zip(keys, _chosen(rests, able, keys, planner), strict=True):
        target = None if to == key.worker else _target(key, members[to], to)
        after.append(key.worker if target is None else to)
        if target is not None:
            targets[key.name] = target
    later = _imbalance(_loads(rests, keys, after), able)
    if later > before:  # the planners' bound is of members that are alike
        return Planned({}, before, before, 0)
    return Planned(targets, before, later, sum(key.bytes for key in keys if key.name in targets))


def imbalance_of(
    reports: Iterable[Report], worked: Mapping[str, float], slowness: Mapping[str, float] = _NONE
) -> float | None:
    """λ of what members have worked, in seconds of calls per second: to be compared with that of a plan, as it is by
    the same lanes. None: there was nothing to do."""
    members = _members(reports, slowness)
    loads = [worked[each.member] / slowness.get(each.member, 1.0) for each in members]
    return _imbalance(loads, _able(members, _keys(members), loads)) if any(loads) else None


def _members(reports: Iterable[Report], slowness: Mapping[str, float]) -> list[Report]:
    in_order = sorted(reports, key=lambda each: each.member)
    return [_leveled(each, slowness.get(each.member, 1.0)) for each in in_order]


def _leveled(report: Report, slowness: float) -> Report:
    """As if the member were an average one with as many lanes as it can do work of."""
    if slowness == 1.0:
        return report
    held = {name: msgspec.structs.replace(each, seconds=each.seconds / slowness) for name, each in report.held.items()}
    return msgspec.structs.replace(report, lanes=report.lanes / slowness, rest=report.rest / slowness, held=held)


def _able(members: Sequence[Report], keys: Iterable[_Key], loads: Sequence[float]) -> list[float]:
    """The lanes of each member. One without slots can only get its own keys back: it has as many as it has work for."""
    lanes = [max(each.lanes, _NO_LANES) for each in members]
    takers = [place for place, each in enumerate(members) if each.slots]
    if not takers:
        return lanes
    level = sum(loads[place] for place in takers) / sum(lanes[place] for place in takers)
    own = [*loads]
    for key in keys:
        own[key.home] += key.seconds if key.worker != key.home else 0.0
    needs = [min(its, load / level if level else its * (load > 0)) for its, load in zip(lanes, own, strict=True)]
    return [its if each.slots else max(need, _NO_LANES) for each, its, need in zip(members, lanes, needs, strict=True)]


def _rests(members: Sequence[Report], known: Set[str]) -> list[float]:
    """What can't be moved: keys that are not told of, and those of which nobody tells where they are."""
    return [each.rest + sum(held.seconds for name, held in each.held.items() if name not in known) for each in members]


def _loads(rests: Sequence[float], keys: Sequence[_Key], workers: Sequence[int]) -> list[float]:
    loads = [*rests]
    for key, worker in zip(keys, workers, strict=True):
        loads[worker] += key.seconds
    return loads


def _imbalance(loads: Sequence[float], able: Sequence[float]) -> float:
    """λ: the largest over the mean, each over the lanes that there are for it."""
    total = sum(loads)
    return max(load / lanes for load, lanes in zip(loads, able, strict=True)) * sum(able) / total if total else 1.0


class _Key(msgspec.Struct):
    name: str
    seconds: float
    bytes: int
    home: int
    """The number of the member that reads its input."""
    worker: int
    """And of the one that has it."""
    told: list[tuple[int, float, float]] = []
    """Numbers of members that have, or had, calls of it, with their seconds per second and in which time."""


def _keys(members: Sequence[Report]) -> list[_Key]:
    """Those of which is known who has them and who reads their input."""
    owners = {slot: number for number, each in enumerate(members) for slot in each.slots}
    found: dict[str, _Key] = {}
    for home, member in enumerate(members):
        for name, slot in member.places.items():
            worker = home if slot == HOME else owners.get(slot)
            if worker is not None:
                found[name] = _Key(name, 0.0, 0, home, worker)
    for number, member in enumerate(members):
        for name, held in member.held.items():
            if (key := found.get(name)) is not None:
                key.told.append((number, held.seconds, member.span))
                key.bytes = max(key.bytes, held.bytes)
    for key in found.values():
        key.seconds = _seconds(key)
    return [found[name] for name in sorted(found)]


def _seconds(key: _Key) -> float:
    """Of its calls per second, also if it has moved: of all of them in the time of who had it before.

    Who has it now may have had nothing to do until it came, and tells of less time. But that time may also have begun
    since, and who had it may have been idle before: so it is neither less than one of them tells nor more than all.
    """
    every = [seconds for _, seconds, _ in key.told]
    before = max((span for number, _, span in key.told if number != key.worker), default=0.0)
    if not before or not all(span for *_, span in key.told):
        return sum(every)
    return min(sum(every), max(*every, sum(seconds * span for _, seconds, span in key.told) / before))


def _chosen(rests: Sequence[float], able: Sequence[float], keys: Sequence[_Key], planner: Any) -> list[int]:
    from keygrouping.grouping.table.placing import planned_workers

    return planned_workers(
        planner,
        cost=[key.seconds for key in keys],
        state=[float(max(1, key.bytes)) for key in keys],
        home=[key.home for key in keys],
        worker=[key.worker for key in keys],
        background=rests,
        capacity=able,
    )


def _target(key: _Key, member: Report, worker: int) -> int | None:
    """A slot of the member, or HOME if it reads the key's input; None if it has no slot."""
    if worker == key.home:
        return HOME
    if not member.slots:
        return None
    return sorted(member.slots)[crc32(key.name.encode()) % len(member.slots)]
