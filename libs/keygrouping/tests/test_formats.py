"""Formats of values: what a codec must do, and that nothing but the codec knows the format."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.job import FORMATS, Codec, Extracted, Field, Format, JobSpec, RejectedError, Rejection, Source
from keygrouping.job.extraction import Extraction

JSON = FORMATS["json"]


class Pairs:
    """A format of its own: `name=value` by semicolons, values being integers or texts."""

    def read(self, value: bytes) -> dict[str, Any]:
        try:
            pairs = dict(pair.split("=") for pair in value.decode().split(";"))
        except ValueError:
            raise RejectedError("invalid-json", "no pairs") from None
        return {name: int(text) if text.lstrip("-").isdigit() else text for name, text in pairs.items()}

    def is_whole(self, value: bytes, path: tuple[str, ...]) -> bool:
        return isinstance(self.read(value).get(path[0]), int)


def test_every_format_that_a_job_may_name_has_a_codec() -> None:
    assert set(FORMATS) == set(typing.get_args(Format))
    assert JobSpec.from_json('{"format": "json"}') == JobSpec.from_json("{}")


def test_only_the_codec_knows_how_values_are_written() -> None:
    codec: Codec = Pairs()
    fields = (Field(("price",), "number"), Field(("place",), "text"))
    time = Source("field", "at", "s")
    extraction = Extraction(codec, Source("field", "user"), Source("field", "cost"), time, fields, 0)
    found = extraction.extract(None, b"user=ann;cost=2;at=7;price=5;place=x", (), 0, 10_000)
    assert found == Extracted(b"ann", 2, 7000, (5, "x"))
    assert extraction.time_of(b"at=7", 0) == 7000
    large = extraction.extract(None, b"user=ann;cost=2;at=7;price=%d" % 2**63, (), 0, 10_000)
    assert isinstance(large, Rejection) and large.reason == "integer-too-large"
    none = extraction.extract(None, b'{"user": "ann"}', (), 0, 10_000)
    assert none == Rejection("invalid-json", "no pairs")


@given(st.binary(max_size=30))
def test_a_value_is_a_document_or_refused_and_nothing_else(value: bytes) -> None:
    for codec in FORMATS.values():
        try:
            document = codec.read(value)
        except RejectedError as rejected:
            assert rejected.rejection.reason in ("invalid-json", "not-an-object")
        else:
            assert isinstance(document, dict)


@pytest.mark.parametrize(
    ("number", "whole"),
    [
        ("1", True),
        ("-0", True),
        ("1" * 30, True),
        ("1.0", False),
        ("1e3", False),
        ("1" * 30 + ".5", False),
        ('"1"', False),
    ],
)
def test_integers_are_told_from_fractions_as_they_are_written(number: str, whole: bool) -> None:
    assert JSON.is_whole(b'{"a":{"b":%s}}' % number.encode(), ("a", "b")) is whole
    assert not JSON.is_whole(b'{"a":{"b":%s}}' % number.encode(), ("a", "c"))


def test_what_is_nested_too_deeply_to_be_told_counts_as_an_integer() -> None:
    deep = b'{"x":1e30,"y":' + b"[" * 1000 + b"]" * 1000 + b"}"
    assert JSON.read(deep)["x"] == 1e30
    assert isinstance(JSON.is_whole(deep, ("x",)), bool)
