"""Compiled routing of Distribution-aware Key Grouping; needs numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.grouping._kernels import home_of
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.keyspace._space_saving_kernel import update


@kernel
def route_distribution_aware(
    hashes: Hashes,
    weights: Weights,
    keys: NDArray[np.int64],
    key_workers: Workers,
    bucket_workers: Workers,
    buckets: Weights,
    counters: NDArray[Any],
    sketches: NDArray[Any],
) -> Workers:
    """Each of the ascending `keys` to its worker, others to that of their bucket; `buckets` and sketch go along."""
    routed = np.empty(len(hashes), np.int32)
    weighted = len(weights) > 0
    for i in range(len(hashes)):
        hashed = hashes[i, 0]
        weight = weights[i] if weighted else 1.0
        update(counters, sketches[0], hashed, weight)
        bucket = home_of(hashed, len(buckets))
        buckets[bucket] += weight
        at = np.searchsorted(keys, hashed)
        routed[i] = key_workers[at] if at < len(keys) and keys[at] == hashed else bucket_workers[bucket]
    return routed
