"""An app that runs beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from keygrouping.app import App


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
