"""States and outputs are those of one program that handles event after event, whatever fails, crashes and moves.

The members here are real but for Kafka: what a transaction writes goes to lists, and what a member begins with is read
from them. A transaction that fails wrote nothing; one without an answer wrote all or nothing, and its member is gone.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping_app import App, Event, Output, Retries, State
from keygrouping_app.events import Outgoing, Record
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.ranges import split_states, with_states
from keygrouping_app.kafka.runner import Runner
from keygrouping_app.kept import Kept
from keygrouping_app.states import States
from keygrouping_app.virtual_time import VirtualTime

TP = TopicPartition("in", 0)
TIMEOUT = 50.0
RETRIES = 2
TTL = 5.0


@dataclass
class Chain:
    """Which events a key has had, in their order."""

    events: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Given:
    """An event: how often it fails, and whether by taking too long; and whether it resets the state of its key."""

    key: str
    seconds: float
    fails: int
    late: bool
    resets: bool
    pause: float
    """Seconds since the event before, by the events' own times."""


Step: TypeAlias = tuple[Literal["read", "wait", "commit", "refused", "crash", "lost answer", "move", "compact"], int]

events_of = st.lists(
    st.builds(
        Given,
        st.sampled_from("abc"),
        st.sampled_from([0.0, 0.1, 3.0]),
        st.sampled_from([0, 0, 0, 1, 2, 3]),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([0.0, 1.0, 4.0, 6.0]),
    ),
    max_size=12,
)
steps_of = st.lists(
    st.tuples(
        st.sampled_from(
            ["read", "read", "wait", "commit", "commit", "refused", "crash", "lost answer", "move", "compact"]
        ),
        st.integers(1, 8),
    ),
    max_size=25,
)


@dataclass
class Log:
    """What Kafka has: the events, what is committed, and what transactions have written."""

    records: list[Record]
    committed: OffsetAndMetadata = field(default_factory=lambda: OffsetAndMetadata(0, ""))
    states: list[tuple[int, Outgoing]] = field(default_factory=list)
    """With their offsets."""
    written: list[Outgoing] = field(default_factory=list)
    end: int = 0

    def append(self, states: Sequence[Outgoing]) -> int:
        """Of a transaction, which may be aborted; gives the offset of its last record. Its marker takes one, too."""
        first, self.end = self.end, self.end + len(states) + 1
        return first + len(states) - 1

    def compact(self, chance: random.Random) -> None:
        """Forgets some of what is not the last of its key."""
        last = {each.key: offset for offset, each in self.states}
        self.states = [(at, each) for at, each in self.states if at == last[each.key] or chance.random() < 0.5]


class Transactions:
    """Of one owner of the partition."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.end: Literal["committed", "refused", "answer is lost"] = "committed"

    async def commit(
        self, what: OffsetAndMetadata, outgoing: Sequence[Outgoing], states: Sequence[Outgoing], _: Container[str]
    ) -> OffsetAndMetadata:
        """As that of Kafka's."""
        await asyncio.sleep(0.01)
        last = self._log.append(states)
        if self.end == "refused":
            raise KafkaConnectionError
        if states:
            what = OffsetAndMetadata(what.offset, with_states(split_states(what.metadata)[0], last))
        self._log.committed = what
        self._log.written += outgoing
        self._log.states += [(last - len(states) + 1 + n, each) for n, each in enumerate(states)]
        if self.end == "answer is lost":
            raise KafkaConnectionError
        return what


