"""Lists of numbers in the store: each value comes back as JSON would have given it back, and takes less room."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_service.store.decoding import Unreadable, decode, encode
from keygrouping_service.store.packing import packed, unpacked

MOST = 1 << 20

numbers = (
    st.integers(0, 255)
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(2**31), 2**32)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(0, 300).map(float)
    | st.sampled_from([-0.0, 0.0, 1e300, 5e-324, 0.1, float(np.float32(0.1)), 2.0**40])
)
columns = st.one_of(
    *(
        st.lists(kind, min_size=10, max_size=40)
        for kind in (
            st.integers(0, 9),
            st.integers(-(2**63), 2**63 - 1),
            st.booleans(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(0, 70_000).map(float),
            numbers,
        )
    )
)
rows = st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(numbers, min_size=width, max_size=width), max_size=40))
names = st.text(max_size=3) | st.sampled_from(["~", "~~", "~x"])
values = st.recursive(
    columns | rows | numbers | st.text() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


def exactly(value: Any) -> Any:
    """What tells 1 from 1.0 from True, and 0.0 from -0.0."""
    return repr(value)


@given(values)
def test_a_value_comes_back_as_json_would_give_it_back(value: Any) -> None:
    assert exactly(decode(encode(value))) == exactly(orjson.loads(orjson.dumps(value)))


@pytest.mark.parametrize("values", [[math.nan] * 20, [1.0] * 20 + [math.inf], [2**64 - 1] * 20, [1] * 19 + [True]])
def test_what_is_no_number_that_can_be_packed_is_written_as_json_writes_it(values: list[Any]) -> None:
    assert exactly(decode(encode(values))) == exactly(orjson.loads(orjson.dumps(values)))


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ([7] * 10_000, 200),
        ([0.0] * 10_000, 200),
        (np.random.default_rng(1).integers(0, 200, 10_000).tolist(), 14_000),
        (np.random.default_rng(1).random(10_000).tolist(), 110_000),
        ([[number, number % 7] for number in range(10_000)], 40_000),
    ],
)
def test_long_lists_take_less_room(values: list[Any], most: int) -> None:
    assert len(encode(values)) < min(most, len(orjson.dumps(values)) / 1.5)


def test_short_lists_stay_as_people_can_read_them() -> None:
    assert encode({"workers": [1, 2, 3], "~": None}) == b'{"workers":[1,2,3],"~~":null}'


def column(kind: str = "int", form: str = "|u1", raw: bytes = b"\1\2") -> list[Any]:
    return [kind, form, base64.b64encode(zlib.compress(raw)).decode()]


@pytest.mark.parametrize(
    "told",
    [
        None,
        7,
        "text",
        [],
        [[]],
        {},
        ["int"],
        ["int", "|u1"],
        ["int", "|u1", "no base64!"],
        ["int", "|u1", base64.b64encode(b"not deflated").decode()],
        ["int", "|u1", base64.b64encode(zlib.compress(b"\1" * 1000)[:-4]).decode()],
        ["int", "|u1", None],
        column(kind="object"),
        column(form="|O"),
        column(form="<f8"),
        column(form="<i4"),
        column(kind="float", form="<f8", raw=np.array([math.nan]).tobytes()),
        column(kind="float", form="<f4", raw=np.array([math.inf], np.float32).tobytes()),
        [column(), column(raw=b"\1")],
        [column(), None],
        [column(), 3],
        [{"~": column()}],
    ],
)
def test_what_stands_for_a_list_and_is_none_is_unreadable(told: Any) -> None:
    with pytest.raises(ValueError):
        unpacked({"a": [{"~": told}]}, MOST)
    assert isinstance(decode(orjson.dumps({"~": told})), Unreadable)


def test_few_bytes_that_stand_for_very_many_are_unreadable() -> None:
    bomb = {"~": column(raw=bytes(MOST))}
    assert len(unpacked(bomb, MOST)) == MOST
    for value in ({"~": column(raw=bytes(MOST + 1))}, [bomb, {"~": column()}]):
        with pytest.raises(ValueError, match="more bytes than any value has"):
            unpacked(value, MOST)
    assert isinstance(decode(orjson.dumps(bomb), 5000), Unreadable)


def test_a_list_of_rows_is_packed_by_column() -> None:
    found = packed([[1, 0.5]] * 20)
    assert [kind for kind, _, _ in found["~"]] == ["int", "float"]
    assert unpacked(found, MOST) == [[1, 0.5]] * 20
