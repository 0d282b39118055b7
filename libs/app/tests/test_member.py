"""A member that commits while it joins again stays the member that it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError
from aiokafka.structs import OffsetAndMetadata
from keygrouping_app.kafka.assignor import CooperativeAssignor
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.member import Member, NotNowError
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka


class Owner:
    """Gives up at once what it is asked for, and commits something for all that it has."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self.has: set[TopicPartition] = set()
        self.refused = 0
        self.member = Member(settings, [topic], self)

    def gain(self, tp: TopicPartition) -> None:
        self.has.add(tp)

    async def give_up(self, tp: TopicPartition) -> None:
        self.has.discard(tp)

    def lose(self, tp: TopicPartition) -> None:
        self.has.discard(tp)

    def may_start(self, until: float) -> None:
        """Nothing runs here."""

    async def commit(self) -> bool:
        try:
            await self.member.commit({tp: OffsetAndMetadata(0, "") for tp in self.has})
        except (NotNowError, CommitFailedError):
            self.refused += 1
            return False
        return True


class Absorbed(Owner):
    """Ends what it does when it is cancelled, as a call does whose answer comes at that moment."""

    def __init__(self, settings: Settings, topic: str) -> None:
        super().__init__(settings, topic)
        self.tasks: list[asyncio.Task[Any]] = []
        self.may_go = asyncio.Event()

    async def give_up(self, tp: TopicPartition) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        with contextlib.suppress(asyncio.CancelledError):
            await self.may_go.wait()
        await super().give_up(tp)


@contextlib.asynccontextmanager
async def kept(task: asyncio.Task[None]) -> Any:
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_commits_never_cross_a_rebalance(
    cluster: Cluster, topic_prefix: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit behind the request to join is answered behind it, by a group that has gone on."""
    topic = f"{topic_prefix}-in"
    await cluster.create(**{topic: 4})
    settings = Settings(f"{topic_prefix}-group", cluster.bootstrap_servers, "dead")
    stays, comes = Owner(settings, topic), Owner(settings, topic)
    say, commits = CooperativeAssignor.metadata, set[asyncio.Task[bool]]()

    def say_and_commit(assignor: CooperativeAssignor, topics: Iterable[str]) -> Any:
        """Called just before the request to join is sent."""
        if stays.has:
            commits.update(asyncio.create_task(stays.commit()) for _ in range(3))
        return say(assignor, topics)

    monkeypatch.setattr(CooperativeAssignor, "metadata", say_and_commit)
    caplog.set_level(logging.INFO)
    async with kept(asyncio.create_task(stays.member.keep())):
        await until(lambda: len(stays.has) == 4)
        async with kept(asyncio.create_task(comes.member.keep())):
            await until(lambda: len(comes.has) == 2 and len(stays.has) == 2)
        await until(lambda: len(stays.has) == 4)
        await until(stays.commit)
    assert stays.refused
    assert not [line for line in caplog.messages if "OffsetCommit failed" in line]


async def test_what_is_lost_while_it_is_given_up_is_lost_once(cluster: Cluster, topic_prefix: str) -> None:
    topic = f"{topic_prefix}-in"
    await cluster.create(**{topic: 4})
    settings = Settings(f"{topic_prefix}-group", cluster.bootstrap_servers, "dead")
    stays, comes = Absorbed(settings, topic), Owner(settings, topic)
    async with kept(asyncio.create_task(stays.member.keep())):
        await until(lambda: len(stays.has) == 4)
        async with kept(asyncio.create_task(comes.member.keep())):
            await until(lambda: len(stays.tasks) == 2)
            lost = list(stays.tasks)
            stays.member.lose_all()
            await asyncio.wait(lost)
            assert [task.exception() for task in lost] == [None, None]
            stays.may_go.set()
            await until(lambda: len(comes.has) == 2 and len(stays.has) == 2)
