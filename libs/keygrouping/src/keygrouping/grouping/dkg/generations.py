"""The three generations of keys of Dynamic Key Grouping, as spaces."""

from keygrouping.grouping.protocol import Space
from keygrouping.keyspace import BABY, OLD, TEENAGE, KeySpace
from keygrouping.keyspace.legacy import LegacyKeySpace


def generations(keys: KeySpace | LegacyKeySpace) -> tuple[Space, ...]:
    """Baby, teenage and old space; between promotions the baby space may take up more than its capacity."""
    baby, teenage, old = map(keys.hashes_in, (BABY, TEENAGE, OLD))
    passing = "keys seen since the last promotions; all but the heaviest are forgotten"
    return (
        Space("baby", len(baby), keys.baby_capacity, passing, baby),
        Space("teenage", len(teenage), keys.teenage_capacity, "the heaviest of the baby space", teenage),
        Space("old", len(old), keys.old_capacity, "the heaviest of the teenage space; only these can be widened", old),
    )
