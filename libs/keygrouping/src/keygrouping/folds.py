"""States of aggregates for many groups at once, in columns, to which compiled code adds whole batches.

What is folded here comes out as the aggregate itself would have encoded it, to the last bit. Sums of fractions are
exact between two flushes, so that it does not matter how events are cut into batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import Aggregate, Count, Max, Mean, Min, State, Sum, Variance, Vwap
from keygrouping.aggregate.exact import Total, encode_parts, parts_of
from keygrouping.compiled import in_one_piece
from keygrouping.grouped import Runs
from keygrouping.job.field_columns import FieldColumn
from keygrouping.job.kinds import MISSING, REAL, WHOLE

if TYPE_CHECKING:
    from keygrouping._fold_kernel import Column, Rest

_MOST_REST = 64
"""Floats of one sum that are held before they are added up themselves."""

Array = TypeVar("Array", bound=NDArray[Any])


class Batch:
    """Events by group with their fields; `groups` is how many there are so far, those of earlier batches included."""

    def __init__(self, runs: Runs, fields: Sequence[FieldColumn], groups: int) -> None:
        self.runs = runs
        self.fields = fields
        self.groups = groups
        ends = np.cumsum(runs.sizes)
        self.begins = ends - runs.sizes
        self.bounds = list(zip(runs.groups.tolist(), self.begins.tolist(), ends.tolist(), strict=True))
        """Of each run: its group, and from where to where it lies in `runs.rows`."""
        self._values: dict[int, list[Any]] = {}

    def values(self, positions: tuple[int, ...]) -> Sequence[Any]:
        """What an aggregate that has no fold is given of these fields, in the order of `runs.rows`: see `Aggregate`."""
        if not positions:
            return [()] * len(self.runs.rows)
        columns = [self._values_of(position) for position in positions]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _values_of(self, position: int) -> list[Any]:
        if position not in self._values:
            self._values[position] = list(self.fields[position].where(self.runs.rows))
        return self._values[position]


class Fold(Protocol):
    """The states of one aggregate, by group."""

    def add(self, batch: Batch, columns: tuple[int, ...]) -> None:
        """Takes a batch; `columns` are the positions of the aggregate's fields."""

    def encoded(self) -> Sequence[Any]:
        """All states, as `Aggregate.encode` gives them."""


def fold_of(aggregate: Aggregate) -> Fold:
    """An empty fold. A class that derives from one of ours may add in its own way: it is asked itself."""
    made = _FOLDS.get(type(aggregate))
    return made(aggregate) if made else _Each(aggregate)


