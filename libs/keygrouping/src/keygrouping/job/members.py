"""Members of many documents at once, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keygrouping.slices import Slices


@dataclass(frozen=True, slots=True)
class Member:
    """What many documents hold under one name.

    `kinds` are those of `keygrouping.job.kinds`; `bits` are those of the number where it is one, an int64 or a float64,
    and `written` its digits or the string's bytes.
    """

    kinds: NDArray[np.uint8]
    bits: NDArray[np.int64]
    written: Slices


def read_members(documents: Slices, names: Sequence[str]) -> tuple[list[Member], NDArray[np.bool_]]:
    """What JSON documents hold under these names, and which of them could be read; nothing is known of the others."""
    from keygrouping.job._json_kernel import Members, Names, read_all

    encoded = [name.encode(errors="surrogatepass") for name in names]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    shape = (len(names), len(documents))
    found = Members(np.zeros(shape, np.uint8), *(np.zeros(shape, np.int64) for _ in range(3)))
    words = np.array([int.from_bytes(name[:8], "little") for name in encoded], np.uint64)
    wanted = Names(np.frombuffer(bytearray(b"".join(encoded)), np.uint8), ends, words)
    starts, sizes = np.ascontiguousarray(documents.starts), np.ascontiguousarray(documents.sizes)
    plain = read_all(documents.data, starts, sizes, wanted, found)
    columns = zip(*found, strict=True)
    return [Member(kinds, bits, Slices(documents.data, *place)) for kinds, bits, *place in columns], plain
