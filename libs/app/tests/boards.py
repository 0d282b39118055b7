"""What members tell each other, in memory: it keeps the contract of a board, see test_board.py."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Wire:
    """What all members tell."""

    def __init__(self) -> None:
        self.told: dict[str, bytes] = {}
        self.at: dict[str, float] = {}
        """When each has told it."""
        self.tellings = 0
        self.news = asyncio.Condition()


class MemoryBoard:
    """One member's view of it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._heard = wire.tellings
        self._view: dict[str, tuple[float, bytes]] = {}
        self._clock = asyncio.get_running_loop().time

    async def tell(self, member: str, value: bytes) -> None:
        await self._replace(member, value)

    async def hear(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._wire.news:
                await self._wire.news.wait_for(lambda: self._wire.tellings > self._heard)
        self._heard = self._wire.tellings
        self._view = {member: (self._wire.at[member], value) for member, value in self._wire.told.items()}

    def told(self, seconds: float) -> list[bytes]:
        since = self._clock() - seconds
        return [value for at, value in self._view.values() if at >= since]

    async def withdraw(self, member: str) -> None:
        await self._replace(member, None)

    async def _replace(self, member: str, value: bytes | None) -> None:
        wire = self._wire
        async with wire.news:
            wire.told.pop(member, None)
            if value is not None:
                wire.told[member], wire.at[member] = value, self._clock()
            wire.tellings += 1
            wire.news.notify_all()