class _Each:
    """What only the aggregate itself can do, group by group."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate
        self._states: list[State] = []

    def add(self, batch: Batch, columns: tuple[int, ...]) -> None:
        aggregate, states, values = self._aggregate, self._states, batch.values(columns)
        states.extend(aggregate.initial() for _ in range(batch.groups - len(states)))
        for group, begin, end in batch.bounds:
            states[group] = aggregate.add_many(states[group], values[begin:end])

    def encoded(self) -> Sequence[Any]:
        return [self._aggregate.encode(state) for state in self._states]


class _Counts:
    def __init__(self, _: Aggregate) -> None:
        self._groups = 0
        self._counts = np.zeros(0, np.int64)

    def add(self, batch: Batch, columns: tuple[int, ...]) -> None:
        self._groups, self._counts = batch.groups, reaching(self._counts, batch.groups)
        seen = batch.runs.sizes
        if columns:
            present = batch.fields[columns[0]].kinds != MISSING
            seen = np.add.reduceat(present[batch.runs.rows], batch.begins, dtype=np.int64)
        self._counts[batch.runs.groups] += seen

    def encoded(self) -> Sequence[Any]:
        return list(self._counts[: self._groups].tolist())


class Totals:
    """Exact sums of integers and fractions."""

    def __init__(self, _: Aggregate | None = None) -> None:
        self._groups = 0
        self._wholes = np.zeros((0, 4), np.int64)
        self._reals = _Reals()

    def add(self, batch: Batch, columns: tuple[int, ...]) -> None:
        self.add_column(batch, batch.fields[columns[0]])

    def add_column(self, batch: Batch, values: FieldColumn) -> None:
        """Takes numbers that are no field of the batch."""
        from keygrouping._fold_kernel import add_numbers

        self._groups, self._wholes = batch.groups, reaching(self._wholes, batch.groups)
        sums, rest = self._reals.begin(batch)
        add_numbers(*batch.runs, _column(values), self._wholes, sums, rest)
        self._reals.take(rest)

    def encoded(self) -> Sequence[Any]:
        return [
            {"n": seen, "whole": str(whole), "parts": _written(parts) if parts else []}
            for seen, whole, parts in self._all()
        ]

    def rounded(self) -> list[int | float]:
        """Exact integers where there was no fraction, else the floats closest to the sums."""
        return [Total(whole, tuple(parts)).rounded() for _, whole, parts in self._all()]

    def _all(self) -> Iterable[tuple[int, int, list[float]]]:
        """Of each group: numbers seen, the sum of the integers, and the parts of that of the fractions."""
        wholes, parts = self._wholes[: self._groups].tolist(), self._reals.parts(self._groups)
        for (integers, fractions, low, high), floats in zip(wholes, parts, strict=True):
            yield integers + fractions, (high << 32) + low, floats if fractions else []


class _Extremes:
    """The least or greatest integers and fractions, each for themselves."""

    def __init__(self, aggregate: Min | Max) -> None:
        self._aggregate = aggregate
        self._groups = 0
        least = isinstance(aggregate, Min)
        self._most = np.minimum if least else np.maximum
        end = np.iinfo(np.int64)
        self._ends = (end.max, math.inf) if least else (end.min, -math.inf)
        self._there = np.zeros((0, 2), np.bool_)
        self._wholes, self._reals = np.zeros(0, np.int64), np.zeros(0)

    def add(self, batch: Batch, columns: tuple[int, ...]) -> None:
        self._groups, self._there = batch.groups, reaching(self._there, batch.groups)
        self._wholes = reaching(self._wholes, batch.groups, self._ends[0])
        self._reals = reaching(self._reals, batch.groups, self._ends[1])
        column = batch.fields[columns[0]]
        self._add(batch, 0, column.kinds == WHOLE, column.bits, self._wholes)
        self._add(batch, 1, column.kinds == REAL, column.bits.view(np.float64), self._reals)

    def _add(self, batch: Batch, kind: int, there: NDArray[np.bool_], given: NDArray[Any], held: NDArray[Any]) -> None:
        """Takes the numbers of one kind."""
        if there.any():
            rows, groups = batch.runs.rows, batch.runs.groups
            numbers = np.where(there, given, self._ends[kind])[rows]
            held[groups] = self._most(held[groups], self._most.reduceat(numbers, batch.begins))
            self._there[groups, kind] |= np.logical_or.reduceat(there[rows], batch.begins)

    def encoded(self) -> Sequence[Any]:
        numbers = self._wholes.tolist(), (self._reals + 0.0).tolist(), self._there[: self._groups].tolist()
        return [self._encoded(*row) for row in zip(*numbers, strict=False)]

    def _encoded(self, whole: int, real: float, there: list[bool]) -> Any:
        if all(there):
            return self._aggregate.encode(self._aggregate.merge(whole, real))
        return {"whole": whole if there[0] else None, "real": real if there[1] else None}


class _Variances:
    def __init__(self, aggregate: Variance) -> None:
        self._aggregate = aggregate
        self._groups = 0
        self._seen = np.zeros(0, np.int64)
        self._moments = np.zeros((0, 2))

    def add(self, batch: Batch, columns: tuple[int, ...]) -> None:
        from keygrouping._fold_kernel import add_moments

        self._groups, self._seen = batch.groups, reaching(self._seen, batch.groups)
        self._moments = reaching(self._moments, batch.groups)
        undone = np.empty(len(batch.runs.sizes), np.int64)
        column = _column(batch.fields[columns[0]])
        left = add_moments(*batch.runs, column, self._seen, self._moments, undone)
        for run in undone[:left].tolist():
            group, begin, end = batch.bounds[run]
            values = batch.values(columns)[begin:end]
            self._seen[group], *self._moments[group] = self._aggregate.add_many(self._state(group), values)

    def _state(self, group: int) -> tuple[int, float, float]:
        mean, squares = self._moments[group].tolist()
        return int(self._seen[group]), mean, squares

    def encoded(self) -> Sequence[Any]:
        return [self._aggregate.encode(self._state(group)) for group in range(self._groups)]


class _Weighted:
    """Sums of products and of weights."""

    def __init__(self, _: Aggregate) -> None:
        self._groups = 0
        self._seen = np.zeros(0, np.int64)
        self._products, self._weights = _Reals(), _Reals()

    def add(self, batch: Batch, columns: tuple[int, ...]) -> None:
        from keygrouping._fold_kernel import add_products

        self._groups, self._seen = batch.groups, reaching(self._seen, batch.groups)
        values, weights = (_column(batch.fields[position]) for position in columns)
        (products, left), (totals, over) = self._products.begin(batch), self._weights.begin(batch)
        add_products(*batch.runs, values, weights, self._seen, products, totals, left, over)
        self._products.take(left)
        self._weights.take(over)

    def encoded(self) -> Sequence[Any]:
        parts = (self._products.parts(self._groups), self._weights.parts(self._groups))
        return [
            {"n": seen, "sum": _written(products), "weight": _written(weights)}
            if seen
            else {"n": 0, "sum": [], "weight": []}
            for seen, products, weights in zip(self._seen[: self._groups].tolist(), *parts, strict=True)
        ]


class _Reals:
    """Exact sums of fractions, by group: what the kernel's floats have no room for is kept in lists."""

    def __init__(self) -> None:
        self._sums = np.zeros((0, 0))
        self._rest: dict[int, list[float]] = {}

    def begin(self, batch: Batch) -> tuple[NDArray[np.float64], Rest]:
        """Where a kernel adds the numbers of a batch, and what it hands back."""
        from keygrouping._fold_kernel import PLACES, Rest

        self._sums = reaching(self._sums if len(self._sums) else np.zeros((0, PLACES)), batch.groups)
        rows = len(batch.runs.rows)
        return self._sums, Rest(np.empty(rows, np.int64), np.empty(rows), np.zeros(1, np.int64))

    def take(self, rest: Rest) -> None:
        """Keeps what was handed back."""
        count = int(rest.length[0])
        for group, number in zip(rest.groups[:count].tolist(), rest.numbers[:count].tolist(), strict=True):
            held = self._rest.setdefault(group, [])
            held.append(number)
            if len(held) >= _MOST_REST and not len(held) & (len(held) - 1):
                held[:] = _fewer(held)

    def parts(self, groups: int) -> list[list[float]]:
        """Of each group: the parts of its sum, see `exact.parts_of`."""
        if not groups:
            return []
        found = parts_by_row(self._sums[:groups])
        for group, rest in self._rest.items():
            found[group] = list(parts_of([*self._sums[group].tolist(), *rest]))
        return found


