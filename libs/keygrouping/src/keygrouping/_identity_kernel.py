"""Sums of events' hashes modulo 2^128 (see `keygrouping.identity`), a pass over the events each; needs numba.

A sum is two numbers, upper and lower half. Seeds come with what XXH64 adds to them first, as `starts`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import probe
from keygrouping.compiled import kernel

Q1 = np.uint64(0x9E3779B185EBCA87)
Q2 = np.uint64(0xC2B2AE3D27D4EB4F)
Q3 = np.uint64(0x165667B19E3779F9)
Q4 = np.uint64(0x85EBCA77C2B2AE63)
S27, S29, S31, S32, S33, S37 = (np.uint64(shift) for shift in (27, 29, 31, 32, 33, 37))
ONE = np.uint64(1)


@kernel
def first_round(offset: int) -> np.uint64:
    """What XXH64 makes of a number, whatever the seed."""
    value = np.uint64(offset) * Q2
    return ((value << S31) | (value >> S33)) * Q1


@kernel
def half(value: np.uint64, start: np.uint64) -> np.uint64:
    """XXH64 of a number, behind its first round."""
    value ^= start
    value = ((value << S27) | (value >> S37)) * Q1 + Q4
    value = (value ^ (value >> S33)) * Q2
    value = (value ^ (value >> S29)) * Q3
    return value ^ (value >> S32)


# Hashes first, sums behind them: processors hash several numbers at once where nothing is carried from one to the next.


@kernel
def hash_all(
    offsets: NDArray[np.int64], starts: NDArray[np.uint64], upper: NDArray[np.uint64], lower: NDArray[np.uint64]
) -> None:
    """Both halves of the hash of each offset."""
    for row in range(len(offsets)):
        value = first_round(offsets[row])
        upper[row], lower[row] = half(value, starts[0]), half(value, starts[1])


@kernel
def sum_all(offsets: NDArray[np.int64], starts: NDArray[np.uint64]) -> Any:
    """Both halves of the sum of these offsets' hashes."""
    upper, lower = np.empty(len(offsets), np.uint64), np.empty(len(offsets), np.uint64)
    hash_all(offsets, starts, upper, lower)
    high = low = np.uint64(0)
    for row in range(len(offsets)):
        low += lower[row]
        high += upper[row] + np.uint64(low < lower[row])
    return high, low


@kernel
def sum_runs(
    offsets: NDArray[np.int64],
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    places: NDArray[np.int64],
    starts: NDArray[np.uint64],
    sums: NDArray[np.uint64],
) -> None:
    """Adds the hashes of each run's offsets to the row of `sums` that `places` says.

    `rows` are the runs' rows in `offsets`, one run after the other; `sizes` are the runs' lengths.
    """
    upper, lower = np.empty(len(offsets), np.uint64), np.empty(len(offsets), np.uint64)
    hash_all(offsets, starts, upper, lower)
    # A run's sum is what all rows up to its end have more than all before it. A loop over each run by itself takes
    # half as long again: processors can't foresee the ends of many short ones.
    reached = np.empty((len(rows) + 1, 2), np.uint64)
    high = low = np.uint64(0)
    reached[0, 0], reached[0, 1] = high, low
    for index in range(len(rows)):
        row = np.uint64(rows[index])  # not signed: numba would look for rows counted from the end
        low += lower[row]
        high += upper[row] + np.uint64(low < lower[row])
        reached[index + 1, 0], reached[index + 1, 1] = high, low
    begin = 0
    for run in range(len(sizes)):
        first, last, place = np.uint64(begin), np.uint64(begin + sizes[run]), np.uint64(places[run])
        below = reached[last, 1] - reached[first, 1]
        above = reached[last, 0] - reached[first, 0] - np.uint64(reached[last, 1] < reached[first, 1])
        low = sums[place, 1] + below
        sums[place, 0] += above + np.uint64(low < below)
        sums[place, 1] = low
        begin += sizes[run]


@kernel
def chain(runs: NDArray[np.int64], heads: NDArray[np.int64], following: NDArray[np.int64]) -> bool:
    """Each worker's first run into `heads`, and each run's next one of the same worker into `following`; -1 for none.

    False where a run has no first offset. Runs of no events are left out.
    """
    tails = np.empty_like(heads)
    for run in range(len(runs)):
        worker = runs[run, 0]
        if runs[run, 1] < 0:
            return False
        if runs[run, 2] == 0:
            continue
        if heads[worker] < 0:
            heads[worker] = run
        else:
            following[tails[worker]] = run
        tails[worker] = run
    return True


