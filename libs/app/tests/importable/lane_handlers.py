"""Handlers that do what their events say and write it down, in a module that other processes can import.

An event's value: `log`, the file; `do`, what it does; `times`, how often it does so before it works after all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from keygrouping_app import App, Event, Output, Reject
from keygrouping_service.testing import note

SECONDS = 0.002


def say(what: str, event: Event) -> None:
    """Notes what a handler has done."""
    file = os.open(event.value["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    note(file, what, time.monotonic_ns(), os.getpid(), event.key, event.offset)
    os.close(file)


def act(event: Event) -> Output | None:
    """What the event says."""
    match event.value["do"] if event.tries < event.value.get("times", 1000) else "work":
        case "raise":
            raise RuntimeError(f"no money for {event.key}")
        case "reject":
            raise Reject("the shop is closed")
        case "leave":
            raise SystemExit(3)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "output":
            return Output("receipts", {"of": event.offset}, key=event.key, headers=(("who", b"me"),))
        case "wrong":
            return "a text"  # type: ignore[return-value]
        case "sleep":
            time.sleep(3600)
        case "hold":  # one instruction, during which no other thread of the process runs
            assert 7**60_000_000
    return None


def work(event: Event) -> Output | None:
    """A plain handler."""
    say("start", event)
    if event.value["do"] == "slow":
        time.sleep(SECONDS)
    try:
        return act(event)
    finally:
        say("end", event)


async def work_async(event: Event) -> Output | None:
    """The same as a coroutine."""
    say("start", event)
    if event.value["do"] == "slow":
        await asyncio.sleep(SECONDS)
    try:
        return act(event)
    finally:
        say("end", event)


def quiet(event: Event) -> Output | None:
    """Takes no time if it has nothing to do."""
    return act(event)


def forgets_to_await(event: Event) -> Any:
    """A plain function around a coroutine."""
    return work_async(event)


def take_apart(events: list[Event]) -> None:
    """Takes its list apart."""
    while events:
        say("start", events[-1])
        events.pop()


def batch(events: list[Event]) -> list[Output]:
    """An output for all."""
    for event in events:
        act(event)
    return [Output("receipts", [event.offset for event in events], key=events[0].key)]


async def base() -> AsyncIterator[int]:
    """Where it runs."""
    yield os.getpid()


def _fail(error: Exception) -> None:
    raise error


async def unused() -> AsyncIterator[None]:
    """Must not run in a process of a handler."""
    _fail(AssertionError())
    yield


async def where(base: int) -> AsyncIterator[Callable[[], str]]:
    """Needs an event loop that goes on while handlers run."""
    loop = asyncio.get_running_loop()

    async def tell_on_loop() -> str:
        return f"{base} {os.getpid()}"

    yield lambda: asyncio.run_coroutine_threadsafe(tell_on_loop(), loop).result(60)


def tell(event: Event, where: Callable[[], str]) -> Output:
    """Where the lifespan runs, and where this."""
    return Output("places", f"{where()} {os.getpid()}", key=event.key)


async def broken() -> AsyncIterator[None]:
    """Can't be opened."""
    _fail(ConnectionError("no such host"))
    yield


async def hanging() -> AsyncIterator[None]:
    """Opens at once, until there is a file of the name in the environment."""
    if held():
        await asyncio.sleep(3600)
    yield


def held() -> bool:
    """Whether there is one."""
    return Path(os.environ["LANES_HANG"]).exists()


def needs_hanging(event: Event, hanging: None) -> None: ...


def needs_broken(event: Event, broken: None) -> None: ...


def app_of(function: Any, **settings: Any) -> App:
    """An app with one handler."""
    app = App("a")
    app.on("t", **settings)(function)
    return app
