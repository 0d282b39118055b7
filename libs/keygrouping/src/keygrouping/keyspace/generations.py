"""Keys in three generations, so that only those that stay frequent are ever spread.

Source: Dalabasmaz and Can, "Dynamic Key Grouping" (2020), section 4.1 and algorithms 1 to 3.
"""

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
        ("width", np.int32),
        ("space", np.int32),
    ]
)
"""One key: its hash, weight seen, times (seconds) of first and last event and last change of width, width, space."""

MAX_DISTINCT_KEYS = 100_000
_LEAST_BABY_ROOM = 4096

Items = NDArray[np.void]


class KeySpace:
    """A hash table of key items that kernels fill and this class keeps in order.

    Old, teenage and baby space hold 10, 40 and 50 % of `distinct_keys`. Between two promotions the baby space takes
    up to max(4096, four times its capacity) keys; those that come when it is full stay unknown until the next
    promotion. So memory is bounded by 48 bytes x 2 to 4 x (distinct_keys / 2 + max(4096, 2 distinct_keys)),
    whatever the number of keys: 0.8 MB for 100, 25 MB for the largest, 100 000.

    Linear probing from `hash & mask`; an item is only ever removed by laying out the table anew.
    """

    def __init__(self, distinct_keys: int) -> None:
        if not 10 <= distinct_keys <= MAX_DISTINCT_KEYS:
            raise ValueError(f"distinct_keys must be from 10 to {MAX_DISTINCT_KEYS}, not {distinct_keys}")
        self.old_capacity = distinct_keys // 10
        self.teenage_capacity = distinct_keys * 4 // 10
        self.baby_capacity = distinct_keys // 2
        baby_room = max(_LEAST_BABY_ROOM, 4 * self.baby_capacity)
        self.limit = self.old_capacity + self.teenage_capacity + baby_room
        slots = 1 << (2 * self.limit - 1).bit_length()
        self.mask = slots - 1
        self.items: Items = np.zeros(slots, ITEM)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.items["space"]))

    def find(self, hashed: int) -> Any | None:
        """A view of the item of this hash, or None."""
        slot = hashed & self.mask
        while self.items[slot]["space"] != EMPTY:
            if self.items[slot]["hash"] == hashed:
                return self.items[slot]
            slot = (slot + 1) & self.mask
        return None

    def known(self) -> Items:
        """A copy of all items, heaviest first, equal ones by hash."""
        return self.items[self._ranked(self.items["space"] != EMPTY)]

    def promote_to_teenage(self) -> None:
        """Forget all but the heaviest of the baby space, then promote from it (algorithm 1)."""
        babies = self._ranked(self.items["space"] == BABY)
        discarded = babies[self.baby_capacity :]
        if discarded.size:
            self.items["space"][discarded] = EMPTY
            self.replace(self.items[self.items["space"] != EMPTY])
        self._promote(BABY, TEENAGE, self.teenage_capacity)

    def promote_to_old(self) -> None:
        """Promote from the teenage to the old space (algorithm 2)."""
        self._promote(TEENAGE, OLD, self.old_capacity)

    def _promote(self, source: int, target: int, capacity: int) -> None:
        """Fill the target, then exchange its lightest for the source's heaviest (algorithm 3).

        The paper exchanges pair by pair until the target's is strictly heavier: the same as to keep the heaviest
        of both, those of the source first among equals.
        """
        space = self.items["space"]
        both = np.flatnonzero((space == source) | (space == target))
        items = self.items[both]
        ranked = both[np.lexsort((items["hash"], items["space"] == target, -items["count"]))]
        space[ranked[:capacity]] = target
        space[ranked[capacity:]] = source

    def forget_unseen(self, before: float) -> None:
        """Drop all items whose last event is older than this time."""
        stale = (self.items["space"] != EMPTY) & (self.items["last_seen"] < before)
        if stale.any():
            self.replace(self.items[(self.items["space"] != EMPTY) & ~stale])

    def fade(self, factor: float) -> None:
        """Multiply all counts by this factor, so that the past weighs less."""
        self.items["count"] *= factor

    def replace(self, items: Items) -> None:
        """Hold exactly these items (of distinct hashes, at most `limit`)."""
        items = items.copy()
        self.items[:] = np.zeros((), ITEM)
        slots = items["hash"] & self.mask
        pending = np.arange(len(items))
        while pending.size:
            wanted = slots[pending]
            lucky = np.zeros(len(pending), bool)
            lucky[np.unique(wanted, return_index=True)[1]] = True
            lucky &= self.items["space"][wanted] == EMPTY
            self.items[wanted[lucky]] = items[pending[lucky]]
            pending = pending[~lucky]
            slots[pending] = (slots[pending] + 1) & self.mask

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
        for time in ("first_seen", "last_seen", "changed"):
            items[time] += shift
        return items

    def _ranked(self, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
        slots = np.flatnonzero(chosen)
        items = self.items[slots]
        return slots[np.lexsort((items["hash"], -items["count"]))]
