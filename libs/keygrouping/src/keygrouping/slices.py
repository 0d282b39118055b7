"""Many byte strings as slices of one buffer: what compiled code reads without an object for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import overload

import numpy as np
from numpy.typing import NDArray


class Slices(Sequence[bytes | None]):
    """Byte strings that lie in `data`: the string of row i has `sizes[i]` bytes from `starts[i]` on.

    A size of -1 is a missing one, None. All that is read as bytes is copied; rows that are chosen share the buffer.
    """

    __slots__ = ("data", "sizes", "starts")

    def __init__(self, data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self.data = data
        self.starts = starts
        self.sizes = sizes

    @classmethod
    def of(cls, strings: Sequence[bytes | None]) -> Slices:
        """The same strings, put together in one buffer; `strings` itself if it is slices already."""
        if isinstance(strings, cls):
            return strings
        there = [string for string in strings if string is not None]
        held = sizes = np.fromiter(map(len, there), np.int64, len(there))
        if len(there) < len(strings):
            sizes = np.array([-1 if string is None else len(string) for string in strings], np.int64)
            held = np.maximum(sizes, 0)
        return cls(buffer_of(b"".join(there)), np.cumsum(held) - held, sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, row: int) -> bytes | None: ...
    @overload
    def __getitem__(self, row: slice) -> Slices: ...
    def __getitem__(self, row: int | slice) -> bytes | Slices | None:
        if isinstance(row, slice):
            return Slices(self.data, self.starts[row], self.sizes[row])
        start, size = self.starts[row], self.sizes[row]
        return None if size < 0 else self.data[start : start + size].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        """Makes every string, one after the other."""
        if not len(self.sizes):
            return iter(())
        first = int(self.starts.min())
        whole = self.data[first : int((self.starts + np.maximum(self.sizes, 0)).max())].tobytes()
        starts = self.starts - first
        ends = (starts + self.sizes).tolist()
        if int(self.sizes.min()) >= 0:
            return map(bytes.__getitem__, repeat(whole), map(slice, starts.tolist(), ends))
        rows = zip(starts.tolist(), ends, strict=True)
        return (None if end < start else whole[start:end] for start, end in rows)

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Slices:
        """The chosen rows: a boolean for each of all, or their numbers."""
        return Slices(self.data, self.starts[chosen], self.sizes[chosen])

    def followed_by(self, later: Sequence[Slices]) -> Slices:
        """One column of this and later ones, whose buffers are put together unless they are the same."""
        parts = (self, *later)
        if all(part.data is self.data for part in later):
            data, shifts = self.data, [0] * len(parts)
        else:
            data = np.concatenate([part.data for part in parts])
            data.flags.writeable = False
            shifts = list(accumulate((len(part.data) for part in parts[:-1]), initial=0))
        starts = np.concatenate([part.starts + shift for part, shift in zip(parts, shifts, strict=True)])
        return Slices(data, starts, np.concatenate([part.sizes for part in parts]))


def buffer_of(data: bytes | bytearray | memoryview) -> NDArray[np.uint8]:
    """Bytes as an array that can't be written: kernels are compiled for one kind of array only."""
    view = np.frombuffer(data, np.uint8)
    view.flags.writeable = False
    return view
