"""Where the states of one partition's keys lie: in memory, or on disk where they are larger than memory.

A store is no archive: the changelog in Kafka is, and each store begins empty and is filled from it.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from keygrouping_app.kept import Kept, UnusableStateError

ALL = -1
"""The source of all keys, where they are of one."""
_FEW = 1000
"""Entries in vain that are no burden."""
_CACHE_KIB = 8192
"""Memory that the store of a partition takes on disk."""


class Store(Protocol):
    """States by key."""

    @property
    def size(self) -> int:
        """Bytes of all keys and states."""

    def __len__(self) -> int:
        """How many states there are."""

    def get(self, key: bytes) -> Kept | None:
        """The state of a key; None if there is none."""

    def length(self, key: bytes) -> int | None:
        """Bytes of the state of a key; None if it has none."""

    def keys(self) -> Iterator[bytes]:
        """Of all of them; nothing may be put meanwhile."""

    def items(self) -> Iterator[tuple[bytes, Kept]]:
        """All of them; nothing may be put meanwhile."""

    def sample(self, most: int) -> list[bytes]:
        """Keys of some of them, whenever they were changed: so many, or all if they are no more."""

    def put(self, key: bytes, kept: Kept | None) -> None:
        """Keeps a state instead of what the key had; None: forgets it."""

    def before(self, time: int, most: int, source: int = ALL) -> list[bytes]:
        """Keys of states that were changed before this time, those that were changed first; at most so many.

        Of this source only, where keys are of several.
        """

    def close(self) -> None:
        """Frees all that it takes; it is not asked any more."""


def one_source(_: bytes) -> int:
    """That of every key, unless something else says it."""
    return ALL


class MemoryStore:
    """A dictionary. `timed`: whether `before` is asked, which takes memory of its own for each key."""

    def __init__(self, *, timed: bool, source_of: Callable[[bytes], int] = one_source) -> None:
        self._timed = timed
        self._source_of = source_of
        self._states: dict[bytes, Kept] = {}
        self._times: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        """A heap for each source. A state that was changed since has its entry still, with the time before."""
        self._entries = 0
        """In all of them."""
        self._queued: dict[bytes, int] = {}
        """The time of each key's entry in its heap."""
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: bytes) -> Kept | None:
        return self._states.get(key)

    def length(self, key: bytes) -> int | None:
        kept = self._states.get(key)
        return None if kept is None else len(kept.data)

    def keys(self) -> Iterator[bytes]:
        return iter(self._states)

    def items(self) -> Iterator[tuple[bytes, Kept]]:
        return iter(self._states.items())

    def sample(self, most: int) -> list[bytes]:
        return list(islice(self._states, 0, None, max(1, len(self._states) // most)))[:most]

    def put(self, key: bytes, kept: Kept | None) -> None:
        old = self._states.pop(key, None)
        if old is not None:
            self._size -= len(key) + len(old.data)
        if kept is not None:
            self._states[key] = kept
            self._size += len(key) + len(kept.data)
            if self._timed:
                self._queue(key, kept.time)

    def before(self, time: int, most: int, source: int = ALL) -> list[bytes]:
        found: list[bytes] = []
        while (times := self._times.get(source)) and times[0][0] < time and len(found) < most:
            queued, key = heapq.heappop(times)
            self._entries -= 1
            if self._queued.get(key) != queued:
                continue  # an earlier one took its place
            del self._queued[key]
            kept = self._states.get(key)
            if kept is not None and kept.time == queued:
                found.append(key)
            elif kept is not None:
                self._queue(key, kept.time)  # it was changed since: others may come first
        for key in found:
            self._queue(key, self._states[key].time)
        return found

    def close(self) -> None:
        self._states.clear()
        self._forget_times()
        self._size = 0

    def _queue(self, key: bytes, time: int) -> None:
        if key not in self._queued or time < self._queued[key]:
            self._queued[key] = time
            heapq.heappush(self._times[self._source_of(key)], (time, key))
            self._entries += 1
        if self._entries > 2 * len(self._states) + _FEW:  # Where nobody asks, those of keys that are gone are many.
            self._forget_times()
            for each, kept in self._states.items():
                self._queue(each, kept.time)

    def _forget_times(self) -> None:
        self._times.clear()
        self._queued.clear()
        self._entries = 0


class DiskStore:
    """SQLite, in a temporary file that has no name and is gone with the process, whatever ends it.

    It lies in the folder that SQLITE_TMPDIR names, or TMPDIR, or /var/tmp. UnusableStateError if it
    has no room.
    """

    def __init__(self, *, source_of: Callable[[bytes], int] = one_source) -> None:
        self._source_of = source_of
        # No path: a file of its own, which is deleted as soon as it is open. It is lost with a crash, so nothing is
        # synced, and nothing is ever rolled back.
        self._base = sqlite3.connect("", isolation_level=None, cached_statements=16)
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIB}", "page_size=8192"):
            self._base.execute(f"PRAGMA {setting}")
        self._base.execute(
            "CREATE TABLE states (key BLOB PRIMARY KEY, data BLOB, time INTEGER, version INTEGER, source INTEGER)"
        )
        self._base.execute("CREATE INDEX times ON states (source, time)")
        self._base.execute("BEGIN")
        self._size = self._states = 0

    @property
    def size(self) -> int:
        return self._size

    def __len__(self) -> int:
        return self._states

    def get(self, key: bytes) -> Kept | None:
        row = self._execute("SELECT data, time, version FROM states WHERE key = ?", key).fetchone()
        return None if row is None else Kept(*row)

    def length(self, key: bytes) -> int | None:
        row = self._execute("SELECT length(data) FROM states WHERE key = ?", key).fetchone()
        return None if row is None else int(row[0])

    def keys(self) -> Iterator[bytes]:
        for (key,) in self._execute("SELECT key FROM states"):
            yield key

    def items(self) -> Iterator[tuple[bytes, Kept]]:
        for key, *kept in self._execute("SELECT key, data, time, version FROM states"):
            yield key, Kept(*kept)

    def sample(self, most: int) -> list[bytes]:
        asked = "SELECT key FROM states WHERE rowid % ? = 0 LIMIT ?"
        found = self._execute(asked, max(1, self._states // most), most).fetchall()
        return [key for (key,) in found or self._execute("SELECT key FROM states LIMIT ?", most)]

    def put(self, key: bytes, kept: Kept | None) -> None:
        old = self._execute("SELECT length(data) FROM states WHERE key = ?", key).fetchone()
        if kept is not None:
            self._execute("REPLACE INTO states VALUES (?, ?, ?, ?, ?)", key, *kept, self._source_of(key))
        elif old is not None:
            self._execute("DELETE FROM states WHERE key = ?", key)
        self._states += (kept is not None) - (old is not None)
        self._size += (0 if kept is None else len(key) + len(kept.data)) - (0 if old is None else len(key) + old[0])

    def before(self, time: int, most: int, source: int = ALL) -> list[bytes]:
        asked = "SELECT key FROM states WHERE source = ? AND time < ? ORDER BY time, key LIMIT ?"
        found = self._execute(asked, source, time, most)
        return [key for (key,) in found]

    def close(self) -> None:
        self._base.close()

    def _execute(self, statement: str, *given: bytes | int) -> sqlite3.Cursor:
        try:
            return self._base.execute(statement, given)
        except sqlite3.OperationalError as error:
            raise UnusableStateError(
                f"states can't be kept on disk ({error}): let SQLITE_TMPDIR name a folder with room"
            ) from error
