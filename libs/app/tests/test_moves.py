"""Keys are handed over while events come, calls fail and owners die: states and outputs are those of one thread.

The members here are real but for Kafka: what transactions write goes to lists, and what an owner begins with is read
from them. A transaction that fails wrote nothing; one without an answer wrote all, and its owner is gone.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias
from unittest.mock import patch

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    InvalidPartitionsError,
    InvalidTimestampError,
    KafkaConnectionError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import OffsetAndMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping_app import App, Event, Output, Reject, Retries, State
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.kafka import moved
from keygrouping_app.kafka.changelog import LARGEST_RECORD, Copy, changelog_of, slots_of
from keygrouping_app.kafka.moved import MovedPartition, Slots
from keygrouping_app.kafka.ranges import split_states, with_states
from keygrouping_app.kafka.refusals import Known
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.kafka.writing import RefusedError
from keygrouping_app.kept import Kept
from keygrouping_app.moves import BusyError, Done, Moves, Topics, place_of
from keygrouping_app.parts import key_of
from keygrouping_app.scheduler import Scheduler
from keygrouping_app.state import LARGEST_STATE
from keygrouping_app.states import InputKey, States
from keygrouping_app.surplus import SOURCE
from keygrouping_app.tally import REFUSED
from keygrouping_app.virtual_time import VirtualTime
from keygrouping_kafka.calls import cancel

INPUTS, SLOTS, KEYS = 2, 2, "ab"
IN, SLOT = "in", slots_of("group", "in")
STATES = changelog_of("group", IN)
INPUT_PLACES = [TopicPartition(IN, each) for each in range(INPUTS)]
PLACES = [*INPUT_PLACES, *(TopicPartition(SLOT, each) for each in range(SLOTS))]
END_ROUNDS = 400


@dataclass
class Chain:
    """Which events a key has had, in their order."""

    events: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Given:
    """An event, and what its handler does: it takes so long, fails so often, and may reject it."""

    source: int
    key: str
    seconds: float
    fails: int
    rejected: bool


Step: TypeAlias = tuple[str, int, int]
"""What happens, and two numbers for it."""
STEPS = [
    *("read", "read", "wait", "commit", "commit", "commit", "late", "late", "answers", "order", "order"),
    *(
        "refused",
        "too large",
        "not at home",
        "not in a slot",
        "not in a slot",
        "no note",
        "no event",
        "no answer",
        "no end",
    ),
    *("crash", "lost answer", "compact"),
]


def events_by(chance: random.Random) -> list[Given]:
    return [
        Given(
            chance.randrange(INPUTS),
            chance.choice(KEYS),
            chance.choice([0.0, 0.1, 1.0]),
            chance.choice([0, 0, 0, 0, 1]),
            chance.random() < 0.1,
        )
        for _ in range(chance.randrange(1, 30))
    ]


def steps_by(chance: random.Random) -> list[Step]:
    calm = chance.random() < 0.5
    able = [each for each in STEPS if not calm or each in {"read", "wait", "commit", "late", "answers", "order"}]
    return [(chance.choice(able), chance.randrange(8), chance.randrange(4)) for _ in range(chance.randrange(30, 150))]


class World:
    """What Kafka has."""

    def __init__(self, given: Sequence[Given]) -> None:
        self.logs: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        self.committed = {tp: OffsetAndMetadata(0, "") for tp in PLACES}
        self.refused: set[int] = set()
        """Events that slots have refused."""
        for number, each in enumerate(given):
            self.append(Outgoing(IN, each.source, 0, each.key.encode(), b"%d" % number))

    def append(self, one: Outgoing) -> int:
        """Gives the offset."""
        tp = TopicPartition(one.topic, one.partition or 0)
        offset = self.logs[tp][-1].offset + 1 if self.logs[tp] else 0
        self.logs[tp].append(Record(tp.topic, tp.partition, offset, max(0, one.time), one.key, one.value, one.headers))
        return offset

    def changelog(self, tp: TopicPartition) -> list[Record]:
        return self.logs[TopicPartition(changelog_of("group", tp.topic), tp.partition)]

    def compact(self, tp: TopicPartition, before: float) -> None:
        """Of what was written first, so large a part, the changelog keeps the last record of each key."""
        log = self.changelog(tp)
        old = log[: int(before * len(log))]
        last = {each.key: each.offset for each in old}
        log[: len(old)] = [each for each in old if last[each.key] == each.offset]

    def read(self, topic: str) -> list[Record]:
        return [each for tp, log in sorted(self.logs.items()) for each in log if tp.topic == topic]


class Transactions:
    """Of one owner."""

    def __init__(self, world: World, tp: TopicPartition) -> None:
        self._world = world
        self._tp = tp
        self.end = "committed"
        self.error: Exception = PolicyViolationError()
        self.refusals = 0
        self.made_by: Callable[[bytes], Sequence[int]] = lambda _: []

    async def commit(
        self, what: OffsetAndMetadata, outgoing: Sequence[Outgoing], states: Sequence[Outgoing], _: Mapping[str, int]
    ) -> OffsetAndMetadata:
        """As that of Kafka's."""
        await asyncio.sleep(0.01)
        if self.end == "refused":
            raise KafkaConnectionError
        for place, each in enumerate([*outgoing, *states]):
            if self.refuses(each):
                self.refusals += 1
                raise RefusedError({place: self.error}, [], frozenset({each.topic}), sent=True)
        offsets = [self._world.append(each) for each in [*outgoing, *states]]
        if states:
            last = max(offsets[-len(states) :])
            what = OffsetAndMetadata(what.offset, with_states(split_states(what.metadata)[0], last))
        self._world.committed[self._tp] = what
        if self.end == "lost answer":
            raise KafkaConnectionError
        if self.end == "late":
            await asyncio.sleep(1.0)
        return what

    def refuses(self, one: Outgoing) -> bool:
        """Whether its topic takes a record for good no more."""
        is_event = one.topic == SLOT and SOURCE in dict(one.headers)
        if self.end == "no event" and is_event:
            self._world.refused.add(int(one.value or b""))
        return {
            "too large": one.topic == SLOT and not is_event,
            "no event": is_event,
            "not at home": one.topic == STATES and bool(one.value) and self._tp.topic == SLOT,
            "no answer": one.topic == STATES and self._tp.topic == SLOT,
            "not in a slot": bool(one.value) and self.has_come(one),
            "no note": one.value is not None and self.has_come(one),
            "no end": one.topic == changelog_of("group", SLOT) and one.value is None,
        }.get(self.end, False)

    def has_come(self, one: Outgoing) -> bool:
        """Whether it is a state that no event has changed since it came to a slot."""
        return one.topic == changelog_of("group", SLOT) and not self.made_by(key_of(one.key or b""))


