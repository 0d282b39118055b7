"""Compiled heart of SpaceSaving, to be called from the kernels of groupings; needs numba.

`counters` is the array of `space_saving.COUNTER`, `sketch` the one record of an array of `space_saving.SKETCH`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import find, lay_out
from keygrouping.compiled import kernel


@kernel
def update(counters: NDArray[Any], sketch: Any, hashed: np.int64, weight: float) -> int:
    """Count an event; the slot of its key, which holds until the next update. Amortised constant time.

    A hot loop is faster with these five lines in it.
    """
    slot = find(counters, hashed)
    if not counters[slot].used:
        slot = enter(counters, sketch, hashed)
    counters[slot].count += weight
    sketch.total += weight
    return slot


@kernel
def enter(counters: NDArray[Any], sketch: Any, hashed: np.int64) -> int:
    """Give a new key a counter without any event; its slot."""
    if sketch.size >= 2 * sketch.capacity:
        shrink(counters, sketch)
    slot = find(counters, hashed)
    sketch.size += 1
    counter = counters[slot]
    counter.hash = hashed
    counter.count = sketch.offset
    counter.error = sketch.offset
    counter.tag = 0
    counter.used = 1
    return slot


@kernel
def shrink(counters: NDArray[Any], sketch: Any) -> None:
    """Raise the offset to the (capacity + 1)-th largest count, and drop all counters that don't exceed it."""
    counts = np.empty(sketch.size)
    kept = np.empty_like(counters)
    found = 0
    for slot in range(len(counters)):
        if counters[slot].used:
            counts[found] = counters[slot].count
            found += 1
    rank = found - 1 - sketch.capacity
    sketch.offset = np.partition(counts, rank)[rank]
    sketch.size = 0
    for slot in range(len(counters)):
        if counters[slot].used:
            if counters[slot].count > sketch.offset:
                kept[sketch.size] = counters[slot]
                sketch.size += 1
            elif counters[slot].tag:
                sketch.tags_dropped += 1
            counters[slot].used = 0
    lay_out(counters, kept[: sketch.size])


@kernel
def update_all(
    counters: NDArray[Any], sketches: NDArray[Any], hashes: NDArray[np.int64], weights: NDArray[np.float64]
) -> None:
    """Count many events; hashes have shape (n,), weights (n,) or (0,), which means ones."""
    weighted = len(weights) > 0
    sketch = sketches[0]
    for i in range(len(hashes)):
        weight = weights[i] if weighted else 1.0
        slot = find(counters, hashes[i])
        if not counters[slot].used:
            slot = enter(counters, sketch, hashes[i])
        counters[slot].count += weight
        sketch.total += weight


@kernel
def merge(counters: NDArray[Any], sketches: NDArray[Any], others: NDArray[Any], other_sketches: NDArray[Any]) -> None:
    """Add another sketch of the same capacity; the table has room for the keys of both."""
    sketch, other = sketches[0], other_sketches[0]
    for slot in range(len(counters)):
        if counters[slot].used and not others[find(others, counters[slot].hash)].used:
            counters[slot].count += other.offset
            counters[slot].error += other.offset
    for position in range(len(others)):
        if others[position].used:
            slot = find(counters, others[position].hash)
            if not counters[slot].used:
                counters[slot] = others[position]
                counters[slot].count = sketch.offset
                counters[slot].error = sketch.offset
                counters[slot].tag = 0
                sketch.size += 1
            counters[slot].count += others[position].count
            counters[slot].error += others[position].error
    sketch.offset += other.offset
    sketch.total += other.total
    if sketch.size > 2 * sketch.capacity:
        shrink(counters, sketch)
