"""Whole batches are taken as their events are one by one, whatever stands in them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from keygrouping.aggregate import Aggregate, NumberField, TextField
from keygrouping.job import MAX_KEY_BYTES, Extracted, FieldValue, Headers, JobSpec, Rejection, extract_columns
from keygrouping.job.kinds import REAL, WHOLE
from keygrouping.job.members import read_members
from keygrouping.slices import Slices
from numpy.typing import NDArray

NOW = 1_700_000_000_000
_SUM, _KINDS, _THERE = (
    {"name": "total", "op": "sum", "field": "x"},
    {"name": "kinds", "op": "distinct", "field": "x"},
    {"name": "there", "op": "count", "field": "y"},
)


class Picky(Aggregate):
    """A user's own, of two fields, that can't use every event."""

    x: NumberField
    y: TextField

    def initial(self) -> int:
        return 0

    def check(self, value: Any) -> None:
        x, y = value
        if type(x) is float or (x or 0) < 0 or "a" in (y or ""):
            raise ValueError(f"{x!r}, {y!r}")

    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        raise AssertionError(f"nothing is added where columns are taken: {state}, {values}")

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def finish(self, state: Any) -> Any:
        return state


JOBS = {
    name: JobSpec.from_json(json.dumps(job))
    for name, job in {
        "fields": {"aggregates": [_SUM, _KINDS, _THERE]},
        "key": {"aggregates": [_SUM], "key": {"field": "k"}},
        "header": {"aggregates": [_SUM], "key": {"header": "h"}, "weight": "size"},
        "weight": {"aggregates": [_KINDS], "weight": {"field": "w"}},
        "ms": {"aggregates": [_SUM], "time": {"field": "t"}},
        "seconds": {"aggregates": [_SUM], "time": {"field": "t", "unit": "s"}},
        "iso": {"aggregates": [_SUM], "time": {"field": "t", "unit": "iso"}},
        "nested": {"aggregates": [{"name": "total", "op": "sum", "field": "/a/x"}, _KINDS], "key": {"field": "k"}},
    }.items()
}
JOBS["own"] = replace(JOBS["fields"], aggregates=(*JOBS["fields"].aggregates, Picky(name="own", x="x", y="k")))
every_job = pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))


@dataclass
class Batch:
    """`EventColumns` of a test."""

    timestamps: NDArray[np.int64]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]
    undecoded_names: bool = True

    def __len__(self) -> int:
        return len(self.keys)

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        rows = np.flatnonzero(chosen).tolist()
        keys, values = ([column[row] for row in rows] for column in (self.keys, self.values))
        headers = [self.headers[row] for row in rows]
        return type(self)(self.timestamps[chosen], keys, values, headers, self.undecoded_names)


def batch_of(values: Sequence[bytes | None], *, packed: bool = False) -> Batch:
    """A batch of these values, whose other parts are good."""
    rows = len(values)
    headers: list[Headers] = [[("h", b"%d" % row)] for row in range(rows)]
    keys = [b"key %d" % row for row in range(rows)]
    return Batch(np.arange(rows, dtype=np.int64), keys, Slices.of(values) if packed else values, headers, False)


def assert_the_same(job: JobSpec, batch: Batch) -> None:
    """By columns comes out what comes out event by event, to the types and bits of all numbers."""
    rows = zip(batch.keys, batch.values, batch.headers, batch.timestamps.tolist(), strict=True)
    expected = [job.extract(*row, NOW) for row in rows]
    good = [one for one in expected if isinstance(one, Extracted)]
    found = extract_columns(job, batch, NOW)
    assert found.rejected == [(row, one) for row, one in enumerate(expected) if isinstance(one, Rejection)]
    assert list(found.keys) == [one.key for one in good]
    assert found.times.tolist() == [one.time_ms for one in good]
    assert repr(list(found.weights or [1] * len(good))) == repr([one.weight for one in good])
    if job.fields:
        assert found.fields is not None
        assert repr(list(found.fields)) == repr([one.fields for one in good])
        assert repr([found.fields[row] for row in range(len(good))]) == repr([one.fields for one in good])
    places = [
        (row, position) for row, one in enumerate(expected) if isinstance(one, Extracted) for position in one.skipped
    ]
    assert sorted((row, position) for position, rows in found.skipped.items() for row in rows) == places
    assert list(found.events.values) == [
        value for value, one in zip(batch.values, expected, strict=True) if isinstance(one, Extracted)
    ]


# documents that are mostly good

scalar = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.integers(0, 10**13),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(["2026-01-31T12:00:00Z", "1969-12-31T23:59:59Z", "0"]),
)
value = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner), max_leaves=3
)
name = st.sampled_from(["x", "y", "k", "w", "t", "a", "", "xx", "\u00fc", "\\"])
members = st.lists(st.tuples(name, scalar | value), max_size=6)


@st.composite
def document(draw: st.DrawFn) -> bytes:
    """JSON, sometimes with names that come twice, escapes, white space, or damage."""
    ascii_only, space = draw(st.booleans()), draw(st.sampled_from(["", "", " ", "\n\t"]))

    def dump(item: object) -> str:
        return json.dumps(item, ensure_ascii=ascii_only)

    inner = f"{space},{space}".join(f"{dump(key)}{space}:{space}{dump(item)}" for key, item in draw(members))
    text = bytearray(f"{space}{{{space}{inner}{space}}}{space}".encode())
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return bytes(text[: draw(st.sampled_from([len(text), len(text), draw(st.integers(0, len(text)))]))])


@every_job
@given(values=st.lists(st.none() | document(), max_size=8), packed=st.booleans())
@example(values=[], packed=True)
@example(values=[b"", b""], packed=True)
def test_columns_are_taken_as_events_are(job: JobSpec, values: list[bytes | None], packed: bool) -> None:
    assert_the_same(job, batch_of(values, packed=packed))


@every_job
@given(rows=st.lists(st.tuples(st.integers(-2, NOW * 2), st.none() | st.binary(max_size=3), st.sampled_from(
    [(), (("h", b"1"),), (("h", None),), (("caf\udce9", b"1"),)])), max_size=6))  # fmt: skip
def test_odd_keys_times_and_headers_are_taken_as_those_of_events_are(
    job: JobSpec, rows: list[tuple[int, bytes | None, Headers]]
) -> None:
    times = np.array([row[0] for row in rows], np.int64)
    values = [b'{"x":1,"k":"z","w":2,"t":5}'] * len(rows)
    keys = [row[1] for row in rows]
    for given_keys in (keys, Slices.of(keys)):
        assert_the_same(job, Batch(times, given_keys, values, [row[2] for row in rows]))


def test_a_key_that_is_too_long_is_refused_wherever_it_stands() -> None:
    keys = [b"k", b"k" * MAX_KEY_BYTES, b"k" * (MAX_KEY_BYTES + 1)]
    values, headers = [b'{"x":1}'] * 3, [()] * 3
    for given_keys in (keys, Slices.of(keys)):
        batch = Batch(np.arange(3), given_keys, values, headers)
        assert_the_same(JOBS["fields"], batch)
        assert [why.reason for _, why in extract_columns(JOBS["fields"], batch, NOW).rejected] == ["key-too-large"]


# what JSON is and what it is not, after the cases of the JSON test suites

# fmt: off
ODD = [
    *b"0 -0 -0.0 0.0 -1 1e5 1E5 1e+5 1e-5 1.5e300 0e1 0.1e1".split(),
    *b"123456789012345678 1234567890123456789 -9223372036854775808".split(),
    *b"9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616".split(),
    *b"1e18 9.3e18 1e19 1e308 1e309".split(),
    *b"4.9e-324 2.2250738585072014e-308 2.2250738585072011e-308 1e-400".split(),
    *b"0.000000000000000000000000012345678901234567".split(),
    *b"9007199254740993.0 9007199254740992.5 1.7976931348623157e308 0.30000000000000004 123456789012345678.9".split(),
    *b"00 01 -01 +1 .5 1. 1.e5 1e 1e+ 1eE2 - -- 0x1 1_0 1,5 NaN nan Infinity -Infinity inf".split(),
    *b"true false null True False None truE nul tru nulll truefalse t f n".split(),
    *rb'"" "a" "\u0061" "\n" "\/" "\x" "\u12" "\ud800" "\udc00\ud800" "\ud83d\ude00" "\"" "\\" "\\" "'.split(),
    *("\u00e9", "\u20ac", "\U0001f600", "\u2028", "\ufeff", "\uffff", "\U0010ffff", "\u007f"),
    *(b'"\x80"', b'"\xc0\xaf"', b'"\xc3"', b'"\xe0\x80\x80"', b'"\xe2\x82"', b'"\xed\xa0\x80"', b'"\xed\x9f\xbf"'),
    *(b'"\xf0\x80\x80\x80"', b'"\xf4\x90\x80\x80"', b'"\xf0\x9f\x98"', b'"\xf5\x80\x80\x80"', b'"\xff"', b'"\xc3\x28"'),
    *(b'"\x00"', b'"\x1f"', b'"\t"', b'"\n"', b"'a'", b'"a', b'a"', b"\x00", b"\xa0", b"\x0c1", b"/**/1", b"1//"),
    *b'[] [1] {} {"x":1} [[ ]] {"x":{"x":1}} [1,] {,} {"x"} {"x":} {:1} {1:1}'.split(),
]
SHAPES = [
    b'{"x":%b}', b' {"x" : %b } ', b'{"a":%b,"x":2}', b'{"x":1,"x":%b}', b'{"x":%b,"x":1}', b'{"k":%b,"w":1,"t":3}',
    b'{"w":%b}', b'{"t":%b}', b'{"x":%b,}', b'{"x":%b', b'{"x":%b}}', b'{"x":%b} {}',
    b'{,"x":%b}', b'{"x" %b}', b'{"x"::%b}',
    b'{x:%b}', b"%b", b'[{"x":%b}]', b'{"x":%b\x00}', b'{"x":%b}\x00', b'\xef\xbb\xbf{"x":%b}', b'{"":%b,"xx":1}',
    b'{%b:1}',
]
# fmt: on


@every_job
def test_what_is_no_json_or_hardly_some_is_taken_as_before(job: JobSpec) -> None:
    odd = [b'"%b"' % text.encode() if isinstance(text, str) else text for text in ODD]
    assert_the_same(job, batch_of([shape % text for shape in SHAPES for text in odd]))


def test_no_byte_beyond_a_document_is_looked_at() -> None:
    """What follows in the buffer would make each of these documents good."""
    whole = b'{"x":-12.5e1,"y":true,"z":null,"u":"\xf0\x9f\x98\x80"}'
    data = Slices.of([whole])
    sizes = np.arange(len(whole) + 1, dtype=np.int64)
    documents = Slices(data.data, np.zeros_like(sizes), sizes)
    _, plain = read_members(documents, ["x"])
    assert plain.tolist() == [False] * len(whole) + [True]


def test_texts_names_and_digits_of_any_length_are_taken_wherever_they_stand() -> None:
    """Compiled code looks at 32 bytes of a text and at eight of names and digits at a time."""
    names = ["x", "eight__8", "eight__9", "more_than_eight", "more_than_eighty"]
    job = JobSpec.from_json(
        {"aggregates": [{"name": f"kinds{i}", "op": "distinct", "field": name} for i, name in enumerate(names)]}
    )
    odd = ['"', "\\", '\\"', "\x1f", "\x7f", "\u00e9", "\u20ac"]
    texts = [f"{'a' * before}{sign}{'b' * after}" for sign in odd for before in range(67) for after in (0, 1, 33)]
    numbers = ["1234567890123456789"[:digits] + more for digits in range(1, 20) for more in ("", ".5", ".25e3", "x")]
    values = [f'{{"{names[i % 5]}":"{text}"}}'.encode() for i, text in enumerate(texts)]
    values += [f'{{"{name}":{number}}}'.encode() for name in names for number in numbers]
    values += [f'{{"{name}{more}":1,"{name[:-1]}":2}}'.encode() for name in names for more in ("", "_", "___", " " * 9)]
    assert_the_same(job, batch_of(values, packed=True))
    for value in values[::11]:
        assert_the_same(job, batch_of([value], packed=True))


def test_usual_documents_are_read_by_compiled_code() -> None:
    """Whatever equality says: were nothing usual, columns would be as slow as events."""
    values = [b'{"x":%d.25,"y":"caf\xc3\xa9","z":null, "u":true}' % row for row in range(100)]
    (x,), plain = read_members(Slices.of(values), ["x"])
    assert plain.all() and x.bits.view(np.float64).tolist() == [row + 0.25 for row in range(100)]
    texts = [b'{"x":"%b"}' % (b"a" * size) for size in range(100)]
    assert read_members(Slices.of(texts), ["x"])[1].all()
    odd = [b'{"x":"\\n"}', b'{"x":[]}', b'{"x":1,"x":2}', b'{"x":12345678901234567890}', b'{"x":NaN}', b"\xff", b"{}{}"]
    assert not read_members(Slices.of(odd), ["x"])[1].any()


number = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9]\d{0,20})(\.\d{1,25})?([eE][+-]?\d{1,3})?", fullmatch=True),
)


def number_as_read(text: bytes) -> int | float | None:
    (member,), plain = read_members(Slices.of([b'{"x":%b}' % text]), ["x"])
    if not plain[0]:
        return None
    return int(member.bits[0]) if member.kinds[0] == WHOLE else float(member.bits.view(np.float64)[0])


@given(number)
def test_numbers_are_the_nearest_there_are(text: str) -> None:
    found = number_as_read(text.encode())
    if found is not None:
        assert repr(found) == repr(orjson.loads(text))


def test_most_numbers_are_read_by_compiled_code() -> None:
    chance = random.Random(5)
    texts = [repr(chance.random() * 10.0 ** chance.randrange(-30, 12)) for _ in range(2000)]
    texts += [str(chance.randrange(-(10**18) + 1, 10**18)) for _ in range(2000)]
    (member,), plain = read_members(Slices.of([b'{"x":%b}' % text.encode() for text in texts]), ["x"])
    assert plain.all()
    assert member.kinds.tolist() == [REAL] * 2000 + [WHOLE] * 2000
    assert member.bits.view(np.float64)[:2000].tolist() == [float(text) for text in texts[:2000]]
    assert member.bits[2000:].tolist() == [int(text) for text in texts[2000:]]


# slices

strings = st.lists(st.none() | st.binary(max_size=4), max_size=8)


@given(strings, strings, st.data())
def test_slices_are_the_strings_that_they_were_made_of(
    given_ones: list[Any], later: list[Any], data: st.DataObject
) -> None:
    slices = Slices.of(given_ones)
    assert list(slices) == given_ones == [slices[row] for row in range(len(slices))]
    at = data.draw(st.integers(0, len(given_ones)))
    assert list(slices[:at]) == given_ones[:at] and list(slices[::-1]) == given_ones[::-1]
    assert list(slices.followed_by([Slices.of(later), slices[at:]])) == given_ones + later + given_ones[at:]
    chosen = np.array([data.draw(st.booleans()) for _ in given_ones], np.bool_)
    assert list(slices.where(chosen)) == [one for one, kept in zip(given_ones, chosen, strict=True) if kept]
    assert Slices.of(slices) is slices


@given(
    st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.none(), st.text(max_size=3)))
)
def test_numbers_of_a_column_are_what_float_makes_of_them(values: list[FieldValue]) -> None:
    from keygrouping.job import FieldColumn

    expected = [float(value) if isinstance(value, int | float) else math.nan for value in values]
    np.testing.assert_array_equal(FieldColumn.of(values).floats(), np.array(expected, np.float64))


def test_values_of_all_kinds_stay_what_they_are() -> None:
    from keygrouping.job import FieldColumn

    values: list[FieldValue] = [None, 1, -(2**63), 0.5, -0.0, "", "\u00fc", "1"]
    column = FieldColumn.of(values)
    assert repr(list(column)) == repr(values) == repr([column[row] for row in range(len(values))])
    assert repr(list(column[2:5])) == repr(values[2:5])
    replaced = column.replaced(np.array([0, 6]), ["new", 7])
    assert list(replaced) == ["new", *values[1:6], 7, "1"] and list(column) == values