class Owner:
    """A partition in a member's hands, from what is committed on."""

    def __init__(self, runner: Runner, world: World, tp: TopicPartition, copy: Copy | None = None) -> None:
        self._world = world
        self._tp = tp
        self._runner = runner
        (self._lanes,) = runner.lanes
        self.transactions: Any = Transactions(world, tp)
        found = world.committed[tp]
        copy = self._restored() if copy is None else copy
        assert copy.newest <= (split_states(found.metadata)[1] or 0), "states that belong to no commit"
        self.partition = runner.moving.partition(tp, found, None, None, copy)
        runner.partitions[tp] = self.partition
        assert self.partition.states is not None
        self.transactions.made_by = self.partition.states.made_by

    def _restored(self) -> Copy:
        copy, log = Copy.of(self._lanes.handler, self._tp), self._world.logs[self._tp]
        for each in self._world.changelog(self._tp):
            copy.read(each)
            copy.position = each.offset + 1
        assert not copy.parts.missing
        for key, (first, last) in list(copy.noted.items()):
            assert copy.find(key, [each for each in log if first <= each.offset <= last])
        return copy

    def read(self, most: int) -> None:
        """Takes some of the records that are next."""
        first = self.partition.gaps.position
        records = self._world.logs[self._tp][first : first + most]
        self._lanes.offer(self.partition.take(records, first + len(records)))

    async def commit(self) -> None:
        """One transaction, if there is anything to commit."""
        assert not await self._runner.transacting.transact(self.partition, self.transactions)

    def order(self, key: str, slot: int | None) -> None:
        """Has a key handed over, if it can be."""
        with suppress(BusyError, LookupError):
            self._runner.moving.move(key.encode(), slot)

    def hear(self) -> None:
        """Takes the answers of slots that there are."""
        answers = self._runner.moving._answers
        if (position := answers._positions.get(self.partition)) is not None:
            records = [each for each in self._world.changelog(self._tp) if each.offset >= position]
            if records:
                answers._take(self.partition, records)
            if not answers._waits(self.partition):
                del answers._positions[self.partition]

    @property
    def done(self) -> bool:
        """Whether nothing is left for it to do."""
        moves = self.partition.moves
        at_rest = moves is None or not (moves.asked or moves.called)
        return at_rest and self._world.committed[self._tp].offset == len(self._world.logs[self._tp])

    def check(self) -> None:
        """Nothing is held any more, and what is elsewhere is not here."""
        states, moves = self.partition.states, self.partition.moves
        assert states is not None
        assert self.partition.events == self.partition.bytes == self.partition.unwritten == 0
        assert moves is None or not {group for group, _ in states} & moves.places.keys()

    def end(self) -> None:
        """It is gone, and with it all that is in its memory."""
        assert self.partition.states is not None
        self.partition.states.close()


