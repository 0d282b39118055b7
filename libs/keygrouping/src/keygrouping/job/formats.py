"""How the values of events are written: a codec for each format that a job may name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from keygrouping.job.declaration import Format
from keygrouping.job.event import RejectedError, look_up

_WHOLE = object()


class Codec(Protocol):
    """Reads values of one format.

    A document is a dict of members by their names, whatever the format: None, booleans, ints, floats, strings, lists
    and dicts like it. Ints are exact up to 64 bits with or without a sign; larger ones may come as floats.
    """

    def read(self, value: bytes) -> dict[str, Any]:
        """The document of a value; raises `RejectedError` if it is none."""

    def is_whole(self, value: bytes, path: tuple[str, ...]) -> bool:
        """Whether the number at a path of a value that could be read is written as an integer."""


class JsonCodec:
    """JSON by RFC 8259: an object in UTF-8. Of members of one name the last counts.

    As section 9 allows, numbers beyond float64 and lone surrogates are refused, wherever they stand.
    """

    def read(self, value: bytes) -> dict[str, Any]:
        """The object of a value."""
        try:
            document = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise RejectedError("invalid-json", f"the value is not JSON: {error}; the job needs fields of it") from None
        if not isinstance(document, dict):
            raise RejectedError("not-an-object", "the value is JSON, but no object; the job needs members of an object")
        return document

    def is_whole(self, value: bytes, path: tuple[str, ...]) -> bool:
        """Whether a number is written without fraction and exponent: what is nested too deeply to be told counts so."""
        try:
            return look_up(json.loads(value, parse_int=lambda _: _WHOLE), path) is _WHOLE
        except RecursionError:
            return True


FORMATS: Mapping[Format, Codec] = {"json": JsonCodec()}
"""The codec of each format."""
