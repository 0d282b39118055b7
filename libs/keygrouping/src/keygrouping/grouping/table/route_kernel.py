"""Compiled routing by a table of keys that also counts what each key costs; needs numba."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import probe
from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.grouping.table.slot import EMPTY, TRACKED


class Arrays(NamedTuple):
    """What is known of keys, and of the load that none of them brings."""

    slots: NDArray[Any]
    """The hash table, of `slot.SLOT`."""
    known: NDArray[np.int64]
    """One number: how many keys are in it."""
    background: Weights
    """Load of each worker by keys without a slot."""


@kernel
def find(slots: NDArray[Any], hashed: np.int64 | int) -> int:
    """The slot of a key, or the empty one where it belongs."""
    return probe(slots["hash"], slots["kind"], hashed, hashed)


@kernel
def lay_out(slots: NDArray[Any], keys: NDArray[Any]) -> NDArray[np.int64]:
    """Put distinct keys into empty slots; the slot of each."""
    positions = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        positions[i] = find(slots, keys[i].hash)
        slots[positions[i]] = keys[i]
    return positions


@kernel
def route_by_table(
    hashes: Hashes, weights: Weights, start: int, routed: Workers, arrays: Arrays, limit: int, now: float
) -> int:
    """Route events from `start` on into `routed`; the arrays change.

    A key that is not known yet gets a slot while there are fewer than `limit`; the weight of later ones counts as
    background of their homes. It stops before an event whose key would fill the slots by more than half, and says
    how far it has come.
    """
    slots, known, background = arrays.slots, arrays.known, arrays.background
    weighted = len(weights) > 0
    for i in range(start, len(hashes)):
        weight = weights[i] if weighted else 1.0
        hashed = hashes[i, 0]
        slot = find(slots, hashed)
        if slots[slot].kind == EMPTY:
            home = home_of(hashed, len(background))
            if known[0] >= limit:
                background[home] += weight
                routed[i] = home
                continue
            # Who calls lays the table out in more slots and goes on here; a kernel can't replace its array.
            if 2 * known[0] >= len(slots):
                return i
            known[0] += 1
            slots[slot].hash = hashed
            slots[slot].cost = 0.0
            slots[slot].since = now
            slots[slot].worker = home
            slots[slot].kind = TRACKED
        slots[slot].cost += weight
        routed[i] = slots[slot].worker
    return len(hashes)


@kernel
def each_by_table(event: Hashes, weights: Weights, arrays: Arrays, limit: int, now: float) -> Iterator[int]:
    """The worker of the event that stands in `event`, until there are too few slots for its key."""
    routed = np.empty(1, np.int32)
    while route_by_table(event, weights, 0, routed, arrays, limit, now):
        yield routed[0]
