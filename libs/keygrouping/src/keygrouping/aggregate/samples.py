"""Values to try an aggregate on, of the kinds that it reads: the same ones every time."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

_COUNT = 40
_EIGHTHS = 1 << 13
"""Fractions are multiples of 1/8: sums and products of some of them are exact in any order, so that a plain sum of
floats breaks no law by its last bits.
"""
_TEXTS = ("", "a", "b", "c", "17", "\u00e7a", "two words", "long" * 50)
_KINDS: Mapping[str, Sequence[Any]] = {
    "number": (0, 1, 1, 2, 7, -3, 1000, 0.5, 2.5, 2.5, -0.125, 640.0),
    "text": _TEXTS,
    "any": (1,),
}
_MISSING = 0.1


def drawn(kinds: Sequence[str]) -> list[Any]:
    """Values of an aggregate whose inputs are of these kinds (see `FieldKind`), some of them missing."""
    chance = random.Random(0)
    if len(kinds) == 1:
        return [None, *_KINDS[kinds[0]], *(_value(kinds[0], chance) for _ in range(_COUNT))]
    return [tuple(_value(kind, chance) for kind in kinds) for _ in range(_COUNT)]


def _value(kind: str, chance: random.Random) -> Any:
    if chance.random() < _MISSING:
        return None
    if kind == "number" and chance.random() < 0.7:
        eighths = chance.randrange(-_EIGHTHS, _EIGHTHS)
        return eighths / 8 if chance.random() < 0.5 else eighths
    return chance.choice(_KINDS[kind])
