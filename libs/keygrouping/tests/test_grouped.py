from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouped import grouped
from keygrouping.slices import Slices

keys = st.sampled_from([b"", b"a", b"b", b"a" * 16, b"a" * 17, b"\xff", b"\x00"]) | st.binary(max_size=40)


@given(st.lists(st.tuples(keys, st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)), max_size=60), st.integers(0, 5))
def test_rows_of_one_key_in_one_window_are_together_and_in_order(rows: list[tuple[bytes, int]], cut: int) -> None:
    rows = rows[cut:]
    expected: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for number, place in enumerate(rows):
        expected[place].append(number)
    found = grouped(Slices.of([key for key, _ in rows]), np.array([window for _, window in rows], np.int64))
    assert found.sizes.tolist() == [len(members) for members in expected.values()]
    assert found.firsts.tolist() == [members[0] for members in expected.values()]
    assert found.rows.tolist() == [number for members in expected.values() for number in members]


def test_keys_that_meet_in_the_table_stay_apart() -> None:
    many = [b"%d" % (number % 5000) for number in range(20_000)]
    found = grouped(Slices.of(many), np.zeros(len(many), np.int64))
    assert found.sizes.tolist() == [4] * 5000


def test_slices_of_a_shared_buffer_are_grouped_by_what_they_hold() -> None:
    strings = Slices.of([b"x", b"yx", b"x", b"y"]).where(np.array([3, 2, 0, 3]))
    found = grouped(strings, np.zeros(4, np.int64))
    assert found.rows.tolist() == [0, 3, 1, 2]
