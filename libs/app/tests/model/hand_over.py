"""The hand-over of keys with state to slots and back, as a model that is explored: see docs/decisions/hand-over.md.

An owner of an input partition handles its events, with the states of their keys, or forwards those of keys that were
handed over to slots; an owner of a slot handles what comes to it. One unit of work is a transaction: an event, a state
that goes, or a call for one. Larger ones do nothing more: they show at once what smaller ones show one after another.

What is left out because it changes nothing that can be observed:
- A crash by itself. To everybody else, a dead owner is one that takes no step; so each step may be an owner's last, and
  what matters is when the successor begins.
- A former owner behind its fence. It may run on, but the broker refuses whatever it sends; before, it takes part.
- Records of transactions that were aborted, and the beginning of a log once its reader has committed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from .explorer import Found, Step, explore

HOME = -1
"""The place of a key whose own input's owner handles it."""
EVENT, STATE, CALL, ANSWER = range(4)
_OTHER = 1000


@dataclass(frozen=True)
class Protocol:
    """The rules of the hand-over. Each can be broken, to see what it is good for."""

    fences_first: bool = True
    """A successor reads what is committed only after it has fenced the owner before."""
    waits_until_stable: bool = True
    """A successor waits until all of the transaction before is shown."""
    place_with_state: bool = True
    """The input says where a key is in the transaction that sends its state there; else in the next one."""
    holds: bool = True
    """The input holds a key's events from the call for its state until the answer."""
    in_turn: bool = True
    """A slot sends a state away when all of the key's events that came before the call have ended."""
    answers_with_state: bool = True
    """The slot answers in the transaction that gives up the state; else in the next one."""
    reads_committed: bool = True
    """The input believes an answer when it is committed."""
    tombstone: bool = True
    """The old slot deletes its copy of the state."""


@dataclass(frozen=True)
class World:
    """What there is to do: `inputs` has the keys of each input's events, `paths` the places of each input's keys.

    All are at home at first. `room`: records of a slot that are read from the first open one on, at most.
    """

    inputs: tuple[tuple[int, ...], ...] = ((0, 0), (0,))
    paths: tuple[tuple[tuple[int, ...], ...], ...] = (((HOME, 0, 1),), ((HOME, 1),))
    slots: int = 2
    room: int = 2
    protocol: Protocol = Protocol()


class Entry(NamedTuple):
    """What an input's changelog says of a key."""

    move: int
    """Its place is this one of its path."""
    called: bool = False
    """Whether the slot that has it is to send it to the next one."""
    events: int | None = None
    """How many are in its state, if that is here."""


class Line(NamedTuple):
    """Of an input's changelog, that is not shown yet: its transaction is open (`tag` > 0) or committed (< 0)."""

    key: int
    entry: Entry
    tag: int


class Record(NamedTuple):
    """Of a slot's log; `tag` as in `Line`, 0 when it is shown."""

    kind: int
    source: int
    key: int
    number: int
    """Of an event its number among those of its key, of a state its count, of a call the move that it is for."""
    tag: int


class Unit(NamedTuple):
    """What an owner has written and not committed; of a slot, which record of its log that is about."""

    kind: int
    source: int
    key: int
    number: int
    record: Record | None = None


class Owner(NamedTuple):
    """What is in the memory of an owner of an input (`entries`) or a slot (`states`: of each input's keys)."""

    tag: int
    ended: int = 0
    """Bits of the input's events."""
    entries: tuple[Entry, ...] = ()
    states: tuple[tuple[int | None, ...], ...] = ()
    doing: Unit | None = None
    owed: Unit | None = None
    """What a rule that is off has put off."""
    fresh: bool = False
    """Whether it has yet to fence the owner before."""


class Input(NamedTuple):
    """An input partition: bits of the events that are committed, what its changelog shows, and what it does not yet."""

    ended: int
    shown: tuple[Entry, ...]
    lines: tuple[Line, ...]
    owners: tuple[Owner, ...]


class Slot(NamedTuple):
    """A slot: what of its log is not committed as ended, and its changelog."""

    log: tuple[Record, ...]
    states: tuple[tuple[int | None, ...], ...]
    owners: tuple[Owner, ...]


class Cluster(NamedTuple):
    """All that Kafka holds, and all memories. `outputs`: how many events of each input's keys are handled."""

    outputs: tuple[tuple[int, ...], ...]
    inputs: tuple[Input, ...]
    slots: tuple[Slot, ...]


