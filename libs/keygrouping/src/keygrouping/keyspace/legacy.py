"""Keys in three generations as the public code of Dynamic Key Grouping keeps them, where it differs from the paper.

Source: odalabasmaz/DynamicKeyGrouping, KeySpace and KeySpaceManager.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from keygrouping.keyspace.items import BABY, EMPTY, OLD, TEENAGE, ItemTable, check_distinct_keys

INITIAL_WIDTH = 2
_FIRST_ROOM = 512
_LEAST_LIMIT = 65_536
_PASSES_PER_OLD = 4


class LegacyKeySpace(ItemTable):
    """Key items that kernels fill and this class keeps in the public code's order.

    Old, teenage and baby space hold 10, 40 and 50 % of `distinct_keys`, the baby space any number between two passes.
    A baby beyond its capacity is forgotten with its count and its last check, but not its width, if that is more
    than two: such an item stays as a baby with a count of 0.

    The public code bounds neither babies between passes nor widths of forgotten keys. Here there are at most
    max(65 536, 4 x distinct_keys) items, 7.3 MB (59 MB for the largest `distinct_keys`, 100 000); the table grows
    with need from 57 KB. A key that comes when the table is full stays unknown until the next pass. Forgotten widths
    take up half of it at most; beyond that those unseen for longest are dropped.
    """

    def __init__(self, distinct_keys: int) -> None:
        check_distinct_keys(distinct_keys)
        self.old_capacity = distinct_keys // 10
        self.teenage_capacity = distinct_keys * 4 // 10
        self.baby_capacity = distinct_keys // 2
        super().__init__(max(_LEAST_LIMIT, 4 * distinct_keys), _FIRST_ROOM)

    def hashes_in(self, space: int) -> NDArray[np.int64]:
        """The keys in the baby, teenage or old space, without those of which only the width is known."""
        known = self.items[self.items["count"] > 0]
        hashes: NDArray[np.int64] = known["hash"][known["space"] == space]
        return hashes

    def catch_up(self, done: int, due: int) -> int:
        """Make the passes after number `done` up to number `due` (the first is 1), and count the dropped widths.

        Nothing happens between passes that are late, so once four in a row have changed nothing, the rest of them
        wouldn't either.
        """
        dropped = quiet = 0
        for number in range(done + 1, due + 1):
            before = self.items["space"].copy()
            dropped += self._pass(number % _PASSES_PER_OLD == 0)
            quiet = quiet + 1 if np.array_equal(before, self.items["space"]) else 0
            if quiet == _PASSES_PER_OLD:
                break
        return dropped

    def _pass(self, also_old: bool) -> int:
        """One round of the public code's manager; gives the number of dropped widths."""
        babies, teenagers = self._ranked(BABY), self._ranked(TEENAGE)
        forgotten, babies = babies[self.baby_capacity :], babies[: self.baby_capacity]
        self._promote(babies, teenagers, TEENAGE, self.teenage_capacity)
        if also_old:
            self._promote(self._ranked(TEENAGE), self._ranked(OLD), OLD, self.old_capacity)
        return self._forget(forgotten) if forgotten.size else 0

    def _ranked(self, space: int) -> NDArray[np.intp]:
        """The slots of a space, the heaviest first; equal ones by hash, where the public code's order is that of a
        hash map of strings.
        """
        slots = np.flatnonzero((self.items["space"] == space) & (self.items["count"] > 0))
        items = self.items[slots]
        return slots[np.lexsort((items["hash"], -items["count"]))]

    def _promote(self, source: NDArray[np.intp], target: NDArray[np.intp], space: int, capacity: int) -> None:
        """Fill the target from the front, then exchange its last for the source's first while that is heavier.

        At most `capacity` moves in all. What was filled in at the front stands there unsorted, the lightest first.
        """
        counts = self.items["count"]
        waiting, members = deque(source.tolist()), deque(target.tolist())
        moves = 0
        while waiting and len(members) < capacity:
            members.appendleft(waiting.popleft())
            moves += 1
        while waiting and moves < capacity and counts[waiting[0]] > counts[members[-1]]:
            waiting.append(members.pop())
            members.appendleft(waiting.popleft())
            moves += 1
        self.items["space"][list(waiting)] = space - 1
        self.items["space"][list(members)] = space

    def _forget(self, slots: NDArray[np.intp]) -> int:
        """Forget items but for their width, if that is not the first one."""
        items = self.items
        items["count"][slots] = 0.0
        wide = np.flatnonzero((items["space"] == BABY) & (items["count"] == 0) & (items["width"] > INITIAL_WIDTH))
        excess = max(0, wide.size - self.limit // 2)
        dropped = wide[np.lexsort((items["hash"][wide], items["last_seen"][wide]))[:excess]]
        items["width"][dropped] = INITIAL_WIDTH
        gone = (items["count"] == 0) & (items["width"] <= INITIAL_WIDTH)
        items["space"][gone] = EMPTY
        self.replace(items[items["space"] != EMPTY])
        return excess
