"""Adds numbers of many events up, group by group, without rounding; needs numba.

A sum is kept as three floats, of which each takes what rounding would have lost of the one before; what the third
can't hold is handed back. Numbers that might make them overflow are handed back as well.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.job.kinds import MISSING, REAL, WHOLE

PLACES = 3
MOST = 2.0**900
"""Of as many numbers below that as there are events in a partial, the sum is a float."""
_HALF = 32
_LOW = (1 << _HALF) - 1


class Column(NamedTuple):
    """A field by row: kind, and the bits of its number as an integer and as a float."""

    kinds: NDArray[np.uint8]
    wholes: NDArray[np.int64]
    reals: NDArray[np.float64]


class Rest(NamedTuple):
    """What was handed back: the groups and the numbers, and how many they are."""

    groups: NDArray[np.int64]
    numbers: NDArray[np.float64]
    length: NDArray[np.int64]


@kernel
def two_sum(left: float, right: float) -> Any:
    """The float that is closest to a sum, and what is missing (Knuth, TAOCP 2, 4.2.2)."""
    total = left + right
    taken = total - left
    return total, (left - (total - taken)) + (right - taken)


@kernel
def put(sums: NDArray[np.float64], group: int, number: float) -> float:
    """Adds a number to the sum of a group; gives what had no room."""
    if not abs(number) < MOST:
        return number
    for place in range(PLACES):
        sums[group, place], number = two_sum(sums[group, place], number)
        if number == 0.0:
            break
    return number


@kernel
def hand_back(rest: Rest, group: int, number: float) -> None:
    """Keeps a number that had no room, if it is one."""
    if number != 0.0:
        at = rest.length[0]
        rest.groups[at], rest.numbers[at] = group, number
        rest.length[0] = at + 1


@kernel
def number_of(column: Column, row: int) -> float:
    """A number as a float."""
    return column.reals[row] if column.kinds[row] == REAL else np.float64(column.wholes[row])


@kernel
def add_numbers(
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    groups: NDArray[np.int64],
    column: Column,
    wholes: NDArray[np.int64],
    sums: NDArray[np.float64],
    rest: Rest,
) -> None:
    """Adds integers and fractions up, each for themselves.

    A row of `wholes` is a group's number of integers, of fractions, and the sums of the integers' lower 32 bits and of
    what is above them, as 64 bits are not enough for all together.
    """
    at = 0
    for run in range(len(sizes)):
        group, low, high, integers, fractions = groups[run], 0, 0, 0, 0
        for row in rows[at : at + sizes[run]]:
            if column.kinds[row] == WHOLE:
                integers += 1
                low += column.wholes[row] & _LOW
                high += column.wholes[row] >> _HALF
            elif column.kinds[row] == REAL:
                fractions += 1
                hand_back(rest, group, put(sums, group, column.reals[row]))
        at += sizes[run]
        wholes[group, 0] += integers
        wholes[group, 1] += fractions
        wholes[group, 2] += low
        wholes[group, 3] += high


@kernel
def add_products(  # noqa: PLR0913 -- columns of three tables
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    groups: NDArray[np.int64],
    values: Column,
    weights: Column,
    seen: NDArray[np.int64],
    products: NDArray[np.float64],
    totals: NDArray[np.float64],
    products_rest: Rest,
    totals_rest: Rest,
) -> None:
    """Adds up the products of values with their weights, and the weights, of rows that have both."""
    at = 0
    for run in range(len(sizes)):
        group = groups[run]
        for row in rows[at : at + sizes[run]]:
            if values.kinds[row] != MISSING and weights.kinds[row] != MISSING:
                weight = number_of(weights, row)
                seen[group] += 1
                hand_back(products_rest, group, put(products, group, number_of(values, row) * weight))
                hand_back(totals_rest, group, put(totals, group, weight))
        at += sizes[run]


@kernel
def add_moments(
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    groups: NDArray[np.int64],
    column: Column,
    seen: NDArray[np.int64],
    moments: NDArray[np.float64],
    undone: NDArray[np.int64],
) -> int:
    """Puts mean and squared deviations of each run to those of its group, as `Variance.add_many` does.

    Gives the number of runs whose sums need more than `PLACES` floats; they come into `undone`.
    """
    at, left = 0, 0
    sums = np.empty((3, PLACES))
    for run in range(len(sizes)):
        group, count, lost = groups[run], 0, False
        sums[:] = 0.0
        for row in rows[at : at + sizes[run]]:
            if column.kinds[row] != MISSING:
                count += 1
                lost |= put(sums, 0, number_of(column, row)) != 0.0
        mean = closest(sums, 0) / max(1, count)
        for row in rows[at : at + sizes[run]]:
            if column.kinds[row] != MISSING:
                deviation = number_of(column, row) - mean
                lost |= put(sums, 1, deviation * deviation) != 0.0
                lost |= put(sums, 2, deviation) != 0.0
        at += sizes[run]
        if lost or sums[0, 2] != 0.0 or sums[1, 2] != 0.0 or sums[2, 2] != 0.0:
            undone[left] = run
            left += 1
        elif count:
            join(seen, moments, group, count, mean, about_mean(closest(sums, 1), closest(sums, 2), count))
    return left


@kernel
def closest(sums: NDArray[np.float64], group: int) -> Any:
    """The float closest to a sum that needs two."""
    return sums[group, 0] + sums[group, 1]


@kernel
def about_mean(squares: float, deviations: float, count: int) -> Any:
    """What `about_mean` of `aggregate.numeric` gives."""
    beyond = deviations * deviations / count
    return squares - beyond if beyond < squares else squares


@kernel
def join(
    seen: NDArray[np.int64], moments: NDArray[np.float64], group: int, count: int, mean: float, squares: float
) -> None:
    """What `Variance.merge` does."""
    before, other = seen[group], moments[group, 0]
    if before:
        deviation, both = mean - other, before + count
        squares = moments[group, 1] + squares + deviation * deviation * (before * count / both)
        if before > count or (before == count and other >= mean):
            mean = other + deviation * (count / both)
        else:
            mean -= deviation * (before / both)
    seen[group] += count
    moments[group, 0], moments[group, 1] = mean, squares