class Owner:
    """A member with the partition, from what is committed on."""

    def __init__(self, app: App, log: Log) -> None:
        (handler,) = app.handlers
        self._log = log
        lanes = app._lanes(handler, {})
        self._runner = Runner(app.settings(), {"in": (handler, lanes)})
        (self._lanes,) = self._runner.lanes
        self.transactions = Transactions(log)
        assert handler.state is not None
        states = States(handler.state)
        last = split_states(log.committed.metadata)[1]
        for offset, each in log.states:
            assert last is not None and offset <= last, "states that belong to no commit"
            assert each.key is not None
            kept = None if each.value is None else Kept(each.value, each.time, int(each.headers[0][1] or b""))
            states.restore(each.key, kept)
        self.partition = Partition(TP, handler.topic, log.committed, asyncio.Event(), states=states)
        self._runner.partitions[TP] = self.partition

    def read(self, most: int) -> None:
        """Takes some of the events that are next."""
        first = self.partition.gaps.position
        records = self._log.records[first : first + most]
        self._lanes.offer(self.partition.take(records, first + len(records)))

    async def commit(self) -> None:
        """One transaction, if there is anything to commit."""
        transactions: Any = self.transactions
        assert not await self._runner.transacting.transact(self.partition, transactions)

    async def give_up(self) -> None:
        """What runs ends, and is committed."""
        self._lanes.withdraw(self.partition)
        while self.partition.running:  # noqa: ASYNC110 -- nobody tells of it
            await asyncio.sleep(1)
        await self.commit()

    def end(self) -> None:
        """It is gone, and with it all that is in its memory."""
        self._lanes.close()
        assert self.partition.states is not None
        self.partition.states.close()


def app_of(store: Literal["memory", "disk"], ttl: float | None, given: Sequence[Given]) -> App:
    app = App("group")

    @app.on(
        "in",
        state=State(Chain, store=store, ttl=ttl),
        timeout=TIMEOUT,
        retries=Retries(RETRIES, 1, 5),
        breaker=None,
    )
    async def work(event: Event, chain: Chain) -> Output:
        what = given[event.value]
        chain.events = [] if what.resets else [*chain.events, event.value]
        fails = event.tries < what.fails
        await asyncio.sleep(TIMEOUT + 1 if fails and what.late else what.seconds)
        if fails:
            raise OSError
        return Output("out", [event.value, len(chain.events)], key=event.key)

    return app


class Group:
    """One owner after another."""

    def __init__(self, app: App, log: Log) -> None:
        self._app = app
        self._log = log
        self._chance = random.Random(1)
        self.owner = Owner(app, log)

    async def step(self, what: str, number: int) -> None:
        """Lets something happen."""
        match what:
            case "read":
                self.owner.read(number)
            case "wait":
                await asyncio.sleep(number)
            case "compact":
                self._log.compact(self._chance)
            case "commit":
                await self.owner.commit()
            case "refused":
                await self._fail("refused")
            case _:
                await self._change(what)

    async def _change(self, what: str) -> None:
        if what == "move":
            await self.owner.give_up()
        elif what == "lost answer":
            await self._fail("answer is lost")
        self.owner.end()
        self.owner = Owner(self._app, self._log)

    async def _fail(self, end: Literal["refused", "answer is lost"]) -> None:
        self.owner.transactions.end = end
        with suppress(KafkaConnectionError):
            await self.owner.commit()
        self.owner.transactions.end = "committed"


def records_of(given: Sequence[Given]) -> list[Record]:
    times = accumulate(int(each.pause * 1000) for each in given)
    return [
        Record("in", 0, number, time, each.key.encode(), b"%d" % number)
        for number, (each, time) in enumerate(zip(given, times, strict=True))
    ]


async def play(store: Literal["memory", "disk"], ttl: float | None, given: list[Given], steps: list[Step]) -> Log:
    """What is written in the end."""
    log = Log(records_of(given))
    with VirtualTime():
        group = Group(app_of(store, ttl, given), log)
        for step in steps:
            await group.step(*step)
        group.owner.read(len(given))
        while log.committed.offset < len(given):
            await asyncio.sleep(1)
            await group.owner.commit()
        group.owner.end()
    return log


@dataclass
class Expected:
    """Of a program with one thread."""

    states: dict[str, list[int]] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)
    outputs: list[tuple[str, bytes]] = field(default_factory=list)
    """Key and value."""
    dead: list[bytes] = field(default_factory=list)
    time: float = 0.0


