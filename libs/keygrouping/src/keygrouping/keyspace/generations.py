"""Keys in three generations, so that only those that stay frequent are ever spread.

Source: Dalabasmaz and Can, "Dynamic Key Grouping" (2020), section 4.1 and algorithms 1 to 3.
"""

import numpy as np
from numpy.typing import NDArray

from keygrouping.keyspace.items import BABY, EMPTY, OLD, TEENAGE, ItemTable, check_distinct_keys

_LEAST_BABY_ROOM = 4096


class KeySpace(ItemTable):
    """Key items that kernels fill and this class keeps in order.

    Old, teenage and baby space hold 10, 40 and 50 % of `distinct_keys`. Between two promotions the baby space takes
    up to max(4096, four times its capacity) keys; those that come when it is full stay unknown until the next
    promotion. So memory is bounded by 56 bytes x 2 to 4 x (distinct_keys / 2 + max(4096, 2 distinct_keys)),
    whatever the number of keys: 0.9 MB for 100, 29 MB for the largest, 100 000. Promotions look for the heaviest
    without sorting: their time is linear in the number of items.
    """

    def __init__(self, distinct_keys: int) -> None:
        check_distinct_keys(distinct_keys)
        self.old_capacity = distinct_keys // 10
        self.teenage_capacity = distinct_keys * 4 // 10
        self.baby_capacity = distinct_keys // 2
        super().__init__(self.old_capacity + self.teenage_capacity + max(_LEAST_BABY_ROOM, 4 * self.baby_capacity))

    def promote_to_teenage(self) -> None:
        """Forget all but the heaviest of the baby space, then promote from it (algorithm 1)."""
        babies = np.flatnonzero(self.items["space"] == BABY)
        if babies.size > self.baby_capacity:
            discarded = babies[~self._heaviest(babies, self.baby_capacity, np.zeros(babies.size, bool))]
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
        kept = self._heaviest(both, capacity, space[both] == target)
        space[both] = np.where(kept, target, source)

    def _heaviest(self, slots: NDArray[np.intp], size: int, incumbent: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the slots hold the `size` heaviest items; among equals newcomers first, then the smaller hashes."""
        if slots.size <= size:
            return np.ones(slots.size, bool)
        counts = self.items["count"][slots]
        lightest = np.partition(counts, -size)[-size]
        kept: NDArray[np.bool_] = counts > lightest
        for equals in (~incumbent & (counts == lightest), incumbent & (counts == lightest)):
            chosen = np.flatnonzero(equals)
            missing = size - np.count_nonzero(kept)
            if chosen.size > missing > 0:
                hashes = self.items["hash"][slots[chosen]]
                chosen = chosen[hashes <= np.partition(hashes, missing - 1)[missing - 1]]
            kept[chosen[:missing]] = True
        return kept

    def forget_unseen(self, before: float) -> None:
        """Drop all items whose last event is older than this time."""
        stale = (self.items["space"] != EMPTY) & (self.items["last_seen"] < before)
        if stale.any():
            self.replace(self.items[(self.items["space"] != EMPTY) & ~stale])

    def fade(self, factor: float) -> None:
        """Multiply all counts by this factor, so that the past weighs less."""
        self.items["count"] *= factor
