"""A task that is cancelled ends, also if what it waits for comes in that moment, and others have what it had."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, Event
from keygrouping_app.events import Record
from keygrouping_app.kafka.assignment import Assignment
from keygrouping_app.kafka.changelog import Copy
from keygrouping_app.kafka.draining import Draining
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.opening import Opening
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.reading import Reading
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.kafka.standbys import Standbys
from keygrouping_app.kafka.transacting import Transacting
from keygrouping_app.kafka.transactions import Transactions
from keygrouping_app.scheduler import Failure

TP = TopicPartition("in", 0)
TURNS = range(6)
"""Of the event loop, between what is waited for and the cancellation."""
LONG = 60.0


def new_partition() -> Partition:
    (handler,) = new_app().handlers
    return Partition(TP, handler.topic, OffsetAndMetadata(0, ""), asyncio.Event())


def new_app() -> App:
    app = App("group")

    @app.on("in")
    async def work(_: Event) -> None: ...

    return app


async def rests(wakes: list[Callable[[], None]]) -> None:
    partition = new_partition()
    partition.urgent = asyncio.Event()
    wakes.append(partition.hurry)
    await partition.rest(LONG)


async def takes(wakes: list[Callable[[], None]]) -> None:
    signal = Signal()
    wakes.append(signal.set)
    await signal.take(LONG)


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("waits", [rests, takes])
async def test_who_is_cancelled_goes_on_with_nothing(
    waits: Callable[[list[Callable[[], None]]], Awaitable[None]], turns: int
) -> None:
    wakes: list[Callable[[], None]] = []

    async def wait() -> None:
        await waits(wakes)
        await asyncio.sleep(LONG)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    wakes[0]()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=5.0)
    assert task.cancelled()


class FakeTransactions:
    """Those of a partition that its broker has nothing of."""

    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class FakeTransacting:
    """Commits nothing, and rests between; `refused`: what the first partition has to begin again without."""

    def __init__(self, refused: dict[int, Failure]) -> None:
        self._refused = refused

    async def keep(self, partition: Partition, _: Transactions) -> dict[int, Failure]:
        while True:
            await partition.dirty.wait()
            partition.dirty.clear()
            refused, self._refused = self._refused, {}
            if refused:
                return refused
            await partition.rest(LONG)


class FakeOpening:
    def __init__(self) -> None:
        self.opened: list[Partition] = []
        self.transactions: list[FakeTransactions] = []

    async def open(self, _: TopicPartition, __: Copy | None) -> Partition:
        partition = new_partition()
        partition.urgent = asyncio.Event()
        self.transactions.append(FakeTransactions())
        partition.transactions = cast(Transactions, self.transactions[-1])
        self.opened.append(partition)
        return partition


class FakeOthers:
    """Who reads, and who follows states."""

    def gain(self, _: Partition) -> None: ...

    def begin_again(self) -> None: ...

    def take(self, _: TopicPartition) -> None: ...


class Held:
    """A partition in the hands of a member."""

    def __init__(self, refused: dict[int, Failure]) -> None:
        app, self.partitions, self.opening = new_app(), dict[TopicPartition, Partition](), FakeOpening()
        (handler,) = app.handlers
        self.handling = Handling(app.settings(), {"in": (handler, app._lanes(handler, {}))}, self.partitions)
        others: Any = FakeOthers()
        self.assignment = Assignment(
            self.partitions,
            self.handling,
            cast(Opening, self.opening),
            cast(Reading, others),
            cast(Transacting, FakeTransacting(refused)),
            Draining(self.handling, Signal()),
            cast(Standbys, others),
        )

    async def gain(self) -> Partition:
        self.assignment.gain(TP)
        await asyncio.wait(self.assignment.tasks)
        return self.partitions[TP]

    async def let_go(self, how: str) -> None:
        if how == "lost":
            self.assignment.lose(TP)
        else:
            await self.assignment.give_up(TP)
        await asyncio.sleep(0.05)
        self.handling.close()


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("how", ["lost", "given up"])
async def test_nothing_is_kept_of_a_partition_that_goes_as_it_is_to_be_committed(how: str, turns: int) -> None:
    held = Held({})
    partition = await held.gain()
    partition.dirty.set()
    await asyncio.sleep(0.01)
    partition.hurry()
    for _ in range(turns):
        await asyncio.sleep(0)
    await held.let_go(how)
    assert held.assignment.tasks == []
    assert [each.is_closed for each in held.opening.transactions] == [True]


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("how", ["lost", "given up"])
async def test_a_partition_that_goes_as_it_begins_again_is_not_begun(how: str, turns: int) -> None:
    held = Held({0: Failure("refused_output", "too large", retry=False)})
    partition = await held.gain()
    partition.running = 1
    partition.dirty.set()
    await asyncio.sleep(0.01)
    partition.running = 0
    held.handling.room.set()  # as its last call ends
    if how == "lost":
        for _ in range(turns):
            await asyncio.sleep(0)
    await held.let_go(how)
    assert not held.assignment.failure.done()
    assert held.partitions == {}
    assert held.assignment.tasks == []
    assert all(each.is_closed for each in held.opening.transactions)


@pytest.mark.parametrize("how", ["given up", "ended"])
async def test_a_partition_that_begins_again_while_it_is_drained_is_drained_too(how: str) -> None:
    """Nobody would end it: it would read on, and fence who has the partition by then."""
    held = Held({0: Failure("refused_output", "too large", retry=False)})
    partition = await held.gain()
    records: list[Any] = [Record("in", 0, 0, 0, b"k", b"1")]
    partition.end(partition.take(records, 1), [], letters=False)
    if how == "ended":
        await held.assignment.end(lambda: False)
    else:
        await held.let_go(how)
        assert held.assignment.tasks == []
        assert all(each.is_closed for each in held.opening.transactions)
    assert held.partitions == {}
    assert len(held.opening.opened) == 2
    assert all(each.closed for each in held.opening.opened)


async def test_what_is_refused_of_a_partition_that_has_gone_is_no_matter_of_who_has_it_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held({0: Failure("refused_output", "too large", retry=False)})
    partition = await held.gain()
    partition.dirty.set()
    held.assignment.lose(TP)
    held.assignment.gain(TP)
    await asyncio.sleep(0.05)
    assert "begins again" not in caplog.text
    assert [*held.partitions.values()] == held.opening.opened[1:]
    await held.let_go("lost")
    assert held.assignment.tasks == []
