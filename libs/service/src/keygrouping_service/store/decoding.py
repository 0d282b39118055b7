"""Values of a store, written and read: other programs and other versions write there, too: nothing of it is trusted."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from keygrouping_service.store.packing import packed, unpacked

MOST_BYTES = 64 << 20
"""Most bytes of a value, unless whoever reads it expects less: a plan for 10,000 workers has a fifth of it."""

MOST_VERSIONS = 10**13
"""Versions that a document may get to: Redis counts no further without rounding."""

MOST_ITEMS = 200
"""Brackets up to which no value can be nested deeper than JSON is written."""


@dataclass(frozen=True)
class Unreadable:
    """Stands where a value can't be read: it is as good as missing, and the next write replaces it."""

    why: str
    """What is wrong with it, in one line that shows nothing of it."""
    mark: str
    """The same for the same value."""


def encode(value: Any) -> bytes:
    """A JSON value as it stands in a store."""
    return orjson.dumps(packed(value))


def digest_of(raw: bytes) -> str:
    """The same for the same bytes alone; Redis computes it, too."""
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()


def decode(raw: bytes | None, most: int = MOST_BYTES) -> Any:
    """The value that gave these bytes; `Unreadable` if there is none, or one that is too large or nested too deeply."""
    if raw is None:
        return Unreadable("it has no value", "")
    if len(raw) > most:
        return too_large(len(raw), most)
    try:
        value = orjson.loads(raw)
        if raw.count(b"[") + raw.count(b"{") > MOST_ITEMS:
            orjson.dumps(value)  # Refuses what is nested more deeply than could be written again.
        return unpacked(value, most)
    except (ValueError, TypeError, RecursionError) as error:
        return Unreadable(f"no JSON of the kind that is written here: {error}", hashlib.sha256(raw).hexdigest())


def too_large(size: int, most: int) -> Unreadable:
    """A value of more bytes than anybody would have written."""
    return Unreadable(f"{size} bytes, more than {most}", str(size))


def version_of(given: Any) -> int:
    """The version that stands beside a document; 0 if it is none."""
    return given if type(given) is int and 0 < given <= MOST_VERSIONS else 0
