"""Whether what is read of a state is what was written: JSON has no keys but texts, no dates, and no NaN."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

_ABSENT = object()


def require_same(written: Any, found: Any) -> None:
    """ValueError that names what would not be read as it is. A tuple may be read as a list."""
    if found == written:
        return
    for place in _different(written, found):
        raise ValueError(f"{place or 'it'} would be read as something else: declare its type, or use what JSON has")


def _different(written: Any, found: Any, place: str = "") -> Iterator[str]:
    """Where they differ.

    Of one type, two values without parts are the same: what JSON can't say becomes one of another type.
    """
    if found == written:
        return
    if isinstance(written, dict) and isinstance(found, dict):
        if unread := [key for key in written if key not in found]:
            yield f"the key {unread[0]!r:.100}{_of(place)}"
        pairs = [(f"{place}[{key!r:.100}]", value, found.get(key, _ABSENT)) for key, value in written.items()]
    elif isinstance(written, list | tuple) and isinstance(found, list | tuple):
        pairs = [(f"{place}[{n}]", *both) for n, both in enumerate(zip_longest(written, found, fillvalue=_ABSENT))]
    elif type(written) is type(found):
        names = _fields(written)
        pairs = [(f"{place}.{name}".lstrip("."), getattr(written, name), getattr(found, name)) for name in names]
    else:
        yield f"{written!r:.100}{_of(place)}"
        return
    for each in pairs:
        yield from _different(each[1], each[2], each[0])


def _fields(value: Any) -> list[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(getattr(value, "__struct_fields__", ()))


def _of(place: str) -> str:
    return f" of {place}" if place else ""
