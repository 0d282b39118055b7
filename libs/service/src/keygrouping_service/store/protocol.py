"""The store as the services see it, whatever holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from keygrouping_service.store.decoding import MOST_BYTES, Unreadable


@dataclass(frozen=True, slots=True)
class Entry:
    """A document: its JSON value, and its version, which is 1 at first and grows by 1 with every change."""

    value: Any
    version: int
    digest: str = field(default="", compare=False, repr=False)
    """Of the value as it stands in the store; empty if it can't be read."""


def entry_of(value: Any, version: int, digest: str) -> Entry:
    """A document that was read: what is unreadable is always read again."""
    return Entry(value, version, "" if isinstance(value, Unreadable) else digest)


class LogRecord(NamedTuple):
    """An entry for a log, of which the newest `keep` are kept."""

    log: str
    value: Any
    keep: int


class Conflict(Exception):
    """The document has another version than expected; `current` is what it is now, None if there is none."""

    def __init__(self, document: str, current: Entry | None) -> None:
        state = f"has version {current.version}" if current else "does not exist"
        super().__init__(f"{document!r} {state}: read it again")
        self.current = current


class Unavailable(Exception):
    """The store can't be used now; the message is one line that says why. A later call may work."""


class Unanswered(Unavailable):
    """It was asked and has not answered: whether what was asked for has happened, or still will, is not known."""


class Store(Protocol):
    """Values are JSON values, and what is given back is the caller's own copy. Times are seconds.

    Every call ends within the store's timeout; it raises `Unavailable` if the store can't be used. A change has not
    happened then, but after `Unanswered` it may have: read before the next one. Logs are bounded by their records,
    presence and leases expire; only documents stay.

    What can't be read, or has more than `most` bytes, is given back as `Unreadable`, and a later write replaces it. A
    version that is none counts as 0.
    """

    name: str

    async def get(self, document: str, most: int = MOST_BYTES, newer_than: Entry | None = None) -> Entry | None:
        """A document, or None if there is none.

        `newer_than` is what was read last: it is given back itself, and no value travels, if it still stands there,
        version and value. Whatever else stands there is newer, be it of an older version: a store may be emptied, or
        get an old state back.
        """

    async def put(self, document: str, value: Any, *, expected: int, record: LogRecord | None = None) -> Entry:
        """Writes a document if its version is `expected` (0: there must be none), together with the record.

        Raises `Conflict`, and writes nothing, if the version is another.
        """

    async def tail(self, log: str, limit: int, most: int = MOST_BYTES) -> list[Any]:
        """The last values of a log, newest first."""

    async def publish(self, presence: str, member: str, value: Any, ttl: float) -> None:
        """Publishes a member's value, which replaces its last one and expires after `ttl`."""

    async def published(self, presence: str, most: int = MOST_BYTES) -> dict[str, Any]:
        """What its members have published and has not expired."""

    async def withdraw(self, presence: str, member: str) -> None:
        """Removes a member's value, if there is one."""

    async def lease(self, name: str, owner: str, ttl: float) -> bool:
        """Takes a lease for `ttl`, or renews it; False if it is another owner's."""

    async def close(self) -> None:
        """Gives up connections and files; never raises `Unavailable`."""
