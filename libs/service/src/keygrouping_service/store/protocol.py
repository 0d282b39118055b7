"""The store as the services see it, whatever holds it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from keygrouping_service.store.decoding import MOST_BYTES


class Entry(NamedTuple):
    """A document: its JSON value, and its version, which is 1 at first and grows by 1 with every change."""

    value: Any
    version: int


class Record(NamedTuple):
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
    boards and leases end by themselves; only documents stay.

    What can't be read, or has more than `most` bytes, is given back as `Unreadable`, and a later write replaces it. A
    version that is none counts as 0.
    """

    name: str

    async def get(self, document: str, most: int = MOST_BYTES) -> Entry | None:
        """A document, or None if there is none."""

    async def put(self, document: str, value: Any, *, expected: int, record: Record | None = None) -> Entry:
        """Writes a document if its version is `expected` (0: there must be none), together with the record.

        Raises `Conflict`, and writes nothing, if the version is another.
        """

    async def tail(self, log: str, limit: int, most: int = MOST_BYTES) -> list[Any]:
        """The last values of a log, newest first."""

    async def announce(self, board: str, member: str, value: Any, ttl: float) -> None:
        """Puts a member's value on a board, in place of its one before; it is gone after `ttl`."""

    async def announced(self, board: str, most: int = MOST_BYTES) -> dict[str, Any]:
        """What the members of a board have announced and is not gone yet."""

    async def withdraw(self, board: str, member: str) -> None:
        """Takes a member's value off a board, if it is there."""

    async def claim(self, name: str, owner: str, ttl: float) -> bool:
        """Takes a lease for `ttl`, or renews it; False if it is another owner's."""

    async def close(self) -> None:
        """Gives up connections and files; never raises `Unavailable`."""
