"""Compiled event time of one input partition; needs numba."""

import numpy as np
from keygrouping.compiled import kernel
from numpy.typing import NDArray


@kernel
def advance(
    times: NDArray[np.int64], last: NDArray[np.int64], oldest: int, confirmed: int, before: NDArray[np.int64]
) -> tuple[int, int]:
    """The confirmed time after these events, and the place of the oldest one in `last`.

    `last` (2c) is a ring of the last event times. `before` (n) takes the confirmed time before each event.
    """
    confirmations = len(last) // 2
    pending = np.empty_like(last)
    later = np.sort(last[last > confirmed])
    count = len(later)
    pending[:count] = later
    for i in range(len(times)):
        before[i] = confirmed
        if last[oldest] > confirmed:
            count = _remove(pending, count, last[oldest])
        last[oldest] = times[i]
        oldest = (oldest + 1) % len(last)
        if times[i] > confirmed:
            count = _insert(pending, count, times[i])
        if count >= confirmations:
            confirmed = pending[count - confirmations]
            count = _keep_later(pending, count, confirmed)
    return confirmed, oldest


@kernel
def _insert(pending: NDArray[np.int64], count: int, time: int) -> int:
    """Puts a time into its place among the first `count`, which are sorted; gives their new number, as all here do."""
    place = count
    while place > 0 and pending[place - 1] > time:
        pending[place] = pending[place - 1]
        place -= 1
    pending[place] = time
    return count + 1


@kernel
def _remove(pending: NDArray[np.int64], count: int, time: int) -> int:
    place = np.searchsorted(pending[:count], time)
    for i in range(place + 1, count):
        pending[i - 1] = pending[i]
    return count - 1


@kernel
def _keep_later(pending: NDArray[np.int64], count: int, time: int) -> int:
    passed = np.searchsorted(pending[:count], time, side="right")
    for i in range(passed, count):
        pending[i - passed] = pending[i]
    return int(count - passed)
