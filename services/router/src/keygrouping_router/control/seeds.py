"""The secret number of a deployment, by which routers scramble hashes, so that nobody can choose keys that collide."""

from __future__ import annotations

import secrets

from keygrouping.hashing import fingerprint_of

MOST_SEED = 2**53 - 1
"""Of JSON numbers that all programs read alike."""


def drawn() -> int:
    """A new one."""
    return 1 + secrets.randbelow(MOST_SEED)


def fingerprint(seed: int | None) -> str | None:
    """Four digits, by which people see whether it was changed; plans have the same 16 bits. None if there is none."""
    return f"{fingerprint_of(seed):04x}" if seed else None
