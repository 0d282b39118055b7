"""Compiled routing of the public code of Dynamic Key Grouping; needs numba."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Workers
from keygrouping.keyspace._items_kernel import find
from keygrouping.keyspace.items import BABY, EMPTY, OLD
from keygrouping.keyspace.legacy import INITIAL_WIDTH

Loads = NDArray[np.int64]


@kernel
def least_loaded(loads: Loads, home: int, width: int, total: int, high: int) -> tuple[int, int, int]:
    """The first of `width` workers from `home` on with the smallest load in whole per cent, that load, and how many
    are below `high`.

    100 x load // total < x if and only if 100 x load < x x total: only a new minimum needs a division.
    """
    worker = home
    best = home
    least = 100 * loads[home] // total
    below = 0
    for _ in range(width):
        load = 100 * loads[worker]
        if load < high * total:
            below += 1
        if load < least * total:
            best = worker
            least = load // total
        worker = worker + 1 if worker + 1 < len(loads) else 0
    return best, least, below


@kernel
def new_baby(item: Any, hashed: np.int64, width: int, rules: Any) -> None:
    """Begin to count a key; its next check is due at once."""
    item.hash = hashed
    item.count = 0.0
    item.first_seen = rules.now
    item.changed = rules.now - rules.check_interval - 1.0
    item.width = width
    item.space = BABY


@kernel
def route_legacy(  # noqa: C901, PLR0915 -- the public code's own steps, in its order
    hashes: Hashes,
    routed: Workers,
    start: int,
    loads: Loads,
    items: NDArray[Any],
    totals: NDArray[Any],
    all_rules: NDArray[Any],
) -> int:
    """Route the events from `start` on, one after the other; stops where the table of items is full, and says where.

    `routed`, `loads`, `items` and `totals` change as it goes along.
    """
    total = totals[0]
    rules = all_rules[0]
    for i in range(start, len(hashes)):
        hashed = hashes[i, 0]
        home = home_of(hashed, len(loads))
        item = items[find(items, hashed)]
        stored = item.space != EMPTY
        known = stored and item.count > 0
        if not stored and total.stored == rules.room and rules.room < rules.limit:
            return i
        events = max(total.events, 1)
        width = item.width if stored else INITIAL_WIDTH
        best, least, below = least_loaded(loads, home, width, events, rules.high)
        if known and np.rint(1000 * (rules.now - item.changed)) > np.rint(1000 * rules.check_interval):
            item.changed = rules.now
            if rules.warm and least >= rules.high and item.space == OLD:
                newcomer = (home + width) % len(loads)
                if 100 * loads[newcomer] < least * events:
                    best = newcomer
                    item.width += 1
                    if width == INITIAL_WIDTH:
                        item.widened = rules.now
                    total.width_changes += 1
            elif width > INITIAL_WIDTH and below >= 2:
                item.width -= 1
                total.width_changes += 1
                best, least, below = least_loaded(loads, home, width - 1, events, rules.high)
        if not stored and total.stored < rules.limit:
            total.stored += 1
            stored = True
        if stored:
            if not known:
                new_baby(item, hashed, width, rules)
            item.count += 1
            item.last_seen = rules.now
        loads[best] += 1
        total.events += 1
        routed[i] = best
    return len(hashes)


@kernel
def each_by_legacy(
    event: Hashes, loads: Loads, items: NDArray[Any], totals: NDArray[Any], all_rules: NDArray[Any]
) -> Iterator[int]:
    """The worker of the event that stands in `event`, until the table of items is full."""
    routed = np.empty(1, np.int32)
    while route_legacy(event, routed, 0, loads, items, totals, all_rules):
        yield routed[0]
