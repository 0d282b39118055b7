"""Events by key and window: what an aggregate is given at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import in_one_piece
from keygrouping.slices import Slices, buffer_of

_FIRST_GROUPS = 16
_FIRST_BYTES = 1024


class Runs(NamedTuple):
    """Rows of a batch, group by group, in the order of the groups' first rows, and within a group in that of the batch.

    `sizes` are the groups' numbers of rows, `groups` their own numbers. Neither is 0 rows long.
    """

    rows: NDArray[np.int64]
    sizes: NDArray[np.int64]
    groups: NDArray[np.int64]

    def by_row(self) -> NDArray[np.int64]:
        """The group of each row of the batch."""
        found = np.empty_like(self.rows)
        found[self.rows] = np.repeat(self.groups, self.sizes)
        return found


class Groups:
    """The groups of all batches so far, a key in a window each, numbered from 0 on in the order in which they came."""

    def __init__(self) -> None:
        from keygrouping._grouped_kernel import Table

        self._filled = np.zeros(2, np.int64)
        self._table = Table(
            np.full(2 * _FIRST_GROUPS, -1, np.int32),
            np.empty((_FIRST_GROUPS, 5), np.int64),
            np.empty(_FIRST_BYTES, np.uint8),
        )

    def __len__(self) -> int:
        return int(self._filled[0])

    @property
    def key_bytes(self) -> int:
        """Bytes of the keys of all groups."""
        return int(self._filled[1])

    @property
    def keys(self) -> Slices:
        """By number."""
        _, starts, sizes = self._table.places[: len(self), :3].T
        return Slices(self._table.keys, starts, sizes)

    @property
    def windows(self) -> NDArray[np.int64]:
        """By number: the starts of the windows."""
        return self._table.places[: len(self), 0]

    def add(self, keys: Slices, windows: NDArray[np.int64]) -> Runs:
        """Takes the rows of a batch; no key is missing, and `windows` has a number for each row."""
        from keygrouping._grouped_kernel import group_rows, order_by_run

        runs, groups, counts = (np.empty(len(windows), np.int64) for _ in range(3))
        starts, sizes = (np.array(column, np.int64) for column in (keys.starts, keys.sizes))
        given = (keys.data, starts, sizes, in_one_piece(windows), self._table, self._filled, runs, groups, counts)
        found, self._table = group_rows(*given)
        rows = np.empty_like(runs)
        order_by_run(runs, counts[:found], rows)
        return Runs(rows, counts[:found], groups[:found])

    def cut(self, chosen: NDArray[np.int64]) -> Groups:
        """A copy of these groups alone, numbered in their order."""
        found, keys = Groups(), self.keys.where(chosen)
        found.add(Slices(buffer_of(keys.data.data), keys.starts, keys.sizes), self.windows[chosen])
        return found
