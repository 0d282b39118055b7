"""What a plan of moves promises, and what is said of the members' work, against what members then really do.

In virtual time, with the lanes, plans and hand-overs of the app: only Kafka's logs are lists, see `test_moves`. The
oracle notes each call where it runs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, Event, State
from keygrouping_app.events import Outgoing
from keygrouping_app.kafka import planner
from keygrouping_app.kafka.moved import Slots
from keygrouping_app.kafka.planner import Planning
from keygrouping_app.planning import Promise
from keygrouping_kafka.calls import cancel

from .boards import MemoryBoard, Wire
from .simulated_group import PureTime
from .test_moves import IN, SLOT, Owner, World, new_runner

pytestmark = pytest.mark.usefixtures("planners")

LANES = 4
TICK = 0.1
CLOSE = 0.05
REST = 45
"""Seconds after a plan."""
DELAY = 4.0
"""Seconds by which what is told may be older than what is: reports, and those of the one that plans."""


@dataclass
class Call:
    """Of a member; `ended` is when it will have."""

    member: int
    began: float
    ended: float


@dataclass
class Key:
    """How often its events come, per second, and how many seconds their calls take."""

    name: str
    rate: float
    seconds: float
    partition: int = 0
    written: int = 0


class Group:
    """Members, each with so many inputs and slots."""

    def __init__(self, inputs: Sequence[int], slots: Sequence[int], keys: Sequence[Key]) -> None:
        self.loop = asyncio.get_running_loop()
        self.calls: list[Call] = []
        self.keys = {each.name: each for each in keys}
        self.world, self.wire = World([]), Wire()
        self.plannings: list[Planning] = []
        self.owners: list[Owner] = []
        self.able = [number for number, count in enumerate(slots) if count]
        """The members to which keys can go."""
        places = [[TopicPartition(of, n) for n in range(sum(counts))] for of, counts in ((IN, inputs), (SLOT, slots))]
        self.world.committed = dict.fromkeys(places[0] + places[1], OffsetAndMetadata(0, ""))
        for number, counts in enumerate(zip(inputs, slots, strict=True)):
            runner = new_runner(self._app(number))
            runner.moving.slots = {IN: Slots(sum(slots), 1_000_000)}
            for of, count in zip(places, counts, strict=True):
                self.owners += [Owner(runner, self.world, of.pop(0)) for _ in range(count)]
            planning = Planning("mixed", runner.lanes[0], runner.partitions, MemoryBoard(self.wire))
            runner.moving.plannings[IN] = planning
            self.plannings.append(planning)
        self._tasks: list[asyncio.Task[Any]] = []

    def _app(self, number: int) -> App:
        app = App("group")

        @app.on(IN, state=State(dict, moves="mixed"), concurrency=LANES)
        async def work(event: Event, counts: dict[str, int]) -> None:
            counts["n"] = counts.get("n", 0) + 1
            seconds, now = self.keys[event.key].seconds, self.loop.time()
            self.calls.append(Call(number, now, now + seconds))
            await asyncio.sleep(seconds)

        return app

    def start(self) -> None:
        self._tasks = [asyncio.create_task(each.keep()) for each in self.plannings]

    async def end(self) -> None:
        await cancel(self._tasks)
        for each in self.plannings:
            each._lanes.close()

    async def run(self, seconds: float) -> None:
        """Events come, and are handled."""
        until = self.loop.time() + seconds
        while (now := self.loop.time()) < until:
            self._write(now)
            for owner in self.owners:
                owner.read(500)
                owner.hear()
            await asyncio.gather(*(each.commit() for each in self.owners))
            await asyncio.sleep(TICK)

    def _write(self, now: float) -> None:
        for key in self.keys.values():
            key.written = key.written or int(now * key.rate)
            for _ in range(int(now * key.rate) - key.written):
                self.world.append(Outgoing(IN, key.partition, int(1000 * now), key.name.encode(), b"1"))
                key.written += 1

    def really(self, ago: float = 0.0) -> float:
        """λ of the members that can do something, by the seconds of their calls in ten seconds."""
        until = self.loop.time() - ago
        loads = dict.fromkeys(self.able, 0.0)
        for call in self.calls:
            if call.member in loads:
                loads[call.member] += max(0.0, min(until, call.ended) - max(until - planner._SPAN, call.began))
        return max(loads.values()) * len(loads) / sum(loads.values())

    @property
    def now(self) -> list[float | None]:
        return [each.balance.now for each in self.plannings]

    @property
    def promises(self) -> set[Promise]:
        return {each.balance.promise for each in self.plannings}


@asynccontextmanager
async def group(inputs: Sequence[int], slots: Sequence[int], keys: Sequence[Key]) -> AsyncIterator[Group]:
    with PureTime():
        made = Group(inputs, slots, keys)
        made.start()
        try:
            yield made
        finally:
            await made.end()


def skewed(count: int, seconds: float, load: float, seed: int) -> list[Key]:
    """Keys that need so many lanes together, each of them less than one."""
    chance = random.Random(seed)
    needs = [chance.uniform(0.2, 1.0) for _ in range(count)]
    return [Key(f"k{n}", each * load / sum(needs) / seconds, seconds) for n, each in enumerate(needs)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("inputs", "slots"),
    [([1, 0], [1, 1]), ([1, 0, 0], [1, 2, 1]), ([1, 0, 0], [1, 1, 0])],
    ids=["two", "three", "one that can have nothing"],
)
async def test_what_a_plan_promises_comes_true_and_is_told_as_it_does(
    inputs: list[int], slots: list[int], seed: int
) -> None:
    async with group(inputs, slots, skewed(12, 0.05, 0.85 * LANES, seed)) as made:
        able, members = len(made.able), len(inputs)
        assert made.now == [None] * members
        while made.promises == {Promise()}:
            await made.run(1)
        (promise,) = made.promises
        assert promise.before == pytest.approx(able)
        assert promise.keys > 1
        for _ in range(REST):
            expected = [made.really(0.5 * ago) for ago in range(int(2 * DELAY))]
            for told in made.now:
                assert told is None or min(expected) - CLOSE <= told <= max(expected) + CLOSE
            await made.run(1)
        assert made.promises == {promise}, "it is as even as it can be, so nothing else is to move"
        assert made.really() == pytest.approx(promise.after, abs=CLOSE)
        assert made.now == [pytest.approx(promise.after, abs=CLOSE)] * members


async def test_long_calls_count_while_they_run() -> None:
    """Ten seconds have a few of them, so plans come and go."""
    async with group([1, 0], [1, 1], skewed(12, 7.0, 0.85 * LANES, 0)) as made:
        await made.run(planner._SPAN + DELAY)
        for _ in range(2 * REST):
            expected = [made.really(0.5 * ago) for ago in range(int(2 * DELAY))]
            for told in made.now:
                assert told is not None
                assert min(expected) - 2 * CLOSE <= told <= max(expected) + 2 * CLOSE
            await made.run(1)
        assert max(made.promises).version > 0
