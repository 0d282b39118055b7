"""Compiled access to the tree of loads of `load_tree`; needs numba."""

from typing import Any

from keygrouping.compiled import kernel
from keygrouping.grouping.protocol import Weights


@kernel
def least_loaded(tree: Weights, leaf: int) -> int:
    """The worker with the smallest load, the first of several; `leaf` is the first leaf."""
    node = 1
    while node < leaf:
        least = tree[node]
        node *= 8
        while tree[node] != least:
            node += 1
    return node - leaf


@kernel
def add_load(tree: Weights, leaf: int, worker: int, weight: float) -> None:
    """Add to a load, and fix the minima above it as far as they were this one."""
    node = leaf + worker
    before = tree[node]
    tree[node] = before + weight
    while node > 1:
        node >>= 3
        if tree[node] < before:
            return
        tree[node] = least_child(tree, 8 * node)


@kernel
def least_child(tree: Weights, child: int) -> Any:
    """The minimum of eight nodes, in pairs: no comparison waits for all others."""
    a = lesser(lesser(tree[child], tree[child + 1]), lesser(tree[child + 2], tree[child + 3]))
    b = lesser(lesser(tree[child + 4], tree[child + 5]), lesser(tree[child + 6], tree[child + 7]))
    return lesser(a, b)


@kernel
def lesser(a: float, b: float) -> float:
    """The minimum; unlike `min` it takes no care of what is not a number."""
    return b if b < a else a
