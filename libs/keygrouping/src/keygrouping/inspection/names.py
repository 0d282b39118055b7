"""How a report names keys: as they are, or hashed where they are nobody's business."""

import base64
import hashlib
import hmac
import secrets

_MOST_BYTES = 256
_DIGITS = 16


class KeyNaming:
    """Names keys of any bytes: UTF-8 as text, others as base64url without padding behind `base64url:`.

    Long ones are cut after 256 bytes. With `hashed`, a name is a quarter of the key's HMAC-SHA-256 under the salt, and
    tells nothing of the key to who doesn't know the salt; without a salt it is a random one.
    """

    def __init__(self, *, hashed: bool = False, salt: str | None = None) -> None:
        self.hashed = hashed
        self._salt = secrets.token_bytes(32) if salt is None else salt.encode()

    def name(self, key: bytes) -> str:
        """The name of a key."""
        if self.hashed:
            return "hash:" + hmac.new(self._salt, key, hashlib.sha256).hexdigest()[:_DIGITS]
        dots = "…" if len(key) > _MOST_BYTES else ""
        try:
            return _cut(key).decode() + dots
        except UnicodeDecodeError:
            return "base64url:" + base64.urlsafe_b64encode(key[:_MOST_BYTES]).rstrip(b"=").decode() + dots


def _cut(key: bytes) -> bytes:
    """At most so many bytes, and no part of a character at the end."""
    if len(key) <= _MOST_BYTES:
        return key
    end = _MOST_BYTES
    while end > _MOST_BYTES - 4 and key[end] & 0xC0 == 0x80:
        end -= 1
    return key[:end]
