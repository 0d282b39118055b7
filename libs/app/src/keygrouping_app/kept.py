"""A state as it is kept, and what can be wrong with one."""

from __future__ import annotations

from typing import NamedTuple

PART_BYTES = 256 << 10
"""Of a state in one record at least, if it goes in several, see `parts`."""
MOST_PARTS = 80
"""Of a state: larger ones have larger parts, as gaps have no room for any number of records that have not ended."""


class Kept(NamedTuple):
    """A state as it is kept: its bytes, when it was changed (ms since the epoch), and the version it was written by."""

    data: bytes
    time: int
    version: int


def parts_of(kept: Kept | None) -> int:
    """How many parts a state has beside its record."""
    return 0 if kept is None else max(0, len(kept.data) - 1) // part_bytes(len(kept.data))


def part_bytes(size: int) -> int:
    """Of a state of this size in one record."""
    return max(PART_BYTES, -(-size // MOST_PARTS))


class StateError(ValueError):
    """A state can't be kept as the handler has made it, or its key can have none."""


class UnreadableStateError(ValueError):
    """A state that is kept can't be read, and stays as it is: events of its key can't be handled by this program."""


class UnusableStateError(Exception):
    """States can't be read or kept: no event is to blame, and none may be handled without them."""
