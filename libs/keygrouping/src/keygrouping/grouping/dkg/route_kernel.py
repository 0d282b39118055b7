"""Compiled routing of Dynamic Key Grouping; needs numba."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import find as find_wide
from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.keyspace._items_kernel import find
from keygrouping.keyspace.items import BABY, EMPTY, OLD


@kernel
def least_loaded(loads: Weights, home: int, width: int) -> int:
    """The least loaded of `width` workers from `home` on; a tie: nearest to home."""
    best = home
    least = loads[home]
    end = home + width
    for worker in range(home + 1, min(end, len(loads))):
        if loads[worker] < least:
            least = loads[worker]
            best = worker
    for worker in range(end - len(loads)):
        if loads[worker] < least:
            least = loads[worker]
            best = worker
    return best


@kernel
def two_below(loads: Weights, home: int, width: int, low: float) -> bool:
    """Whether at least two of `width` workers from `home` on are below `low`."""
    below = 0
    for i in range(home, home + width):
        if loads[i if i < len(loads) else i - len(loads)] < low:
            below += 1
            if below == 2:
                return True
    return False


@kernel
def next_width(item: Any, loads: Weights, home: int, best: int, total: float, rules: Any) -> Any:
    """The width that algorithms 4 to 6 give the key of `item` now."""
    width = item.width
    if rules.now - item.changed < rules.check_interval:
        return width
    least = loads[best]
    if rules.warm and item.space == OLD and width < rules.max_width and least >= rules.scale_up * total:
        return width + 1 if loads[(home + width) % len(loads)] < least else width
    low = rules.scale_down * total
    if width > rules.min_width and least < low and two_below(loads, home, width, low):
        return width - 1
    return width


@kernel
def next_widths(items: NDArray[Any], loads: Weights, total: float, rules: Any) -> NDArray[np.int64]:
    """The widths that the keys of these items get now, all by the same loads."""
    widths = np.empty(len(items), np.int64)
    for i in range(len(items)):
        home = home_of(items[i].hash, len(loads))
        best = least_loaded(loads, home, items[i].width)
        widths[i] = next_width(items[i], loads, home, best, total, rules)
    return widths


@kernel
def new_baby(item: Any, hashed: np.int64, width: int, rules: Any) -> None:
    """Begin to count a key."""
    item.hash = hashed
    item.count = 0.0
    item.first_seen = rules.now
    item.changed = rules.now
    item.width = width
    item.space = BABY


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
        best = least_loaded(loads, home, width)
        if known:
            changed = next_width(item, loads, home, best, total.load, rules)
            if changed != width:
                # The event that changes the width is the first to be routed by it.
                if width == rules.min_width:
                    item.widened = rules.now
                item.width = changed
                item.changed = rules.now
                total.width_changes += 1
                best = least_loaded(loads, home, changed)
        elif total.known < rules.limit:
            total.known += 1
            new_baby(item, hashed, width, rules)
            known = True
        # A key beyond the limit is routed as a new one each time, and its weight counts in the loads only.
        if known:
            item.count += weight
            item.last_seen = rules.now
        loads[best] += weight
        total.load += weight
        total.mass += weight
        routed[i] = best
    return routed


@kernel
def route_planned_dkg(
    hashes: Hashes,
    weights: Weights,
    loads: Weights,
    items: NDArray[Any],
    totals: NDArray[Any],
    all_rules: NDArray[Any],
    wide: NDArray[Any],
) -> Workers:
    """As `route_dkg`, but the widths of keys are those of a plan, the table of `WideKeys`."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    total = totals[0]
    rules = all_rules[0]
    for i in range(len(hashes)):
        hashed = hashes[i, 0]
        weight = weights[i] if weighted else 1.0
        # Counting below changes nothing of this: all routers spread the key as the plan says until the next one.
        key = wide[find_wide(wide, hashed)]
        best = least_loaded(loads, home_of(hashed, len(loads)), key.width if key.used else rules.min_width)
        item = items[find(items, hashed)]
        known = item.space != EMPTY
        if not known and total.known < rules.limit:
            total.known += 1
            new_baby(item, hashed, rules.min_width, rules)
            known = True
        if known:
            item.count += weight
            item.last_seen = rules.now
        loads[best] += weight
        total.load += weight
        total.mass += weight
        routed[i] = best
    return routed


@kernel
def each_by_dkg(
    event: Hashes, weights: Weights, loads: Weights, items: NDArray[Any], totals: NDArray[Any], all_rules: NDArray[Any]
) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_dkg(event, weights, loads, items, totals, all_rules)[0]


@kernel
def each_by_planned_dkg(
    event: Hashes,
    weights: Weights,
    loads: Weights,
    items: NDArray[Any],
    totals: NDArray[Any],
    all_rules: NDArray[Any],
    wide: NDArray[Any],
) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_planned_dkg(event, weights, loads, items, totals, all_rules, wide)[0]
