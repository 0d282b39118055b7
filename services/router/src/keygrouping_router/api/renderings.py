"""Answers that many ask for are made once for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Rendering:
    """An answer as it is sent."""

    messages: tuple[Message, ...]
    good: bool
    """Others may have it too."""


class Renderings:
    """The last good renderings, at most `most`, each fresh for `seconds`.

    For the same time again it is still given while a new one is made, so that who asks often never waits. Whoever asks
    for one that is not there waits with all others who do.
    """

    def __init__(self, seconds: float = 0.5, most: int = 64, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, Rendering]] = OrderedDict()
        self._making: dict[Hashable, asyncio.Event] = {}
        self._renewals: dict[Hashable, asyncio.Task[None]] = {}
        self._generation = 0

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Rendering]]) -> Rendering:
        """The rendering for `key`, made by `make` if need be; raises what `make` raises."""
        while True:
            made_at, rendering = self._kept.get(key, (0.0, None))
            age = self._clock() - made_at
            if rendering is not None and age < 2 * self._seconds:
                if age >= self._seconds and key not in self._making and key not in self._renewals:
                    self._renewals[key] = asyncio.create_task(self._renew(key, make))
                return rendering
            if key not in self._making:
                return await self._made(key, make)
            await self._making[key].wait()

    def forget(self) -> None:
        """Something was changed: nothing made, or begun, before is good any more."""
        self._generation += 1
        self._kept.clear()

    async def _renew(self, key: Hashable, make: Callable[[], Awaitable[Rendering]]) -> None:
        try:
            # Whoever asks after the old one has run out will see the fault for himself.
            with contextlib.suppress(Exception):
                await self._made(key, make)
        finally:
            del self._renewals[key]

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[Rendering]]) -> Rendering:
        generation, done = self._generation, asyncio.Event()
        self._making[key] = done
        try:
            rendering = await make()
        finally:
            del self._making[key]
            done.set()
        if rendering.good and generation == self._generation:
            self._kept[key] = (self._clock(), rendering)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return rendering


class RenderedOnce:
    """Middleware: a GET of these paths is answered by one rendering for all who ask alike, with the same rights."""

    def __init__(self, app: ASGIApp, renderings: Renderings, paths: frozenset[str]) -> None:
        self._app = app
        self._renderings = renderings
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] not in self._paths:
            return await self._app(scope, receive, send)
        rights = Headers(scope=scope).get("authorization")

        async def make() -> Rendering:
            messages: list[Message] = []

            async def keep(message: Message) -> None:
                messages.append(message)

            await self._app(scope, receive, keep)
            return Rendering(tuple(messages), messages[0]["status"] == 200)

        for message in (await self._renderings.get((scope["path"], scope["query_string"], rights), make)).messages:
            await send(message)
