"""Keys that are handed over with their states: where those of an input are, and what is still to be done for them.

A key is at home, where its input is read, or at a slot, a partition of a topic to which its events are forwarded. Its
state goes before its events, in the same log, so whoever owns the slot finds it there first. Where a key is, is said by
the input's changelog, and changes in the transaction that sends the state. To leave its slot a key is called: the
input holds its events until the slot, which has handled all before the call, has sent the state and answered.

Pure bookkeeping: it knows no Kafka but the names of topics. `libs/app/tests/model` explores the protocol.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from keygrouping_app.events import Event, Headers, Outgoing, Raw
from keygrouping_app.kept import Kept, UnusableStateError
from keygrouping_app.parts import PART, Parts, Whole, ended_parts, in_parts, key_of
from keygrouping_app.states import InputKey, States

HOME = -1
"""The place of a key that is handled where its input is read."""
VERSION = "keygrouping-version"
"""Header of a record with a state: the version of the program that has written it."""
_PLACE = "keygrouping-place"
"""Header in a changelog instead of a state: the slot where the key is and, if it is called, where to."""
_ANSWER = "keygrouping-answer"
"""Header in a changelog of what a slot has written."""
_STATE = "keygrouping-state"
"""Header of a slot's record that is a state: number of the input's partition, its time."""
_AT = "keygrouping-at"
"""Header in a changelog of slots instead of a state: the first and the last offset of what the slot's log has of it."""
_UNREADABLE = 2**31 - 1
"""As the version of a note: members that don't know what it says take it for a newer program's, and don't start."""
_MOST_BYTES = 16 << 20
"""Of states in one transaction: the first one may be larger."""
_CALL = "keygrouping-call"
"""Header of a slot's record that calls a key: number of the input's partition, and where it is to go."""


class Place(NamedTuple):
    """Where a key is that is not at home. `target`: where it is called to; None: it stays."""

    slot: int
    target: int | None = None


class BusyError(Exception):
    """The key is on its way already."""


class Topics(NamedTuple):
    """The names of those that a handler's keys move by."""

    slots: str
    changelog: str
    """Of the input."""
    changelog_of_slots: str


class Waiting(Protocol):
    """As much of a scheduler as moves need."""

    def has(self, key: Hashable) -> bool: ...
    def take_key(self, key: Hashable) -> list[Event]: ...


@dataclass(slots=True)
class Step:
    """What a transaction does for keys that move.

    `records` go to slots and to the inputs' changelogs, `marks` to the partition's own; events at `ended` have ended
    with it. `done` is to be called when it is committed.
    """

    records: list[Outgoing] = field(default_factory=list)
    groups: list[Hashable] = field(default_factory=list)
    """Of which key each of these records is."""
    marks: list[Outgoing] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    done: list[Callable[[], None]] = field(default_factory=list)
    sent: list[InputKey] = field(default_factory=list)
    """Keys of a slot of which the states are sent on."""
    noted: list[InputKey] = field(default_factory=list)
    """Keys of a slot of which the changelog is told where in the slot's log the states are."""
    keys: set[bytes] = field(default_factory=set)
    """Keys in the changelog of which the states are told by `marks`: they need not be written besides."""
    bytes: int = 0
    """Of states."""

    def __bool__(self) -> bool:
        return bool(self.done)

    def send(self, group: Hashable, records: Sequence[Outgoing]) -> None:
        """These go to others, for a key."""
        self.records += records
        self.groups += [group] * len(records)


@dataclass(slots=True)
class Done:
    """What a member has done for a handler: moves that have ended, bytes of states that it has sent, and how long keys
    were held, in seconds of all together and of the longest."""

    moves: int = 0
    bytes: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        """A move has ended that held its key for so long."""
        self.moves += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)


