"""Compiled change of level-fill's tracked keys to those of a plan; needs numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping.level_fill.keys import Keys
from keygrouping.grouping.level_fill.route_kernel import cap_of, classify, crowded, find, set_of, smallest, track
from keygrouping.grouping.level_fill.state import BY_PLAN, INLINE, MOST_TRACKED, WAYS, Arrays
from keygrouping.grouping.protocol import Workers

Numbers = NDArray[np.int64]


@kernel
def install(arrays: Arrays, before: Workers, plan: Keys) -> None:
    """Track the planned keys, and those others that were tracked since the plan's counts were taken.

    `before` holds the members so far, the empty pool of the arrays those from now on. Counts stay. Planned keys, by
    hash, come first where a set has too many; those that are too many by themselves are left out.
    """
    arrays.state[0].pool_used = INLINE * len(arrays.hashes)
    keep_unplanned(arrays, before, plan.hashes)
    first = 0
    for k in range(len(plan.hashes)):
        slot = slot_for(arrays, plan.hashes[k], plan.shares[k], plan.members[first])
        if slot >= 0:
            members = plan.members[first : first + plan.known[k]]
            renew(slot, plan.shares[k], plan.width[k], members, arrays)
        first += plan.known[k]


@kernel
def keep_unplanned(arrays: Arrays, before: Workers, planned: Numbers) -> None:
    """Leave tracked what no plan knows yet, with its first members, as far as its set has room beside planned keys.

    What the last plan knew and this one doesn't know is light now: it is tracked no more.
    """
    hashes, keys, tracked = arrays.hashes, arrays.keys, arrays.tracked
    in_set = np.zeros(len(hashes) // WAYS, np.int64)
    for k in range(len(planned)):
        in_set[set_of(planned[k], len(hashes)) // WAYS] += 1
    for slot in range(len(hashes)):
        if not tracked[slot]:
            continue
        at = np.searchsorted(planned, hashes[slot])
        if at < len(planned) and planned[at] == hashes[slot]:
            continue
        if keys[slot].planned or in_set[slot // WAYS] >= MOST_TRACKED:
            tracked[slot] = False
            arrays.cold[hashes[slot] & (len(arrays.cold) - 1)] += arrays.counts[slot] - arrays.errors[slot]
        else:
            in_set[slot // WAYS] += 1
            move_inline(keys[slot], slot, before, arrays)


@kernel
def move_inline(key: Any, slot: int, before: Workers, arrays: Arrays) -> None:
    """Copy a key's first members into the places of the new pool that belong to its slot."""
    for i in range(min(key.known, INLINE)):
        arrays.pool[slot * INLINE + i] = before[key.start + i]
    key.start, key.room = slot * INLINE, min(INLINE, len(arrays.loads))
    key.known = min(key.known, key.room)
    key.width = min(key.width, key.room)
    key.at = 0
    key.current = arrays.pool[key.start]


@kernel
def slot_for(arrays: Arrays, hashed: np.int64, share: float, primary: int) -> Any:
    """The slot of a planned key, tracked from now on if it wasn't; -1 if its set is full."""
    counts, errors, tracked = arrays.counts, arrays.errors, arrays.tracked
    slot = find(arrays.hashes, hashed)
    if slot < 0:
        slot = smallest(counts.view(np.int64), tracked, hashed)
        if slot < 0:
            return slot
        arrays.hashes[slot], arrays.begun[slot] = hashed, arrays.state[0].mass
        counts[slot] = errors[slot] = 0.0
    if tracked[slot]:
        return slot
    if crowded(tracked, slot):
        return np.int64(-1)
    tracked[slot] = True
    arrays.cold[hashed & (len(arrays.cold) - 1)] -= counts[slot] - errors[slot]
    track(arrays.keys[slot], slot, hashed, share, primary, arrays)
    return slot


@kernel
def renew(slot: int, share: float, width: int, members: Workers, arrays: Arrays) -> None:
    """Let a tracked key go on as planned."""
    key, pool, state, workers = arrays.keys[slot], arrays.pool, arrays.state[0], len(arrays.loads)
    room = min(INLINE, workers)
    start = slot * INLINE
    while room < width and state.pool_used + min(2 * room, workers) <= len(pool):
        room = min(2 * room, workers)
        start = state.pool_used
    if room > INLINE:
        state.pool_used += room
    key.start, key.room = start, room
    key.known = min(len(members), room)
    for i in range(key.known):
        pool[start + i] = members[i]
    width = min(width, room)
    if width > key.width:
        key.widened = state.now
        key.cause = BY_PLAN
    if width == 1:
        key.hot_since = np.nan
    elif key.width == 1:
        key.hot_since = state.now
    key.width = width
    key.at = 0
    key.current = pool[start]
    key.planned = True
    key.full = key.tried = -1
    classify(key, arrays.hashes[slot], share, workers, state, arrays.rules[0])


@kernel
def refit(slots: Numbers, arrays: Arrays, slack: bool) -> None:
    """Hold tracked keys to other rules: caps, what is hot, and `slack` too, if that is to be renewed.

    Keys that have more workers than they now may have keep the first ones; hot ones, and those with a fair share or
    more that may be split, keep all, see `plan.caps_of`.
    """
    state, rules, workers = arrays.state[0], arrays.rules[0], len(arrays.loads)
    for slot in slots:
        key = arrays.keys[slot]
        hot, cap, before, share = key.hot, key.cap, key.slack, key.share
        classify(key, arrays.hashes[slot], share, workers, state, rules)
        key.hot = hot and (key.hot or rules.split_light)
        key.cap = cap_of(key, workers, rules)
        if not slack:
            key.slack = before
        heavy = rules.split_light and share * workers >= 1.0
        if key.cap != cap and key.width > key.cap and not key.hot and not heavy:
            key.width = key.cap
            key.at = 0
            key.current = arrays.pool[key.start]
        if key.width == 1:
            key.hot_since = np.nan


@kernel
def remember(arrays: Arrays, earlier: Arrays, counted: bool) -> None:
    """Since when the keys that were tracked before are, and why; `counted`: and what has been counted of them."""
    for slot in np.flatnonzero(arrays.tracked):
        old = find(earlier.hashes, arrays.hashes[slot])
        if old >= 0 and earlier.tracked[old]:
            key, before = arrays.keys[slot], earlier.keys[old]
            key.since, key.widened, key.cause = before.since, before.widened, before.cause
            if key.width > 1 and not np.isnan(before.hot_since):
                key.hot_since = before.hot_since
            if counted:
                arrays.counts[slot], arrays.errors[slot] = earlier.counts[old], earlier.errors[old]
                arrays.begun[slot] = earlier.begun[old]
