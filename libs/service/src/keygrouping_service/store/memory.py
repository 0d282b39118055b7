"""The store of a process that runs alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from keygrouping_service.store.decoding import MOST_BYTES, decode, digest_of, encode
from keygrouping_service.store.protocol import Conflict, Entry, LogRecord, entry_of


@dataclass(frozen=True, slots=True)
class State:
    """Documents (JSON and version) and logs (JSON, newest first) at one moment."""

    documents: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    logs: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)

    def entry(self, document: str, most: int = MOST_BYTES, newer_than: Entry | None = None) -> Entry | None:
        """A document, or None."""
        if document not in self.documents:
            return None
        raw, version = self.documents[document]
        digest = digest_of(raw)
        if newer_than is not None and (newer_than.version, newer_than.digest) == (version, digest):
            return newer_than
        return entry_of(decode(raw, most), version, digest)

    def changed(self, document: str, value: Any, expected: int, record: LogRecord | None) -> State:
        """The state after a `put`; raises `Conflict`."""
        current = self.entry(document)
        if (current.version if current else 0) != expected:
            raise Conflict(document, current)
        state = replace(self, documents={**self.documents, document: (encode(value), expected + 1)})
        if record is None:
            return state
        log = (encode(record.value), *self.logs.get(record.log, ()))[: record.keep]
        return replace(state, logs={**self.logs, record.log: log})


class MemoryStore:
    """Nothing outlives the process, and nobody else sees it."""

    name = "memory"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state = State()
        self._presences: dict[str, dict[str, tuple[bytes, float]]] = {}
        self._leases: dict[str, tuple[str, float]] = {}

    async def get(self, document: str, most: int = MOST_BYTES, newer_than: Entry | None = None) -> Entry | None:
        """See `Store`."""
        return self._state.entry(document, most, newer_than)

    async def put(self, document: str, value: Any, *, expected: int, record: LogRecord | None = None) -> Entry:
        """See `Store`."""
        self._state = self._state.changed(document, value, expected, record)
        return Entry(value, expected + 1)

    async def tail(self, log: str, limit: int, most: int = MOST_BYTES) -> list[Any]:
        """See `Store`."""
        return [decode(value, most) for value in self._state.logs.get(log, ())[:limit]]

    async def publish(self, presence: str, member: str, value: Any, ttl: float) -> None:
        """See `Store`."""
        self._forget_what_is_over()
        self._presences.setdefault(presence, {})[member] = (encode(value), self._clock() + ttl)

    async def published(self, presence: str, most: int = MOST_BYTES) -> dict[str, Any]:
        """See `Store`."""
        self._forget_what_is_over()
        return {member: decode(value, most) for member, (value, _) in self._presences.get(presence, {}).items()}

    async def withdraw(self, presence: str, member: str) -> None:
        """See `Store`."""
        self._presences.get(presence, {}).pop(member, None)

    async def lease(self, name: str, owner: str, ttl: float) -> bool:
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
        presences = {
            presence: {member: found for member, found in members.items() if found[1] > now}
            for presence, members in self._presences.items()
        }
        self._presences = {presence: members for presence, members in presences.items() if members}
        self._leases = {name: lease for name, lease in self._leases.items() if lease[1] > now}
