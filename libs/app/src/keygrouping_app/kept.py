"""A state as it is kept, and what can be wrong with one."""

from __future__ import annotations

from typing import NamedTuple


class Kept(NamedTuple):
    """A state as it is kept: its bytes, when it was changed (ms since the epoch), and the version it was written by."""

    data: bytes
    time: int
    version: int


class StateError(ValueError):
    """A state can't be kept as the handler has made it, or its key can have none."""


class UnusableStateError(Exception):
    """A state can't be read or kept: no event is to blame, and none may be handled without it."""