def expected(ttl: float, given: Sequence[Given]) -> Expected:
    found = Expected()
    for number, each in enumerate(given):
        found.time += each.pause
        if each.fails > RETRIES:
            found.dead.append(b"%d" % number)
            continue
        before = found.states.get(each.key, [])
        if found.time - found.changed.get(each.key, found.time) > ttl:
            before = []
        found.states[each.key] = state = [] if each.resets else [*before, number]
        found.changed[each.key] = found.time
        found.outputs.append((each.key, b"[%d,%d]" % (number, len(state))))
    return found


@pytest.mark.parametrize("ttl", [None, TTL], ids=["for-ever", "ttl"])
@pytest.mark.parametrize("store", ["memory", "disk"])
@given(events_of, steps_of)
@settings(max_examples=40, deadline=None)
def test_states_and_outputs_are_those_of_one_thread(
    store: Literal["memory", "disk"], ttl: float | None, given: list[Given], steps: list[Step]
) -> None:
    look_at(store, ttl, given, steps)


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_state_that_an_event_will_find_that_was_not_read_again_yet_is_not_too_old(
    store: Literal["memory", "disk"],
) -> None:
    """What a takeover finds of other keys is of a later time than the events that it has still to read."""
    given = [
        Given("c", 0.0, 0, late=False, resets=False, pause=0.0),
        Given("a", 3.0, 0, late=False, resets=False, pause=0.0),
        Given("c", 3.0, 0, late=False, resets=False, pause=4.0),
        Given("b", 0.0, 0, late=False, resets=False, pause=6.0),
    ]
    steps: list[Step] = [("read", 4), ("wait", 1), ("commit", 1), ("crash", 1), ("read", 1), ("wait", 4), ("commit", 1)]
    look_at(store, TTL, given, steps)


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_state_that_an_event_will_find_that_was_given_up_unhandled_is_not_too_old(
    store: Literal["memory", "disk"],
) -> None:
    """While the first event of b runs, its second one is given up, and a later one of another key has ended."""
    given = [
        Given("b", 3.0, 0, late=False, resets=False, pause=0.0),
        Given("b", 0.0, 0, late=False, resets=False, pause=0.0),
        Given("a", 0.0, 0, late=False, resets=False, pause=6.0),
    ]
    look_at(store, TTL, given, [("read", 3), ("wait", 1), ("move", 1)])


@pytest.mark.fault
@pytest.mark.parametrize("ttl", [None, TTL], ids=["for-ever", "ttl"])
@pytest.mark.parametrize("store", ["memory", "disk"])
@given(events_of, steps_of)
@settings(max_examples=3000, deadline=None)
@pytest.mark.timeout(1800)
def test_states_and_outputs_are_those_of_one_thread_at_length(
    store: Literal["memory", "disk"], ttl: float | None, given: list[Given], steps: list[Step]
) -> None:
    look_at(store, ttl, given, steps)


def look_at(store: Literal["memory", "disk"], ttl: float | None, given: list[Given], steps: list[Step]) -> None:
    log = asyncio.run(play(store, ttl, given, steps))
    wanted = expected(math.inf if ttl is None else ttl, given)
    last = {each.key: each.value for _, each in log.states}
    found = {key.decode(): orjson.loads(value)["events"] for key, value in last.items() if key and value}
    young = {key for key, time in wanted.changed.items() if ttl is None or wanted.time - time <= ttl}
    assert found == {key: state for key, state in wanted.states.items() if state and (key in young or key in found)}
    assert sorted(each.value or b"" for each in log.written if each.topic != "out") == sorted(wanted.dead)
    outputs = [((each.key or b"").decode(), each.value) for each in log.written if each.topic == "out"]
    for key in "abc":
        assert [each for each in outputs if each[0] == key] == [each for each in wanted.outputs if each[0] == key]
