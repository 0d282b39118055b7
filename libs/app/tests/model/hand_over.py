"""The hand-over of keys with state between slots, as a model that is explored: see docs/decisions/hand-over.md.

Input partitions are re-keyed into slots (partitions of `<group>.overflow`). An owner of an input partition forwards its
events; an owner of a slot handles them, and keeps the state of its keys. One unit of work is a transaction: an event, a
release, or a state. Larger ones do nothing more: they show at once what smaller ones show one after another.

What is left out because it changes nothing that can be observed:
- A crash by itself. To everybody else, a dead owner is one that takes no step; so each step may be an owner's last, and
  what matters is when the successor begins.
- A former owner behind its fence. It may run on, but the broker refuses whatever it sends; before, it takes part.
- Records of transactions that were aborted, and the beginning of a log once its reader has committed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from .explorer import Found, Step, explore

Records: TypeAlias = "tuple[tuple[Record, int], ...]"
State: TypeAlias = "tuple[int, tuple[int, ...]] | None"
"""Of one key: the number of the move that brought it here, and how many of its events of each input are in it."""
EVENT, RELEASE, MOVE = range(3)


@dataclass(frozen=True)
class Protocol:
    """The rules of the hand-over. Each can be broken, to see what it is good for."""

    fences_first: bool = True
    """A successor reads what is committed only after it has fenced the owner before."""
    waits_until_stable: bool = True
    """A successor waits until offsets of transactions that have ended are shown."""
    id_per_partition: bool = True
    """Transactional ids belong to partitions; else to members, which then fence nobody."""
    ends_epoch: bool = True
    """After a transactional request without an answer nothing is sent in the same epoch of the producer."""
    outputs_in_transaction: bool = True
    """Outputs are written in the transaction that commits their events."""
    state_in_transaction: bool = True
    """The old slot sends the state in the transaction that gives it up; else in the next one."""
    tombstone: bool = True
    """The old slot deletes the state from its changelog."""
    all_releases: bool = True
    """The old slot waits for the releases of all inputs; else for one."""
    keeps_releases: bool = True
    """Releases that have come stand in the old slot's changelog; else in memory only."""
    commits_plan: bool = True
    """An input's commit says up to which plan it has released keys."""
    one_move_at_a_time: bool = True
    """The next move of a key is planned when the one before is done; else it may supersede it."""
    inputs_hold: bool = True
    """Inputs hold a key's events until its state was sent; else the new slot does until it has the state."""
    moves_in_events: bool = True
    """A slot that holds events sees in each by which move it came; else it takes an unknown key for a new one."""
    gaps: bool = True
    """Events that are held stay open when later ones are committed."""


class Grain(Enum):
    """What is one step."""

    REQUESTS = 1
    """Each request, each log's marker of a transaction, each look at the plans."""
    UNITS = 2
    """A request with all after it that nobody else can observe: the only marker of a transaction, its offsets being
    shown, what a slot writes for itself."""
    SHARED = 3
    """As UNITS, and what a slot does only for itself is done at once: it commutes with all that others do."""


@dataclass(frozen=True)
class World:
    """What there is to do."""

    inputs: tuple[tuple[int, ...], ...] = ((0, 1), (0, 1))
    """The keys of each input partition's events."""
    paths: tuple[tuple[int, ...], ...] = ((0, 1), (1, 0))
    """For each key the slots that it is planned to be on, one after another."""
    room: int = 2
    """Offsets that are read from the first open one on, at most: memory and the commit's metadata are bounded."""
    grain: Grain = Grain.UNITS
    protocol: Protocol = Protocol()


class Record(NamedTuple):
    """In the log of a slot."""

    kind: int
    key: int
    move: int
    """0 before the first move of the key."""
    source: int = 0
    number: int = 0
    """Of an event: the how-manieth of its key in its input."""
    counts: tuple[int, ...] = ()
    """Of a state that moves."""


