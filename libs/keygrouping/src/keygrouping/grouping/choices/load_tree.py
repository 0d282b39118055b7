"""The loads of all workers, of which the least is at hand at any time.

A complete tree in one array: the root is 1, the children of node n are 8 n to 8 n + 7, so that they share a cache line.
The leaves are the loads, filled up with infinity; every other node is the minimum of its children.
"""

import numpy as np

from keygrouping.grouping.protocol import Weights

FANOUT = 8


def first_leaf(workers: int) -> int:
    """The node of the first worker's load."""
    node = FANOUT
    while node < workers:
        node *= FANOUT
    return node


def tree_of(loads: Weights) -> Weights:
    """The tree of these loads."""
    node = first_leaf(len(loads))
    tree = np.full(node + FANOUT * -(-len(loads) // FANOUT), np.inf)
    tree[node : node + len(loads)] = loads
    while node > 1:
        level = tree[node : min(FANOUT * node, len(tree))]
        minima = level[: len(level) // FANOUT * FANOUT].reshape(-1, FANOUT).min(axis=1)
        node //= FANOUT
        tree[node : node + len(minima)] = minima
    return tree


def loads_of(tree: Weights, workers: int) -> Weights:
    """A view of the loads in a tree."""
    node = first_leaf(workers)
    return tree[node : node + workers]
