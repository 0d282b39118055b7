"""Surplus of a hot key between inputs and slots, as a model that is explored: see docs/decisions/hand-over.md.

Owners of input partitions handle events of the key themselves, in any order, or write them to a slot whose grant is not
used up. A grant is how many open events an input may have in the slot. An owner counts what it writes, and hears from
the slot how many of its input's events are open there; a successor does not know that until it has heard it. To hear
something old is to have heard it before, as what was written since is counted besides. Crashes by themselves and owners
behind their fence are left out, as in the hand-over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from .explorer import Found, Step, explore

Event: TypeAlias = "tuple[int, int]"
"""Input and number."""
HERE = -1
"""In place of a slot: the owner handles the event itself."""
UNKNOWN = -1


@dataclass(frozen=True)
class Surplus:
    """What there is to do, and the rules."""

    events: tuple[int, ...] = (2, 2)
    """Of the hot key, in each input."""
    slots: int = 2
    share: int = 1
    """Open surplus events that a slot takes of each input."""
    exactly_once: bool = True
    writes_first: bool = True
    """At least once: an event is written before its offset is committed."""
    hears_first: bool = True
    """A successor writes nothing to a slot before it has heard from it, when all that is there has been read."""
    crashes: int = 2
    """At least once: at most. Exactly once there is no limit."""
    ordered: bool = False
    """Whether to look for events that are handled before one before them."""


class Unit(NamedTuple):
    """An event that an owner works on."""

    number: int
    where: int
    written: bool


class Owner(NamedTuple):
    """An input: what is committed, and what its owner works on."""

    ended: int
    counted: tuple[int, ...]
    """Open events of the input in each slot, as far as the owner knows; `UNKNOWN` to a successor."""
    unit: Unit | None = None
    late: Unit | None = None
    """A request of a former owner that is still under way; without transactions nothing fences it."""


class Members(NamedTuple):
    """All of it."""

    owners: tuple[Owner, ...]
    logs: tuple[tuple[tuple[Event, bool], ...], ...]
    """Of the slots: open events, in any order, and whether each is handled already, and not committed."""
    outputs: tuple[tuple[int, ...], ...]
    """How often each event was put out."""
    crashes: int
    """At least once: how many may still come. Each may add a copy of an event, so without an end there were no end."""


Steps: TypeAlias = "Iterator[Step[Members]]"


def verify(world: Surplus) -> Found:
    """Explores a world."""
    return explore(_begin(world), _Model(world).steps, _ended)


def _begin(world: Surplus) -> Members:
    none = (0,) * world.slots
    owners = tuple(Owner(0, none) for _ in world.events)
    return Members(owners, ((),) * world.slots, tuple((0,) * count for count in world.events), world.crashes)


def _ended(state: Members) -> bool:
    return (
        all(count for counts in state.outputs for count in counts)
        and not any(state.logs)
        and all(owner.unit is None and owner.ended == (1 << len(counts)) - 1 for owner, counts in _pairs(state))
    )


def _pairs(state: Members) -> Iterator[tuple[Owner, tuple[int, ...]]]:
    return zip(state.owners, state.outputs, strict=True)


class _Model:
    def __init__(self, world: Surplus) -> None:
        self._world = world

    def steps(self, state: Members) -> Steps:
        """All that may happen next."""
        for source, owner in enumerate(state.owners):
            if owner.unit is None:
                yield from self._begins(state, source, owner)
            else:
                yield from self._goes_on(state, source, owner, owner.unit)
            yield from self._hears(state, source, owner)
            if owner.late is not None:
                arrived = _with(state, source, owner._replace(late=None))
                yield self._written(
                    f"input {source}: a request of the former owner arrives", arrived, source, owner.late
                )
            if owner.unit is not None and (self._world.exactly_once or state.crashes):
                late = None
                if not self._world.exactly_once and not owner.unit.written:
                    late = owner.unit
                counted = (UNKNOWN if self._world.hears_first else 0,) * self._world.slots
                fresh = owner._replace(unit=None, counted=counted, late=late)
                left = state.crashes - (not self._world.exactly_once)
                taken = _with(state, source, fresh)._replace(crashes=left)
                yield Step(f"input {source}: a successor begins", taken, disturbs=True)
        for slot, log in enumerate(state.logs):
            for place in range(len(log)):
                yield self._handles(state, slot, place)
            if state.crashes and any(handled for _, handled in log):
                open_again = tuple(sorted((event, False) for event, _ in log))
                changed = state._replace(logs=_put(state.logs, slot, open_again), crashes=state.crashes - 1)
                yield Step(f"slot {slot}: a successor begins", changed, disturbs=True)

    def _hears(self, state: Members, source: int, owner: Owner) -> Steps:
        for slot, log in enumerate(state.logs):
            still_open = sum(event[0] == source for event, _ in log)
            if self._may_write(owner.counted[slot]) != self._may_write(still_open):
                heard = owner._replace(counted=_put(owner.counted, slot, min(still_open, self._world.share)))
                yield Step(f"input {source}: hears from slot {slot}", _with(state, source, heard))

    def _may_write(self, still_open: int) -> bool:
        return UNKNOWN < still_open < self._world.share

    def _begins(self, state: Members, source: int, owner: Owner) -> Steps:
        for number in range(self._world.events[source]):
            if owner.ended >> number & 1:
                continue
            for where in (HERE, *range(self._world.slots)):
                if where != HERE and not self._may_write(owner.counted[where]):
                    continue
                unit = Unit(number, where, False)
                to = "for itself" if where == HERE else f"for slot {where}"
                what = f"input {source}: takes event {number} {to}"
                yield Step(what, _with(state, source, owner._replace(unit=unit)))

    def _goes_on(self, state: Members, source: int, owner: Owner, unit: Unit) -> Steps:
        counted = owner.counted
        if unit.where != HERE and counted[unit.where] != UNKNOWN:
            counted = _put(counted, unit.where, min(counted[unit.where] + 1, self._world.share))
        ended = owner.ended | 1 << unit.number
        done = owner._replace(ended=ended, counted=counted, unit=None)
        name = f"input {source}: "
        if self._world.exactly_once:
            changed = _with(state, source, done)
            yield self._written(f"{name}commits event {unit.number} with its offset", changed, source, unit)
        elif not self._world.writes_first and not owner.ended >> unit.number & 1:
            early = owner._replace(ended=ended, counted=counted)
            yield self._checked(f"{name}commits the offset", _with(state, source, early), source, unit.number)
        elif unit.written:
            yield self._checked(f"{name}commits the offset", _with(state, source, done), source, unit.number)
        else:
            after = unit._replace(written=True) if self._world.writes_first else None
            changed = _with(state, source, owner._replace(unit=after))
            yield self._written(f"{name}writes event {unit.number}", changed, source, unit)

    def _written(self, what: str, state: Members, source: int, unit: Unit) -> Step[Members]:
        if unit.where == HERE:
            return self._put_out(what, state, (source, unit.number))
        log = tuple(sorted((*state.logs[unit.where], ((source, unit.number), False))))
        return self._checked(what, state._replace(logs=_put(state.logs, unit.where, log)), source, unit.number)

    def _handles(self, state: Members, slot: int, place: int) -> Step[Members]:
        event, handled = state.logs[slot][place]
        log = state.logs[slot]
        name = f"slot {slot}: {{}} event {event[1]} of input {event[0]}"
        if not self._world.exactly_once and not handled:
            changed = state._replace(logs=_put(state.logs, slot, _put(log, place, (event, True))))
            return self._put_out(name.format("handles"), changed, event)
        changed = state._replace(logs=_put(state.logs, slot, (*log[:place], *log[place + 1 :])))
        if self._world.exactly_once:
            return self._put_out(name.format("handles and commits"), changed, event)
        return self._checked(name.format("commits"), changed, *event)

    def _put_out(self, what: str, state: Members, event: Event) -> Step[Members]:
        source, number = event
        counts = state.outputs[source]
        if self._world.ordered and number and not counts[number - 1]:
            return Step(what, state, broken=f"event {number} of input {source} is handled before event {number - 1}")
        counts = _put(counts, number, counts[number] + 1)
        return self._checked(what, state._replace(outputs=_put(state.outputs, source, counts)), source, number)

    def _checked(self, what: str, state: Members, source: int, number: int) -> Step[Members]:
        return Step(what, state, broken=self._wrong(state, source, number))

    def _wrong(self, state: Members, source: int, number: int) -> str:
        owner = state.owners[source]
        committed = owner.ended >> number & 1
        waiting = sum(event == (source, number) for log in state.logs for event, _ in log)
        done = state.outputs[source][number]
        name = f"event {number} of input {source}"
        if committed and not waiting and not done:
            return f"{name} is lost"
        still = sum(event == (source, number) and not handled for log in state.logs for event, handled in log)
        if not self._world.exactly_once and still + done > 2 ** (self._world.crashes - state.crashes):
            return f"{name} is done again more often than the crashes explain"
        if self._world.exactly_once:
            if (not committed) + waiting + done != 1:
                return f"{name} is committed twice"
            for slot, log in enumerate(state.logs):
                if len(log) > self._world.share * len(self._world.events):
                    return f"slot {slot} has more open events than it has room for"
        return ""


def _with(state: Members, source: int, owner: Owner) -> Members:
    return state._replace(owners=_put(state.owners, source, owner))


def _put(values: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:place], value, *values[place + 1 :])