class Sender(NamedTuple):
    """An owner of an input partition: what it has in memory."""

    tag: int
    """Of its producer: names the records of its open transaction."""
    seen: tuple[int, ...]
    """For each key how much of the topic of plans it has read: 2 n - 1 is plan n, 2 n is that move n was done."""
    applied: tuple[int, ...]
    """For each key the last move that it has released the key for."""
    ended: int
    """Bits of the events that are forwarded."""
    doing: tuple[int, int, int] | None = None
    """The written unit: kind, event or key, slot."""
    marks: int = 0
    """Logs (bits) that still have to show the transaction that is committed."""
    fresh: bool = False
    """Whether it has yet to fence the owner before."""
    late: tuple[int, tuple[int, ...]] | None = None
    """Offsets of a commit that is still under way, after the owner has given up waiting for the answer."""


class Input(NamedTuple):
    """An input partition: what the group has committed for it."""

    committed: tuple[int, tuple[int, ...]]
    hidden: tuple[int, tuple[int, ...]] | None
    """Committed, and not shown yet."""
    owners: tuple[Sender, ...]


class Keeper(NamedTuple):
    """An owner of a slot: what it has in memory."""

    tag: int
    ended: int
    states: tuple[State, ...]
    released: tuple[tuple[int, int], ...]
    """For each key a move and bits of the inputs that have released the key for it."""
    doing: int = -1
    """The place in the log of the unit that is written."""
    marks: int = 0
    fresh: bool = False
    owed: Record | None = None
    """A state that it has given up, and not sent yet."""
    owes: bool = False
    """Whether this is the unit that is written."""


class Slot(NamedTuple):
    """A slot: its offsets and changelog."""

    committed: int
    hidden: int | None
    states: tuple[State, ...]
    released: tuple[tuple[int, int], ...]
    owners: tuple[Keeper, ...]