Steps: TypeAlias = "Iterator[Step[Cluster]]"


def verify(world: World, most: int = 5_000_000) -> Found:
    """Explores a world."""
    model = Model(world)
    return explore(model.begin(), model.steps, model.ended, most)


class Model:
    """What may happen in a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rules = world.protocol
        self._events = [[(key, keys[:place].count(key)) for place, key in enumerate(keys)] for keys in world.inputs]
        self._pairs = [(source, key) for source, paths in enumerate(world.paths) for key in range(len(paths))]

    def begin(self) -> Cluster:
        """Every key at home, nothing read."""
        inputs = tuple(
            Input(0, entries := tuple(Entry(0, events=0) for _ in paths), (), (Owner(1 + source, entries=entries),))
            for source, paths in enumerate(self._world.paths)
        )
        none = tuple(tuple(None for _ in paths) for paths in self._world.paths)
        slots = tuple(Slot((), none, (Owner(11 + slot, states=none),)) for slot in range(self._world.slots))
        return Cluster(tuple(tuple(0 for _ in paths) for paths in self._world.paths), inputs, slots)

    def ended(self, state: Cluster) -> bool:
        """Whether all is handled, and nothing under way."""
        return (
            all(part.ended == (1 << len(self._events[source])) - 1 for source, part in enumerate(state.inputs))
            and not any(slot.log for slot in state.slots)
            and not any(part.lines or any(entry.called for entry in part.shown) for part in state.inputs)
            and all(owner.doing is None and owner.owed is None for owner in _owners(state))
        )

    def steps(self, state: Cluster) -> Steps:
        """All that may happen now."""
        for source, part in enumerate(state.inputs):
            for owner in part.owners:
                yield from self._of_owner(state, ("input", source), owner)
            yield from self._shows(state, ("input", source), {line.tag for line in part.lines})
            yield from self._taken_over(state, ("input", source), part.owners)
        for number, slot in enumerate(state.slots):
            for owner in slot.owners:
                yield from self._of_owner(state, ("slot", number), owner)
            yield from self._shows(state, ("slot", number), {record.tag for record in slot.log})
            yield from self._taken_over(state, ("slot", number), slot.owners)

    # Owners.

    def _of_owner(self, state: Cluster, where: tuple[str, int], owner: Owner) -> Steps:
        name = f"{where[0]} {where[1]}"
        if owner.fresh:
            return
        if owner.doing is not None:
            yield self._commits(state, where, owner, owner.doing)
        elif any(tag == -owner.tag for tag in _tags(state)):
            return  # the broker takes no further transaction of it before this one is shown
        elif owner.owed is not None:
            yield self._writes(f"{name}: what it owes", state, where, owner, owner.owed)
        elif where[0] == "input":
            yield from self._of_input(state, where[1], owner)
        else:
            yield from self._of_slot(state, where[1], owner)

    def _of_input(self, state: Cluster, source: int, owner: Owner) -> Steps:
        where, seen = ("input", source), set()
        for place, (key, number) in enumerate(self._events[source]):
            if owner.ended >> place & 1 or key in seen:
                continue
            seen.add(key)
            entry = owner.entries[key]
            if not entry.called or not self._rules.holds:
                does = "handles" if entry.events is not None else f"forwards to slot {self._place(source, entry)}"
                unit = Unit(EVENT, source, key, number)
                yield self._writes(f"input {source}: {does} event {number} of key {key}", state, where, owner, unit)
        for key, entry in enumerate(owner.entries):
            yield from self._moves(state, source, owner, key, entry)

    def _moves(self, state: Cluster, source: int, owner: Owner, key: int, entry: Entry) -> Steps:
        where = ("input", source)
        if entry.called:
            for shown in self._answers(state.inputs[source], key):
                if shown.move > entry.move:
                    changed = owner._replace(entries=_put(owner.entries, key, shown))
                    yield Step(f"input {source}: sees the answer for key {key}", _with(state, where, owner, changed))
        elif entry.move + 1 < len(self._world.paths[source][key]):
            kind = CALL if entry.events is None else STATE
            unit = Unit(kind, source, key, entry.move + 1)
            step = self._writes(f"input {source}: hands over key {key}", state, where, owner, unit)
            yield step._replace(disturbs=True)

    def _answers(self, part: Input, key: int) -> Iterable[Entry]:
        yield part.shown[key]
        if not self._rules.reads_committed:
            yield from (line.entry for line in part.lines if line.key == key)

    def _of_slot(self, state: Cluster, number: int, owner: Owner) -> Steps:
        log = state.slots[number].log[: self._world.room]
        seen: set[tuple[int, int]] = set()
        for record in log:
            if record.tag:
                return  # what is behind it is not shown either
            pair = (record.source, record.key)
            if pair in seen and (self._rules.in_turn or record.kind != CALL):
                continue
            seen.add(pair)
            what = {EVENT: "handles event", STATE: "takes the state", CALL: "sends the state away"}[record.kind]
            told = f"slot {number}: {what} of key {record.key} of input {record.source}"
            unit = Unit(record.kind, *pair, record.number, record)
            yield self._writes(told, state, ("slot", number), owner, unit)

    # Transactions.

    def _writes(self, what: str, state: Cluster, where: tuple[str, int], owner: Owner, unit: Unit) -> Step[Cluster]:
        """The records of a unit are in their logs, and not committed."""
        changed = _with(state, where, owner, owner._replace(doing=unit, owed=None))
        is_input = where[0] == "input"
        for slot, record in self._records(owner, unit, is_input=is_input):
            before = changed.slots[slot]
            changed = _with_slot(changed, slot, before._replace(log=(*before.log, record)))
        for line in self._lines(owner, unit, is_input=is_input):
            part = changed.inputs[unit.source]
            changed = _with_input(changed, unit.source, part._replace(lines=(*part.lines, line)))
        return Step(f"{what}, written", changed)

    def _records(self, owner: Owner, unit: Unit, *, is_input: bool) -> Iterator[tuple[int, Record]]:
        """What a unit writes to slots."""
        if unit.kind == ANSWER:
            return
        path = self._world.paths[unit.source][unit.key]
        tag = owner.tag
        if is_input:
            entry = owner.entries[unit.key]
            if unit.kind == EVENT and entry.events is None:
                yield path[entry.move], Record(EVENT, unit.source, unit.key, unit.number, tag)
            elif unit.kind == STATE:
                yield path[unit.number], Record(STATE, unit.source, unit.key, entry.events or 0, tag)
            elif unit.kind == CALL:
                yield path[entry.move], Record(CALL, unit.source, unit.key, unit.number, tag)
        elif unit.kind == CALL and path[unit.number] != HOME:
            count = owner.states[unit.source][unit.key]
            yield path[unit.number], Record(STATE, unit.source, unit.key, -1 if count is None else count, tag)

    def _lines(self, owner: Owner, unit: Unit, *, is_input: bool) -> Iterator[Line]:
        """What a unit writes to the changelog of its input."""
        key = unit.key
        if not is_input:
            if unit.kind == ANSWER or (unit.kind == CALL and self._rules.answers_with_state):
                yield Line(key, self._answer(owner, unit), owner.tag)
            return
        entry = owner.entries[key]
        if unit.kind == EVENT and entry.events is not None:
            yield Line(key, entry._replace(events=entry.events + 1), owner.tag)
        elif unit.kind == ANSWER or (unit.kind == STATE and self._rules.place_with_state):
            yield Line(key, Entry(unit.number), owner.tag)
        elif unit.kind == CALL:
            yield Line(key, entry._replace(called=True), owner.tag)

    def _answer(self, owner: Owner, unit: Unit) -> Entry:
        if self._world.paths[unit.source][unit.key][unit.number] != HOME:
            return Entry(unit.number)
        count = owner.states[unit.source][unit.key]
        return Entry(unit.number, events=-1 if count is None else count)

    def _commits(self, state: Cluster, where: tuple[str, int], owner: Owner, unit: Unit) -> Step[Cluster]:
        """What it has written is committed, and is shown log by log; its offset and its own states are at once."""
        state = _shown(state, owner.tag, -owner.tag, None)
        after = owner._replace(doing=None)
        if where[0] == "input":
            after, state = self._input_committed(state, where[1], after, unit)
        else:
            after, state = self._slot_committed(state, where[1], after, unit)
        # The owner in the cluster is still the one before: it is found by that.
        changed = _with(state, where, owner, after)
        return Step(f"{where[0]} {where[1]}: commits", changed, broken=self._broken(changed, where, owner, unit))

    def _input_committed(self, state: Cluster, source: int, after: Owner, unit: Unit) -> tuple[Owner, Cluster]:
        key, entry = unit.key, after.entries[unit.key]
        if unit.kind == EVENT:
            bit = 1 << self._events[source].index((key, unit.number))
            after = after._replace(ended=after.ended | bit)
            state = _with_input(state, source, state.inputs[source]._replace(ended=state.inputs[source].ended | bit))
            if entry.events is not None:
                state = self._put_out(state, source, key)
                after = after._replace(entries=_put(after.entries, key, entry._replace(events=entry.events + 1)))
        elif unit.kind in (STATE, ANSWER):
            after = after._replace(entries=_put(after.entries, key, Entry(unit.number)))
            if unit.kind == STATE and not self._rules.place_with_state:
                after = after._replace(owed=unit._replace(kind=ANSWER))
        else:
            after = after._replace(entries=_put(after.entries, key, entry._replace(called=True)))
        return after, state

    def _slot_committed(self, state: Cluster, number: int, after: Owner, unit: Unit) -> tuple[Owner, Cluster]:
        slot, (source, key) = state.slots[number], (unit.source, unit.key)
        if unit.kind == ANSWER:
            return after, state
        had = after.states[source][key]
        has = {EVENT: (had or 0) + 1, STATE: unit.number, CALL: None if self._rules.tombstone else had}[unit.kind]
        states = _put(after.states, source, _put(after.states[source], key, has))
        after = after._replace(states=states)
        if unit.kind == CALL and not self._rules.answers_with_state:
            after = after._replace(owed=unit._replace(kind=ANSWER))
        log = tuple(record for record in slot.log if record != unit.record)
        state = _with_slot(state, number, slot._replace(log=log, states=states))
        return after, self._put_out(state, source, key) if unit.kind == EVENT else state

    def _put_out(self, state: Cluster, source: int, key: int) -> Cluster:
        mine = state.outputs[source]
        return state._replace(outputs=_put(state.outputs, source, _put(mine, key, mine[key] + 1)))

    def _shows(self, state: Cluster, where: tuple[str, int], tags: set[int]) -> Steps:
        for tag in sorted(tag for tag in tags if tag < 0):
            yield Step(f"{where[0]} {where[1]}: shows what was committed", _shown(state, tag, 0, where))

    # Successors.

    def _taken_over(self, state: Cluster, where: tuple[str, int], owners: tuple[Owner, ...]) -> Steps:
        name = f"{where[0]} {where[1]}"
        if len(owners) > 1:
            _, fresh = owners
            yield Step(f"{name}: the successor fences", self._fenced(state, where, owners[0], fresh))
            return
        (owner,) = owners
        if self._rules.waits_until_stable and not self._is_stable(state, where, owner.tag):
            return
        tag = owner.tag - _OTHER if owner.tag > _OTHER else owner.tag + _OTHER
        if self._rules.fences_first:
            cut = _dropped(state, owner.tag)
            fresh = self._successor(cut, where, tag)
            yield Step(f"{name}: a successor begins", _owned(cut, where, (fresh,)), disturbs=True)
        else:
            fresh = self._successor(state, where, tag)._replace(fresh=True)
            yield Step(f"{name}: a successor reads", _owned(state, where, (owner, fresh)), disturbs=True)

    def _is_stable(self, state: Cluster, where: tuple[str, int], tag: int) -> bool:
        """Whether all of the owner's last transaction is shown, and a changelog can be read to what was its end."""
        if any(each == -tag for each in _tags(state)):
            return False
        return where[0] == "slot" or all(line.tag in (0, tag) for line in state.inputs[where[1]].lines)

    def _successor(self, state: Cluster, where: tuple[str, int], tag: int) -> Owner:
        if where[0] == "slot":
            return Owner(tag, states=state.slots[where[1]].states)
        part = state.inputs[where[1]]
        return Owner(tag, part.ended, part.shown)

    def _fenced(self, state: Cluster, where: tuple[str, int], owner: Owner, fresh: Owner) -> Cluster:
        return _owned(_dropped(state, owner.tag), where, (fresh._replace(fresh=False),))

    # Laws.

    def _broken(self, state: Cluster, where: tuple[str, int], owner: Owner, unit: Unit) -> str:
        told = f"key {unit.key} of input {unit.source}"
        if unit.kind == EVENT:
            here = owner.entries[unit.key].events if where[0] == "input" else owner.states[unit.source][unit.key]
            is_handled = where[0] == "slot" or here is not None
            if is_handled and (here is None or here != unit.number):
                return f"event {unit.number} of {told} meets a state of {here} events"
        return self._lost(state) or self._states_broken(state)

    def _lost(self, state: Cluster) -> str:
        """Each event is in one place: open in its input, in a slot's log, or handled."""
        for source, events in enumerate(self._events):
            for place, (key, number) in enumerate(events):
                is_open = not state.inputs[source].ended >> place & 1
                waits = sum(
                    (record.kind, record.source, record.key, record.number) == (EVENT, source, key, number)
                    and record.tag <= 0
                    for slot in state.slots
                    for record in slot.log
                )
                is_done = number < state.outputs[source][key]
                if is_open + waits + is_done != 1:
                    return f"event {number} of key {key} of input {source} is in {is_open + waits + is_done} places"
        return ""

    def _states_broken(self, state: Cluster) -> str:
        """Each key's state is in one place, and has all of the key's events that are handled."""
        for source, key in self._pairs:
            part = state.inputs[source]
            entries = [part.shown[key], *(line.entry for line in part.lines if line.key == key and line.tag <= 0)]
            counts = [entries[-1].events] if entries[-1].events is not None else []
            counts += [count for slot in state.slots if (count := slot.states[source][key]) is not None]
            counts += [
                record.number
                for slot in state.slots
                for record in slot.log
                if (record.kind, record.source, record.key) == (STATE, source, key) and record.tag <= 0
            ]
            if counts != [state.outputs[source][key]]:
                return f"the state of key {key} of input {source} is in {len(counts)} places: {counts}"
        return ""

    def _place(self, source: int, entry: Entry) -> int:
        return self._world.paths[source][0][entry.move] if entry.move else HOME


