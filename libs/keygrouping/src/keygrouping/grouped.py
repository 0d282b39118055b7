"""A batch of events by key and window: what an aggregate is given at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.slices import Slices


class Grouped(NamedTuple):
    """Rows of a batch, group by group, the groups in the order of their first rows and each in the order of the batch.

    `sizes` are the groups' numbers of rows, `firsts` their first rows.
    """

    rows: NDArray[np.int64]
    sizes: NDArray[np.int64]
    firsts: NDArray[np.int64]


def grouped(keys: Slices, windows: NDArray[np.int64]) -> Grouped:
    """The rows of each key in each window; no key is missing, and `windows` has a number for each row."""
    from keygrouping._grouped_kernel import number_groups, order_by_group

    groups, firsts, counts = (np.empty(len(windows), np.int64) for _ in range(3))
    starts, sizes = (np.array(column, np.int64) for column in (keys.starts, keys.sizes))
    found = number_groups(keys.data, starts, sizes, windows, groups, firsts, counts)
    rows = np.empty_like(groups)
    order_by_group(groups, counts[:found], rows)
    return Grouped(rows, counts[:found], firsts[:found])
