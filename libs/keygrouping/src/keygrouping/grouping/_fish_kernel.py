"""Compiled routing of FISH; needs numba."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.keyspace._space_saving_kernel import update


class Arrays(NamedTuple):
    """All that routing reads and changes. Per worker, in seconds: what an event would wait, the work it had lately, the
    time that it takes for a weight of 1; the counters of keys and their sketch; and the state of the epoch."""

    waiting: Weights
    recent: Weights
    service: Weights
    counters: NDArray[Any]
    sketch: NDArray[Any]
    totals: NDArray[Any]


@kernel
def hot_width(lower: float, top: float, workers: int) -> int:
    """W / 2^floor(log2(f_top / f_k)) workers for a hot key, at least two (or all there are)."""
    least = min(2, workers)
    while 2 * lower <= top and workers > least:
        lower *= 2
        workers //= 2
    return max(workers, least)


@kernel
def end_epoch(counters: NDArray[Any], sketch: Any, state: Any, workers: int) -> None:
    """Give every counted key its width for the next epoch, then let all counts decay."""
    limit = state.share * sketch.total
    top = 0.0
    for slot in range(len(counters)):
        if counters[slot].used:
            top = max(top, counters[slot].count - counters[slot].error)
    changed = False
    for slot in range(len(counters)):
        if counters[slot].used:
            lower = counters[slot].count - counters[slot].error
            width = 0
            if lower > limit or (counters[slot].tag > 0 and lower > limit / 2):
                width = max(counters[slot].tag, hot_width(lower, top, workers))
            changed |= width != counters[slot].tag
            counters[slot].tag = width
            counters[slot].count *= state.decay
            counters[slot].error *= state.decay
    sketch.total *= state.decay
    sketch.offset *= state.decay
    state.events = 0
    if changed:
        state.changes += 1


@kernel
def waits_less(one: int, other: int, waiting: Weights, recent: Weights) -> bool:
    """Whether an event would wait less at one worker; where it would wait as long, who had less to do lately."""
    return bool(waiting[one] < waiting[other] or (waiting[one] == waiting[other] and recent[one] < recent[other]))


@kernel
def least_waiting(first: int, second: int, width: int, waiting: Weights, recent: Weights) -> int:
    """Of a key's two choices and the width - 2 workers next to the first the one to wait least at; a tie: the first."""
    best = second if waits_less(second, first, waiting, recent) else first
    other = first
    for _ in range(width - 2):
        other = other + 1 if other + 1 < len(waiting) else 0
        if other == second:
            other = other + 1 if other + 1 < len(waiting) else 0
        if waits_less(other, best, waiting, recent):
            best = other
    return best


@kernel
def route_fish(hashes: Hashes, weights: Weights, arrays: Arrays) -> Workers:
    """Each event to the candidate of its key that lets it wait least; all state goes along."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    waiting, recent, service, counters = arrays.waiting, arrays.recent, arrays.service, arrays.counters
    state, sketch = arrays.totals[0], arrays.sketch[0]
    workers = len(waiting)
    for i in range(len(hashes)):
        if state.events == state.epoch_events:
            end_epoch(counters, sketch, state, workers)
            recent *= state.decay
        state.events += 1
        weight = weights[i] if weighted else 1.0
        width = counters[update(counters, sketch, hashes[i, 0], weight)].tag
        first = home_of(hashes[i, 0], workers)
        second = home_of(hashes[i, 1], workers)
        if first == second:
            second = second + 1 if second + 1 < workers else 0
        best = least_waiting(first, second, max(width, 2), waiting, recent)
        work = weight * service[best]
        waiting[best] += work
        recent[best] += work
        routed[i] = best
    return routed


@kernel
def each_by_fish(event: Hashes, weights: Weights, arrays: Arrays) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_fish(event, weights, arrays)[0]
