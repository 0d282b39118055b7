"""Compiled steps of a level-fill plan; needs numba.

Loads and shares are parts of all weight. `fair` is the share that each worker should have, `limit` the one that it may
have. Members of key k are `pool[start[k] : start[k] + known[k]]`, its primary first; the first `width[k]` are in use.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Weights, Workers

Numbers = NDArray[np.int64]

_TRACE = 1e-12
"""Room that is but rounding."""


@kernel
def relieve(owners: Workers, cold: Weights, loads: Weights, limit: Weights, tolerance: float) -> int:
    """Step 1: buckets leave workers whose cold load alone is too high, to the roomiest; how many.

    `loads` is what the workers have besides, to which their cold load is added.
    """
    for bucket in range(len(owners)):
        loads[owners[bucket]] += cold[bucket]
    moved = 0
    order = np.argsort(-cold, kind="mergesort")
    for worker in range(len(loads)):
        if loads[worker] <= limit[worker] + tolerance:
            continue
        for bucket in order:
            if owners[bucket] != worker or cold[bucket] > loads[worker] - limit[worker]:
                continue
            roomiest = np.argmax(limit - loads)
            if loads[roomiest] + cold[bucket] > limit[roomiest]:
                break
            owners[bucket] = roomiest
            loads[worker] -= cold[bucket]
            loads[roomiest] += cold[bucket]
            moved += 1
    return moved


@kernel
def give_up(
    shares: Weights,
    hot: NDArray[np.bool_],
    order: Numbers,
    pool: Workers,
    start: Numbers,
    width: Numbers,
    loads: Weights,
    limit: Weights,
    tolerance: float,
    strictly: bool,
) -> Numbers:
    """Step 2: put the rocks on their primaries; the keys that workers over their limit give up, heaviest first.

    A worker gives up those that are split already, then the heaviest that are not heavier than its excess. `strictly`:
    if it is still over its limit, the lightest one, too.
    """
    for k in order:
        if not hot[k]:
            loads[pool[start[k]]] += shares[k]
    over = loads > limit + tolerance
    removed = np.zeros(len(shares), np.bool_)
    for split in (True, False):
        for k in order:
            worker = pool[start[k]]
            excess = loads[worker] - limit[worker]
            if over[worker] and not hot[k] and (width[k] > 1) == split and 0.0 < shares[k] <= excess:
                removed[k] = True
                loads[worker] -= shares[k]
    if strictly:
        for k in order[::-1]:
            worker = pool[start[k]]
            if not hot[k] and not removed[k] and loads[worker] > limit[worker] + tolerance:
                removed[k] = True
                loads[worker] -= shares[k]
    return order[removed[order]]


@kernel
def put_first(pool: Workers, start: int, at: int) -> None:
    """Move the member at this position to the front; those before it keep their order."""
    worker = pool[start + at]
    for i in range(at, 0, -1):
        pool[start + i] = pool[start + i - 1]
    pool[start] = worker


@kernel
def position(pool: Workers, start: int, known: int, worker: int) -> int:
    """Where a worker is among a key's members; `known` if it is none."""
    for i in range(known):
        if pool[start + i] == worker:
            return i
    return known


@kernel
def remember(pool: Workers, start: Numbers, known: Numbers, space: Numbers, k: int, worker: int) -> int:
    """The position of a worker among a key's members, where it is put last if it is new and there is space."""
    at = position(pool, start[k], known[k], worker)
    if at == known[k]:
        if known[k] == space[k]:
            at -= 1
        else:
            known[k] += 1
        pool[start[k] + at] = worker
    return at


@kernel
def place(
    removed: Numbers,
    hashes: Numbers,
    shares: Weights,
    caps: Numbers,
    pool: Workers,
    start: Numbers,
    known: Numbers,
    space: Numbers,
    width: Numbers,
    taken: Weights,
    loads: Weights,
    limit: Weights,
    split: bool,
) -> None:
    """Step 3: each removed rock to a remembered member with room, else first fit in its ring, else poured."""
    workers = len(loads)
    for k in removed:
        share = shares[k]
        found = -1
        for i in range(known[k]):
            worker = pool[start[k] + i]
            if loads[worker] + share <= limit[worker]:
                found = worker
                break
        if found < 0:
            first = home_of(hashes[k], workers)
            for i in range(workers):
                worker = first + i if first + i < workers else first + i - workers
                if loads[worker] + share <= limit[worker]:
                    found = worker
                    break
        if found < 0 and split:
            pour_rock(k, share, caps[k], pool, start, known, space, width, taken, loads, limit)
            continue
        if found < 0:
            found = int(np.argmax(limit - loads))
        put_first(pool, start[k], remember(pool, start, known, space, k, found))
        taken[start[k]] = share
        loads[found] += share


