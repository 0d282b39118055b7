"""Keys are handed over while events come, calls fail and owners die: states and outputs are those of one thread.

The members here are real but for Kafka: what transactions write goes to lists, and what an owner begins with is read
from them. A transaction that fails wrote nothing; one without an answer wrote all, and its owner is gone.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping_app import App, Event, Output, Reject, Retries, State
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.kafka.changelog import Copy, changelog_of, slots_of
from keygrouping_app.kafka.ranges import split_states, with_states
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.moves import BusyError, place_of
from keygrouping_app.virtual_time import VirtualTime

INPUTS, SLOTS, KEYS = 2, 2, "ab"
IN, SLOT = "in", slots_of("group", "in")
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
    *("read", "read", "wait", "commit", "commit", "commit", "answers", "order", "order"),
    *("refused", "crash", "lost answer"),
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
    able = [each for each in STEPS if not calm or each in {"read", "wait", "commit", "answers", "order"}]
    return [(chance.choice(able), chance.randrange(8), chance.randrange(4)) for _ in range(chance.randrange(30, 150))]


class World:
    """What Kafka has."""

    def __init__(self, given: Sequence[Given]) -> None:
        self.logs: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        self.committed = {tp: OffsetAndMetadata(0, "") for tp in PLACES}
        for number, each in enumerate(given):
            self.append(Outgoing(IN, each.source, 0, each.key.encode(), b"%d" % number))

    def append(self, one: Outgoing) -> int:
        """Gives the offset."""
        tp = TopicPartition(one.topic, one.partition or 0)
        offset = len(self.logs[tp])
        self.logs[tp].append(Record(tp.topic, tp.partition, offset, max(0, one.time), one.key, one.value, one.headers))
        return offset

    def changelog(self, tp: TopicPartition) -> list[Record]:
        return self.logs[TopicPartition(changelog_of("group", tp.topic), tp.partition)]

    def read(self, topic: str) -> list[Record]:
        return [each for tp, log in sorted(self.logs.items()) for each in log if tp.topic == topic]


class Transactions:
    """Of one owner."""

    def __init__(self, world: World, tp: TopicPartition) -> None:
        self._world = world
        self._tp = tp
        self.end: Literal["committed", "refused", "lost answer"] = "committed"

    async def commit(
        self, what: OffsetAndMetadata, outgoing: Sequence[Outgoing], states: Sequence[Outgoing], _: Container[str]
    ) -> OffsetAndMetadata:
        """As that of Kafka's."""
        await asyncio.sleep(0.01)
        if self.end == "refused":
            raise KafkaConnectionError
        offsets = [self._world.append(each) for each in [*outgoing, *states]]
        if states:
            last = max(offsets[-len(states) :])
            what = OffsetAndMetadata(what.offset, with_states(split_states(what.metadata)[0], last))
        self._world.committed[self._tp] = what
        if self.end == "lost answer":
            raise KafkaConnectionError
        return what


class Owner:
    """A member with one partition, from what is committed on."""

    def __init__(self, app: App, world: World, tp: TopicPartition) -> None:
        (handler,) = app.handlers
        self._world = world
        self._tp = tp
        self._runner = Runner(app.settings(), {IN: (handler, app._lanes(handler, {}))})
        self._runner.moving._slots = {IN: SLOTS}
        (self._lanes,) = self._runner.lanes
        self.transactions: Any = Transactions(world, tp)
        copy = Copy.of(handler, tp.topic)
        found = world.committed[tp]
        for each in world.changelog(tp):
            copy.read(each)
            copy.position = each.offset + 1
        assert copy.newest <= (split_states(found.metadata)[1] or 0), "states that belong to no commit"
        self.partition = self._runner.moving.partition(tp, found, None, None, copy)
        self._runner.partitions[tp] = self.partition

    def read(self, most: int) -> None:
        """Takes some of the records that are next."""
        first = self.partition.gaps.position
        records = self._world.logs[self._tp][first : first + most]
        self._lanes.offer(self.partition.take(records, first + len(records)))

    async def commit(self) -> None:
        """One transaction, if there is anything to commit."""
        await self._runner._transact(self.partition, self.transactions)

    def order(self, key: str, slot: int | None) -> None:
        """Has a key handed over, if it can be."""
        with suppress(BusyError, LookupError):
            self._runner.moving.move(key.encode(), slot)

    def hear(self) -> None:
        """Takes the answers of slots that there are."""
        answers = self._runner.moving._answers
        if (position := answers._positions.get(self.partition)) is not None:
            records = self._world.changelog(self._tp)[position:]
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
        self._lanes.close()
        assert self.partition.states is not None
        self.partition.states.close()


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
    """The owners of all partitions."""

    def __init__(self, app: App, world: World) -> None:
        self._app = app
        self.world = world
        self.owners = {tp: Owner(app, world, tp) for tp in PLACES}

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
            case "refused" | "lost answer":
                await self._fail(tp, what)
            case "crash":
                self._replace(tp)

    async def _fail(self, tp: TopicPartition, what: str) -> None:
        owner = self.owners[tp]
        owner.transactions.end = what
        with suppress(KafkaConnectionError):
            await owner.commit()
        owner.transactions.end = "committed"
        if what == "lost answer":
            self._replace(tp)

    def _replace(self, tp: TopicPartition) -> None:
        self.owners[tp].end()
        self.owners[tp] = Owner(self._app, self.world, tp)


async def play(given: list[Given], steps: list[Step]) -> World:
    """What is written in the end, when all of it has been handled."""
    world = World(given)
    with VirtualTime():
        group = Group(app_of(given), world)
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
        for owner in group.owners.values():
            owner.check()
            owner.end()
    return world


def states_in(world: World) -> dict[tuple[int, str], list[int]]:
    """What changelogs say: a key's state is in one of them."""
    found: dict[tuple[int, str], list[int]] = {}
    for tp in PLACES:
        last = {each.key: each for each in world.changelog(tp)}
        for key, each in last.items():
            if key is None or not each.value or place_of(each.headers) is not None:
                continue
            source, name = (tp.partition, key.decode()) if tp.topic == IN else (int(key[:1]), key[2:].decode())
            assert (source, name) not in found, "two states of a key"
            found[source, name] = orjson.loads(each.value)["events"]
    return found


def look_at(seed: int) -> None:
    chance = random.Random(seed)
    given, steps = events_by(chance), steps_by(chance)
    world = asyncio.run(play(given, steps))
    wanted: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    outputs: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
    for number, each in enumerate(given):
        if not each.rejected:
            wanted[each.source, each.key].append(number)
            outputs[each.source, each.key].append(orjson.dumps([number, wanted[each.source, each.key]]))
    assert states_in(world) == dict(wanted)
    dead = sorted(int(each.value or b"") for each in world.read("dead-letters"))
    assert dead == [number for number, each in enumerate(given) if each.rejected]
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