def _fewer(numbers: list[float]) -> Sequence[float]:
    """Fewer numbers with the same exact sum; the same ones where that is beyond the floats, as more may follow."""
    parts = parts_of(numbers)
    beyond = math.isinf(parts[0]) and all(map(math.isfinite, numbers))
    return numbers if beyond else parts


_FOLDS: dict[type[Aggregate], Any] = {
    Count: _Counts,
    Sum: Totals,
    Mean: Totals,
    Min: _Extremes,
    Max: _Extremes,
    Variance: _Variances,
    Vwap: _Weighted,
}


def parts_by_row(sums: NDArray[np.float64]) -> list[list[float]]:
    """The parts of sums that are kept as `PLACES` floats each, see `exact.parts_of`."""
    first, second, third = sums.T
    closest = first + second
    taken = closest - first
    missing = (first - (closest - taken)) + (second - taken)
    found = [[top, low] if low else [top] for top, low in zip(closest.tolist(), missing.tolist(), strict=True)]
    for row in np.flatnonzero(third).tolist():
        found[row] = list(parts_of(sums[row].tolist()))
    return found


def reaching(array: Array, groups: int, fill: float = 0) -> Array:
    """The array with a row for each group at least; new ones are filled. It doubles, so that this is seldom."""
    if groups <= len(array):
        return array
    larger = np.full((max(groups, 2 * len(array)), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return cast(Array, larger)


def _column(values: FieldColumn) -> Column:
    from keygrouping._fold_kernel import Column

    wholes = in_one_piece(values.bits)
    return Column(in_one_piece(values.kinds), wholes, wholes.view(np.float64))


def _written(parts: list[float]) -> list[Any]:
    return parts if math.isfinite(parts[0]) else encode_parts(parts)