class Moves:
    """Of one partition of an input in its owner's hands. `places`: of keys that are not at home, by what orders them.

    `forward` is given events that are for a slot. `parts`: what the changelog has of states up to where it was read.
    """

    def __init__(
        self,
        topics: Topics,
        partition: int,
        states: States,
        places: Mapping[Hashable, Place],
        forward: Callable[[Event, int], None],
        done: Done,
        parts: Parts | None = None,
    ) -> None:
        self.places = dict(places)
        self.asked: dict[Hashable, int] = {}
        """Where keys are to go, until that is committed."""
        self._done = done
        self._since = dict.fromkeys(self.called, time.monotonic())
        """When keys began to be held."""
        self._topics = topics
        self._partition = partition
        self._states = states
        self._parts = Parts() if parts is None else parts
        self._held: dict[Hashable, list[Event]] = {}
        self._early: dict[Hashable, Whole] = {}
        """Answers to calls that may be committed, while their own transactions are not known to be."""
        self._called_at: dict[Hashable, int] = dict.fromkeys(self.called, 0)
        """Behind which offset the answer to a call comes; what stands before is of an earlier one."""
        self._forward = forward

    @property
    def called(self) -> list[Hashable]:
        """The keys that a slot is to send on."""
        return [group for group, place in self.places.items() if place.target is not None]

    @property
    def held(self) -> int:
        """How many events wait for the state of their key."""
        return sum(map(len, self._held.values()))

    @property
    def oldest(self) -> float:
        """For how many seconds the key has been held that is held longest; 0: none is."""
        return time.monotonic() - min(self._since.values()) if self._since else 0.0

    def knows(self, group: Hashable) -> bool:
        """Whether a key is not at home, is to go, or has a state here."""
        return group in self.places or group in self.asked or self._states.length(group) is not None

    def is_held(self, group: Hashable) -> bool:
        """Whether a key is to go, or is called."""
        place = self.places.get(group)
        return group in self.asked or (place is not None and place.target is not None)

    def of(self, group: Hashable) -> int:
        """The slot where a key is, or HOME."""
        place = self.places.get(group)
        return HOME if place is None else place.slot

    def destination(self, group: Hashable) -> int:
        """The slot where a key is, or goes, or HOME."""
        place = self.places.get(group)
        if group in self.asked:
            return self.asked[group]
        return HOME if place is None else place.slot if place.target is None else place.target

    def ask(self, group: Hashable, target: int) -> bool:
        """Has a key go to a slot, or HOME; False if it is there already. BusyError while it is under way."""
        if self.is_held(group):
            raise BusyError
        if self.of(group) == target:
            return False
        self.asked[group] = target
        self._since[group] = time.monotonic()
        return True

    def forget(self, groups: Iterable[Hashable] = ()) -> list[Event]:
        """Has nothing done that was asked for these and is not committed, or for any if there are none of them; gives
        events that are to be handled here now."""
        here: list[Event] = []
        for group in [each for each in groups if each in self.asked] or list(self.asked):
            del self.asked[group]
            del self._since[group]
            events = self._held.pop(group, [])
            place = self.places.get(group)
            here += events if place is None else self._sent_on(events, place.slot)
        return _let_go(here)

    def here(self, events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
        """Those that are handled here, and those that are held from now on; others are forwarded."""
        if not (self.places or self.asked):
            return list(events), []
        here, held = [], list[Event]()
        for event in events:
            place = self.places.get(event.group)
            if self.is_held(event.group):
                self._held.setdefault(event.group, []).append(event)
                held.append(event)
            elif place is not None:
                self._forward(event, place.slot)
            else:
                here.append(event)
        return here, held

    def step(self, lanes: Waiting) -> tuple[Step, list[Event]]:
        """What is due, and the events that are held from now on: those that have waited for their calls."""
        step, held = Step(), list[Event]()
        for group, target in self.asked.items():
            place = self.places.get(group)
            if place is None:  # Else what waits or runs of it is of a slot, which this member may have, too.
                held += self._held_back(group, lanes)
                if lanes.has(group):
                    continue  # what runs of it ends first
            if step.bytes > _MOST_BYTES:
                break
            key = self._states.key_of(group)
            if place is None:
                kept = self._states.peek(group)
                step.send(group, _state_records(self._topics.slots, target, self._partition, key, kept))
                step.bytes += _size(kept)
                after = Place(target)
                ended = self._states.ended_parts(key, None)
                step.marks += ended_parts(self._topics.changelog, self._partition, key, ended)
            else:
                told = ((_CALL, b"%d:%d" % (self._partition, target)),)
                step.send(group, [Outgoing(self._topics.slots, place.slot, -1, key, None, told)])
                after = Place(place.slot, target)
            step.keys.add(key)
            step.marks.append(_place_record(self._topics.changelog, self._partition, key, after))
            step.done.append(partial(self._went, group, after))
        return step, held

    def _held_back(self, group: Hashable, lanes: Waiting) -> list[Event]:
        """Events of a key at home that have waited for their calls."""
        if taken := lanes.take_key(group):
            waiting = [*taken, *self._held.get(group, ())]
            self._held[group] = sorted(waiting, key=lambda event: event.offset)
        return taken

    def answered(self, raw: Raw) -> list[Event]:
        """A slot has written this to the input's changelog; gives events that are to be handled here now."""
        if raw.key is None or not is_answer(raw.headers) or (whole := self._parts.take(raw, raw.key)) is None:
            return []
        return self._answered(whole)

    def _answered(self, whole: Whole) -> list[Event]:
        raw = whole.raw
        assert raw.key is not None
        group = self._states.group_of(raw.key)
        place = self.places.get(group)
        if group in self.asked:
            self._early[group] = whole
        if place is None or place.target is None or raw.offset < self._called_at.get(group, 0):
            return []
        self._called_at.pop(group, None)
        after = place_of(raw.headers)
        if after is None:
            self._states.restore(raw.key, kept_of(raw), len(whole.parts))
            del self.places[group]
        else:
            self.places[group] = after
        self._ended(group)
        events = self._held.pop(group, [])
        return _let_go(events) if after is None else self._sent_on(events, after.slot)

    def answered_early(self, end: int) -> list[Event]:
        """Takes answers to calls that are known by now to be committed, before this offset; see `answered`."""
        for group in self.called:
            self._called_at.setdefault(group, end)
        early, self._early = self._early, {}
        return [event for whole in early.values() for event in self._answered(whole)]

    def _went(self, group: Hashable, after: Place) -> None:
        """What was asked for is committed."""
        is_from_home = group not in self.places
        self.places[group] = after
        del self.asked[group]
        if is_from_home:
            self._done.bytes += _size(self._states.peek(group))
            self._states.drop(group)
            self._ended(group)
        if after.target is None:
            self._sent_on(self._held.pop(group, []), after.slot)

    def _ended(self, group: Hashable) -> None:
        self._done.add(time.monotonic() - self._since.pop(group))

    def _sent_on(self, events: list[Event], slot: int) -> list[Event]:
        for event in _let_go(events):
            self._forward(event, slot)
        return []


class Refused(NamedTuple):
    """Keys of a slot by what is refused of them.

    Those that were to be sent on, and stay; those of which the call can't be answered; and those of which the slot's
    changelog does not even take where their states are.
    """

    staying: set[InputKey]
    unanswered: set[InputKey]
    unnoted: set[InputKey]


class Visits:
    """Keys of inputs that are at a slot, in its owner's hands.

    `noted`: those of which its changelog only has where in the slot's log their states are.
    """

    def __init__(self, topics: Topics, slot: int, states: States, done: Done, noted: Iterable[Hashable] = ()) -> None:
        self._done = done
        self._noted = set(noted)
        self._topics = topics
        self._slot = slot
        self._states = states
        self._calls: dict[InputKey, tuple[int, int]] = {}
        """Keys that are to go, with the offset of the call and where to."""
        self._parts = Parts()
        self._arrived: Counter[Hashable] = Counter()
        """How many states of each key have come since it was here last."""
        self.here: set[Hashable] = set(states.groups())
        self._unwritten: dict[InputKey, list[int]] = {}
        """Offsets of states that have come and are not written yet: until then they are nowhere else."""
        self._staying: set[InputKey] = set()
        """Keys whose call is answered with that they stay, as their states are refused where they are to go."""
        self._unanswered: set[InputKey] = set()
        """Those of which even that is refused, for now."""
        self._unnoted: set[InputKey] = set()
        """Keys of which the changelog refuses even where the states are, for now."""

    @property
    def called(self) -> int:
        """How many keys are to go, but for those of which the call can't be answered."""
        return len(self._calls) - len(self._unanswered)

    @property
    def unanswered(self) -> bool:
        """Whether the call of a key can't be answered, as the answer is refused."""
        return bool(self._unanswered)

    @property
    def waits(self) -> bool:
        """Whether keys are to go, or states have come that are not written yet."""
        return bool(self._calls or self._unwritten)

    @property
    def half_read(self) -> bool:
        """Whether parts of states have come, and not yet their records."""
        return bool(self._parts)

    def is_held(self, group: Hashable) -> bool:
        """Whether a key is to go."""
        return group in self._calls

    def take(self, raw: Raw) -> list[int]:
        """Takes a record that is no event; gives the offsets that have ended with it. KeyError if it is an event.

        A state ends when it is written, see `step`, and its parts with it: until then whoever takes over has to read
        them again.
        """
        name, value = raw.headers[-1] if raw.headers else ("", None)
        if name not in (_STATE, _CALL, PART) or raw.key is None:
            raise KeyError
        if name == PART:
            self._parts.take(raw, raw.key)
            return []
        first, _, second = (value or b"").partition(b":")
        group = self._states.of_input(int(first), raw.key)
        self.here.add(group)
        self._arrived[group] += name == _STATE
        if name == _CALL:
            self._calls[group] = (raw.offset, int(second))
            return []
        if (whole := self._parts.take(raw, _key_at_slot(int(first), raw.key))) is None:
            raise UnusableStateError(
                f"parts of the state at offset {raw.offset} are gone, as the topic has lost records, or offsets were "
                f"reset: to go on without that state, reset the group's offset of this partition to {raw.offset + 1}, "
                "which leaves out what has not ended before"
            )
        if whole.raw.value is None:
            return [raw.offset]
        self._states.arrive(group, Kept(whole.raw.value, int(second), version_of(raw.headers)))
        self._unwritten.setdefault(group, []).extend([*whole.parts, raw.offset])
        return []

    def step(self, lanes: Waiting, *, closed: bool = False, crowded: bool = False) -> Step:
        """What is due: states of keys that were called, and of which nothing is left to be handled.

        What has come of states that are written, or sent on, ends with it. `closed`: nothing else does. `crowded`: what
        the changelog refuses ends, too, as it is told where that is: gaps have no room for any number of them.
        """
        step = Step()
        for group, (offset, target) in {} if closed else self._calls.items():
            if lanes.has(group) or group in self._unanswered:
                continue
            if step.bytes > _MOST_BYTES:
                break
            step.ended.append(offset)
            if group in self._staying:
                step.send(group, self._stays(group))
                step.done.append(partial(self._stayed, group, offset))
            else:
                step.send(group, self._goes(step, group, target))
                step.done.append(partial(self._left, group, offset, self._arrived[group]))
        self._end_come(step, crowded=crowded)
        return step

    def _end_come(self, step: Step, *, crowded: bool) -> None:
        """What has come of states ends that are written, or of which it is told where they are."""
        for group, offsets in self._unwritten.items():
            own = self._states.key_of(group)
            if group in step.sent:
                continue
            if self._states.will_write(own):
                step.ended += offsets
            elif crowded and own in self._states.withheld and group not in self._unnoted:
                step.noted.append(group)
                step.keys.add(own)
                at = ((VERSION, b"%d" % _UNREADABLE), (_AT, b"%d:%d" % (min(offsets), max(offsets))))
                step.marks.append(Outgoing(self._topics.changelog_of_slots, self._slot, -1, own, b"", at))
                step.ended += offsets
                step.done.append(partial(self._noted.add, group))
        for noted in self._noted.difference(step.sent):
            if self._states.will_write(self._states.key_of(noted)):  # which may be all that there is to be committed
                step.done.append(partial(self._noted.discard, noted))

    def wrote(self, ended: Sequence[int]) -> None:
        """What has come at these offsets is written, or sent on."""
        gone = set(ended)
        left = {group: [each for each in offsets if each not in gone] for group, offsets in self._unwritten.items()}
        self._unwritten = {group: offsets for group, offsets in left.items() if offsets}

    def refuse(self, step: Step, groups: Container[Hashable], *, own: bool) -> Refused:
        """What a step writes of these keys is refused. It does without until `try_again`, but for those that stay.

        `own`: by the slot's changelog; else it is what goes to others.
        """
        found = Refused(
            {group for group in step.sent if group in groups},
            {group for group in self._staying if not own and group in step.groups and group in groups},
            {group for group in step.noted if own and group in groups},
        )
        self._staying |= found.staying
        self._unanswered |= found.unanswered
        self._unnoted |= found.unnoted
        return found

    def try_again(self) -> None:
        """Has written again what was refused."""
        self._unanswered.clear()
        self._unnoted.clear()

    def _stays(self, group: InputKey) -> list[Outgoing]:
        """Tells the input that a key which is called stays."""
        key, answer = self._states.in_input(group), self._answer
        return [_place_record(self._topics.changelog, group.source, key, Place(self._slot), answer)]

    def _goes(self, step: Step, group: InputKey, target: int) -> list[Outgoing]:
        """Has the state of a key leave the slot; gives what is sent where it goes to."""
        source, key, own = group.source, self._states.in_input(group), self._states.key_of(group)
        kept = self._states.peek(group)
        step.bytes += _size(kept)
        step.sent.append(group)
        if group in self._unwritten:  # the slot's changelog has nothing of it
            step.keys.add(own)
            step.ended += self._unwritten[group]
        elif kept is not None or own in self._states.withheld:
            step.keys.add(own)
            ended = self._states.ended_parts(own, None)
            step.marks += ended_parts(self._topics.changelog_of_slots, self._slot, own, ended)
            step.marks.append(Outgoing(self._topics.changelog_of_slots, self._slot, -1, own, None))
        if target == HOME:
            home = _home_record(self._topics.changelog, source, key, kept, self._answer)
            return in_parts(home, key, self._answer)
        place = _place_record(self._topics.changelog, source, key, Place(target), self._answer)
        return [*_state_records(self._topics.slots, target, source, key, kept), place]

    @property
    def _answer(self) -> tuple[tuple[str, bytes]]:
        return ((_ANSWER, b"%d" % self._slot),)

    def _stayed(self, group: InputKey, offset: int) -> None:
        self._staying.discard(group)
        if self._calls.get(group, (offset, 0))[0] == offset:
            self._calls.pop(group, None)

    def _left(self, group: InputKey, offset: int, come: int) -> None:
        """It has gone, and may have come again, and be called again, before that was known here."""
        if self._calls.get(group, (offset, 0))[0] == offset:
            self._calls.pop(group, None)
        if self._arrived[group] == come:
            self._done.bytes += _size(self._states.peek(group))
            self._states.drop(group)
            self._noted.discard(group)
            self.here.discard(group)
            del self._arrived[group]


def _size(kept: Kept | None) -> int:
    return 0 if kept is None else len(kept.data)


def _let_go(events: list[Event]) -> list[Event]:
    for event in events:
        event.source.let_go([event])
    return events


def place_of(headers: Headers) -> Place | None:
    """What a record of an input's changelog says of where its key is; None: at home, it is a state."""
    for name, value in headers:
        if name == _PLACE and value is not None:
            slot, _, target = value.partition(b":")
            return Place(int(slot), int(target) if target else None)
    return None


def at_of(headers: Headers) -> tuple[int, int] | None:
    """The first and the last offset in a slot's log of a state that its changelog does not have; None: it has it."""
    for name, value in headers:
        if name == _AT and value is not None:
            first, _, last = value.partition(b":")
            return int(first), int(last)
    return None


def key_of_come(raw: Raw) -> bytes | None:
    """The key, as slots' changelogs name it, of the state that a slot's record is, or is a part of; None: of none."""
    name, value = raw.headers[-1] if raw.headers else ("", None)
    if raw.key is None or name not in (_STATE, PART):
        return None
    return key_of(raw.key) if name == PART else _key_at_slot(int((value or b"").partition(b":")[0]), raw.key)


def come(records: Iterable[Raw], key: bytes) -> Kept | None:
    """The state of a key, as slots' changelogs name it, that is among records of a slot; None if it is not there."""
    parts = Parts()
    for raw in records:
        if raw.key is None or key_of_come(raw) != key:
            continue
        name, value = raw.headers[-1]
        if name == PART:
            parts.take(raw, raw.key)
        elif (whole := parts.take(raw, key)) is not None and whole.raw.value is not None:
            _, _, time = (value or b"").partition(b":")
            return Kept(whole.raw.value, int(time), version_of(raw.headers))
    return None


def is_answer(headers: Headers) -> bool:
    """Whether a slot has written this record of a changelog."""
    return any(name == _ANSWER for name, _ in headers)


def version_of(headers: Headers) -> int:
    """The version that a state was written by."""
    found = [int(value) for name, value in headers if name == VERSION and value is not None and value.isdigit()]
    return found[0] if found else 1


def kept_of(raw: Raw) -> Kept | None:
    """The state that a record of a changelog says; None: the key has none, or is not there."""
    if raw.value is None or place_of(raw.headers) is not None or at_of(raw.headers) is not None:
        return None
    return Kept(raw.value, raw.timestamp, version_of(raw.headers))


def _versions(kept: Kept) -> Iterator[tuple[str, bytes]]:
    yield VERSION, b"%d" % kept.version


def _state_records(topic: str, slot: int, source: int, key: bytes, kept: Kept | None) -> list[Outgoing]:
    """A state on its way; without value if the key has none. Its time is that of the write: old ones are deleted."""
    if kept is None:
        return [Outgoing(topic, slot, -1, key, None, ((_STATE, b"%d:0" % source),))]
    told = (*_versions(kept), (_STATE, b"%d:%d" % (source, kept.time)))
    return in_parts(Outgoing(topic, slot, -1, key, kept.data, told), _key_at_slot(source, key))


def _key_at_slot(source: int, key: bytes) -> bytes:
    """Several inputs may have the same one."""
    return b"%d:%s" % (source, key)


def _place_record(
    topic: str, partition: int, key: bytes, place: Place, more: tuple[tuple[str, bytes], ...] = ()
) -> Outgoing:
    slot, target = place
    said = b"%d" % slot if target is None else b"%d:%d" % (slot, target)
    return Outgoing(topic, partition, -1, key, b"", ((_PLACE, said), *more))


def _home_record(
    topic: str, partition: int, key: bytes, kept: Kept | None, more: tuple[tuple[str, bytes], ...]
) -> Outgoing:
    if kept is None:
        return Outgoing(topic, partition, -1, key, None, more)
    return Outgoing(topic, partition, kept.time, key, kept.data, (*_versions(kept), *more))
