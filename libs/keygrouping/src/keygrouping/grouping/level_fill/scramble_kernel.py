"""Compiled scrambling of hashes by a secret; needs numba."""

from typing import Any

import numpy as np

from keygrouping._splitmix import mix
from keygrouping.compiled import kernel
from keygrouping.grouping.protocol import Hashes


@kernel
def scramble(hashed: np.int64, secret: np.uint64) -> Any:
    """Another hash for each hash; without a secret (0) the same."""
    return np.int64(mix(np.uint64(hashed) ^ secret)) if secret else hashed


@kernel
def scramble_all(hashes: Hashes, secret: np.uint64) -> Hashes:
    """Those of all of these."""
    found = np.empty(len(hashes), np.int64)
    for i in range(len(hashes)):
        found[i] = scramble(hashes[i], secret)
    return found
