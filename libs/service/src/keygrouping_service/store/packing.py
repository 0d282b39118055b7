"""The one encoding of arrays in the store: a list of numbers is base64 of its bytes, deflated, inside of JSON.

Plans and statistics are mostly such lists. Packed, a plan takes a quarter of the bytes.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_MARK: Final = "~"
"""The only member of an object that stands for a list. In all other objects, a member whose name begins with it gets
one more of it, so that no value is taken for a packed list."""

_LEAST = 16
"""Shorter lists stay as people can read them."""

_FASTEST = 1

_KINDS: Final[dict[str, type]] = {"bool": np.bool_, "int": np.int64, "float": np.float64}
_NAMES: Final[dict[type, str]] = {bool: "bool", int: "int", float: "float"}
_FORMS: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("|u1",),
    "int": ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<i8"),
    "float": ("|u1", "<u2", "<u4", "<f4", "<f8"),
}
"""In what numbers of a kind may be kept, the shortest first: the first that keeps each of them exactly is taken."""


def packed(value: Any) -> Any:
    """A JSON value whose long lists of numbers, and of rows of numbers, are packed; `unpacked` gives it back."""
    if isinstance(value, dict):
        return {f"{_MARK}{name}" if name.startswith(_MARK) else name: packed(member) for name, member in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) >= _LEAST and (columns := _columns(value)):
        return {_MARK: columns}
    return [packed(item) if isinstance(item, dict | list | tuple) else item for item in value]


def unpacked(value: Any, most: int) -> Any:
    """The value that `packed` was given; ValueError if what stands for a list is none, or all have more bytes."""
    return _Unpacking(most).unpack(value)


def _columns(values: Sequence[Any]) -> list[Any] | None:
    """A list of numbers as one packed column, rows of one length as a list of them; None if it can't be packed."""
    first = values[0]
    if isinstance(first, bool | int | float):
        return _column(values)
    if set(map(type, values)) - {list, tuple} or {len(row) for row in values} != {len(first)} or not first:
        return None
    if not all(isinstance(item, bool | int | float) for item in first):
        return None
    columns = [_column(column) for column in zip(*values, strict=True)]
    return None if None in columns else columns


def _column(values: Sequence[Any]) -> list[Any] | None:
    if len(types := set(map(type, values))) > 1:
        return None
    kind = _NAMES[types.pop()]
    try:
        array: NDArray[Any] = np.array(values, _KINDS[kind])
    except OverflowError:
        return None
    if kind == "float" and not np.isfinite(array).all():
        return None
    form = next(form for form in _FORMS[kind] if _keeps(np.dtype(form), array))
    return [kind, form, base64.b64encode(zlib.compress(array.astype(form).tobytes(), _FASTEST)).decode()]


def _keeps(form: np.dtype[Any], array: NDArray[Any]) -> bool:
    """Whether all values come back from this form as they were, the sign of a zero with them."""
    if array.dtype == form or array.dtype.kind == "b":
        return True
    if form.kind == "f":
        return bool(np.all(np.abs(array) <= np.finfo(form).max) and np.all(array.astype(form) == array))
    if array.min() < np.iinfo(form).min or array.max() > np.iinfo(form).max:
        return False
    return array.dtype.kind == "i" or bool(np.all(np.trunc(array) == array) and not np.signbit(array).any())


class _Unpacking:
    """What little stands in the store may be a lot: all lists of a value together have their bound."""

    def __init__(self, most: int) -> None:
        self._left = most

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.unpack(item) if isinstance(item, dict | list) else item for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and _MARK in value:
            return self._list(value[_MARK])
        return {name.removeprefix(_MARK): self.unpack(member) for name, member in value.items()}

    def _list(self, told: Any) -> list[Any]:
        try:
            if isinstance(told[0], str):
                return self._numbers(*told)
            return [list(row) for row in zip(*(self._numbers(*column) for column in told), strict=True)]
        except (TypeError, LookupError, zlib.error) as error:
            raise ValueError(f"no packed list: {error!r}") from None

    def _numbers(self, kind: str, form: str, data: str) -> list[Any]:
        if form not in _FORMS[kind]:
            raise ValueError(f"no packed list: {kind} as {form}")
        inflating = zlib.decompressobj()
        raw = inflating.decompress(base64.b64decode(data, validate=True), self._left + 1)
        if len(raw) > self._left:
            raise ValueError("packed lists of more bytes than any value has")
        self._left -= len(raw)
        array = np.frombuffer(raw, form)
        if not inflating.eof or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            raise ValueError("no packed list: it breaks off, or holds what is no number")
        return list(array.astype(_KINDS[kind]).tolist())