@kernel
def locate(
    workers: NDArray[np.int32], runs: NDArray[np.int64], places: NDArray[np.int64], shares: NDArray[np.int32]
) -> int:
    """Where each event was written, into `places`, if the events of a worker are in its runs in their order.

    A row of `runs` is a worker, the first of its offsets there, and how many there are. `shares`, all 0 before, gets a
    row of worker and number for each worker that has events; the result is how many these are, or -1 if these runs
    are not those of the events.
    """
    heads, following = np.full(len(shares), -1, np.int64), np.full(len(runs), -1, np.int64)
    if not chain(runs, heads, following):
        return -1
    taken = np.zeros(len(shares), np.int64)
    for row in range(len(workers)):
        worker = np.int64(workers[row])
        if worker >= len(shares) or heads[worker] < 0:
            return -1
        run = heads[worker]
        places[row] = runs[run, 1] + taken[worker]
        shares[worker, 1] += 1
        taken[worker] += 1
        if taken[worker] == runs[run, 2]:
            heads[worker], taken[worker] = following[run], 0
    filled = 0
    for sharing in range(len(shares)):
        if heads[sharing] >= 0:
            return -1
        if shares[sharing, 1]:
            shares[filled, 0], shares[filled, 1] = sharing, shares[sharing, 1]
            filled += 1
    return filled


@kernel
def number_windows(
    times: NDArray[np.int64], window: NDArray[np.int64], numbers: NDArray[np.int64], windows: NDArray[np.uint64]
) -> int:
    """The number of each event's window, from 0 on, by its time; gives how many there are.

    `window` is length and offset in ms. Each window gets a row of `windows`: its start, and zeros.
    """
    size = 16
    while size < 2 * len(times):
        size *= 2
    keys, used = np.empty(size, np.int64), np.zeros(size, np.int32)
    found, here, start = 0, -1, np.int64(0)
    for row in range(len(times)):
        begin = times[row] - (times[row] - window[1]) % window[0]
        if here < 0 or begin != start:
            slot = probe(keys, used, begin, np.int64((np.uint64(begin) * Q1) >> S33))
            if not used[slot]:
                windows[found, 0], windows[found, 1:] = np.uint64(begin), 0
                found += 1
                keys[slot], used[slot] = begin, found
            here, start = used[slot] - 1, begin
        numbers[row] = here
    return found


@kernel
def sum_windows(
    workers: NDArray[np.int32],
    places: NDArray[np.int64],
    starts: NDArray[np.uint64],
    numbers: NDArray[np.int64],
    windows: NDArray[np.uint64],
) -> None:
    """Adds the hash of each event's place in the routed topic to its window's row of `windows`: number, both halves.

    `starts` has a row for each worker, and `numbers` are those of the windows.
    """
    upper, lower = np.empty(len(places), np.uint64), np.empty(len(places), np.uint64)
    for row in range(len(places)):
        value = first_round(places[row])
        upper[row], lower[row] = half(value, starts[workers[row], 0]), half(value, starts[workers[row], 1])
    for row in range(len(places)):
        window = numbers[row]
        low = windows[window, 3] + lower[row]
        windows[window, 1] += ONE
        windows[window, 2] += upper[row] + np.uint64(low < lower[row])
        windows[window, 3] = low


@kernel
def account(  # noqa: PLR0913 -- columns of two tables
    offsets: NDArray[np.int64],
    times: NDArray[np.int64],
    workers: NDArray[np.int32],
    runs: NDArray[np.int64],
    starts: NDArray[np.uint64],
    routed: NDArray[np.uint64],
    window: NDArray[np.int64],
    scratch: NDArray[np.int64],
    shares: NDArray[np.int32],
    windows: NDArray[np.uint64],
) -> Any:
    """All sums over routed events, of their places in the input and in the routed topic, see `locate` and what follows.

    Gives the rows of `shares`, -1 if the runs are not those of the events, the rows of `windows`, and both halves of
    the sum by the input's offsets. `scratch` has room for two numbers of each event. One call: with few events,
    handing arrays over takes longer than all else.
    """
    places, numbers = scratch[0], scratch[1]
    filled = locate(workers, runs, places, shares)
    if filled < 0:
        return filled, 0, np.uint64(0), np.uint64(0)
    found = number_windows(times, window, numbers, windows)
    sum_windows(workers, places, routed, numbers, windows)
    high, low = sum_all(offsets, starts)
    return filled, found, high, low


@kernel
def sum_by_window(
    offsets: NDArray[np.int64],
    times: NDArray[np.int64],
    starts: NDArray[np.uint64],
    window: NDArray[np.int64],
    windows: NDArray[np.uint64],
) -> int:
    """Numbers and sums of the events of one partition into a row of `windows` for each window; gives how many rows."""
    numbers = np.empty(len(times), np.int64)
    found = number_windows(times, window, numbers, windows)
    sum_windows(np.zeros(len(times), np.int32), offsets, starts.reshape(1, 2), numbers, windows)
    return found
