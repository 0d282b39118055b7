"""The three generations of keys of Dynamic Key Grouping, as spaces."""

from keygrouping.grouping.protocol import Space
from keygrouping.keyspace import KeySpace
from keygrouping.keyspace.legacy import LegacyKeySpace


def generations(keys: KeySpace | LegacyKeySpace) -> tuple[Space, ...]:
    """Baby, teenage and old space; between promotions the baby space may take up more than its capacity."""
    baby, teenage, old = keys.sizes()
    return (
        Space(
            "baby", baby, keys.baby_capacity, "keys seen since the last promotions; all but the heaviest are forgotten"
        ),
        Space("teenage", teenage, keys.teenage_capacity, "the heaviest of the baby space"),
        Space("old", old, keys.old_capacity, "the heaviest of the teenage space; only these can be widened"),
    )
