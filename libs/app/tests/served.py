"""An app that runs beside a test, and its group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from keygrouping.app import App
from keygrouping_service.testing import Cluster, until


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[asyncio.Task[None]]:
    """Runs it; gives its task, which ends when the block does."""
    stop = asyncio.Event()
    task = asyncio.create_task(app.serve(stop))
    try:
        yield task
    finally:
        stop.set()
        await task


async def until_left(cluster: Cluster, group: str) -> None:
    """Until the group has no members: a broker may have it that one is there for a moment after it has ended."""

    async def is_left() -> bool:
        return await cluster.members(group) == 0

    await until(is_left)
