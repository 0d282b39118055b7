"""The records between the stages: a worker's partial of one key and window, and the final result."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import orjson

VERSION = 1
NO_TOPIC = "A" * 22
"""The id that stands for "not known": Kafka's own, all zeros."""

RECEIPT_DIGITS = 32
"""Hexadecimal digits of a sum of hashes."""

NO_RECEIPT = "0" * RECEIPT_DIGITS
"""That of no events."""

Kind: TypeAlias = Literal["integer", "number", "topic", "receipt", "states"]
"""How a member of a partial is written: an integer of 64 bits, any number (or its text), a text of this pattern, or the
encoded state of each aggregate by its name.
"""

MEMBERS: Mapping[str, Kind] = {
    "worker": "integer",
    "start": "integer",
    "end": "integer",
    "events": "integer",
    "weight": "number",
    "first": "integer",
    "last": "integer",
    "epoch": "integer",
    "aggregates": "states",
    "topic": "topic",
    "receipt": "receipt",
}
"""The schema of a partial, beside its version `v`: what `Partial` and both queries of the Spark job write and read."""

PATTERNS: Mapping[Kind, str] = {"topic": "[A-Za-z0-9_-]{22}", "receipt": f"[0-9a-f]{{{RECEIPT_DIGITS}}}"}
"""What the whole text of a member looks like, as a regular expression."""

_TOPIC, _RECEIPT = (re.compile(PATTERNS[kind]) for kind in ("topic", "receipt"))
_LARGE = 1 << 63
_LONG_NUMBER = re.compile(rb"[:\[,]\s*-?[1-9][0-9]{18}")
_NUMBER = re.compile(r"[0-9]{1,60}(\.[0-9]{1,60})?(E-?[0-9]{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[0-9]+", re.ASCII)


class RecordError(ValueError):
    """A partial or result can't be read; the message says which member is wrong."""


@dataclass(slots=True)
class Partial:
    """What one worker aggregated of one key (the record's key) in one window between two flushes; not to be changed.

    `start` and `end` bound the window in ms since the epoch; `first` and `last` are the offsets in the worker's
    partition of `routed`; `epoch` numbers the routing plan; `aggregates` holds the encoded state per aggregate name.
    `topic` is the id of `routed` as Kafka's tools show it: offsets begin again where a topic is created again.
    Partials with the same key, topic, worker, start and `first` are the same partial. `receipt` is the sum of the
    events' hashes modulo 2^128 (see `keygrouping.identity`) in hexadecimal digits.
    """

    worker: int
    start: int
    end: int
    events: int
    weight: int | float
    first: int
    last: int
    epoch: int
    aggregates: Mapping[str, Any]
    topic: str = NO_TOPIC
    receipt: str = NO_RECEIPT

    @property
    def identity(self) -> tuple[str, int, int, int]:
        """Topic, worker, window start and first offset: with the key, the identity that makes merging idempotent."""
        return (self.topic, self.worker, self.start, self.first)

    @property
    def hashes(self) -> int:
        """The number that `receipt` stands for."""
        return int(self.receipt, 16)

    def encode(self) -> bytes:
        """JSON of the partial, without its key."""
        # By name and not in a loop over `MEMBERS`: a third of the time, which is most of what a partial costs.
        members = {
            "v": VERSION,
            "worker": self.worker,
            "start": self.start,
            "end": self.end,
            "events": self.events,
            "weight": _encode_weight(self.weight),
            "first": self.first,
            "last": self.last,
            "epoch": self.epoch,
            "aggregates": self.aggregates,
            "topic": self.topic,
            "receipt": self.receipt,
        }
        return orjson.dumps(members)

    @classmethod
    def decode(cls, value: bytes | None) -> Partial:
        """Reads a partial; `RecordError` if it is none or of an unknown version."""
        data = _load(value)
        return cls(**{name: read(name, data.get(name)) for name, read in _READ})


