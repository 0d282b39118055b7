"""Compiled routing of Dynamic Key Grouping; needs numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.keyspace.generations import BABY, EMPTY, OLD


@kernel
def least_loaded(loads: Weights, home: int, width: int, low: float) -> tuple[int, int]:
    """The least loaded of `width` workers from `home` on (a tie: nearest to home), and how many are below `low`."""
    worker = home
    best = home
    below = 0
    for _ in range(width):
        load = loads[worker]
        if load < low:
            below += 1
        if load < loads[best]:
            best = worker
        worker = worker + 1 if worker + 1 < len(loads) else 0
    return best, below


@kernel
def find(items: NDArray[Any], hashed: np.int64) -> int:
    """The slot of a key, or the empty one where it belongs."""
    mask = len(items) - 1
    slot = int(hashed & mask)
    while items[slot].space != EMPTY and items[slot].hash != hashed:
        slot = (slot + 1) & mask
    return slot


@kernel
def next_width(item: Any, loads: Weights, home: int, best: int, below: int, high: float, rules: Any) -> Any:
    """The width that algorithms 4 to 6 give the key of `item` now."""
    width = item.width
    if rules.now - item.changed < rules.check_interval:
        return width
    if rules.warm and item.space == OLD and width < rules.max_width and loads[best] >= high:
        return width + 1 if loads[(home + width) % len(loads)] < loads[best] else width
    return width - 1 if width > rules.min_width and below >= 2 else width


@kernel
def route_dkg(
    hashes: Hashes,
    weights: Weights,
    loads: Weights,
    items: NDArray[Any],
    totals: NDArray[Any],
    all_rules: NDArray[Any],
) -> Workers:
    """Route events one after the other; loads, items and totals change as it goes along."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    total = totals[0]
    rules = all_rules[0]
    for i in range(len(hashes)):
        hashed = hashes[i, 0]
        weight = weights[i] if weighted else 1.0
        home = home_of(hashed, len(loads))
        slot = find(items, hashed)
        item = items[slot]
        known = item.space != EMPTY
        width = item.width if known else rules.min_width
        low = rules.scale_down * total.load
        best, below = least_loaded(loads, home, width, low)
        if known:
            changed = next_width(item, loads, home, best, below, rules.scale_up * total.load, rules)
            if changed != width:
                item.width = changed
                item.changed = rules.now
                total.width_changes += 1
                best, below = least_loaded(loads, home, changed, low)
        elif total.known < rules.limit:
            total.known += 1
            item.hash = hashed
            item.count = 0.0
            item.first_seen = rules.now
            item.changed = rules.now
            item.width = width
            item.space = BABY
            known = True
        if known:
            item.count += weight
            item.last_seen = rules.now
        loads[best] += weight
        total.load += weight
        total.mass += weight
        routed[i] = best
    return routed
