"""The store of a process that runs alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from keygrouping_service.store.decoding import MOST_BYTES, decode
from keygrouping_service.store.protocol import Conflict, Entry, Record


@dataclass(frozen=True, slots=True)
class State:
    """Documents (JSON and version) and logs (JSON, newest first) at one moment."""

    documents: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    logs: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)

    def entry(self, document: str, most: int = MOST_BYTES) -> Entry | None:
        """A document, or None."""
        found = self.documents.get(document)
        return None if found is None else Entry(decode(found[0], most), found[1])

    def changed(self, document: str, value: Any, expected: int, record: Record | None) -> State:
        """The state after a `put`; raises `Conflict`."""
        current = self.entry(document)
        if (current.version if current else 0) != expected:
            raise Conflict(document, current)
        state = replace(self, documents={**self.documents, document: (orjson.dumps(value), expected + 1)})
        if record is None:
            return state
        log = (orjson.dumps(record.value), *self.logs.get(record.log, ()))[: record.keep]
        return replace(state, logs={**self.logs, record.log: log})


class MemoryStore:
    """Nothing outlives the process, and nobody else sees it."""

    name = "memory"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state = State()
        self._boards: dict[str, dict[str, tuple[bytes, float]]] = {}
        self._leases: dict[str, tuple[str, float]] = {}

    async def get(self, document: str, most: int = MOST_BYTES) -> Entry | None:
        """See `Store`."""
        return self._state.entry(document, most)

    async def put(self, document: str, value: Any, *, expected: int, record: Record | None = None) -> Entry:
        """See `Store`."""
        self._state = self._state.changed(document, value, expected, record)
        return Entry(value, expected + 1)

    async def tail(self, log: str, limit: int, most: int = MOST_BYTES) -> list[Any]:
        """See `Store`."""
        return [decode(value, most) for value in self._state.logs.get(log, ())[:limit]]

    async def announce(self, board: str, member: str, value: Any, ttl: float) -> None:
        """See `Store`."""
        self._forget_what_is_over()
        self._boards.setdefault(board, {})[member] = (orjson.dumps(value), self._clock() + ttl)

    async def announced(self, board: str, most: int = MOST_BYTES) -> dict[str, Any]:
        """See `Store`."""
        self._forget_what_is_over()
        return {member: decode(value, most) for member, (value, _) in self._boards.get(board, {}).items()}

    async def withdraw(self, board: str, member: str) -> None:
        """See `Store`."""
        self._boards.get(board, {}).pop(member, None)

    async def claim(self, name: str, owner: str, ttl: float) -> bool:
        """See `Store`."""
        self._forget_what_is_over()
        if self._leases.get(name, (owner,))[0] != owner:
            return False
        self._leases[name] = (owner, self._clock() + ttl)
        return True

    async def close(self) -> None:
        """See `Store`."""

    def _forget_what_is_over(self) -> None:
        now = self._clock()
        boards = {
            board: {member: found for member, found in members.items() if found[1] > now}
            for board, members in self._boards.items()
        }
        self._boards = {board: members for board, members in boards.items() if members}
        self._leases = {name: lease for name, lease in self._leases.items() if lease[1] > now}
