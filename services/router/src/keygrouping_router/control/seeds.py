"""The secret number of a deployment, by which routers scramble hashes, so that nobody can choose keys that collide."""

from __future__ import annotations

import hashlib
import secrets

MOST_SEED = 2**53 - 1
"""Of JSON numbers that all programs read alike."""


def drawn() -> int:
    """A new one."""
    return 1 + secrets.randbelow(MOST_SEED)


def mark_of(seed: int | None) -> str | None:
    """What people may see of it: whether it is another one. It tells 16 of 53 bits. None if there is none."""
    return hashlib.sha256(str(seed).encode()).hexdigest()[:4] if seed else None
