"""Laws of the one search that all hash tables of the library use."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping._probing import find, lay_out, probe
from numpy.typing import NDArray

ITEM = np.dtype([("hash", np.int64), ("used", np.int32), ("value", np.int32)])
HASHES = st.integers(-(2**63), 2**63 - 1)
FEW = st.integers(0, 40).map(lambda n: n << 5)
"""All of them begin at the same slot of a small table."""


def table_of(hashes: list[int]) -> NDArray[Any]:
    table = np.zeros(1 << len(hashes).bit_length(), ITEM)
    items = np.zeros(len(hashes), ITEM)
    items["hash"], items["used"], items["value"] = hashes, 1, np.arange(len(hashes))
    lay_out(table, items)
    return table


@given(st.lists(HASHES | FEW, unique=True, max_size=31))
def test_what_was_laid_out_is_found(hashes: list[int]) -> None:
    table = table_of(hashes)
    assert [int(table[find(table, hashed)]["value"]) for hashed in hashes] == list(range(len(hashes)))
    assert np.count_nonzero(table["used"]) == len(hashes)


@given(st.lists(HASHES | FEW, unique=True, min_size=1, max_size=31))
def test_a_key_that_is_not_there_gets_a_free_slot(hashes: list[int]) -> None:
    stranger, *known = hashes
    table = table_of(known)
    slot = find(table, stranger)
    assert not table[slot]["used"]
    table[slot]["hash"], table[slot]["used"] = stranger, 1
    assert all(table[find(table, hashed)]["hash"] == hashed for hashed in hashes)


@pytest.mark.parametrize("start", [-1, 0, 3, 7, 8, 2**40 + 7])
def test_the_search_begins_where_it_is_told_and_goes_round(start: int) -> None:
    keys, used = np.zeros(8, np.int64), np.zeros(8, np.int32)
    expected = [(start + i) % 8 for i in range(7)]
    for key, slot in enumerate(expected):
        assert probe(keys, used, np.int64(key), start) == slot
        keys[slot], used[slot] = key, 1
    assert [probe(keys, used, np.int64(key), start) for key in range(7)] == expected


def test_zeros_are_an_empty_table_in_which_the_key_0_is_unknown() -> None:
    table = np.zeros(4, ITEM)
    assert find(table, np.int64(0)) == 0 and not table[0]["used"]
