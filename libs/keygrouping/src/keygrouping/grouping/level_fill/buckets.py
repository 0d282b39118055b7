"""The table of level-fill that says which worker owns which bucket of the hashes."""

import numpy as np

from keygrouping.grouping.protocol import Weights, Workers


def owners_for(capacities: Weights, buckets: int) -> Workers:
    """Bucket b on worker b mod W, with as many per worker as its capacity asks for."""
    wanted = _apportioned(capacities, buckets)
    turn = np.concatenate([np.arange(count) for count in wanted])
    worker = np.repeat(np.arange(len(wanted)), wanted)
    return worker[np.lexsort((worker, turn))].astype(np.int32)


def resized(owners: Workers, before: int, buckets: int, workers: int) -> Workers:
    """The table of `before` workers for another number of them; both numbers of buckets are powers of two.

    New workers take the same part of every old one's buckets, workers that are gone leave theirs to the others in turn.
    Nothing else moves, but where the number of buckets halves: then two have one owner, that of the first.
    """
    table = np.tile(owners, max(1, buckets // len(owners)))[:buckets].astype(np.int32)
    if workers > before:
        moved = _given(table, before, round(buckets * (workers - before) / workers))
        table[moved] = before + np.arange(len(moved)) % (workers - before)
    else:
        gone = np.flatnonzero(table >= workers)
        table[gone] = np.arange(len(gone)) % workers
    return table


def _given(owners: Workers, workers: int, wanted: int) -> Workers:
    """This many buckets, the same part of every worker's, evenly spread over them."""
    counts = np.bincount(owners, minlength=workers)
    given = _apportioned(counts.astype(float), wanted)
    by_owner = np.split(np.argsort(owners, kind="stable"), np.cumsum(counts)[:-1])
    parts = [own[np.arange(count) * len(own) // max(1, count)] for own, count in zip(by_owner, given, strict=True)]
    return np.sort(np.concatenate(parts))


def _apportioned(parts: Weights, total: int) -> Workers:
    """Whole numbers in proportion to the parts that sum up to `total`, by largest remainders."""
    exact = parts * (total / parts.sum())
    whole: Workers = np.floor(exact).astype(np.int32)
    lacking = total - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:lacking]] += 1
    return whole