def _owners(state: Cluster) -> Iterator[Owner]:
    for part in state.inputs:
        yield from part.owners
    for slot in state.slots:
        yield from slot.owners


def _tags(state: Cluster) -> Iterator[int]:
    for slot in state.slots:
        yield from (record.tag for record in slot.log)
    for part in state.inputs:
        yield from (line.tag for line in part.lines)


def _shown(state: Cluster, tag: int, to: int, where: tuple[str, int] | None) -> Cluster:
    """With another tag at what has this one, in one log or in all."""
    slots, inputs = list(state.slots), list(state.inputs)
    for number, slot in enumerate(slots):
        if where in (None, ("slot", number)):
            log = tuple(each._replace(tag=to) if each.tag == tag else each for each in slot.log)
            slots[number] = slot._replace(log=log)
    for source, part in enumerate(inputs):
        if where in (None, ("input", source)):
            lines = [each._replace(tag=to) if each.tag == tag else each for each in part.lines]
            shown = list(part.shown)
            while lines and not lines[0].tag:  # what is behind an open transaction is not shown yet
                line = lines.pop(0)
                shown[line.key] = line.entry
            inputs[source] = part._replace(lines=tuple(lines), shown=tuple(shown))
    return state._replace(slots=tuple(slots), inputs=tuple(inputs))


