"""Items of keys in a hash table of bounded size, laid out for kernels."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

EMPTY, BABY, TEENAGE, OLD = 0, 1, 2, 3
SPACE_NAMES = ("empty", "baby", "teenage", "old")

ITEM = np.dtype(
    [
        ("hash", np.int64),
        ("count", np.float64),
        ("first_seen", np.float64),
        ("last_seen", np.float64),
        ("changed", np.float64),
        ("widened", np.float64),
        ("width", np.int32),
        ("space", np.int32),
    ]
)
"""One key: its hash, weight seen, times (seconds) of first and last event, last change of width and last time that it
became wider than at first, width, space."""

MAX_DISTINCT_KEYS = 100_000

Items = NDArray[np.void]


class ItemTable:
    """At most `limit` items of distinct keys, in two to four times as many slots of 56 bytes as there is room for now.

    A hash table, see `keygrouping._probing`.
    """

    def __init__(self, limit: int, room: int | None = None) -> None:
        self.limit = limit
        self._allocate(limit if room is None else min(room, limit))

    def _allocate(self, room: int) -> None:
        slots = 1 << (2 * room - 1).bit_length()
        self.room = room
        self.items: Items = np.zeros(slots, ITEM)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.items["space"]))

    def hashes_in(self, space: int) -> NDArray[np.int64]:
        """The keys in the baby, teenage or old space."""
        hashes: NDArray[np.int64] = self.items["hash"][self.items["space"] == space]
        return hashes

    def find(self, hashed: int) -> Any | None:
        """A view of the item of this hash, or None."""
        from keygrouping.keyspace._items_kernel import find

        item = self.items[find(self.items, hashed)]
        return None if item["space"] == EMPTY else item

    def known(self) -> Items:
        """A copy of all items, heaviest first, equal ones by hash."""
        items = self.items[self.items["space"] != EMPTY]
        ranked: Items = items[np.lexsort((items["hash"], -items["count"]))]
        return ranked

    def grow(self) -> None:
        """Twice the room, up to the limit."""
        items = self.items[self.items["space"] != EMPTY]
        self._allocate(min(2 * self.room, self.limit))
        self.replace(items)

    def replace(self, items: Items) -> None:
        """Hold exactly these items (of distinct hashes, at most `limit`), which are not a view of those so far."""
        from keygrouping.keyspace._items_kernel import lay_out

        while len(items) > self.room:
            self._allocate(min(2 * self.room, self.limit))
        self.items["space"] = EMPTY
        lay_out(self.items, np.ascontiguousarray(items))

    def to_data(self) -> list[list[Any]]:
        """All items as plain JSON data, the heaviest first."""
        return [list(item) for item in self.known().tolist()]

    def checked(self, data: Iterable[Any], shift: float) -> Items:
        """The items of `to_data`, their times moved by `shift` seconds; a ValueError if they can't be held."""
        items = np.array([tuple(item) for item in data], ITEM)
        spaces = items["space"]
        if len(items) > self.limit or len(np.unique(items["hash"])) != len(items):
            raise ValueError("too many key items, or one twice")
        if np.any((spaces <= EMPTY) | (spaces > OLD)) or np.any(items["width"] < 1):
            raise ValueError("key item of an unknown space or without width")
        for time in ("first_seen", "last_seen", "changed", "widened"):
            items[time] += shift
        return items


def check_distinct_keys(distinct_keys: int) -> None:
    """A ValueError for a number of expected keys that spaces can't be made for."""
    if not 10 <= distinct_keys <= MAX_DISTINCT_KEYS:
        raise ValueError(f"distinct_keys must be from 10 to {MAX_DISTINCT_KEYS}, not {distinct_keys}")
