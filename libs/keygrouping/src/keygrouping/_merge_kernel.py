"""Merges states of many partials into those of their groups, in their order and as `Aggregate.merge` does; needs numba.

What might be rounded otherwise, or has no room, is left to the aggregate itself, and the group is odd from then on, so
that all that comes later is left, too. Kernels give how many rows are left.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping._fold_kernel import MOST, join, two_sum
from keygrouping._murmur import mix
from keygrouping.compiled import kernel
from keygrouping.job.kinds import REAL, WHOLE
from keygrouping.partial_layout import LISTED
from keygrouping.state_columns import Cell

MOST_WHOLE = 1 << 62
"""Of numbers below that the sum of two has room in 64 bits."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)
_HALF = 32
_LOW = (1 << _HALF) - 1
_EXACT = 1 << 53
"""Integers up to that are floats, too."""


class Rows(NamedTuple):
    """Partials to be merged: their rows in the batch, their groups, and by row of the batch whether it is `sure`."""

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    sure: NDArray[np.bool_]


class Given(NamedTuple):
    """Those with the groups that are odd, and room for where the rows stand that are left."""

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    sure: NDArray[np.bool_]
    odd: NDArray[np.bool_]
    left: NDArray[np.int64]


@kernel
def merge_counts(given: Given, seen: Cell, counts: NDArray[np.int64]) -> int:
    """Adds numbers of events up."""
    lost = 0
    for at in range(len(given.rows)):
        row, group = given.rows[at], given.groups[at]
        if given.odd[group] or not given.sure[row] or counts[group] > MOST_WHOLE:
            given.odd[group], given.left[lost] = True, at
            lost += 1
        else:
            counts[group] += seen.bits[row]
    return lost


@kernel
def merge_members(
    given: Given,
    events: NDArray[np.int64],
    weight: Cell,
    counts: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    weights: NDArray[np.int64],
) -> int:
    """Adds numbers of events and weights up; weights are integers, or floats from the first fraction on."""
    lost, given_reals, reals = 0, weight.bits.view(np.float64), weights.view(np.float64)
    for at in range(len(given.rows)):
        row, group = given.rows[at], given.groups[at]
        both_whole = kinds[group] != REAL and weight.kinds[row] == WHOLE
        if (
            given.odd[group]
            or not given.sure[row]
            or counts[group] > MOST_WHOLE
            or (both_whole and weights[group] > MOST_WHOLE)
        ):
            given.odd[group], given.left[lost] = True, at
            lost += 1
            continue
        if both_whole:
            weights[group] += weight.bits[row]
            kinds[group] = WHOLE
        elif not counts[group]:
            reals[group], kinds[group] = given_reals[row], REAL
        else:
            held = reals[group] if kinds[group] == REAL else np.float64(weights[group])
            reals[group], kinds[group] = held + number_at(weight, given_reals, row), REAL
        counts[group] += events[row]
    return lost


@kernel
def number_at(cell: Cell, reals: NDArray[np.float64], row: int) -> Any:
    """A number as a float; `reals` are the bits of all as floats."""
    return reals[row] if cell.kinds[row] == REAL else np.float64(cell.bits[row])


@kernel
def merge_totals(
    given: Given,
    seen: Cell,
    whole: Cell,
    parts: Cell,
    wholes: NDArray[np.int64],
    sums: NDArray[np.float64],
) -> int:
    """Adds exact sums up.

    A row of `wholes` is a group's numbers seen, whether there was a fraction, and the sums of the integers' lower 32
    bits and of what is above them.
    """
    lost = 0
    for at in range(len(given.rows)):
        row, group = given.rows[at], given.groups[at]
        if (
            given.odd[group]
            or not given.sure[row]
            or wholes[group, 0] > MOST_WHOLE
            or not put_parts(sums, group, parts, row)
        ):
            given.odd[group], given.left[lost] = True, at
            lost += 1
            continue
        wholes[group, 0] += seen.bits[row]
        wholes[group, 1] |= parts.kinds[row] != LISTED
        wholes[group, 2] += whole.bits[row] & _LOW
        wholes[group, 3] += whole.bits[row] >> _HALF
    return lost


@kernel
def put_parts(sums: NDArray[np.float64], group: int, parts: Cell, row: int) -> bool:
    """Adds the parts of a sum to that of a group; False, and nothing is added, if they have no room."""
    first, second, third = sums[group]
    for place in range(parts.kinds[row] - LISTED):
        bits = parts.bits if place == 0 else parts.more if place == 1 else parts.last
        number = bits.view(np.float64)[row]
        if not abs(number) < MOST:
            return False
        first, number = two_sum(first, number)
        second, number = two_sum(second, number)
        third, number = two_sum(third, number)
        if number != 0.0:
            return False
    sums[group, 0], sums[group, 1], sums[group, 2] = first, second, third
    return True