def _dropped(state: Cluster, tag: int) -> Cluster:
    """Without what an open transaction has written."""
    slots = tuple(slot._replace(log=tuple(each for each in slot.log if each.tag != tag)) for slot in state.slots)
    inputs = tuple(part._replace(lines=tuple(each for each in part.lines if each.tag != tag)) for part in state.inputs)
    return _shown(state._replace(slots=slots, inputs=inputs), 0, 0, None)


def _with(state: Cluster, where: tuple[str, int], owner: Owner, changed: Owner) -> Cluster:
    parts = state.inputs if where[0] == "input" else state.slots
    owners = tuple(changed if each == owner else each for each in parts[where[1]].owners)
    return _owned(state, where, owners)


def _owned(state: Cluster, where: tuple[str, int], owners: tuple[Owner, ...]) -> Cluster:
    if where[0] == "input":
        return _with_input(state, where[1], state.inputs[where[1]]._replace(owners=owners))
    return _with_slot(state, where[1], state.slots[where[1]]._replace(owners=owners))


def _with_input(state: Cluster, source: int, part: Input) -> Cluster:
    return state._replace(inputs=_put(state.inputs, source, part))


def _with_slot(state: Cluster, number: int, slot: Slot) -> Cluster:
    return state._replace(slots=_put(state.slots, number, slot))


def _put(values: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:place], value, *values[place + 1 :])
