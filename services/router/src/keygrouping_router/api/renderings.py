"""Answers that many ask for are made once for all of them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable


class Renderings:
    """The last bodies, at most `most`, each for `seconds`. Whoever asks while a body is being made waits for it."""

    def __init__(self, seconds: float = 1.0, most: int = 64, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, bytes]] = OrderedDict()
        self._making: dict[Hashable, asyncio.Event] = {}
        self._generation = 0

    async def get(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The body for `key`, made by `make` if there is none that is fresh; raises what `make` raises."""
        while True:
            until, body = self._kept.get(key, (0.0, b""))
            if self._clock() < until:
                return body
            if key not in self._making:
                return await self._made(key, make)
            await self._making[key].wait()

    def forget(self) -> None:
        """Something was changed: nothing made, or begun, before is good any more."""
        self._generation += 1
        self._kept.clear()

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        generation, done = self._generation, asyncio.Event()
        self._making[key] = done
        try:
            body = await make()
        finally:
            del self._making[key]
            done.set()
        if generation == self._generation:
            self._kept[key] = (self._clock() + self._seconds, body)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return body