class Cluster(NamedTuple):
    """All that Kafka holds, and all memories."""

    plans: tuple[int, ...]
    """For each key: 2 n - 1 when move n is planned, 2 n when it is done. A compacted topic holds no more."""
    logs: tuple[Records, ...]
    """Of the slots; a record's tag is 0 when it is shown, a producer's while it is open, the negative in between."""
    outputs: int
    """Bits of the events whose output is committed."""
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
        self._keys = range(len(world.paths))
        self._events: list[list[tuple[int, int, int]]] = []
        """For each input its events: key, number, bit."""
        bit = 1
        for keys in world.inputs:
            events = []
            for place, key in enumerate(keys):
                events.append((key, keys[:place].count(key), bit))
                bit <<= 1
            self._events.append(events)
        self._all = bit - 1
        self._bits = {
            (source, key, number): bit for source, events in enumerate(self._events) for key, number, bit in events
        }
        self._zero = tuple(0 for _ in world.inputs)

    def begin(self) -> Cluster:
        """Every key on its first slot, nothing read."""
        none = tuple(0 for _ in self._keys)
        inputs = tuple(
            Input((0, none), None, (Sender(1 + 2 * number, none, none, 0),))
            for number in range(len(self._world.inputs))
        )
        count = 1 + max(slot for path in self._world.paths for slot in path)
        released = tuple((0, 0) for _ in self._keys)
        slots = []
        for slot in range(count):
            states = tuple((0, self._zero) if path[0] == slot else None for path in self._world.paths)
            keeper = Keeper(101 + 2 * slot, 0, states, released)
            slots.append(Slot(0, None, states, released, (keeper,)))
        return Cluster(none, tuple(() for _ in range(count)), 0, inputs, tuple(slots))

    def ended(self, state: Cluster) -> bool:
        """Whether all is handled, and nothing under way."""
        return (
            state.outputs == self._all
            and not any(state.logs)
            and all(plan % 2 == 0 for plan in state.plans)
            and all(
                part.hidden is None and all(owner.doing is None and not owner.marks for owner in part.owners)
                for part in state.inputs
            )
            and all(
                slot.hidden is None and all(owner.doing < 0 and not owner.marks for owner in slot.owners)
                for slot in state.slots
            )
        )

    def steps(self, state: Cluster) -> Steps:
        """All that may happen next."""
        for step in self._all_steps(state):
            if step.broken or self._world.grain is Grain.REQUESTS:
                yield step
                continue
            after, broken = self._after_unseen(step.state)
            if after != state:
                yield step._replace(state=after, broken=broken)

    def _after_unseen(self, state: Cluster) -> tuple[Cluster, str]:
        """After all that nobody else can observe."""
        for number in range(len(state.inputs)):
            state = self._after_shown(state, number)
        for number in range(len(state.slots)):
            state, broken = self._after_own_steps(state, number)
            if broken:
                return state, broken
        return state, ""

    def _after_own_steps(self, state: Cluster, number: int) -> tuple[Cluster, str]:
        while True:
            for which, keeper in enumerate(state.slots[number].owners):
                if keeper.doing >= 0 and not _writes(state, keeper.tag):
                    step = self._commits_slot(state, number, which, keeper)
                    if step.broken:
                        return step.state, step.broken
                    state = step.state
            for shown in self._shows_slot(state, number, state.slots[number]):
                state = shown.state
            own = self._own(state, number) if self._world.grain is Grain.SHARED else None
            if own is None:
                return state, ""
            state = own.state

    def _own(self, state: Cluster, number: int) -> Step[Cluster] | None:
        """A unit of a slot that only its own log and changelog are about."""
        slot = state.slots[number]
        keeper = slot.owners[0]
        if len(slot.owners) > 1 or keeper.doing >= 0 or keeper.marks:
            return None
        for place in self._ready(state.logs[number], keeper):
            record = state.logs[number][place][0]
            if record.kind != RELEASE or not self._completes(record, keeper):
                return self._handles(state, number, 0, keeper, place)
        return None

    def _after_shown(self, state: Cluster, number: int) -> Cluster:
        part = state.inputs[number]
        owners = part.owners
        for which, owner in enumerate(owners):
            for slot in _bits(owner.marks):
                state = state._replace(logs=_put(state.logs, slot, _shown(state.logs[slot], owner.tag)))
            owners = _put(owners, which, owner._replace(marks=0, seen=state.plans))
        return _with_input(state, number, Input(part.hidden or part.committed, None, owners))

    def _all_steps(self, state: Cluster) -> Steps:
        yield from self._plans(state)
        for number, part in enumerate(state.inputs):
            yield from self._shows_input(state, number, part)
            for which, owner in enumerate(part.owners):
                yield from self._sends(state, number, which, owner)
            yield from self._takes_input(state, number, part)
        for number, slot in enumerate(state.slots):
            yield from self._shows_slot(state, number, slot)
            for which, keeper in enumerate(slot.owners):
                yield from self._keeps(state, number, which, keeper)
            yield from self._takes_slot(state, number, slot)

    # The planner.

    def _plans(self, state: Cluster) -> Steps:
        for key in self._keys:
            done = state.plans[key]
            if done % 2 and self._rules.one_move_at_a_time:
                continue
            move = (done + 1) // 2 + 1
            path = self._world.paths[key]
            if move < len(path):
                what = f"planner: plans move {move} of key {_key(key)}, slot {path[move - 1]} to {path[move]}"
                yield Step(what, state._replace(plans=_put(state.plans, key, 2 * move - 1)), disturbs=True)

    # An input.

    def _sends(self, state: Cluster, number: int, which: int, owner: Sender) -> Steps:
        name = f"input {number}"
        if owner.fresh:
            yield from self._fences_input(state, number, owner)
            return
        if owner.late is not None:
            yield self._late(state, number, which, owner)
        yield from self._reads_plans(state, number, which, owner, name)
        if owner.marks:
            for slot in _bits(owner.marks):
                logs = _put(state.logs, slot, _shown(state.logs[slot], owner.tag))
                changed = self._with_sender(state, number, which, owner._replace(marks=owner.marks & ~(1 << slot)))
                yield Step(f"{name}: slot {slot} shows the transaction", changed._replace(logs=logs))
        elif owner.doing is not None:
            yield from self._commits_input(state, number, which, owner)
        else:
            yield from self._releases(state, number, which, owner)
            yield from self._forwards(state, number, which, owner)

    def _reads_plans(self, state: Cluster, number: int, which: int, owner: Sender, name: str) -> Steps:
        for key in self._keys:
            seen = owner.seen[key]
            if seen < state.plans[key]:
                changed = owner._replace(seen=_put(owner.seen, key, seen + 1))
                what = f"sees that move {seen // 2 + seen % 2} of key {_key(key)} is done"
                if seen % 2 == 0:
                    what = f"sees the plan of move {seen // 2 + 1} of key {_key(key)}"
                yield Step(f"{name}: {what}", self._with_sender(state, number, which, changed))

    def _releases(self, state: Cluster, number: int, which: int, owner: Sender) -> Steps:
        for key in self._keys:
            move = (owner.seen[key] + 1) // 2
            if move > owner.applied[key]:
                old = self._world.paths[key][move - 1]
                record = Record(RELEASE, key, move, number)
                changed = self._with_sender(state, number, which, owner._replace(doing=(RELEASE, key, old)))
                logs = _put(state.logs, old, (*state.logs[old], (record, owner.tag)))
                yield Step(f"input {number}: writes {_told(record)} to slot {old}", changed._replace(logs=logs))

    def _forwards(self, state: Cluster, number: int, which: int, owner: Sender) -> Steps:
        open_keys: set[int] = set()
        first = _first_open(owner.ended)
        for place in range(first, min(len(self._events[number]), first + self._world.room)):
            key, count, _ = self._events[number][place]
            if owner.ended >> place & 1 or key in open_keys:
                continue
            open_keys.add(key)
            move = owner.applied[key]
            if self._rules.inputs_hold and move and owner.seen[key] < 2 * move:
                continue
            slot = self._world.paths[key][move]
            record = Record(EVENT, key, move, number, count)
            changed = self._with_sender(state, number, which, owner._replace(doing=(EVENT, place, slot)))
            logs = _put(state.logs, slot, (*state.logs[slot], (record, owner.tag)))
            yield Step(f"input {number}: writes {_told(record)} to slot {slot}", changed._replace(logs=logs))

    def _commits_input(self, state: Cluster, number: int, which: int, owner: Sender) -> Steps:
        part = state.inputs[number]
        if part.hidden is not None or owner.doing is None:
            return
        kind, which_one, slot = owner.doing
        ended, applied = owner.ended, owner.applied
        committed = part.committed[0]
        if kind == EVENT:
            ended |= 1 << which_one
            committed = ended if self._rules.gaps else (2 << which_one) - 1 | ended
        else:
            move = (owner.seen[which_one] + 1) // 2
            applied = _put(applied, which_one, move)
            committed = ended if self._rules.gaps else committed | ended
        offsets = (committed, applied)
        decided = owner._replace(ended=ended, applied=applied, doing=None, marks=1 << slot)
        changed = self._with_sender(state, number, which, decided, offsets)
        logs = _put(state.logs, slot, _decided(state.logs[slot], owner.tag))
        yield self._checked(f"input {number}: commits", changed._replace(logs=logs))
        if not self._rules.ends_epoch and owner.late is None:
            waiting = owner._replace(doing=None, late=offsets)
            what = (
                f"input {number}: has no answer to its commit, which is still under way, and goes on in the same epoch"
            )
            yield Step(what, self._with_sender(state, number, which, waiting), disturbs=True)

    def _late(self, state: Cluster, number: int, which: int, owner: Sender) -> Step[Cluster]:
        marks = sum(1 << slot for slot, log in enumerate(state.logs) if any(tag == owner.tag for _, tag in log))
        logs = tuple(_decided(log, owner.tag) for log in state.logs)
        offsets = owner.late or state.inputs[number].committed
        again = owner._replace(ended=offsets[0], applied=offsets[1], doing=None, marks=marks, late=None)
        changed = self._with_sender(state, number, which, again, offsets)
        return self._checked(f"input {number}: the delayed commit arrives", changed._replace(logs=logs))

    def _shows_input(self, state: Cluster, number: int, part: Input) -> Steps:
        if part.hidden is not None:
            shown = part._replace(committed=part.hidden, hidden=None)
            yield Step(f"input {number}: what is committed is shown", _with_input(state, number, shown))

    def _takes_input(self, state: Cluster, number: int, part: Input) -> Steps:
        if part.hidden is not None and self._rules.waits_until_stable:
            return
        ended, applied = part.committed
        if not self._rules.commits_plan:
            applied = tuple(0 for _ in applied)
        seen = tuple(max(2 * move - 1, 0) for move in applied)
        first = part.owners[0]
        if not (self._rules.fences_first and self._rules.id_per_partition):
            if len(part.owners) == 1:
                fresh = Sender(first.tag + 1, seen, applied, ended, fresh=self._rules.id_per_partition)
                what = f"input {number}: a successor begins, and reads what is committed"
                yield Step(what, _with_input(state, number, part._replace(owners=(first, fresh))), disturbs=True)
        elif not first.marks:
            owner = Sender(first.tag, seen, applied, ended)
            taken = _with_input(_aborted(state, first.tag), number, part._replace(owners=(owner,)))
            yield self._checked(
                f"input {number}: the owner is fenced; a successor reads what is committed", taken, True
            )

    def _fences_input(self, state: Cluster, number: int, fresh: Sender) -> Steps:
        part = state.inputs[number]
        first = part.owners[0]
        if not first.marks:
            owner = fresh._replace(tag=first.tag, fresh=False)
            taken = _with_input(_aborted(state, first.tag), number, part._replace(owners=(owner,)))
            yield self._checked(f"input {number}: the successor fences the owner before", taken)

    def _with_sender(
        self,
        state: Cluster,
        number: int,
        which: int,
        owner: Sender,
        offsets: tuple[int, tuple[int, ...]] | None = None,
    ) -> Cluster:
        part = state.inputs[number]
        part = part._replace(owners=_put(part.owners, which, owner), hidden=offsets or part.hidden)
        return _with_input(state, number, part)

    # A slot.

    def _keeps(self, state: Cluster, number: int, which: int, keeper: Keeper) -> Steps:
        if keeper.fresh:
            yield from self._fences_slot(state, number, keeper)
        elif keeper.marks:
            yield from self._shows_marks(state, number, which, keeper)
        elif keeper.doing >= 0 or keeper.owes:
            if state.slots[number].hidden is None:
                yield self._commits_slot(state, number, which, keeper)
        elif keeper.owed is not None:
            slot = self._world.paths[keeper.owed.key][keeper.owed.move]
            logs = _put(state.logs, slot, (*state.logs[slot], (keeper.owed, keeper.tag)))
            changed = self._with_keeper(state, number, which, keeper._replace(owes=True))
            yield Step(f"slot {number}: writes {_told(keeper.owed)} to slot {slot}", changed._replace(logs=logs))
        else:
            for place in self._ready(state.logs[number], keeper):
                yield self._handles(state, number, which, keeper, place)

    def _ready(self, log: Records, keeper: Keeper) -> Iterator[int]:
        """Places in the log that may be handled next: the first open one of each key, up to what is not shown yet."""
        first = _first_open(keeper.ended)
        waiting: dict[int, int] = {}
        for place in range(first, min(len(log), first + self._world.room)):
            record, tag = log[place]
            if tag:
                return
            if keeper.ended >> place & 1:
                continue
            passes = record.kind == MOVE and waiting.get(record.key, -1) >= record.move
            if record.key in waiting and not passes:
                continue
            if record.kind == EVENT and self._is_held(record, keeper):
                waiting.setdefault(record.key, record.move)
                continue
            waiting.setdefault(record.key, -1)
            yield place

    def _is_held(self, record: Record, keeper: Keeper) -> bool:
        if self._rules.inputs_hold or not self._rules.moves_in_events:
            return False
        known = keeper.states[record.key]
        return record.move > 0 and (known is None or known[0] < record.move)

    def _handles(self, state: Cluster, number: int, which: int, keeper: Keeper, place: int) -> Step[Cluster]:
        record = state.logs[number][place][0]
        changed = self._with_keeper(state, number, which, keeper._replace(doing=place))
        what = f"slot {number}: handles {_told(record)}"
        if record.kind == EVENT and not self._rules.outputs_in_transaction:
            bit = self._bits[record.source, record.key, record.number]
            broken = f"the output of {_told(record)} is written twice" if state.outputs & bit else ""
            return Step(what, changed._replace(outputs=state.outputs | bit), broken=broken)
        if record.kind == RELEASE and self._rules.state_in_transaction and self._completes(record, keeper):
            sent = self._moved(record, keeper)
            slot = self._world.paths[record.key][record.move]
            logs = _put(state.logs, slot, (*state.logs[slot], (sent, keeper.tag)))
            return Step(f"{what}, the last one, and writes {_told(sent)} to slot {slot}", changed._replace(logs=logs))
        return Step(what, changed)

    def _completes(self, record: Record, keeper: Keeper) -> bool:
        inputs = self._released(record, keeper)[1]
        return inputs == (1 << len(self._world.inputs)) - 1 or not self._rules.all_releases

    def _released(self, record: Record, keeper: Keeper) -> tuple[int, int]:
        move, inputs = keeper.released[record.key]
        return record.move, (inputs if move == record.move else 0) | 1 << record.source

    def _moved(self, record: Record, keeper: Keeper) -> Record:
        known = keeper.states[record.key]
        return Record(MOVE, record.key, record.move, counts=known[1] if known else self._zero)

    def _commits_slot(self, state: Cluster, number: int, which: int, keeper: Keeper) -> Step[Cluster]:
        what = f"slot {number}: commits"
        if keeper.owes and keeper.owed is not None:
            slot = self._world.paths[keeper.owed.key][keeper.owed.move]
            logs = _put(state.logs, slot, _decided(state.logs[slot], keeper.tag))
            sent = keeper._replace(owes=False, owed=None, marks=1 << slot)
            return self._checked(what, self._with_keeper(state, number, which, sent)._replace(logs=logs))
        record = state.logs[number][keeper.doing][0]
        done = keeper._replace(ended=keeper.ended | 1 << keeper.doing, doing=-1)
        if record.kind == EVENT:
            return self._commits_event(what, state, number, which, done, record)
        if record.kind == MOVE:
            done = done._replace(states=_put(done.states, record.key, (record.move, record.counts)))
            return self._checked(what, self._with_keeper(state, number, which, done, record.key))
        if not self._completes(record, keeper):
            done = done._replace(released=_put(done.released, record.key, self._released(record, keeper)))
            return self._checked(what, self._with_keeper(state, number, which, done, record.key))
        return self._gives_up(what, state, number, which, done, record)

    def _gives_up(
        self, what: str, state: Cluster, number: int, which: int, keeper: Keeper, record: Record
    ) -> Step[Cluster]:
        slot = self._world.paths[record.key][record.move]
        sent = self._moved(record, keeper)
        keeper = keeper._replace(
            released=_put(keeper.released, record.key, (0, 0)), marks=1 << slot | 1 << 31 - record.key
        )
        if self._rules.tombstone:
            keeper = keeper._replace(states=_put(keeper.states, record.key, None))
        logs = state.logs
        if self._rules.state_in_transaction:
            logs = _put(logs, slot, _decided(logs[slot], keeper.tag))
        else:
            keeper = keeper._replace(owed=sent, marks=1 << 31 - record.key)
        what = f"{what}: key {_key(record.key)} is no longer on slot {number}"
        return self._checked(what, self._with_keeper(state, number, which, keeper, record.key)._replace(logs=logs))

    def _commits_event(
        self, what: str, state: Cluster, number: int, which: int, keeper: Keeper, record: Record
    ) -> Step[Cluster]:
        known = keeper.states[record.key]
        broken = self._misplaced(record, known, number)
        move, counts = known or (record.move, self._zero)
        counted = (move, _put(counts, record.source, record.number + 1))
        keeper = keeper._replace(states=_put(keeper.states, record.key, counted))
        changed = self._with_keeper(state, number, which, keeper, record.key)
        if broken:
            return Step(what, changed, broken=broken)
        if self._rules.outputs_in_transaction:
            bit = self._bits[record.source, record.key, record.number]
            if state.outputs & bit:
                return Step(what, changed, broken=f"the output of {_told(record)} is committed twice")
            changed = changed._replace(outputs=state.outputs | bit)
        return self._checked(what, changed)

    def _misplaced(self, record: Record, known: State, number: int) -> str:
        if known is None:
            return f"slot {number} handles {_told(record)} without the key's state"
        if known[0] != record.move:
            return f"slot {number} handles {_told(record)} with the state of another move"
        if known[1][record.source] > record.number:
            return f"{_told(record)} is in the state twice"
        if known[1][record.source] < record.number:
            return f"{_told(record)} is in the state before the one before it"
        return ""

    def _shows_marks(self, state: Cluster, number: int, which: int, keeper: Keeper) -> Steps:
        for bit in _bits(keeper.marks):
            changed = self._with_keeper(state, number, which, keeper._replace(marks=keeper.marks & ~(1 << bit)))
            if bit < len(state.logs):
                logs = _put(state.logs, bit, _shown(state.logs[bit], keeper.tag))
                yield Step(f"slot {number}: slot {bit} shows the transaction", changed._replace(logs=logs))
            else:
                key = 31 - bit
                done = state.plans[key] + state.plans[key] % 2
                plans = _put(state.plans, key, done)
                yield Step(
                    f"slot {number}: the plans show that key {_key(key)} has moved", changed._replace(plans=plans)
                )

    def _shows_slot(self, state: Cluster, number: int, slot: Slot) -> Steps:
        if slot.hidden is not None:
            shown = slot._replace(committed=slot.hidden, hidden=None)
            yield Step(f"slot {number}: what is committed is shown", _trimmed(_with_slot(state, number, shown), number))

    def _takes_slot(self, state: Cluster, number: int, slot: Slot) -> Steps:
        if slot.hidden is not None and self._rules.waits_until_stable:
            return
        first = slot.owners[0]
        fresh = Keeper(first.tag, slot.committed, slot.states, slot.released)
        if not (self._rules.fences_first and self._rules.id_per_partition):
            if len(slot.owners) == 1:
                fresh = fresh._replace(tag=first.tag + 1, fresh=self._rules.id_per_partition)
                what = f"slot {number}: a successor begins, and reads what is committed"
                yield self._checked(what, _with_slot(state, number, slot._replace(owners=(first, fresh))), True)
        elif not first.marks:
            taken = _with_slot(_aborted(state, first.tag), number, slot._replace(owners=(fresh,)))
            yield self._checked(f"slot {number}: the owner is fenced; a successor reads what is committed", taken, True)

    def _fences_slot(self, state: Cluster, number: int, fresh: Keeper) -> Steps:
        slot = state.slots[number]
        first = slot.owners[0]
        if not first.marks:
            owner = fresh._replace(tag=first.tag, fresh=False)
            taken = _with_slot(_aborted(state, first.tag), number, slot._replace(owners=(owner,)))
            yield self._checked(f"slot {number}: the successor fences the owner before", _trimmed(taken, number))

    def _with_keeper(self, state: Cluster, number: int, which: int, keeper: Keeper, commits: int = -1) -> Cluster:
        """With another memory; `commits` is the key whose part of it is committed, with the offsets."""
        slot = state.slots[number]
        slot = slot._replace(owners=_put(slot.owners, which, keeper))
        if commits >= 0:
            slot = slot._replace(hidden=keeper.ended)
            if self._rules.tombstone or keeper.states[commits] is not None:
                slot = slot._replace(states=_put(slot.states, commits, keeper.states[commits]))
            if self._rules.keeps_releases:
                slot = slot._replace(released=_put(slot.released, commits, keeper.released[commits]))
        return _with_slot(state, number, slot)

    # What holds in every state.

    def _checked(self, what: str, state: Cluster, disturbs: bool = False) -> Step[Cluster]:
        return Step(what, state, disturbs, self._two_owners(state) or self._not_once(state))

    def _two_owners(self, state: Cluster) -> str:
        for key in self._keys:
            places = [
                f"in the changelog of slot {n}" for n, slot in enumerate(state.slots) if slot.states[key] is not None
            ]
            for number, log in enumerate(state.logs):
                done = _offsets(state.slots[number])
                for place, (record, tag) in enumerate(log):
                    if record.kind == MOVE and record.key == key and tag <= 0 and not done >> place & 1:
                        places.append(f"on its way to slot {number}")
            if len(places) != 1:
                where = " and ".join(places) or "nowhere"
                return f"the state of key {_key(key)} is {where}"
            able = [
                number
                for number, slot in enumerate(state.slots)
                for keeper in slot.owners
                if keeper.states[key] is not None and not keeper.fresh
            ]
            if len(able) > 1:
                return f"key {_key(key)} has two owners that can commit, on slots {able[0]} and {able[1]}"
        return ""

    def _not_once(self, state: Cluster) -> str:
        if not self._rules.outputs_in_transaction:
            return ""
        count = dict.fromkeys(self._bits.values(), 0)
        for part, events in zip(state.inputs, self._events, strict=True):
            ended = (part.hidden or part.committed)[0]
            for place, (_, _, bit) in enumerate(events):
                count[bit] += not ended >> place & 1
        for number, log in enumerate(state.logs):
            done = _offsets(state.slots[number])
            for place, (record, tag) in enumerate(log):
                if record.kind == EVENT and tag <= 0 and not done >> place & 1:
                    count[self._bits[record.source, record.key, record.number]] += 1
        for (source, key, number), bit in self._bits.items():
            places = count[bit] + bool(state.outputs & bit)
            if places != 1:
                name = f"event {number} of key {_key(key)} of input {source}"
                return f"{name} is {'lost' if places == 0 else 'committed twice'}"
        return ""


