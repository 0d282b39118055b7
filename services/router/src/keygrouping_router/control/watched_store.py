"""The store with an eye on it: whether it can be used now, and whether what stands in it is what it should be."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from keygrouping_service.http.problems import describe
from keygrouping_service.store import MOST_BYTES, Entry, LogRecord, Store, Unavailable, Unreadable
from pydantic import ValidationError

from keygrouping_router import metrics

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Value = TypeVar("Value")

_MOST_TOLD = 1000
_LONGEST_REASON = 300


class StoreState(NamedTuple):
    """Whether the store answered last time; since when (seconds since 1970) it is so; why not."""

    ok: bool
    since: float
    detail: str | None


@dataclass(frozen=True)
class Shape(Generic[Value]):
    """What values of a kind are: `read` makes one of a JSON value, or raises anything if it is none."""

    kind: str
    """As the log and the metric name it."""
    read: Callable[[Any], Value]
    most: int = MOST_BYTES
    """Bytes that none of them exceeds."""


class Found(NamedTuple, Generic[Value]):
    """A document: None if its value is of no use, and its version. It is not to be written to."""

    value: Value | None
    version: int


class WatchedStore:
    """Passes everything on to a store, and takes note of what comes back; see `Store`.

    What is read has the shape that is asked for. A value that hasn't is told, once for each, is counted, and is as good
    as missing: whoever can write to the store can stop no router with it.
    """

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store = store
        self._wall = wall
        self._read_last: dict[str, tuple[Entry, Found[Any]]] = {}
        """Documents of use, as they stand in the store and as they were read."""
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.name = store.name
        self.state = StoreState(True, wall(), None)
        metrics.STORE_DEGRADED.set(0)

    async def get(self, document: str, shape: Shape[Value]) -> Found[Value] | None:
        """A document, or None if there is none; its value is read only where another one stands there than before."""
        known, found = self._read_last.get(document, (None, None))
        entry = await self._noted(self._store.get(document, shape.most, known))
        if entry is not None and entry is known:
            return found
        self._read_last.pop(document, None)
        if entry is None:
            return None
        found = Found(self._read(entry.value, document, shape), entry.version)
        if found.value is not None and entry.digest:
            self._read_last[document] = (replace(entry, value=None), found)
        return found

    async def put(self, document: str, value: Any, *, expected: int, record: LogRecord | None = None) -> Entry:
        """See `Store`."""
        return await self._noted(self._store.put(document, value, expected=expected, record=record))

    async def tail(self, log: str, limit: int, shape: Shape[Value]) -> list[Value]:
        """The last values of a log that are of use, newest first."""
        found = await self._noted(self._store.tail(log, limit, shape.most))
        return [value for raw in found if (value := self._read(raw, log, shape)) is not None]

    async def publish(self, presence: str, member: str, value: Any, ttl: float) -> None:
        """See `Store`."""
        await self._noted(self._store.publish(presence, member, value, ttl))

    async def published(self, presence: str, shape: Shape[Value]) -> dict[str, Value]:
        """What its members have published, as far as it is usable and has not expired."""
        found = await self._noted(self._store.published(presence, shape.most))
        read = {member: self._read(raw, f"{presence}/{member}", shape) for member, raw in found.items()}
        return {member: value for member, value in read.items() if value is not None}

    async def withdraw(self, presence: str, member: str) -> None:
        """See `Store`."""
        await self._noted(self._store.withdraw(presence, member))

    async def lease(self, name: str, owner: str, ttl: float) -> bool:
        """See `Store`."""
        return await self._noted(self._store.lease(name, owner, ttl))

    async def close(self) -> None:
        """See `Store`."""
        await self._store.close()

    def reject(self, kind: str, name: str, error: Exception | str, mark: object = "") -> None:
        """A value turned out to be of no use: it is counted, and told if it is another one (by `mark`) than before."""
        metrics.BAD_STORE_VALUES.labels(kind).inc()
        reason = _reason(error)
        told = (name, f"{mark or reason}")
        if told not in self._told:
            log.error(
                "the value in the store under %r is invalid and treated as missing (%s): %s; "
                "the next write replaces it",
                name[:_LONGEST_REASON],
                kind,
                reason,
            )
            self._told[told] = None
        self._told.move_to_end(told)
        while len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)

    def _read(self, raw: Any, name: str, shape: Shape[Value]) -> Value | None:
        if isinstance(raw, Unreadable):
            self.reject(shape.kind, name, raw.why, raw.mark)
            return None
        try:
            return shape.read(raw)
        except Exception as error:  # Whatever a reader raises, the value is none.
            self.reject(shape.kind, name, error)
            return None

    async def _noted(self, call: Awaitable[Result]) -> Result:
        try:
            result = await call
        except Unavailable as error:
            if self.state.ok:
                log.warning("the store is unavailable, continuing with the last known values: %s", error)
                self._turn(StoreState(False, self._wall(), str(error)))
            raise
        if not self.state.ok:
            log.info("the store is available again")
            self._turn(StoreState(True, self._wall(), None))
        return result

    def _turn(self, state: StoreState) -> None:
        self.state = state
        metrics.STORE_DEGRADED.set(0 if state.ok else 1)


def _reason(error: Exception | str) -> str:
    """In one line that no value in it can make long."""
    if isinstance(error, ValidationError):
        error = describe(error)
    elif isinstance(error, Exception):
        error = f"{type(error).__name__}: {error}"
    return _printable(" ".join(error.split())[:_LONGEST_REASON])


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
