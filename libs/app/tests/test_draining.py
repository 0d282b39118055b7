"""A partition that is to be another member's: what runs of it ends, and is committed, or it is told that it is not."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app import App, Event
from keygrouping_app.events import Record
from keygrouping_app.kafka.draining import GRACE, Draining
from keygrouping_app.kafka.handling import Handling
from keygrouping_app.kafka.known import KnownRefusals
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.signals import Signal
from keygrouping_app.kafka.transacting import Transacting

from .simulated_group import PureTime

TP = TopicPartition("in", 0)
TIMEOUT = 20.0


class Held:
    """A partition in the hands of a member, of which each call takes so many seconds and can't be stopped."""

    def __init__(self, seconds: float, events: int = 1) -> None:
        app = App("group")

        @app.on("in", timeout=TIMEOUT, concurrency=1)
        async def work(_: Event) -> None:
            clock = asyncio.get_running_loop().time
            end = clock() + seconds
            while clock() < end:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(end - clock())

        (handler,) = app.handlers
        self.partition = Partition(TP, handler.topic, OffsetAndMetadata(0, ""), asyncio.Event())
        self.partitions = {TP: self.partition}
        self.settings = app.settings()
        self.handling = Handling(self.settings, {"in": (handler, app._lanes(handler, {}))}, self.partitions)
        self.committed = Signal()
        self.draining = Draining(self.handling, self.committed)
        records: list[Any] = [Record("in", 0, offset, 0, b"k", b"1") for offset in range(events)]
        self.handling.offer(self.partition, self.partition.take(records, events))

    async def end(self) -> None:
        """Lets what runs end."""
        await asyncio.sleep(2 * TIMEOUT + 60.0)
        self.handling.close()

    async def commit(self) -> None:
        """Answers a commit a while after it was asked for one."""
        while True:
            await self.partition.dirty.wait()
            self.partition.dirty.clear()
            await asyncio.sleep(0.5)
            if (due := self.partition.due()) is not None:
                self.partition.committed(due)
            self.committed.set()


async def test_what_runs_ends_and_is_committed_and_nothing_else_starts() -> None:
    with PureTime():
        held = Held(3.0, events=2)
        committing = asyncio.create_task(held.commit())
        await asyncio.sleep(1.0)
        await held.draining.drain(held.partition)
        committing.cancel()
        await held.end()
    assert held.partition.due() is None
    assert held.partition.gaps.first == 1, "the second has not begun"


async def test_what_takes_too_long_is_left_to_the_next_owner(caplog: pytest.LogCaptureFixture) -> None:
    with PureTime():
        held = Held(TIMEOUT + 60.0)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1.0)
        await held.draining.let_end(held.partition)
        assert asyncio.get_running_loop().time() == pytest.approx(began + 1.0 + TIMEOUT + GRACE)
        await held.end()
    assert "in[0]: 1 handlers did not end in time; their events will be handled again" in caplog.text


async def test_a_commit_that_can_not_come_is_waited_for_until_that_is_known(caplog: pytest.LogCaptureFixture) -> None:
    with PureTime():
        held = Held(0.0)
        await asyncio.sleep(1.0)
        left = 3

        def is_in_vain() -> bool:
            nonlocal left
            left -= 1
            return left == 0

        await held.draining.drain(held.partition, is_in_vain)
        await held.end()
    assert held.partition.due() is not None
    assert left == 0
    assert "in[0]: the group does not answer, so what ended since the last commit runs again" in caplog.text


async def test_nothing_is_waited_for_of_a_partition_that_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    with PureTime():
        held = Held(TIMEOUT / 2)
        await asyncio.sleep(1.0)
        draining = asyncio.create_task(held.draining.drain(held.partition))
        await asyncio.sleep(1.0)
        assert not draining.done()
        held.draining.abandon(held.partition)
        held.handling.room.set()
        await asyncio.wait_for(draining, 1.0)
        await held.end()
    assert held.partition.lost
    assert "on their way" not in caplog.text


async def test_a_member_whose_transaction_is_fenced_may_have_lost_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def commit(*_: object) -> OffsetAndMetadata:
        raise ProducerFenced

    lost: list[str] = []
    with PureTime():
        held = Held(0.0)
        await asyncio.sleep(1.0)
        transacting = Transacting(
            held.settings,
            held.handling,
            None,
            KnownRefusals("group", held.partitions),
            lambda *_: None,
            held.committed,
            lambda: lost.append("all"),
        )
        transactions: Any = SimpleNamespace(commit=commit)
        assert await transacting.keep(held.partition, transactions) == {}
        assert lost == [], "not from within what is lost with it"
        await asyncio.sleep(0)
        await held.end()
    assert lost == ["all"]
    assert "in[0] belongs to another member: " in caplog.text
