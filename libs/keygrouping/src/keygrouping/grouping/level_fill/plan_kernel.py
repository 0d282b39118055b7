"""Compiled steps of a level-fill plan; needs numba.

Loads and shares are parts of all weight. `fair` is the share that each worker should have, `limit` the one that it may
have. `k` is the position of a key in the columns of `Wanted` and `Members`.
"""

from typing import Any

import numpy as np

from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.level_fill.keys import Members, Numbers, Wanted
from keygrouping.grouping.protocol import Weights, Workers

_TRACE = 1e-12
"""Room that is but rounding."""
_SWEEPS = 100
_MOVED = 1e-5
"""Share of all weight that is not worth another sweep."""


@kernel
def relieve(owners: Workers, cold: Weights, loads: Weights, limit: Weights, certain: Weights) -> None:
    """Step 1: buckets leave workers whose cold load alone is too high, to the roomiest.

    `loads` is what the workers have besides, to which their cold load is added.
    """
    for bucket in range(len(owners)):
        loads[owners[bucket]] += cold[bucket]
    order = np.argsort(-cold, kind="mergesort")
    for worker in range(len(loads)):
        if loads[worker] <= certain[worker]:
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


@kernel
def give_up(
    rocks: Numbers, shares: Weights, members: Members, loads: Weights, limit: Weights, tolerance: float, strictly: bool
) -> Numbers:
    """Step 2: put the rocks on their primaries; those that workers over their limit give up, heaviest first.

    `rocks`: the heaviest first. A worker gives up those that are split already, then the heaviest that are not heavier
    than its excess. `strictly`: if it is still over its limit, the lightest one, too.
    """
    pool, start, width = members.pool, members.start, members.width
    for k in rocks:
        loads[pool[start[k]]] += shares[k]
    over = loads > limit + tolerance
    removed = np.zeros(len(shares), np.bool_)
    for split in (True, False):
        for k in rocks:
            worker = pool[start[k]]
            excess = loads[worker] - limit[worker]
            if over[worker] and (width[k] > 1) == split and 0.0 < shares[k] <= excess:
                removed[k] = True
                loads[worker] -= shares[k]
    if strictly:
        for k in rocks[::-1]:
            worker = pool[start[k]]
            if not removed[k] and loads[worker] > limit[worker] + tolerance:
                removed[k] = True
                loads[worker] -= shares[k]
    return rocks[removed[rocks]]


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
def remember(members: Members, k: int, worker: int) -> int:
    """The position of a worker among a key's members, where it is put last if it is new and there is space."""
    first, known = members.start[k], members.known[k]
    at = position(members.pool, first, known, worker)
    if at == known:
        if known == members.space[k]:
            at -= 1
        else:
            members.known[k] += 1
        members.pool[first + at] = worker
    return at


@kernel
def place(removed: Numbers, wanted: Wanted, members: Members, loads: Weights, limit: Weights, split: bool) -> None:
    """Step 3: each removed rock to a remembered member with room, else first fit in its ring, else poured."""
    for k in removed:
        share = wanted.shares[k]
        found = first_fit(k, wanted.hashes[k], share, members, loads, limit)
        if found < 0 and split:
            pour_rock(k, share, wanted.caps[k], members, loads, limit)
            continue
        if found < 0:
            found = int(np.argmax(limit - loads))
        put_first(members.pool, members.start[k], remember(members, k, found))
        members.taken[members.start[k]] = share
        loads[found] += share


@kernel
def pull(rocks: Numbers, wanted: Wanted, members: Members, loads: Weights, limit: Weights, tolerance: float) -> None:
    """Also step 3: a worker still over its limit, by at least half of a rock, gives it to one that has the room.

    The lightest first. So a worker far below the limit gets a rock that is heavier than what another has too much.
    """
    pool, start = members.pool, members.start
    for k in rocks[::-1]:
        worker, share = pool[start[k]], wanted.shares[k]
        excess = loads[worker] - limit[worker]
        if members.width[k] > 1 or excess <= tolerance or 2.0 * excess < share:
            continue
        found = first_fit(k, wanted.hashes[k], share, members, loads, limit)
        if found >= 0:
            put_first(pool, start[k], remember(members, k, found))
            members.taken[start[k]] = share
            loads[worker] -= share
            loads[found] += share


@kernel
def fill_up(split: Numbers, kept: Numbers, members: Members, loads: Weights, least: Weights) -> None:
    """A worker that the events of its split keys will not fill to its `least` gets more of the `kept` ones.

    The routing fills members that are below the level. A worker that has too few keys stays there, and so do several
    that share theirs only with each other, as nobody gives them any while no other worker is above its limit. The
    emptiest worker gets the first of `kept` that it has not, as often as need be. `loads`: as planned so far.
    """
    taken, leveled, wanted = members.taken.copy(), loads.copy(), least.copy()
    even_out(split, members, taken, leveled)
    worker = int(np.argmin(leveled - wanted))
    while leveled[worker] < wanted[worker]:
        if not give_one(kept, members, taken, worker):
            wanted[worker] = 0.0
        even_out(split, members, taken, leveled)
        worker = int(np.argmin(leveled - wanted))


