"""How the bytes of a topic's keys and values are read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import orjson


class Codec(Protocol):
    """Reads and writes keys or values.

    Whatever it raises says that this can't be read or written, so the event becomes a dead letter at once; but for
    OSError (ConnectionError, TimeoutError) of something that it asks, such as a registry: that is tried again.
    """

    def decode(self, data: bytes) -> Any:
        """What the bytes say."""

    def encode(self, value: Any) -> bytes:
        """The bytes that say it."""


class _Json:
    def decode(self, data: bytes) -> Any:
        return orjson.loads(data)

    def encode(self, value: Any) -> bytes:
        try:
            # A copy: orjson's own result keeps the kilobytes that it was written into.
            return bytes(memoryview(orjson.dumps(value)))
        except TypeError as error:
            raise ValueError(str(error)) from error


class _Text:
    def decode(self, data: bytes) -> str:
        return data.decode()

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise ValueError(f"text is wanted, not {type(value).__name__}")
        return value.encode()


class _Bytes:
    def decode(self, data: bytes) -> bytes:
        return data

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise ValueError(f"bytes are wanted, not {type(value).__name__}")
        return value


JSON: Codec = _Json()
TEXT: Codec = _Text()
BYTES: Codec = _Bytes()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic whose values or keys are not what they are by default: JSON and text."""

    name: str
    value: Codec = JSON
    key: Codec = TEXT


def as_topic(topic: str | Topic) -> Topic:
    """A topic by its name has the default codecs."""
    return Topic(topic) if isinstance(topic, str) else topic
