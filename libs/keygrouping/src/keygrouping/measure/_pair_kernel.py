"""Compiled counting of distinct keys and (key, worker) pairs; needs numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import probe
from keygrouping.compiled import kernel

WORKER_BITS = 20
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
HALF = np.uint64(32)


@kernel
def slot_of(pairs: NDArray[Any], code: np.int64) -> Any:
    """The slot of a pair, or the free one where it belongs."""
    return probe(pairs["code"], pairs["interval"], code, np.int64((np.uint64(code) * MULTIPLIER) >> HALF))


@kernel
def move_pairs(pairs: NDArray[Any], larger: NDArray[Any]) -> None:
    """Put all pairs into an empty table."""
    for i in range(len(pairs)):
        if pairs[i].interval:
            slot = slot_of(larger, pairs[i].code)
            larger[slot].code = pairs[i].code
            larger[slot].interval = pairs[i].interval


@kernel
def count_pairs(
    workers: NDArray[np.int32],
    keys: NDArray[np.int64],
    start: int,
    number: int,
    all_keys: NDArray[Any],
    pairs: NDArray[Any],
    counts: NDArray[Any],
) -> int:
    """Count events from `start` on in the interval `number`, until all are counted or the table of pairs is half full.

    `counts` holds those of the interval and those of the run. Gives the position of the first event not counted.
    """
    interval = counts[0]
    run = counts[1]
    most = len(pairs) // 2
    for i in range(start, len(keys)):
        key = all_keys[keys[i]]
        code = (keys[i] << WORKER_BITS) | np.int64(workers[i])
        pair = pairs[slot_of(pairs, code)]
        if not pair.interval:
            if run.pairs >= most:
                return i
            pair.code = code
            # A key's first worker makes it known; each further one is a change of its fan-out.
            if key.run_width == 0:
                run.keys += 1
            else:
                run.width_changes += 1
                interval.width_changes += 1
            run.pairs += 1
            # `copies` is the sum of events times fan-out over all keys, so the new worker adds the key's events so far.
            run.copies += key.run_events
            key.run_width += 1
        # What is left of an earlier interval counts as zero; so nothing has to be cleared at the end of one.
        if key.interval != number:
            key.interval = number
            key.events = 0
            key.width = 0
            interval.keys += 1
        if pair.interval != number:
            pair.interval = number
            interval.pairs += 1
            interval.copies += key.events
            key.width += 1
        key.events += 1
        key.run_events += 1
        interval.events += 1
        run.events += 1
        interval.copies += key.width
        run.copies += key.run_width
    return len(keys)
