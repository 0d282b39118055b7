"""Encoded states of many partials at once, from columns: what `Aggregate.decode` makes of each.

Only what is sure is decoded here, by the rules of the aggregate's class. Of all else nothing is said: a row for which
`good` is false is to be decoded by the aggregate itself, which may find it good or say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import Aggregate, Count, Max, Mean, Min, Sum, Variance, Vwap
from keygrouping.aggregate.base import MOST_EVENTS
from keygrouping.aggregate.exact import Total
from keygrouping.job.kinds import MISSING, NULL, REAL, WHOLE
from keygrouping.partial_layout import LISTED


class Cell(NamedTuple):
    """A member of a state by row: its kind, its bits, and those of a second number, as of lists."""

    kinds: NDArray[np.uint8]
    bits: NDArray[np.int64]
    more: NDArray[np.int64]


class States(NamedTuple):
    """By row: the decoded state, whether it is one, and how many events it has seen."""

    states: Sequence[Any]
    good: NDArray[np.bool_]
    seen: NDArray[np.int64]


Decoder = Callable[[Any, Mapping[str, Cell]], States]
"""The states of an aggregate, by the members of its shape; "" is a state that is no object."""


def decoder_of(aggregate: Aggregate) -> Decoder | None:
    """What decodes its states here; None where only the aggregate can, as a class that derives from one of ours."""
    return _DECODERS.get(type(aggregate))


def floats_of(cell: Cell) -> NDArray[np.float64]:
    """The numbers, rounded as `float` does it."""
    return np.where(cell.kinds == WHOLE, cell.bits.astype(np.float64), cell.bits.view(np.float64))


def _counts(_: Count, cells: Mapping[str, Cell]) -> States:
    seen = cells[""].bits
    return States(seen.tolist(), _are_counts(cells[""]), seen)


def _totals(_: Sum | Mean, cells: Mapping[str, Cell]) -> States:
    seen, whole, parts = cells["n"].bits, cells["whole"], cells["parts"]
    empty = (whole.bits == 0) & (parts.kinds == LISTED)
    good = _are_counts(cells["n"]) & (whole.kinds == WHOLE) & _are_parts(parts) & ((seen > 0) | empty)
    totals = map(Total, whole.bits.tolist(), _parts(parts))
    return States(list(zip(seen.tolist(), totals, strict=True)), good, seen)


def _extremes(aggregate: Min | Max, cells: Mapping[str, Cell]) -> States:
    whole, real = cells["whole"], cells["real"]
    wholes = _with_none(whole.bits.tolist(), whole.kinds != WHOLE)
    reals = _with_none((floats_of(real) + 0.0).tolist(), ~_are_numbers(real))
    good = (_are_none(whole) | (whole.kinds == WHOLE)) & (_are_none(real) | _are_numbers(real))
    return States(list(map(aggregate.merge, wholes, reals)), good, np.zeros_like(whole.bits))


def _moments(_: Variance, cells: Mapping[str, Cell]) -> States:
    seen, mean, squares = cells["n"].bits, floats_of(cells["mean"]), floats_of(cells["m2"])
    good = _are_counts(cells["n"]) & _are_numbers(cells["mean"]) & _are_numbers(cells["m2"]) & (squares >= 0)
    return States(list(zip(seen.tolist(), mean.tolist(), squares.tolist(), strict=True)), good, seen)


def _weighted(_: Vwap, cells: Mapping[str, Cell]) -> States:
    seen, products, weights = cells["n"].bits, cells["sum"], cells["weight"]
    good = _are_counts(cells["n"]) & _are_parts(products) & _are_parts(weights)
    good &= ((seen > 0) == (products.kinds > LISTED)) & ((seen > 0) == (weights.kinds > LISTED))
    return States(list(zip(seen.tolist(), _parts(products), _parts(weights), strict=True)), good, seen)


_DECODERS: dict[type[Aggregate], Decoder] = {
    Count: _counts,
    Sum: _totals,
    Mean: _totals,
    Min: _extremes,
    Max: _extremes,
    Variance: _moments,
    Vwap: _weighted,
}


def _are_counts(cell: Cell) -> NDArray[np.bool_]:
    good: NDArray[np.bool_] = (cell.kinds == WHOLE) & (cell.bits >= 0) & (cell.bits <= MOST_EVENTS)
    return good


def _are_numbers(cell: Cell) -> NDArray[np.bool_]:
    good: NDArray[np.bool_] = (cell.kinds == WHOLE) | (cell.kinds == REAL)
    return good


def _are_none(cell: Cell) -> NDArray[np.bool_]:
    good: NDArray[np.bool_] = (cell.kinds == MISSING) | (cell.kinds == NULL)
    return good


def _are_parts(cell: Cell) -> NDArray[np.bool_]:
    """Whether the list is the parts of a sum as `parts_of` gives them: two are the rounded sum and what it lacks."""
    first, second = cell.bits.view(np.float64), cell.more.view(np.float64)
    with np.errstate(all="ignore"):  # what is no list has any bits
        two = (cell.kinds == LISTED + 2) & (second != 0) & (first + second == first)
    good: NDArray[np.bool_] = (cell.kinds == LISTED) | (cell.kinds == LISTED + 1) | two
    return good


def _parts(cell: Cell) -> list[tuple[float, ...]]:
    first = (cell.bits.view(np.float64) + 0.0).tolist()
    parts: list[tuple[float, ...]] = list(zip(first))
    for row in np.flatnonzero(cell.kinds == LISTED).tolist():
        parts[row] = ()
    for row in np.flatnonzero(cell.kinds == LISTED + 2).tolist():
        parts[row] = (first[row], float(cell.more.view(np.float64)[row]))
    return parts


def _with_none(values: list[Any], missing: NDArray[np.bool_]) -> list[Any]:
    for row in np.flatnonzero(missing).tolist():
        values[row] = None
    return values