def new_runner(app: App) -> Runner:
    (handler,) = app.handlers
    runner = Runner(app.settings(), {IN: (handler, app._lanes(handler, {}))})
    runner.moving.slots = {IN: Slots(SLOTS, 1_000_000)}
    return runner


def app_of(given: Sequence[Given]) -> App:
    app = App("group")

    @app.on(IN, state=State(Chain, moves="ordered"), retries=Retries(2, 1, 5), breaker=None, timeout=50)
    async def work(event: Event, chain: Chain) -> Output:
        what = given[event.value]
        chain.events = [*chain.events, event.value]
        await asyncio.sleep(what.seconds)
        if what.rejected:
            raise Reject("no")
        if event.tries < what.fails:
            raise OSError
        return Output("out", [event.value, chain.events], key=event.key)

    return app


class Group:
    """Members, each with some of the partitions."""

    def __init__(self, app: App, world: World, members: list[list[TopicPartition]]) -> None:
        self._app = app
        self.world = world
        self._members = members
        self.owners: dict[TopicPartition, Owner] = {}
        self._runners: list[Runner] = []
        for tps in members:
            self._runners.append(self._begin(tps))

    def _begin(self, tps: list[TopicPartition]) -> Runner:
        runner = new_runner(self._app)
        self.owners |= {tp: Owner(runner, self.world, tp) for tp in tps}
        return runner

    async def step(self, what: str, first: int, second: int) -> None:
        """Lets something happen."""
        tp = PLACES[first % len(PLACES)]
        owner = self.owners[tp]
        match what:
            case "read":
                owner.read(second)
            case "wait":
                await asyncio.sleep(second)
            case "commit":
                await owner.commit()
            case "answers":
                owner.hear()
            case "order":
                slot = [None, *range(SLOTS)][second % (SLOTS + 1)]
                self.owners[INPUT_PLACES[first % INPUTS]].order(KEYS[first // INPUTS % len(KEYS)], slot)
            case "late":
                await self._commit_late(tp, random.Random(second))
            case "crash":
                self._replace(tp)
            case "compact":
                self.world.compact(tp, second / 3)
            case _:
                await self._fail(tp, what)

    async def _fail(self, tp: TopicPartition, what: str) -> None:
        owner = self.owners[tp]
        owner.transactions.end = what
        for _ in range(1 if what == "lost answer" else 2):
            with suppress(KafkaConnectionError, RefusedError):
                await owner.commit()
        owner.transactions.end = "committed"
        if what == "lost answer":
            self._replace(tp)

    async def _commit_late(self, tp: TopicPartition, chance: random.Random) -> None:
        """Others act on a commit before its owner hears of it."""
        owner = self.owners[tp]
        owner.transactions.end = "late"
        task = asyncio.create_task(owner.commit())
        await asyncio.sleep(0.02)
        for _ in range(3):
            for other in self.owners.values():
                other.read(chance.randrange(8))
                other.hear()
                if other is not owner:
                    key, slot = chance.choice(KEYS), chance.choice([None, *range(SLOTS)])
                    self.owners[chance.choice(INPUT_PLACES)].order(key, slot)
                    await other.commit()
        await task
        owner.transactions.end = "committed"

    def _replace(self, tp: TopicPartition) -> None:
        """The member that has the partition dies, and another one has all of its partitions."""
        (number,) = [number for number, tps in enumerate(self._members) if tp in tps]
        self._end(number)
        self._runners[number] = self._begin(self._members[number])

    def _end(self, number: int) -> None:
        for lanes in self._runners[number].lanes:
            lanes.close()
        for tp in self._members[number]:
            self.owners[tp].end()

    def end(self) -> None:
        """All of them, when nothing is left to be done."""
        for owner in self.owners.values():
            owner.check()
        for number in range(len(self._members)):
            self._end(number)


async def play(given: list[Given], steps: list[Step], members: list[list[TopicPartition]]) -> World:
    """What is written in the end, when all of it has been handled."""
    world = World(given)
    with VirtualTime():
        group = Group(app_of(given), world, members)
        for step in steps:
            await group.step(*step)
        for _ in range(END_ROUNDS):
            for owner in group.owners.values():
                owner.read(100)
                owner.hear()
                await owner.commit()
            if all(owner.done for owner in group.owners.values()):
                break
            await asyncio.sleep(1)
        else:
            raise AssertionError("it comes to no end")
        group.end()
    return world


def come_at(world: World, slot: TopicPartition, key: bytes, at: bytes) -> bytes:
    """A state as it came to a slot, between these offsets of its log."""
    first, last = map(int, at.split(b":"))
    of = [each for each in world.logs[slot] if first <= each.offset <= last]
    record = of.pop()
    source, _, _ = (dict(record.headers)["keygrouping-state"] or b"").partition(b":")
    assert source + b":" + (record.key or b"") == key
    parts = {each.key: each.value or b"" for each in of if (each.key or b"").split(b":", 2)[-1] == key}
    pieces = [parts[b"\0keygrouping-part:%d:%s" % (number + 1, key)] for number in range(len(parts))]
    return b"".join([record.value or b"", *pieces])


def states_in(world: World) -> dict[tuple[int, str], list[int]]:
    """What changelogs say: a key's state is in one of them."""
    found: dict[tuple[int, str], list[int]] = {}
    for tp in PLACES:
        last = {each.key: each for each in world.changelog(tp)}
        for key, each in [*last.items()]:
            if key is not None and (at := dict(each.headers).get("keygrouping-at")) is not None:
                assert tp.topic == SLOT
                found[int(key[:1]), key[2:].decode()] = orjson.loads(come_at(world, tp, key, at))["events"]
        parts: defaultdict[bytes, dict[int, bytes]] = defaultdict(dict)
        for key in [key for key in last if (key or b"").startswith(b"\0keygrouping-part:")]:
            each = last.pop(key)
            _, number, of = (key or b"").split(b":", 2)
            if each.value:
                parts[of][int(number)] = each.value
        for key, each in last.items():
            if key is None or not each.value or place_of(each.headers) is not None:
                continue
            source, name = (tp.partition, key.decode()) if tp.topic == IN else (int(key[:1]), key[2:].decode())
            assert (source, name) not in found, "two states of a key"
            mine = parts.pop(key, {})
            found[source, name] = orjson.loads(each.value + b"".join(mine[number] for number in sorted(mine)))["events"]
        assert not parts, "parts of states that are not there"
    return found


def look_at(seed: int) -> None:
    chance = random.Random(seed)
    given, steps = events_by(chance), steps_by(chance)
    members: list[list[TopicPartition]] = [[] for _ in range(chance.randrange(1, len(PLACES) + 1))]
    for tp in PLACES:
        chance.choice(members).append(tp)
    size = chance.choice([7, 20, 1000])
    # Events that change what is known to be refused would be dead letters.
    crowded = chance.choice([0, 0.0001, 1])
    with (
        patch("keygrouping_app.kept.PART_BYTES", size),
        patch("keygrouping_app.gaps.CROWDED", crowded),
        patch.object(Known, "learn"),
    ):
        world = asyncio.run(play(given, steps, members))
    letters = world.read("dead-letters")
    dead = sorted(int(each.value or b"") for each in letters)
    refused = {int(each.value or b"") for each in letters if REFUSED.encode() in dict(each.headers).values()}
    assert refused <= world.refused
    wanted: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    outputs: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
    for number, each in enumerate(given):
        if not each.rejected and number not in refused:
            wanted[each.source, each.key].append(number)
            outputs[each.source, each.key].append(orjson.dumps([number, wanted[each.source, each.key]]))
    assert states_in(world) == dict(wanted)
    assert dead == [number for number, each in enumerate(given) if each.rejected or number in refused]
    found: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
    for record in world.read("out"):
        number = orjson.loads(record.value or b"")[0]
        found[given[number].source, given[number].key].append(record.value or b"")
    assert found == outputs


@given(st.integers(0, 2**40))
@settings(max_examples=150, deadline=None)
def test_states_and_outputs_are_those_of_one_thread(seed: int) -> None:
    look_at(seed)


@pytest.mark.fault
@given(st.integers(0, 2**40))
@settings(max_examples=5000, deadline=None)
@pytest.mark.timeout(3600)
def test_states_and_outputs_are_those_of_one_thread_at_length(seed: int) -> None:
    look_at(seed)


async def test_an_event_that_no_slot_takes_is_a_dead_letter_and_others_go_on() -> None:
    given = [Given(0, "a", 0.0, 0, rejected=False) for _ in range(3)]
    world = World(given)
    app = app_of(given)
    runner = new_runner(app)
    runner.moving.slots = {IN: Slots(SLOTS, 600)}
    owner = Owner(runner, world, INPUT_PLACES[0])
    owner.read(1)
    await asyncio.sleep(0.05)
    await owner.commit()
    owner.order("a", 1)
    await owner.commit()
    large = world.logs[INPUT_PLACES[0]][1]
    world.logs[INPUT_PLACES[0]][1] = replace(large, value=b" " * 600 + (large.value or b""))
    owner.read(2)
    await owner.commit()
    owner.check()
    owner.end()
    assert world.committed[INPUT_PLACES[0]].offset == 3
    (letter,) = world.read("dead-letters")
    assert dict(letter.headers)["keygrouping-reason"] == b"refused_output"
    assert [each.value for each in world.logs[TopicPartition(SLOT, 1)]] == [b'{"events":[0]}', b"2"]


async def test_what_no_event_is_to_blame_for_makes_no_dead_letter_and_is_tried_again() -> None:
    world = World([Given(0, "a", 0.0, 0, rejected=False) for _ in range(2)])
    owner = Owner(new_runner(app_of([Given(0, "a", 0.0, 0, rejected=False)] * 2)), world, INPUT_PLACES[0])
    owner.read(1)
    await asyncio.sleep(0.05)
    await owner.commit()
    owner.order("a", 1)
    await owner.commit()
    owner.read(1)
    for error in (TopicAuthorizationFailedError(), InvalidTimestampError(), InvalidPartitionsError()):
        owner.transactions.end, owner.transactions.error = "no event", error
        with pytest.raises(RefusedError):
            await owner.commit()
    owner.transactions.end = "committed"
    await owner.commit()
    owner.check()
    owner.end()
    assert not world.read("dead-letters")
    assert [each.value for each in world.logs[TopicPartition(SLOT, 1)]] == [b'{"events":[0]}', b"1"]


async def test_a_state_of_which_a_slot_takes_not_even_where_it_is_fails_no_more_transactions() -> None:
    given = [Given(0, "a", 0.0, 0, rejected=False) for _ in range(2)]
    world, runner = World(given), new_runner(app_of(given))
    home, slot = (Owner(runner, world, tp) for tp in (INPUT_PLACES[0], TopicPartition(SLOT, 0)))
    home.read(1)
    await asyncio.sleep(0.05)
    await home.commit()
    home.order("a", 0)
    await home.commit()
    with patch("keygrouping_app.gaps.CROWDED", 0), patch.object(slot.transactions, "end", "no note"):
        for refused in (1, 2, 2, 2):
            slot.read(1)
            await slot.commit()
            assert slot.transactions.refusals == refused
    assert slot.partition.refusal and isinstance(slot.partition, MovedPartition)
    slot.partition.visits.try_again()
    with patch("keygrouping_app.gaps.CROWDED", 0):
        await slot.commit()
    assert [dict(each.headers)["keygrouping-at"] for each in world.changelog(slot.partition.tp)] == [b"0:0"]
    assert slot.done
    for each in (home, slot):
        each.end()


async def test_a_state_that_is_refused_when_it_has_come_and_was_changed_meanwhile_is_the_event_s_affair() -> None:
    given = [Given(0, "a", 0.0, 0, rejected=False) for _ in range(2)]
    world, runner = World(given), new_runner(app_of(given))
    home, slot = (Owner(runner, world, tp) for tp in (INPUT_PLACES[0], TopicPartition(SLOT, 0)))
    home.read(1)
    await asyncio.sleep(0.05)
    await home.commit()
    home.order("a", 0)
    await home.commit()
    home.read(1)
    await home.commit()
    slot.read(1)
    slot.transactions.end = "not in a slot"
    committing = asyncio.create_task(slot.commit())
    await asyncio.sleep(0)
    slot.read(1)
    await committing
    assert slot.transactions.refusals == 1
    assert not slot.partition.refusal
    await slot.commit()
    assert slot.done
    assert states_in(world) == {(0, "a"): [0, 1]}
    for each in (home, slot):
        each.end()


async def test_who_reads_answers_rests_when_the_partition_that_waits_for_some_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World([Given(0, "a", 0.0, 0, rejected=False)])
    runner, looks = new_runner(app_of([])), 0
    owner, answers = Owner(runner, world, INPUT_PLACES[0]), runner.moving._answers

    def counted(*errors: type[BaseException]) -> suppress:
        nonlocal looks
        looks += 1
        return suppress(*errors)

    monkeypatch.setattr(moved, "started", lambda _: nullcontext())
    monkeypatch.setattr(moved, "new_reader", lambda *_: None)
    monkeypatch.setattr(moved, "suppress", counted)
    reading = asyncio.create_task(answers.keep())
    answers.follow(owner.partition, 0)
    for number in range(3):
        await asyncio.sleep(0.2)
        answers.follow(owner.partition, number)
    await asyncio.sleep(0.2)
    found = looks
    answers._changed.clear()  # so that it ends in any case
    await cancel([reading])
    assert 0 < found < 30
    owner.end()


def test_events_that_were_held_find_the_state_although_later_ones_of_other_keys_were_handled() -> None:
    states = States(State(Chain, ttl=10.0), by_input=True)
    states.keep(InputKey(0, b"later"), None, b"1", 50_000)
    states.arrive(InputKey(0, b"moved"), Kept(b"2", 20_000, 1))
    states.end_old(lambda _: False)
    assert states.find(InputKey(0, b"moved"), 25_000) is not None
    states.keep(InputKey(0, b"moved"), Kept(b"2", 20_000, 1), b"3", 25_000)
    states.end_old(lambda _: False)
    assert states.peek(InputKey(0, b"moved")) is None


def test_a_state_at_a_slot_is_old_by_the_events_of_its_own_input() -> None:
    states = States(State(Chain, ttl=10.0), by_input=True)
    lags, leads = InputKey(0, b"a"), InputKey(1, b"a")
    states.arrive(lags, Kept(b"1", 1_000, 1))
    states.keep(leads, None, b"2", 100_000)
    states.end_old(lambda _: False)
    assert states.peek(lags) is not None
    states.keep(InputKey(0, b"b"), None, b"3", 12_000)
    states.end_old(lambda group: group == lags)
    assert states.peek(lags) is not None, "it is busy"
    states.end_old(lambda _: False)
    assert states.peek(lags) is None
    assert states.peek(leads) is not None


async def test_a_key_whose_state_has_ended_at_its_slot_goes_home_by_an_order_and_leaves_nothing() -> None:
    """Until then its input notes where it is."""
    world = World([Given(0, key, 0.0, 0, rejected=False) for key in "abb"])
    log = world.logs[INPUT_PLACES[0]]
    log[:] = [replace(each, timestamp=time) for each, time in zip(log, (1000, 1000, 60_000), strict=True)]
    app = App("group")

    @app.on(IN, state=State(Chain, moves="ordered", ttl=10))
    async def work(event: Event, chain: Chain) -> None:
        chain.events.append(event.value)

    runner = new_runner(app)
    home, slot = (Owner(runner, world, tp) for tp in (INPUT_PLACES[0], TopicPartition(SLOT, 0)))

    async def both() -> None:
        for each in (home, slot):
            each.read(2)
            await asyncio.sleep(0.05)
            await each.commit()

    await both()
    for key in "ab":
        home.order(key, 0)
    await both()
    await both()
    a, b = InputKey(0, b"a"), InputKey(0, b"b")
    assert home.partition.moves is not None and slot.partition.states is not None
    assert slot.partition.states.peek(a) is None and slot.partition.states.peek(b) is not None
    assert set(home.partition.moves.places) == {a, b}
    home.order("a", None)
    await both()
    home.hear()
    assert set(home.partition.moves.places) == {b}
    assert [each.value for each in world.changelog(INPUT_PLACES[0]) if each.key == b"a"][-1] is None
    home.check()
    for each in (home, slot):
        each.end()


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_states_of_an_input_that_is_silent_keep_none_of_another_from_ending(store: Literal["memory", "disk"]) -> None:
    """However many they are, and with several inputs each has its turn."""
    states = States(State(Chain, ttl=10.0, store=store), by_input=True)
    for number in range(1200):
        states.keep(InputKey(0, b"silent%d" % number), None, b"1", 1_000)
    for source, count in ((1, 700), (2, 100)):
        for number in range(count):
            states.keep(InputKey(source, b"%d" % number), None, b"1", 2_000)
        states.keep(InputKey(source, b"new"), None, b"1", 100_000)

    def left() -> Counter[int]:
        return Counter(group.source for group in states.groups() if isinstance(group, InputKey))

    states.end_old(lambda _: False)
    assert left() == {0: 1200, 1: 201, 2: 101}
    states.end_old(lambda _: False)
    assert left() == {0: 1200, 1: 1, 2: 1}
    states.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [(b"alice", ["alice"]), (b"7", ["7", 7]), (b"true", ["true"]), (b"[1]", ["[1]"]), (b'{"a":1}', ['{"a":1}'])],
)
def test_a_key_that_is_written_is_a_text_or_a_number(text: bytes, found: list[Any]) -> None:
    states = States(State(Chain), by_field=True, source=3)
    assert states.groups_written(text) == [InputKey(3, each) for each in found]


async def test_a_producer_takes_parts_of_the_largest_states() -> None:
    """Whatever `max_request_size` an app gives, as a part that is refused would be tried again for ever."""
    runner = new_runner(app_of([]))
    handler = runner.handling.inputs[IN]
    assert runner.moving.largest(handler) >= LARGEST_RECORD > LARGEST_STATE / 80


def test_many_states_go_in_several_transactions() -> None:
    states = States(State(Chain), source=0)
    moves = Moves(Topics("slots", "changelog", "others"), 0, states, {}, lambda *_: None, Done())
    groups = [InputKey(0, b"%d" % number) for number in range(5)]
    for group in groups:
        states.keep(group, None, bytes(10 << 20), 1)
        moves.ask(group, 1)
    rounds = []
    scheduler = Scheduler(concurrency=1)
    while moves.asked:
        step, _ = moves.step(scheduler)
        rounds.append(len(step.done))
        for done in step.done:
            done()
    assert rounds == [2, 2, 1]
    assert len(moves.places) == 5
