"""The contract of a board: the topic keeps it, the tests' own one, and what routers publish in a store."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from keygrouping_app.kafka.board import Board, TopicBoard
from keygrouping_app.kafka.clients import Settings
from keygrouping_service.settings import StoreSettings
from keygrouping_service.store import Store, Unavailable, open_store
from keygrouping_service.testing import Cluster, until

from .boards import MemoryBoard, Wire

SECONDS = 60.0
"""After which a member that tells nothing is forgotten, unless a test is about that."""
SOON = 1.0
Opener = Callable[..., Awaitable[Board]]
"""A member's view of the board of this name, by which others are forgotten after so many seconds."""
BOARDS = ["memory", pytest.param("topic", marks=pytest.mark.kafka)]


class StoreBoard:
    """What is told is published in a store."""

    def __init__(self, store: Store, name: str, seconds: float) -> None:
        self._store, self._name, self._seconds = store, name, seconds
        self._published: dict[str, Any] = {}

    async def tell(self, member: str, value: bytes) -> None:
        await self._store.publish(self._name, member, json.loads(value), self._seconds)

    async def hear(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.02))
        self._published = await self._store.published(self._name)

    def told(self, _: float) -> list[bytes]:
        return [json.dumps(value).encode() for value in self._published.values()]

    async def withdraw(self, member: str) -> None:
        await self._store.withdraw(self._name, member)


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture(params=[*BOARDS, "store-memory", "store-file", "redis"])
def opened(request: pytest.FixtureRequest, closing: AsyncExitStack, tmp_path: Path) -> Opener:
    wires: dict[str, Wire] = {}
    if request.param == "memory":

        async def in_memory(name: str, _: float = SECONDS) -> Board:
            return MemoryBoard(wires.setdefault(name, Wire()))

        return in_memory
    if request.param == "topic":
        broker: Any = request.getfixturevalue("broker")
        prefix: str = request.getfixturevalue("topic_prefix")

        async def of_topic(name: str, seconds: float = SECONDS) -> Board:
            topic = f"{prefix}-{name}"
            async with Cluster(broker.bootstrap_servers) as cluster:
                if topic not in await cluster.admin.list_topics():
                    await cluster.create(**{topic: 1})
            settings = Settings("g", broker.bootstrap_servers, "unused")
            return await closing.enter_async_context(TopicBoard(settings, topic, seconds))

        return of_topic
    others: dict[str, Any] = {"store_url": "memory://"}
    if request.param == "store-file":
        others = {"store_url": f"file://{tmp_path}/store.json"}
    elif request.param == "redis":
        server: Any = request.getfixturevalue("redis_server")
        others = {"store_url": f"redis://{server.address}", "store_prefix": f"t-{uuid.uuid4().hex}"}
    store = open_store(StoreSettings(bootstrap_servers="unused:9092", **others))
    closing.push_async_callback(store.close)

    async def in_store(name: str, seconds: float = SECONDS) -> Board:
        return StoreBoard(store, name, seconds)

    return in_store


async def hears(board: Board, *values: bytes, seconds: float = SECONDS) -> None:
    """It knows these, and no others, before long."""

    async def known() -> bool:
        await board.hear(0.05)
        return sorted(board.told(seconds)) == sorted(values)

    await until(known)


@asynccontextmanager
async def telling(board: Board, member: str, value: bytes) -> AsyncIterator[None]:
    """The member tells this ten times per second."""

    async def keep() -> None:
        while True:
            with suppress(KafkaError, Unavailable):
                await board.tell(member, value)
            await asyncio.sleep(SOON / 10)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        while not task.done():  # a client may lose a cancellation that comes together with its answer
            task.cancel()
            await asyncio.wait([task], timeout=SOON)


async def test_each_member_s_last_word_counts_for_all(opened: Opener) -> None:
    one, other = await opened("reports"), await opened("reports")
    async with telling(other, "b", b"[2]"):
        async with telling(one, "a", b"1"):
            await asyncio.gather(hears(one, b"1", b"[2]"), hears(other, b"1", b"[2]"))
        async with telling(one, "a", b"3"):
            await asyncio.gather(hears(one, b"3", b"[2]"), hears(other, b"3", b"[2]"))


async def test_who_comes_later_knows_all_that_still_tell(opened: Opener) -> None:
    one = await opened("reports")
    async with telling(one, "1", b"1"), telling(one, "2", b"2"):
        await hears(one, b"1", b"2")
        await hears(await opened("reports"), b"1", b"2")


async def test_who_tells_nothing_any_more_is_forgotten_and_others_are_not(opened: Opener) -> None:
    one, other = await opened("reports", SOON), await opened("reports", SOON)
    async with telling(one, "2", b"2"):
        async with telling(one, "1", b"1"):
            await hears(other, b"1", b"2", seconds=SOON)
        await hears(other, b"2", seconds=SOON)
        async with telling(one, "1", b"1"):
            await hears(other, b"1", b"2", seconds=SOON)


async def test_who_withdraws_counts_no_more_and_may_come_back(opened: Opener) -> None:
    one, other = await opened("reports"), await opened("reports")
    async with telling(one, "1", b"1"):
        async with telling(one, "2", b"2"):
            await hears(other, b"1", b"2")
        began = time.monotonic()
        for member in ("2", "2", "nobody"):
            await one.withdraw(member)
        await hears(other, b"1")
        assert time.monotonic() - began < SECONDS, "it was not forgotten"
        async with telling(one, "2", b"3"):
            await hears(other, b"1", b"3")


async def test_boards_of_other_names_hear_nothing_of_it(opened: Opener) -> None:
    one, stranger = await opened("reports"), await opened("others")
    async with telling(one, "a", b"1"):
        await hears(one, b"1")
        async with telling(stranger, "b", b"2"):
            await hears(stranger, b"2")
            await stranger.hear(SOON)
            assert stranger.told(SECONDS) == [b"2"]


@pytest.mark.parametrize("opened", BOARDS, indirect=True)
async def test_who_has_told_last_stands_at_the_end(opened: Opener) -> None:
    """Of two members that say that a slot is theirs, the later one is right. Stores don't tell who was later."""
    board = await opened("reports")
    async with telling(board, "a", b"1"):
        await hears(board, b"1")
    for member, value in (("b", b"2"), ("a", b"3"), ("c", b"4"), ("a", b"5")):
        await board.tell(member, value)
    await hears(board, b"2", b"4", b"5")
    assert board.told(SECONDS) == [b"2", b"4", b"5"]
