"""Hashes as level-fill uses them: scrambled by a secret, so that nobody can choose keys that meet in one place.

Buckets, sets of counters and second choices go by parts of a key's hash, and that is known to all. With a secret number
they go by other ones, one to one: two keys that differ still do. What is told to people are the hashes that all know.
"""

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.protocol import Hashes

_INVERSE1, _INVERSE2 = np.uint64(0x96DE1B173F119089), np.uint64(0x319642B2D24D8EC3)


def scrambled(hashes: Hashes, secret: int) -> Hashes:
    """These hashes, of any shape, as they are used; themselves without a secret."""
    from keygrouping.grouping.level_fill.scramble_kernel import scramble_all

    return scramble_all(hashes.reshape(-1), np.uint64(secret)).reshape(hashes.shape) if secret else hashes


def restored(hashes: NDArray[np.int64], secret: int) -> NDArray[np.int64]:
    """What these were before they were `scrambled`."""
    if not secret:
        return hashes
    values = hashes.view(np.uint64)
    values = _unshifted(_unshifted(values, 31) * _INVERSE2, 27) * _INVERSE1
    return (_unshifted(values, 30) ^ np.uint64(secret)).view(np.int64)


def _unshifted(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """The numbers that give these when each is combined with itself, shifted to the right by more than 21 bits."""
    before: NDArray[np.uint64] = values ^ (values >> np.uint64(bits)) ^ (values >> np.uint64(2 * bits))
    return before