@dataclass(frozen=True, slots=True)
class Result:
    """The merged aggregate of one key in one window, with the value per aggregate name.

    `receipt` is the sum of the events' hashes modulo 2^128 (see `keygrouping.identity`).
    """

    key: bytes
    start: int
    end: int
    events: int
    weight: int | float
    final: bool
    aggregates: Mapping[str, Any]
    receipt: int = 0

    @property
    def record_key(self) -> bytes:
        """Key of the record: the event's key and the window's start, so that compaction keeps every window."""
        return self.key + b"|" + str(self.start).encode()

    def encode(self) -> bytes:
        """JSON of the result; a key that is not UTF-8 becomes {"base64": ...}."""
        members = {name: getattr(self, name) for name in self.__slots__}
        members |= {"key": encode_key(self.key), "receipt": encode_receipt(self.receipt)}
        return dump({"v": VERSION, **members})

    @classmethod
    def decode(cls, value: bytes | None) -> Result:
        """Reads a result; `RecordError` if it is none or of an unknown version."""
        data = _load(value)
        try:
            data["receipt"] = decode_receipt(data["receipt"])
            return cls(decode_key(data["key"]), *(data[name] for name in cls.__slots__[1:]))
        except KeyError as error:
            raise RecordError(f"member {error} is missing") from None


def encode_key(key: bytes) -> str | dict[str, str]:
    """A key for JSON: its text if it is UTF-8, else {"base64": ...}."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key).decode()}


def decode_key(data: str | Mapping[str, str]) -> bytes:
    """The bytes of a key written by `encode_key`."""
    return data.encode() if isinstance(data, str) else base64.b64decode(data["base64"])


def encode_receipt(hashes: int) -> str:
    """A sum of hashes for JSON: 32 hexadecimal digits."""
    return hashes.to_bytes(16, "big").hex()  # half the time of a format


def decode_receipt(data: object) -> int:
    """The sum written by `encode_receipt`; `RecordError` if it is none."""
    return int(_receipt("receipt", data), 16)


def decode_topic(data: object) -> str:
    """The id of a topic, 22 characters; `RecordError` if it is none."""
    if not isinstance(data, str) or not _TOPIC.fullmatch(data):
        raise RecordError(f"member 'topic' must be a topic's id, got {data!r}"[:200])
    return data


def _receipt(name: str, data: object) -> str:
    if not isinstance(data, str) or not _RECEIPT.fullmatch(data):
        raise RecordError(f"member {name!r} must be {RECEIPT_DIGITS} hexadecimal digits, got {data!r}"[:200])
    return data


def _encode_weight(weight: int | float) -> int | float | str:
    """A sum of integers may need more than the 64 bits that parsers know: it travels as text then."""
    return weight if isinstance(weight, float) or abs(weight) < _LARGE else str(weight)


def _integer(name: str, data: object) -> int:
    if type(data) is not int:
        raise RecordError(f"member {name!r} must be an integer, got {data!r}"[:200])
    return data


def _states(name: str, data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise RecordError(f"member {name!r} (an object) is needed")
    return data


def _number(name: str, data: object) -> int | float:
    if type(data) is int or type(data) is float:
        return data
    if isinstance(data, str) and _NUMBER.fullmatch(data):
        return int(data) if _WHOLE.fullmatch(data) else float(data)
    raise RecordError(f"member {name!r} must be a number")


_READERS: dict[Kind, Callable[[str, object], Any]] = {
    "integer": _integer,
    "number": _number,
    "topic": lambda _, data: decode_topic(data),
    "receipt": _receipt,
    "states": _states,
}
_READ = [(name, _READERS[kind]) for name, kind in MEMBERS.items()]


def dump(data: Any) -> bytes:
    """JSON with integers of any size as they are, and null for what is beyond all floats."""
    try:
        return orjson.dumps(data)
    except TypeError:
        return json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":")).encode()


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def parsed(value: bytes) -> Any:
    """JSON data with integers of any size as they are; `RecordError` for what is no JSON."""
    try:
        data = orjson.loads(value)
        # Integers of more than 64 bits become floats there, and stay what they are here.
        return json.loads(value) if _LONG_NUMBER.search(value) else data
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from None


def _load(value: bytes | None) -> dict[str, Any]:
    data = parsed(value or b"")
    if not isinstance(data, dict) or data.get("v") != VERSION:
        raise RecordError(f"no object of version {VERSION}")
    return data
