"""A state as it is kept, and what can be wrong with one."""

from __future__ import annotations

from typing import NamedTuple

PART_BYTES = 256 << 10
"""Of a state in one record, see `parts`."""


class Kept(NamedTuple):
    """A state as it is kept: its bytes, when it was changed (ms since the epoch), and the version it was written by."""

    data: bytes
    time: int
    version: int


def parts_of(kept: Kept | None) -> int:
    """How many parts a state has beside its record."""
    return 0 if kept is None else max(0, len(kept.data) - 1) // PART_BYTES


class StateError(ValueError):
    """A state can't be kept as the handler has made it, or its key can have none."""


class UnusableStateError(Exception):
    """A state can't be read or kept: no event is to blame, and none may be handled without it."""
