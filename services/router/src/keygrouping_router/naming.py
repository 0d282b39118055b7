"""How keys, which may be any bytes, are written in JSON and in paths, and read again.

A key that is UTF-8 is shown as its text, any other as base64url without padding. In a path it is its percent-encoded
text, or `base64url:...` where no text would do.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

BASE64 = b"base64url:"
"""What the id of a key begins with whose text is no UTF-8, or can't stand in a path."""

HASH = b"hash:"
"""What the id of a key begins with of which only the hash is known."""

_ALPHABET = re.compile(rb"[A-Za-z0-9_-]*")
_DOT_SEGMENTS = (b"", b".", b"..")


class BadKey(ValueError):
    """An id that stands for no key; one line."""


def text_of(key: bytes) -> str | None:
    """The key as text, None if it is no UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def base64_of(key: bytes) -> str:
    """The key as base64url without padding."""
    return base64.urlsafe_b64encode(key).rstrip(b"=").decode()


def id_of(key: bytes) -> str:
    """What to put, as it is, in the path `/keyspace/{id}`: `key_of` gives the same key again.

    A key that would be lost on the way (empty, `.`, `..`) or be taken for something else goes by base64url.
    """
    if text_of(key) is None or key in _DOT_SEGMENTS or key.startswith((BASE64, HASH)):
        return BASE64.decode() + base64_of(key)
    return quote_from_bytes(key, safe="")


def key_of(quoted: bytes | str) -> bytes:
    """The key of an id; raises BadKey. Besides what `id_of` makes, any bytes may be percent-encoded."""
    return unquoted_key(unquote_to_bytes(quoted))


def unquoted_key(given: bytes) -> bytes:
    """The key of an id that is not, or no longer, percent-encoded; raises BadKey."""
    if given.startswith(HASH):
        raise BadKey("only the hash of this key is known: ask for it by its name")
    if not given.startswith(BASE64):
        return given
    digits = given.removeprefix(BASE64).rstrip(b"=")
    try:
        if _ALPHABET.fullmatch(digits):
            return base64.b64decode(digits + b"=" * (-len(digits) % 4), altchars=b"-_")
    except binascii.Error:
        pass
    raise BadKey("what follows base64url: must be base64 with - and _ for + and /")


def named(key: bytes | None, hash_: int | None = None) -> dict[str, Any]:
    """The members of a JSON entry that name its key; `hash_` where the name itself is not known."""
    if key is None:
        return {"key": None, "key_base64": None, "hash": str(hash_), "id": f"{HASH.decode()}{hash_}"}
    text = text_of(key)
    return {"key": text, "key_base64": base64_of(key) if text is None else None, "hash": None, "id": id_of(key)}