def _put(values: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:place], value, *values[place + 1 :])


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _first_open(ended: int) -> int:
    return (~ended & ended + 1).bit_length() - 1


def _writes(state: Cluster, tag: int) -> bool:
    return any(of == tag for log in state.logs for _, of in log)


def _offsets(slot: Slot) -> int:
    return slot.committed if slot.hidden is None else slot.hidden


def _decided(log: Records, tag: int) -> Records:
    return tuple((record, -tag if of == tag else of) for record, of in log)


def _shown(log: Records, tag: int) -> Records:
    return tuple((record, 0 if of == -tag else of) for record, of in log)


def _aborted(state: Cluster, tag: int) -> Cluster:
    return state._replace(logs=tuple(tuple(entry for entry in log if entry[1] != tag) for log in state.logs))


def _with_input(state: Cluster, number: int, part: Input) -> Cluster:
    return state._replace(inputs=_put(state.inputs, number, part))


def _with_slot(state: Cluster, number: int, slot: Slot) -> Cluster:
    return state._replace(slots=_put(state.slots, number, slot))


def _trimmed(state: Cluster, number: int) -> Cluster:
    """Without the beginning of a slot's log that nobody will read again."""
    slot, log = state.slots[number], state.logs[number]
    while log and slot.hidden is None and slot.committed & 1 and all(owner.ended & 1 for owner in slot.owners):
        owners = tuple(owner._replace(ended=owner.ended >> 1, doing=max(owner.doing - 1, -1)) for owner in slot.owners)
        slot, log = slot._replace(committed=slot.committed >> 1, owners=owners), log[1:]
    return _with_slot(state, number, slot)._replace(logs=_put(state.logs, number, log))


def _key(key: int) -> str:
    return "abcdef"[key]


def _told(record: Record) -> str:
    if record.kind == EVENT:
        return f"event {record.number} of key {_key(record.key)} of input {record.source}"
    if record.kind == RELEASE:
        return f"input {record.source}'s release of key {_key(record.key)} (move {record.move})"
    return f"the state of key {_key(record.key)} (move {record.move})"
