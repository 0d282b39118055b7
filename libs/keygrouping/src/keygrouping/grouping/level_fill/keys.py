"""The keys of a level-fill plan: what all of its sources take over."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.protocol import Weights, Workers

Numbers = NDArray[np.int64]


class Keys(NamedTuple):
    """Tracked keys, by hash; all arrays have one entry per key but the last two, which have one per member."""

    hashes: Numbers
    shares: Weights
    width: Numbers
    """Members in use."""
    known: Numbers
    """Members in use and remembered."""
    members: Workers
    """Those of the first key, then those of the next; the primary first, those in use before those remembered."""
    taken: Weights
    """Planned share of the key on each member; 0 for those that are only remembered."""

    @classmethod
    def none(cls) -> "Keys":
        """No key."""
        numbers = np.empty(0, np.int64)
        return cls(numbers, np.empty(0), numbers, numbers, np.empty(0, np.int32), np.empty(0))

    def within(self, workers: int, owners: Workers) -> "Keys":
        """Without members that are gone; a key that has lost all of them is at its owner."""
        key_of = np.repeat(np.arange(len(self.hashes)), self.known)
        position = np.arange(len(key_of)) - np.repeat(np.cumsum(self.known) - self.known, self.known)
        used = position < np.repeat(self.width, self.known)
        stays = self.members < workers
        known = np.bincount(key_of[stays], minlength=len(self.hashes))
        width = np.bincount(key_of[stays & used], minlength=len(self.hashes))
        homeless = np.flatnonzero(known == 0)
        at = np.searchsorted(key_of[stays], homeless)
        members = np.insert(self.members[stays], at, owners[self.hashes[homeless] & (len(owners) - 1)])
        taken = np.insert(self.taken[stays], at, 0.0)
        known, width = np.maximum(known, 1), np.maximum(width, 1)
        return Keys(self.hashes, self.shares, width, known, members.astype(np.int32), taken)

    def taken_of(self, hashed: int) -> dict[int, float]:
        """What is planned of a key for each of its members; empty for an unknown one."""
        at = int(np.searchsorted(self.hashes, hashed))
        if at == len(self.hashes) or self.hashes[at] != hashed:
            return {}
        first = int(self.known[:at].sum())
        part = slice(first, first + int(self.known[at]))
        return dict(zip(self.members[part].tolist(), self.taken[part].tolist(), strict=True))

    def used(self, workers: int) -> Numbers:
        """Position of the key x W + worker for all members in use."""
        key_of = np.repeat(np.arange(len(self.hashes)), self.known)
        position = np.arange(len(key_of)) - np.repeat(np.cumsum(self.known) - self.known, self.known)
        used = position < np.repeat(self.width, self.known)
        return key_of[used] * workers + self.members[used]


class Members(NamedTuple):
    """The members of keys while a plan is made, with places for those that it may add; all but two are per key."""

    pool: Workers
    """The members of key k from `start[k]` on, its primary first."""
    start: Numbers
    known: Numbers
    """Members in use and remembered."""
    space: Numbers
    """Places for them."""
    width: Numbers
    """Members in use, which come first."""
    taken: Weights
    """Planned share of the key on each member, as in the pool."""


class Wanted(NamedTuple):
    """What is to be placed, one entry per key."""

    hashes: Numbers
    shares: Weights
    caps: Numbers
    """The most workers of a rock."""
