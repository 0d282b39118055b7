"""Compiled routing of D-Choices and W-Choices; needs numba."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping._probing import find
from keygrouping._splitmix import GAMMA, below, mix
from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.choices.load_tree_kernel import add_load, least_loaded
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.keyspace._space_saving_kernel import enter

Indices = NDArray[np.int64]


class Arrays(NamedTuple):
    """All that routing reads and changes: the tree of loads, counters and their sketch, `head.COUNTS`, `head.RULES`,
    and the table of `WideKeys`."""

    tree: Weights
    counters: NDArray[Any]
    sketch: NDArray[Any]
    counts: NDArray[Any]
    rules: NDArray[Any]
    wide: NDArray[Any]


@kernel
def choose(order: Indices, swapped: Indices, first: int, second: int, hashed: np.int64, width: int) -> None:
    """Bring a key's candidates, all different, to the front of `order`, which holds 0 to W - 1 in their order.

    The first two are given, further ones are drawn by the hash without replacement: the candidates of a smaller width
    come first in those of a larger one. `swapped` (W) takes what `undo` needs.
    """
    for i in range(width):
        if i == 0:
            other = first
        elif i == 1:
            other = second if second > 0 else first
        else:
            other = i + below(mix(np.uint64(hashed) + np.uint64(i) * GAMMA), len(order) - i)
        swapped[i] = other
        order[i], order[other] = order[other], order[i]


@kernel
def undo(order: Indices, swapped: Indices, width: int) -> None:
    """Put `order` back to where it was before `choose`."""
    for i in range(width - 1, -1, -1):
        other = swapped[i]
        order[i], order[other] = order[other], order[i]


@kernel
def belongs(counter: Any, total: float, events: float, rules: Any) -> bool:
    """Whether a key is of the head: by the weight that it has for certain, and once in only out below a lower limit."""
    certain = counter.count - counter.error
    share = rules.leave if counter.tag else rules.enter
    return bool(certain > 0 and certain >= share * total and certain * events >= rules.evidence * total)


@kernel
def solve(shares: Weights, workers: int, tolerance: float) -> int:
    """The smallest number of choices for the head that balances all its prefixes; see d_choices.choices_needed."""
    if len(shares) == 0:
        return min(2, workers)
    head = 0.0
    for i in range(len(shares)):
        head += shares[i]
    tail = max(0.0, 1.0 - head)
    for choices in range(max(2, math.ceil(workers * (shares[0] - tolerance))), workers):
        untouched = (1.0 - 1.0 / workers) ** choices
        missed = 1.0
        prefix = 0.0
        balanced = True
        for i in range(len(shares)):
            prefix += shares[i]
            missed *= untouched
            touched = 1.0 - missed
            if prefix + touched**choices * (head - prefix) + touched * touched * tail > touched + tolerance:
                balanced = False
                break
        if balanced:
            return choices
    return workers


@kernel
def review(counters: NDArray[Any], total: float, counts: Any, rules: Any, workers: int) -> None:
    """Drop what has left the head unseen, and decide how many workers a key of the head may use."""
    shares = np.empty(len(counters))
    size = 0
    for slot in range(len(counters)):
        counter = counters[slot]
        if counter.used and counter.tag:
            if belongs(counter, total, counts.events, rules):
                shares[size] = (counter.count - counter.error) / total
                size += 1
            else:
                counter.tag = 0
                counts.changes += 1
    width = workers
    if rules.solve:
        width = solve(np.sort(shares[:size])[::-1], workers, rules.tolerance)
    if width != counts.width:
        counts.width = width
        counts.changes += 1
    counts.until_review = min(max(int(counts.events) // 8, rules.review_after), 64 * rules.review_after)


@kernel
def enroll(counters: NDArray[Any], total: float, counts: Any, rules: Any) -> None:
    """Tag all keys of the head, and no others; those tagged before are in it already."""
    for slot in range(len(counters)):
        if counters[slot].used:
            counters[slot].tag = belongs(counters[slot], total, counts.events, rules)


@kernel
def least_loaded_choice(
    loads: Weights, order: Indices, swapped: Indices, first: int, second: int, hashed: np.int64, width: int
) -> int:
    """The least loaded of a key's candidates, of several the first one chosen."""
    choose(order, swapped, first, second, hashed, width)
    worker = order[0]
    for i in range(1, width):
        if loads[order[i]] < loads[worker]:
            worker = order[i]
    undo(order, swapped, width)
    return int(worker)


@kernel
def route_head(  # noqa: PLR0915 -- what one event needs stays in one loop
    hashes: Hashes, weights: Weights, arrays: Arrays, workers: int, leaf: int, planned: bool
) -> Workers:
    """Route events one after the other; all but the rules changes as it goes along. `leaf` is the tree's first one.

    If `planned`, the head and the widths of its keys are those of the plan.
    """
    tree, counters, wide = arrays.tree, arrays.counters, arrays.wide
    loads = tree[leaf : leaf + workers]
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    order = np.arange(workers)
    swapped = np.empty(workers, np.int64)
    sketch, counts, rules = arrays.sketch[0], arrays.counts[0], arrays.rules[0]
    for i in range(len(hashes)):
        weight = weights[i] if weighted else 1.0
        # Count the key; the five lines of `update` are faster here.
        slot = find(counters, hashes[i, 0])
        if not counters[slot].used:
            slot = enter(counters, sketch, hashes[i, 0])
        counter = counters[slot]
        counter.count += weight
        sketch.total += weight
        counts.events += 1.0
        # Is it of the head, and how many workers may it use? Its tag is the clock at which it came in.
        if planned:
            key = wide[find(wide, hashes[i, 0])]
            hot = key.used != 0
            width = int(key.width)
        else:
            hot = belongs(counter, sketch.total, counts.events, rules)
            if hot != (counter.tag != 0):
                counter.tag = counts.clock if hot else 0
                counts.changes += 1
            counts.until_review -= 1
            if counts.until_review <= 0:
                review(counters, sketch.total, counts, rules, workers)
            width = counts.width
        # A key of the head goes to the next, or the least loaded, of all or of so many; another to one of its two.
        if hot and rules.round_robin:
            worker = counts.turn + 1 if counts.turn + 1 < workers else 0
            counts.turn = worker
        elif hot and width >= workers:
            worker = least_loaded(tree, leaf)
        else:
            first = home_of(hashes[i, 0], workers)
            second = home_of(hashes[i, 1], workers)
            if first == second:
                second = second + 1 if second + 1 < workers else 0
            if hot and width > 2:
                worker = least_loaded_choice(loads, order, swapped, first, second, hashes[i, 1], width)
            else:
                worker = second if loads[second] < loads[first] else first
        add_load(tree, leaf, worker, weight)
        routed[i] = worker
    return routed


@kernel
def each_by_head(
    event: Hashes, weights: Weights, arrays: Arrays, workers: int, leaf: int, planned: bool
) -> Iterator[int]:
    """The worker of the event that stands in `event`, for as long as somebody asks."""
    while True:
        yield route_head(event, weights, arrays, workers, leaf, planned)[0]
