"""Compiled change of level-fill's tracked keys to those of a plan; needs numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping.level_fill.route_kernel import classify, crowded, enter, find, set_of, track
from keygrouping.grouping.level_fill.state import BY_PLAN, INLINE, MOST_TRACKED, WAYS
from keygrouping.grouping.protocol import Weights, Workers

Numbers = NDArray[np.int64]


@kernel
def install(
    hashes: Numbers,
    counts: Weights,
    errors: Weights,
    begun: Weights,
    tracked: NDArray[np.bool_],
    keys: NDArray[Any],
    pool: Workers,
    owners: Workers,  # noqa: ARG001 (all arrays, in the order of all kernels)
    cold: Weights,
    loads: Weights,
    room: Weights,  # noqa: ARG001
    slowness: Weights,  # noqa: ARG001
    states: NDArray[Any],
    all_rules: NDArray[Any],
    before: Workers,
    planned: Numbers,
    shares: Weights,
    width: Numbers,
    known: Numbers,
    members: Workers,
) -> None:
    """Track the planned keys, and those others that were tracked since the plan's counts were taken.

    `before` holds the members so far, the empty `pool` those from now on. Counts stay. Planned keys, by hash, come
    first where a set has too many; those that are too many by themselves are left out.
    """
    state, rules, workers = states[0], all_rules[0], len(loads)
    state.pool_used = INLINE * len(hashes)
    in_set = np.zeros(len(hashes) // WAYS, np.int64)
    for k in range(len(planned)):
        in_set[set_of(planned[k], len(hashes)) // WAYS] += 1
    for slot in range(len(hashes)):
        if tracked[slot]:
            at = np.searchsorted(planned, hashes[slot])
            wanted = at < len(planned) and planned[at] == hashes[slot]
            if not wanted and (keys[slot].planned or in_set[slot // WAYS] >= MOST_TRACKED):
                tracked[slot] = False
                cold[hashes[slot] & (len(cold) - 1)] += counts[slot] - errors[slot]
            elif not wanted:
                in_set[slot // WAYS] += 1
                for i in range(keys[slot].known):
                    if i < INLINE:
                        pool[slot * INLINE + i] = before[keys[slot].start + i]
                keys[slot].start, keys[slot].room = slot * INLINE, min(INLINE, workers)
                keys[slot].known = min(keys[slot].known, keys[slot].room)
                keys[slot].width = min(keys[slot].width, keys[slot].room)
                keys[slot].at = 0
                keys[slot].current = pool[slot * INLINE]
    first = 0
    for k in range(len(planned)):
        slot = find(hashes, planned[k])
        if slot < 0:
            slot = enter(hashes, counts, errors, begun, tracked, planned[k], state.mass)
            if slot >= 0:
                counts[slot] = errors[slot] = 0.0
        if slot >= 0 and (tracked[slot] or not crowded(tracked, slot)):
            key = keys[slot]
            if not tracked[slot]:
                tracked[slot] = True
                cold[planned[k] & (len(cold) - 1)] -= counts[slot] - errors[slot]
                track(key, slot, planned[k], shares[k], members[first], pool, workers, state, rules)
            remembered = members[first : first + known[k]]
            renew(key, slot, planned[k], shares[k], width[k], remembered, pool, workers, state, rules)
        first += known[k]


@kernel
def renew(
    key: Any,
    slot: int,
    hashed: np.int64,
    share: float,
    width: int,
    members: Workers,
    pool: Workers,
    workers: int,
    state: Any,
    rules: Any,
) -> None:
    """Let a tracked key go on as planned."""
    room = min(INLINE, workers)
    start = slot * INLINE
    while room < width and state.pool_used + 2 * room <= len(pool):
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
    classify(key, hashed, share, workers, state, rules)


@kernel
def refit(
    slots: Numbers,
    hashes: Numbers,
    keys: NDArray[Any],
    pool: Workers,
    workers: int,
    states: NDArray[Any],
    all_rules: NDArray[Any],
    slack: bool,
) -> None:
    """Hold tracked keys to other rules: caps, what is hot, and `slack`, if it is to be anew, too.

    Keys that have more workers than they now may have keep the first ones; hot ones, and those with a fair share or
    more that may be split, keep all, see `plan.caps_of`.
    """
    state, rules = states[0], all_rules[0]
    for slot in slots:
        key = keys[slot]
        hot, cap, before, share = key.hot, key.cap, key.slack, key.share
        classify(key, hashes[slot], share, workers, state, rules)
        key.hot = hot and (key.hot or rules.split_light)
        if not (key.hot or rules.split_light):
            key.cap = 1
        if not slack:
            key.slack = before
        heavy = rules.split_light and share * workers >= 1.0
        if key.cap != cap and key.width > key.cap and not key.hot and not heavy:
            key.width = key.cap
            key.at = 0
            key.current = pool[key.start]
        if key.width == 1:
            key.hot_since = np.nan


@kernel
def remember(
    hashes: Numbers,
    counts: Weights,
    errors: Weights,
    begun: Weights,
    tracked: NDArray[np.bool_],
    keys: NDArray[Any],
    hashes_before: Numbers,
    counts_before: Weights,
    errors_before: Weights,
    begun_before: Weights,
    tracked_before: NDArray[np.bool_],
    keys_before: NDArray[Any],
    counted: bool,
) -> None:
    """Since when the keys that were tracked before are, and why; `counted`: and what has been counted of them."""
    for slot in np.flatnonzero(tracked):
        old = find(hashes_before, hashes[slot])
        if old >= 0 and tracked_before[old]:
            key, before = keys[slot], keys_before[old]
            key.since, key.widened, key.cause = before.since, before.widened, before.cause
            if key.width > 1 and not np.isnan(before.hot_since):
                key.hot_since = before.hot_since
            if counted:
                counts[slot], errors[slot], begun[slot] = counts_before[old], errors_before[old], begun_before[old]
