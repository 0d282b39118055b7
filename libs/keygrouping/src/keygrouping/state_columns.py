"""Encoded states of many partials at once, in columns: whether `Aggregate.decode` takes each of them.

Only what is sure is found good here, by the rules of the aggregate's class. Of all else nothing is said: it is to be
decoded by the aggregate itself, which may find it good or say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.aggregate import Aggregate, Count, Max, Mean, Min, Sum, Variance, Vwap
from keygrouping.aggregate.base import MOST_EVENTS
from keygrouping.job.kinds import MISSING, NULL, REAL, WHOLE
from keygrouping.partial_layout import LISTED


class Cell(NamedTuple):
    """A member of a state by row: its kind, its bits, and those of a second and third number, as of lists."""

    kinds: NDArray[np.uint8]
    bits: NDArray[np.int64]
    more: NDArray[np.int64]
    last: NDArray[np.int64]


class States(NamedTuple):
    """By row: whether it is a state, and how many events it has seen."""

    good: NDArray[np.bool_]
    seen: NDArray[np.int64]


Judge = Callable[[Mapping[str, Cell]], States]
"""What judges states of an aggregate by the members of its shape; "" is a state that is no object."""


def judge_of(aggregate: Aggregate) -> Judge | None:
    """What judges its states here; None where only the aggregate can, as a class that derives from one of ours."""
    return _JUDGES.get(type(aggregate))


def floats_of(cell: Cell) -> NDArray[np.float64]:
    """The numbers, rounded as `float` does it."""
    return np.where(cell.kinds == WHOLE, cell.bits.astype(np.float64), cell.bits.view(np.float64))


def _counts(cells: Mapping[str, Cell]) -> States:
    return States(_are_counts(cells[""]), cells[""].bits)


def _totals(cells: Mapping[str, Cell]) -> States:
    seen, whole, parts = cells["n"].bits, cells["whole"], cells["parts"]
    empty = (whole.bits == 0) & (parts.kinds == LISTED)
    good = _are_counts(cells["n"]) & (whole.kinds == WHOLE) & _are_parts(parts) & ((seen > 0) | empty)
    return States(good, seen)


def _extremes(cells: Mapping[str, Cell]) -> States:
    whole, real = cells["whole"], cells["real"]
    good = (_are_none(whole) | (whole.kinds == WHOLE)) & (_are_none(real) | _are_numbers(real))
    return States(good, np.zeros_like(whole.bits))


def _moments(cells: Mapping[str, Cell]) -> States:
    good = _are_counts(cells["n"]) & _are_numbers(cells["mean"]) & _are_numbers(cells["m2"])
    return States(good & (floats_of(cells["m2"]) >= 0), cells["n"].bits)


def _weighted(cells: Mapping[str, Cell]) -> States:
    seen, products, weights = cells["n"].bits, cells["sum"], cells["weight"]
    good = _are_counts(cells["n"]) & _are_parts(products) & _are_parts(weights)
    good &= ((seen > 0) == (products.kinds > LISTED)) & ((seen > 0) == (weights.kinds > LISTED))
    return States(good, seen)


_JUDGES: dict[type[Aggregate], Judge] = {
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
    """Whether it is a list, whose numbers are the parts of a sum, whatever they are."""
    good: NDArray[np.bool_] = (cell.kinds >= LISTED) & (cell.kinds <= LISTED + 3)
    return good