@kernel
def pour_rock(
    k: int,
    share: float,
    cap: int,
    pool: Workers,
    start: Numbers,
    known: Numbers,
    space: Numbers,
    width: Numbers,
    taken: Weights,
    loads: Weights,
    limit: Weights,
) -> None:
    """Over as few workers as needed, the roomiest first; what finds no room stays with the last of them."""
    first, need, used = start[k], share, 0
    while need > 0.0:
        roomiest = int(np.argmax(limit - loads))
        amount = min(need, limit[roomiest] - loads[roomiest])
        if used and (amount < _TRACE or position(pool, first, used, roomiest) < used):
            taken[first + used - 1] += need
            loads[pool[first + used - 1]] += need
            break
        if amount < _TRACE or used + 1 == min(space[k], cap):
            amount = need
        at = remember(pool, start, known, space, k, roomiest)
        pool[first + at], pool[first + used] = pool[first + used], pool[first + at]
        taken[first + used] = amount
        used += 1
        loads[roomiest] += amount
        need -= amount
    width[k] = used


@kernel
def water_level(loads: Weights, fair: Weights, weight: float) -> float:
    """The level, in fair shares, to which this weight fills the workers."""
    order = np.argsort(loads / fair)
    filled, base = 0.0, 0.0
    level = 0.0
    for i in range(len(order)):
        worker = order[i]
        base += loads[worker]
        filled += fair[worker]
        level = (base + weight) / filled
        if i + 1 == len(order) or level <= loads[order[i + 1]] / fair[order[i + 1]]:
            break
    return level


@kernel
def pour(
    hot: Numbers,
    hashes: Numbers,
    shares: Weights,
    pool: Workers,
    start: Numbers,
    known: Numbers,
    space: Numbers,
    width: Numbers,
    taken: Weights,
    room: Weights,
    least: float,
) -> None:
    """Step 4: hot keys into the room below the water level: members in order, then the ring where there is much room.

    What is less than `least` is left to the levels of the routing, planned for the first member. If no worker has as
    much room, all members get more, in proportion. `room` goes down as it goes along.
    """
    workers = len(room)
    for k in hot:
        need = shares[k]
        width[k] = 0
        for i in range(known[k]):
            if need > least or width[k] == 0:
                need -= take(k, i, need, least, pool, start, width, taken, room)
        while need > least and width[k] < workers and room.max() > least:
            enough = room.max() / 2.0
            first = home_of(hashes[k], workers)
            for i in range(workers):
                worker = first + i if first + i < workers else first + i - workers
                if need > least and room[worker] >= enough and width[k] < workers:
                    at = remember(pool, start, known, space, k, worker)
                    need -= take(k, at, need, least, pool, start, width, taken, room)
        if width[k] == 0:
            width[k] = 1
        rest = max(0.0, need)
        if rest > least:
            share_out(k, rest, pool, start, width, taken, room)
        else:
            taken[start[k]] += rest
            room[pool[start[k]]] -= rest


@kernel
def share_out(
    k: int, rest: float, pool: Workers, start: Numbers, width: Numbers, taken: Weights, room: Weights
) -> None:
    """Plan more of a key for its members, in proportion to what they have of it."""
    first, used = start[k], width[k]
    whole = taken[first : first + used].sum()
    for i in range(first, first + used):
        amount = rest * taken[i] / whole if whole > 0.0 else rest / used
        taken[i] += amount
        room[pool[i]] -= amount


@kernel
def take(
    k: int,
    at: int,
    need: float,
    least: float,
    pool: Workers,
    start: Numbers,
    width: Numbers,
    taken: Weights,
    room: Weights,
) -> Any:
    """Use the member at this position, if its room is worth it; how much of it is used."""
    worker = pool[start[k] + at]
    amount = min(need, room[worker])
    if amount <= least and amount < need:
        return 0.0
    for i in range(at, width[k], -1):
        pool[start[k] + i] = pool[start[k] + i - 1]
    pool[start[k] + width[k]] = worker
    taken[start[k] + width[k]] = amount
    width[k] += 1
    room[worker] -= amount
    return amount