@kernel
def give_one(kept: Numbers, members: Members, taken: Weights, worker: int) -> bool:
    """Make a worker a member of the first key that has the space, with nothing of it so far; whether there is one."""
    pool, start, width = members.pool, members.start, members.width
    for k in kept:
        first, used = start[k], width[k]
        if used < members.space[k] and position(pool, first, used, worker) == used:
            at = remember(members, k, worker)
            pool[first + at], pool[first + used] = pool[first + used], pool[first + at]
            members.taken[first + used] = taken[first + used] = 0.0
            width[k] += 1
            return True
    return False


@kernel
def even_out(split: Numbers, members: Members, taken: Weights, loads: Weights) -> None:
    """What the routing makes of split keys: each moves from its fullest member to its emptiest while they differ."""
    pool, start, width = members.pool, members.start, members.width
    for _ in range(_SWEEPS):
        most = 0.0
        for k in split:
            full, empty = -1, start[k]
            for i in range(start[k], start[k] + width[k]):
                if taken[i] > _TRACE and (full < 0 or loads[pool[i]] > loads[pool[full]]):
                    full = i
                if loads[pool[i]] < loads[pool[empty]]:
                    empty = i
            if full >= 0:
                moved = min(taken[full], 0.5 * (loads[pool[full]] - loads[pool[empty]]))
                taken[full] -= moved
                taken[empty] += moved
                loads[pool[full]] -= moved
                loads[pool[empty]] += moved
                most = max(most, moved)
        if most <= _MOVED:
            break


@kernel
def first_fit(k: int, hashed: np.int64, share: float, members: Members, loads: Weights, limit: Weights) -> int:
    """The first remembered member with room for all of a key, else the first worker of its ring; -1: there is none."""
    workers = len(loads)
    for i in range(members.known[k]):
        worker = members.pool[members.start[k] + i]
        if loads[worker] + share <= limit[worker]:
            return int(worker)
    first = home_of(hashed, workers)
    for i in range(workers):
        worker = first + i if first + i < workers else first + i - workers
        if loads[worker] + share <= limit[worker]:
            return int(worker)
    return -1


@kernel
def pour_rock(k: int, share: float, cap: int, members: Members, loads: Weights, limit: Weights) -> None:
    """Over as few workers as needed, the roomiest first; what finds no room stays with the last of them."""
    pool, taken, first, need, used = members.pool, members.taken, members.start[k], share, 0
    while need > 0.0:
        roomiest = int(np.argmax(limit - loads))
        amount = min(need, limit[roomiest] - loads[roomiest])
        if used and (amount < _TRACE or position(pool, first, used, roomiest) < used):
            taken[first + used - 1] += need
            loads[pool[first + used - 1]] += need
            break
        if amount < _TRACE or used + 1 == min(members.space[k], cap):
            amount = need
        at = remember(members, k, roomiest)
        pool[first + at], pool[first + used] = pool[first + used], pool[first + at]
        taken[first + used] = amount
        used += 1
        loads[roomiest] += amount
        need -= amount
    members.width[k] = used


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
def pour(hot: Numbers, wanted: Wanted, members: Members, room: Weights, least: float) -> None:
    """Step 4: hot keys into the room below the water level: members in order, then the ring where there is much room.

    What is less than `least` is left to the levels of the routing, planned for the first member. If no worker has as
    much room, all members get more, in proportion. `room` goes down as it goes along.
    """
    workers, width = len(room), members.width
    for k in hot:
        need = wanted.shares[k]
        width[k] = 0
        for i in range(members.known[k]):
            if need > least or width[k] == 0:
                need -= take(k, i, need, least, members, room)
        while need > least and width[k] < workers and room.max() > least:
            enough = room.max() / 2.0
            first = home_of(wanted.hashes[k], workers)
            for i in range(workers):
                worker = first + i if first + i < workers else first + i - workers
                if need > least and room[worker] >= enough and width[k] < workers:
                    at = remember(members, k, worker)
                    need -= take(k, at, need, least, members, room)
        if width[k] == 0:
            width[k] = 1
        rest = max(0.0, need)
        if rest > least:
            share_out(k, rest, members, room)
        else:
            members.taken[members.start[k]] += rest
            room[members.pool[members.start[k]]] -= rest


@kernel
def share_out(k: int, rest: float, members: Members, room: Weights) -> None:
    """Plan more of a key for its members, in proportion to what they have of it."""
    taken, first, used = members.taken, members.start[k], members.width[k]
    whole = taken[first : first + used].sum()
    for i in range(first, first + used):
        amount = rest * taken[i] / whole if whole > 0.0 else rest / used
        taken[i] += amount
        room[members.pool[i]] -= amount


@kernel
def take(k: int, at: int, need: float, least: float, members: Members, room: Weights) -> Any:
    """Use the member at this position, if its room is worth it; how much of it is used."""
    pool, first, used = members.pool, members.start[k], members.width[k]
    worker = pool[first + at]
    amount = min(need, room[worker])
    if amount <= least and amount < need:
        return 0.0
    for i in range(at, used, -1):
        pool[first + i] = pool[first + i - 1]
    pool[first + used] = worker
    members.taken[first + used] = amount
    members.width[k] += 1
    room[worker] -= amount
    return amount
