"""Calls of Kafka's clients that fail: how long to wait before the next one, and what a failure is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka.errors import KafkaConnectionError


def backoff(first: float = 0.1, most: float = 5.0) -> Iterator[float]:
    """Seconds to wait before each retry: doubling from `first` to `most`, with jitter. Endless."""
    delay = first
    while True:
        yield delay * random.uniform(0.7, 1.3)
        delay = min(most, delay * 2)


@contextmanager
def given_up_calls() -> Iterator[None]:
    """Makes a connection error of a call that a client itself has cancelled, as it does when it drops a connection.

    Without this it would look as if somebody had cancelled the task that waits for the call.

    And if somebody has, CancelledError, whatever the calls made of that: `asyncio.wait_for` of Python 3.11 loses it if
    what it waits for ends at that moment, and who tries again for ever would go on.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except asyncio.CancelledError as error:
        if task is None or task.cancelling():
            raise
        raise KafkaConnectionError("a call was given up, as its connection is gone") from error
    except Exception as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


async def cancel(tasks: Iterable[asyncio.Future[Any]], again: float = 5.0) -> None:
    """Returns when all have ended; who is still at work after `again` seconds has lost the cancellation, and gets one
    more."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=again)


async def together(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Returns when all have ended; the first one that fails ends the others, and its error is raised.

    Unlike `asyncio.TaskGroup` up to Python 3.12, which leaves a task that waits for it as if somebody had cancelled it:
    `given_up_calls` would make CancelledError of the error.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


async def start(client: Any) -> None:
    """Starts a consumer, producer or admin client; KafkaConnectionError while the cluster names no broker.

    aiokafka asserts that it knows a broker; just after an outage brokers answer before they count as alive, and the
    list that they give is empty.
    """
    try:
        await client.start()
    except AssertionError as error:
        raise KafkaConnectionError("the cluster names no broker yet") from error
