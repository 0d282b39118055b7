"""How members of partials are written, and the table that says so to the kernel that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SCALAR, DIGITS, LIST, TOPIC, RECEIPT, ANY, OBJECT = range(7)
"""How a member is written: a JSON value that is neither object nor list, the digits of an integer as text, a list of
numbers, the id of a topic, a sum of hashes, anything at all, an object of further members.
"""

LISTED, OPENED = 6, 10
"""Kinds besides those of `keygrouping.job.kinds`: a list without numbers, of which those with one, two and three
follow, and an object.
"""

TOPIC_BYTES = 22
NAME_BYTES = 64
SIZE, FORM, SLOT, FIRST, AFTER, NAME = range(6)
WORDS = NAME + NAME_BYTES // 8
"""Numbers of a row of the table: bytes of the name, how the member is written, where it is noted, the first row of its
own members and the one behind the last, and the name.
"""

Form: TypeAlias = "int | Mapping[str, Form]"
"""One of those above, or the members of an object."""

Path: TypeAlias = tuple[str, ...]
"""The names that lead to a member."""


def table_of(members: Mapping[str, Form]) -> tuple[NDArray[np.uint8], dict[Path, int]]:
    """The table for an object of these members, and the slot of each member in it; names have 63 ASCII letters at most.

    Its first row stands for the object itself, at slot 0.
    """
    rows: list[list[int]] = []
    slots: dict[Path, int] = {}
    waiting: list[tuple[Path, str, Form]] = [((), "", members)]
    while waiting:
        path, name, form = waiting.pop(0)
        slots[path] = len(rows)
        inner = list(_inner(path, form))
        first = len(rows) + 1 + len(waiting)
        waiting += inner
        number = form if isinstance(form, int) else OBJECT
        rows.append([len(name), number, len(rows), first, first + len(inner), *_words(name)])
    return np.array(rows, np.int64).view(np.uint8).ravel(), slots


def _inner(path: Path, form: Form) -> Iterator[tuple[Path, str, Form]]:
    if not isinstance(form, int):
        for name, each in form.items():
            yield (*path, name), name, each


def _words(name: str) -> Sequence[int]:
    words: list[int] = np.frombuffer(name.encode().ljust(NAME_BYTES, b"\0"), np.int64).tolist()
    return words
