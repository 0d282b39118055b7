"""What members tell each other ends with them: who leaves or was away counts for nothing."""

from __future__ import annotations

import asyncio

import pytest
from keygrouping_app import App, Event
from keygrouping_app.kafka.board import TopicBoard
from keygrouping_app.kafka.clients import Settings
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka


async def test_a_member_that_leaves_grants_nothing_from_then_on(cluster: Cluster, topic_prefix: str) -> None:
    source, reports = f"{topic_prefix}-in", f"{topic_prefix}.sharing"
    await cluster.create(**{source: 1, f"{topic_prefix}-dead": 1})
    await cluster.write(source, [(b"k", b"1")])
    app = App(topic_prefix, brokers=cluster.bootstrap_servers, dead_letters=f"{topic_prefix}-dead")
    runs, may_end, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.on(source, split=True)
    async def work(_: Event) -> None:
        runs.set()
        await may_end.wait()

    async def last() -> list[bytes | None]:
        return [record.value for record in await cluster.read(reports)][-1:]

    async def is_withdrawn() -> bool:
        return await last() == [None]

    member = asyncio.create_task(app.serve(stop))
    try:
        await asyncio.wait_for(runs.wait(), 300)
        await until(last)
        stop.set()
        await until(is_withdrawn)
        assert not member.done()
        # Nothing is told behind it.
        await asyncio.sleep(1)
        assert await is_withdrawn()
    finally:
        stop.set()
        may_end.set()
        await member


async def test_a_member_that_was_away_does_not_take_old_reports_for_new_ones(
    cluster: Cluster, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.sharing"
    await cluster.create(**{topic: 1})
    settings = Settings(topic_prefix, cluster.bootstrap_servers, "unused")
    async with TopicBoard(settings, topic, 1.0) as board, TopicBoard(settings, topic, 1.0) as other:
        while not board.told(60):
            await other.tell("a", b"1")
            await board.hear(0.1)
        await other.tell("b", b"2")
        await asyncio.sleep(1.5)  # as if the event loop or the process slept
        await board.hear(0.5)
        assert board.told(60) == []
        while not board.told(60):
            await other.tell("b", b"3")
            await board.hear(0.1)
        assert board.told(60) == [b"3"]
