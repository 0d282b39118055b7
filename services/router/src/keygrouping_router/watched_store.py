"""The store with an eye on it: whether it can be used now, since when, and why not."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from keygrouping_service import metrics
from keygrouping_service.store import Entry, Record, Store, Unavailable

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class StoreState(NamedTuple):
    """Whether the store answered last time; since when (seconds since 1970) it is so; why not."""

    ok: bool
    since: float
    detail: str | None


class WatchedStore:
    """Passes everything on to a store and takes note of what comes back; see `Store`."""

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store = store
        self._wall = wall
        self.name = store.name
        self.state = StoreState(True, wall(), None)
        metrics.STORE_DEGRADED.set(0)

    async def get(self, document: str) -> Entry | None:
        """See `Store`."""
        return await self._noted(self._store.get(document))

    async def put(self, document: str, value: Any, *, expected: int, record: Record | None = None) -> Entry:
        """See `Store`."""
        return await self._noted(self._store.put(document, value, expected=expected, record=record))

    async def tail(self, log: str, limit: int) -> list[Any]:
        """See `Store`."""
        return await self._noted(self._store.tail(log, limit))

    async def announce(self, board: str, member: str, value: Any, ttl: float) -> None:
        """See `Store`."""
        await self._noted(self._store.announce(board, member, value, ttl))

    async def announced(self, board: str) -> dict[str, Any]:
        """See `Store`."""
        return await self._noted(self._store.announced(board))

    async def withdraw(self, board: str, member: str) -> None:
        """See `Store`."""
        await self._noted(self._store.withdraw(board, member))

    async def claim(self, name: str, owner: str, ttl: float) -> bool:
        """See `Store`."""
        return await self._noted(self._store.claim(name, owner, ttl))

    async def close(self) -> None:
        """See `Store`."""
        await self._store.close()

    async def _noted(self, call: Awaitable[Result]) -> Result:
        try:
            result = await call
        except Unavailable as error:
            if self.state.ok:
                log.warning("the store can't be used, going on with what is known: %s", error)
                self._turn(StoreState(False, self._wall(), str(error)))
            raise
        if not self.state.ok:
            log.info("the store can be used again")
            self._turn(StoreState(True, self._wall(), None))
        return result

    def _turn(self, state: StoreState) -> None:
        self.state = state
        metrics.STORE_DEGRADED.set(0 if state.ok else 1)