@kernel
def merge_extremes(
    given: Given,
    whole: Cell,
    real: Cell,
    most: bool,
    there: NDArray[np.bool_],
    wholes: NDArray[np.int64],
    reals: NDArray[np.float64],
) -> int:
    """Keeps the greatest integer and the greatest fraction, each for itself; the least if not `most`."""
    lost, given_reals = 0, real.bits.view(np.float64)
    for at in range(len(given.rows)):
        row, group = given.rows[at], given.groups[at]
        if given.odd[group] or not given.sure[row]:
            given.odd[group], given.left[lost] = True, at
            lost += 1
            continue
        if whole.kinds[row] == WHOLE:
            integer = whole.bits[row]
            if not there[group, 0] or (integer != wholes[group] and (integer > wholes[group]) == most):
                there[group, 0], wholes[group] = True, integer
        if real.kinds[row] == WHOLE or real.kinds[row] == REAL:
            fraction = number_at(real, given_reals, row) + 0.0
            if not there[group, 1] or (fraction != reals[group] and (fraction > reals[group]) == most):
                there[group, 1], reals[group] = True, fraction
    return lost


@kernel
def merge_moments(
    given: Given,
    seen: Cell,
    mean: Cell,
    squares: Cell,
    counts: NDArray[np.int64],
    moments: NDArray[np.float64],
) -> int:
    """Puts means and squared deviations to those of their groups."""
    lost, means, deviations = 0, mean.bits.view(np.float64), squares.bits.view(np.float64)
    for at in range(len(given.rows)):
        row, group = given.rows[at], given.groups[at]
        count = seen.bits[row]
        # Python divides integers of any size as they are, not as floats.
        if given.odd[group] or not given.sure[row] or (count and counts[group] >= _EXACT // count):
            given.odd[group], given.left[lost] = True, at
            lost += 1
        elif count or not counts[group]:
            given_squares = number_at(squares, deviations, row)
            join(counts, moments, group, count, number_at(mean, means, row), given_squares)
    return lost


@kernel
def merge_weighted(
    given: Given,
    seen: Cell,
    product: Cell,
    weight: Cell,
    counts: NDArray[np.int64],
    products: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> int:
    """Adds sums of products and of weights up, exactly."""
    lost = 0
    for at in range(len(given.rows)):
        row, group = given.rows[at], given.groups[at]
        good = not given.odd[group] and given.sure[row] and counts[group] <= MOST_WHOLE
        if good:
            first, second, third = products[group]
            good = put_parts(products, group, product, row)
            if good and not put_parts(weights, group, weight, row):
                products[group, 0], products[group, 1], products[group, 2] = first, second, third
                good = False
        if good:
            counts[group] += seen.bits[row]
        else:
            given.odd[group], given.left[lost] = True, at
            lost += 1
    return lost


@kernel
def add_receipts(given: Rows, receipt: Cell, sums: NDArray[np.uint64]) -> None:
    """Adds sums of hashes up, whose halves are the columns of `sums`, the upper one first."""
    for at in range(len(given.rows)):
        row, group = given.rows[at], given.groups[at]
        low = sums[group, 1] + np.uint64(receipt.more[row])
        carry = np.uint64(low < sums[group, 1])
        sums[group, 0] += np.uint64(receipt.bits[row]) + carry
        sums[group, 1] = low


@kernel
def slot_of(owners: NDArray[np.int32], marks: NDArray[np.int64], group: int, mark: int) -> Any:
    """The slot of a group's mark, or the free one where it belongs, whose owner is -1."""
    mask = np.uint64(len(owners) - 1)
    slot = mix(np.uint64(group) * _SPREAD ^ np.uint64(mark)) & mask
    while owners[slot] >= 0 and (owners[slot] != group or marks[slot] != mark):
        slot = (slot + _ONE) & mask
    return slot


@kernel
def note(
    groups: NDArray[np.int64],
    given: NDArray[np.int64],
    owners: NDArray[np.int32],
    marks: NDArray[np.int64],
    fresh: NDArray[np.bool_],
) -> int:
    """Notes marks of groups, for which there is room; `fresh` gets which ones were not there. Gives their number."""
    found = 0
    for row in range(len(groups)):
        slot = slot_of(owners, marks, groups[row], given[row])
        fresh[row] = owners[slot] < 0
        if fresh[row]:
            owners[slot], marks[slot] = groups[row], given[row]
            found += 1
    return found


@kernel
def lay_out(
    owners: NDArray[np.int32],
    marks: NDArray[np.int64],
    numbers: NDArray[np.int64],
    to_owners: NDArray[np.int32],
    to_marks: NDArray[np.int64],
) -> int:
    """Puts marks into empty slots; gives how many stay. `numbers` are the groups' new ones, -1 for one that goes."""
    found = 0
    for slot in range(len(owners)):
        if owners[slot] >= 0 and numbers[owners[slot]] >= 0:
            group = numbers[owners[slot]]
            to = slot_of(to_owners, to_marks, group, marks[slot])
            to_owners[to], to_marks[to] = group, marks[slot]
            found += 1
    return found
