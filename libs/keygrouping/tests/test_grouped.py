from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouped import Groups
from keygrouping.slices import Slices

Place = tuple[bytes, int]
keys = st.sampled_from([b"", b"a", b"b", b"a" * 16, b"a" * 17, b"\xff", b"\x00"]) | st.binary(max_size=40)
places = st.tuples(keys, st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3))


def add(groups: Groups, rows: Sequence[Place]) -> list[tuple[Place, list[int]]]:
    """The place of each run and its rows, as `Groups` tells them."""
    runs = groups.add(Slices.of([key for key, _ in rows]), np.array([window for _, window in rows], np.int64))
    held = list(zip(groups.keys, groups.windows.tolist(), strict=True))
    parts = np.split(runs.rows, np.cumsum(runs.sizes)[:-1]) if len(runs.sizes) else []
    pairs = zip(runs.groups.tolist(), parts, strict=True)
    return [((held[group][0] or b"", held[group][1]), part.tolist()) for group, part in pairs]


@given(st.lists(places, max_size=60), st.integers(1, 60))
def test_rows_of_one_key_in_one_window_are_together_and_in_order(rows: list[Place], size: int) -> None:
    groups = Groups()
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        expected: dict[Place, list[int]] = defaultdict(list)
        for number, place in enumerate(part):
            expected[place].append(number)
        assert add(groups, part) == list(expected.items())
    found = list(zip(groups.keys, groups.windows.tolist(), strict=True))
    assert found == list(dict.fromkeys(rows))
    assert groups.key_bytes == sum(len(key or b"") for key, _ in found)


def test_keys_that_meet_in_the_table_stay_apart() -> None:
    groups, many = Groups(), [(b"%d" % (number % 5000), 0) for number in range(20_000)]
    assert [rows for _, rows in add(groups, many)] == [list(range(key, 20_000, 5000)) for key in range(5000)]
    assert [place for place, _ in add(groups, many[:7])] == many[:7]


def test_slices_of_a_shared_buffer_are_grouped_by_what_they_hold() -> None:
    strings = Slices.of([b"x", b"yx", b"x", b"y"]).where(np.array([3, 2, 0, 3]))
    runs = Groups().add(strings, np.zeros(4, np.int64))
    assert runs.rows.tolist() == [0, 3, 1, 2]
