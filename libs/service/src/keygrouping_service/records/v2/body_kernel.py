"""Writes the bodies of records that have no headers, from a column of keys and one of values; needs numba."""

from typing import Any, NamedTuple

import numpy as np
from keygrouping.byte_copy import copy
from keygrouping.compiled import kernel
from numpy.typing import NDArray

from keygrouping_service.records.v2.layout import BODY, END, HEADERS_AT, KEY, VALUE
from keygrouping_service.records.v2.split_kernel import put_varint

MOST_FRAMING = 11
"""Bytes of a body besides key and value, at most."""


class Strings(NamedTuple):
    """A buffer, and by record where in it a string begins and its size, -1 for none."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


@kernel
def write_bodies(keys: Strings, values: Strings, out: NDArray[np.uint8], table: NDArray[np.int64]) -> int:
    """Writes all bodies into `out` and where their parts are into `table` (see `layout`); gives where the last ends."""
    at = 0
    for row in range(len(keys.sizes)):
        table[BODY, row] = at
        at = put_string(keys, row, out, at)
        table[KEY, row] = at - max(0, keys.sizes[row])
        at = put_string(values, row, out, at)
        table[VALUE, row] = at - max(0, values.sizes[row])
        out[at] = 0  # headers, of which there are none
        at += 1
        table[HEADERS_AT, row] = at
        table[END, row] = at
    return at


@kernel
def put_string(strings: Strings, row: int, out: NDArray[np.uint8], at: int) -> Any:
    """Writes one string with its size before it; gives where it ends."""
    size = strings.sizes[row]
    begin = put_varint(out, at, size)
    if size <= 0:
        return begin
    copy(out, begin, strings.data, strings.starts[row], size)
    return begin + size
