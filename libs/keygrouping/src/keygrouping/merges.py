"""States of aggregates for many groups at once, in columns, to which compiled code merges those of whole batches.

What is merged here is what the aggregate itself would have made of the states, one after the other, to the last bit.
Where that is not sure, the aggregate does it, and keeps the state of that group.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import Aggregate, Count, Max, Mean, Min, State, Sum, Variance, Vwap
from keygrouping.aggregate.exact import Total
from keygrouping.folds import parts_by_row, reaching
from keygrouping.job.kinds import REAL
from keygrouping.state_columns import Cell

if TYPE_CHECKING:
    from keygrouping._merge_kernel import Given, Rows

Cells = Mapping[str, Cell]
Columns = tuple[NDArray[Any], ...]
_PLACES = 3


class Merges(ABC):
    """The states of one aggregate, by group; `join` is its `merge`."""

    def __init__(self, join: Callable[[State, State], State]) -> None:
        self._join = join
        self._odd: dict[int, State] = {}
        """Those that are not in the columns."""
        self._is_odd = np.zeros(0, np.bool_)
        self._columns = self._empty()

    def merge(self, given: Rows, groups: int, cells: Cells, state_of: Callable[[int], State]) -> None:
        """Takes partials by the members of their states; `state_of` makes the state of a row.

        There are so many groups by now.
        """
        from keygrouping._merge_kernel import Given

        self._is_odd = reaching(self._is_odd, groups)
        self._columns = tuple(reaching(column, groups) for column in self._columns)
        left = np.empty(len(given.rows), np.int64)
        lost = self._merged(Given(*given, self._is_odd, left), cells)
        rows, odd = (each[left[:lost]] for each in given[:2])
        counts = self._columns[0][odd]
        held = cast(NDArray[np.bool_], counts.any(axis=tuple(range(1, counts.ndim))))
        for row, group, is_held in zip(rows.tolist(), odd.tolist(), held.tolist(), strict=True):
            if group not in self._odd and not is_held:
                self._odd[group] = state_of(row)
                continue
            if group not in self._odd:
                (self._odd[group],) = self._states(*(column[group : group + 1] for column in self._columns))
            self._odd[group] = self._join(self._odd[group], state_of(row))

    def cut(self, chosen: NDArray[np.int64]) -> Self:
        """A copy of these groups alone, numbered in their order."""
        found = copy.copy(self)
        found._is_odd = self._is_odd[chosen]
        found._columns = tuple(column[chosen] for column in self._columns)
        found._odd = {new: self._odd[int(chosen[new])] for new in np.flatnonzero(found._is_odd).tolist()}
        return found

    def states(self, start: int, stop: int) -> Sequence[State]:
        """The states of groups from a number up to another one, without it."""
        found = self._states(*(column[start:stop] for column in self._columns))
        for place in np.flatnonzero(self._is_odd[start:stop]).tolist():
            found[place] = self._odd[start + place]
        return found

    @abstractmethod
    def _empty(self) -> Columns:
        """Columns without a row; the first is zero for groups of which nothing is in the others."""

    @abstractmethod
    def _merged(self, given: Given, cells: Cells) -> int:
        """Merges what is sure; gives how many rows are left."""

    @abstractmethod
    def _states(self, *columns: Any) -> list[State]:
        """The states in columns."""


class Members(Merges):
    """Events and weights of partials. State: both."""

    def __init__(self) -> None:
        super().__init__(lambda left, right: (left[0] + right[0], left[1] + right[1]) if left[0] else right)

    def _empty(self) -> Columns:
        return np.zeros(0, np.int64), np.zeros(0, np.uint8), np.zeros(0, np.int64)

    def _merged(self, given: Given, cells: Cells) -> int:
        from keygrouping._merge_kernel import merge_members

        return merge_members(given, cells["events"].bits, cells["weight"], *self._columns)

    def _states(self, counts: Any, kinds: Any, weights: Any) -> list[State]:
        found = weights.tolist()
        for place in np.flatnonzero(kinds == REAL).tolist():
            found[place] = float(weights[place : place + 1].view(np.float64)[0])
        return list(zip(counts.tolist(), found, strict=True))


class _Counts(Merges):
    def _empty(self) -> Columns:
        return (np.zeros(0, np.int64),)

    def _merged(self, given: Given, cells: Cells) -> int:
        from keygrouping._merge_kernel import merge_counts

        return merge_counts(given, cells[""], *self._columns)

    def _states(self, counts: Any) -> list[State]:
        return list(counts.tolist())


class _Totals(Merges):
    def _empty(self) -> Columns:
        return np.zeros((0, 4), np.int64), np.zeros((0, _PLACES))

    def _merged(self, given: Given, cells: Cells) -> int:
        from keygrouping._merge_kernel import merge_totals

        members = cells["n"], cells["whole"], cells["parts"]
        return merge_totals(given, *members, *self._columns)

    def _states(self, wholes: Any, sums: Any) -> list[State]:
        return [
            (seen, Total((high << 32) + low, tuple(parts) if fractions else ()))
            for (seen, fractions, low, high), parts in zip(wholes.tolist(), parts_by_row(sums), strict=True)
        ]


class _Extremes(Merges):
    def __init__(self, join: Callable[[State, State], State], *, most: bool) -> None:
        super().__init__(join)
        self._most = most

    def _empty(self) -> Columns:
        return np.zeros((0, 2), np.bool_), np.zeros(0, np.int64), np.zeros(0)

    def _merged(self, given: Given, cells: Cells) -> int:
        from keygrouping._merge_kernel import merge_extremes

        return merge_extremes(given, cells["whole"], cells["real"], self._most, *self._columns)

    def _states(self, there: Any, wholes: Any, reals: Any) -> list[State]:
        return [
            self._join(whole if is_whole else None, real if is_real else None)
            for (is_whole, is_real), whole, real in zip(there.tolist(), wholes.tolist(), reals.tolist(), strict=True)
        ]


class _Moments(Merges):
    def _empty(self) -> Columns:
        return np.zeros(0, np.int64), np.zeros((0, 2))

    def _merged(self, given: Given, cells: Cells) -> int:
        from keygrouping._merge_kernel import merge_moments

        members = cells["n"], cells["mean"], cells["m2"]
        return merge_moments(given, *members, *self._columns)

    def _states(self, counts: Any, moments: Any) -> list[State]:
        return list(zip(counts.tolist(), *moments.T.tolist(), strict=True))


class _Weighted(Merges):
    def _empty(self) -> Columns:
        return np.zeros(0, np.int64), np.zeros((0, _PLACES)), np.zeros((0, _PLACES))

    def _merged(self, given: Given, cells: Cells) -> int:
        from keygrouping._merge_kernel import merge_weighted

        members = cells["n"], cells["sum"], cells["weight"]
        return merge_weighted(given, *members, *self._columns)

    def _states(self, counts: Any, products: Any, weights: Any) -> list[State]:
        parts = zip(counts.tolist(), parts_by_row(products), parts_by_row(weights), strict=True)
        return [(seen, tuple(some), tuple(others)) if seen else (0, (), ()) for seen, some, others in parts]


_MERGES: dict[type[Aggregate], Callable[[Aggregate], Merges]] = {
    Count: lambda aggregate: _Counts(aggregate.merge),
    Sum: lambda aggregate: _Totals(aggregate.merge),
    Mean: lambda aggregate: _Totals(aggregate.merge),
    Min: lambda aggregate: _Extremes(aggregate.merge, most=False),
    Max: lambda aggregate: _Extremes(aggregate.merge, most=True),
    Variance: lambda aggregate: _Moments(aggregate.merge),
    Vwap: lambda aggregate: _Weighted(aggregate.merge),
}


def merges_of(aggregate: Aggregate) -> Merges | None:
    """Empty columns of states of an aggregate; None where only the aggregate itself can merge, see `decoder_of`."""
    made = _MERGES.get(type(aggregate))
    return made(aggregate) if made else None
