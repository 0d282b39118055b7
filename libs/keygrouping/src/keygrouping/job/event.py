"""What a job takes of an event, where it comes from, and why an event can't be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from keygrouping.aggregate import FieldKind
from keygrouping.job.declaration import TimeUnit

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
FieldValue: TypeAlias = int | float | str | None

MOST_IN_TEXT = (1 << 64) - 1
"""Largest integer that is a text by its digits; the least one has 64 bits with a sign. The router's parser knows others
as floats only.
"""

MAX_WEIGHT = 1e18
"""Heaviest event: sums of squares of heavier ones might not be finite."""

MAX_KEY_BYTES = 65_536
"""Longest key. A result holds its key twice, once as JSON text of up to six times the length, and must fit a record."""


@dataclass(frozen=True)
class Source:
    """Where a key, weight or time comes from: the record itself, a header, or a member of the value."""

    kind: Literal["record", "header", "field", "one", "size", "timestamp"]
    name: str = ""
    unit: TimeUnit = "ms"


@dataclass(frozen=True)
class Field:
    """A member of the value that a job needs: its path of object members, and its type.

    Of type "any" only the presence counts: the value is 1, or None where the member is missing or null.
    """

    path: tuple[str, ...]
    kind: FieldKind

    @property
    def wanted(self) -> str:
        """What it must hold to be used, in words."""
        return {"number": "a finite number", "text": "a string or an integer", "any": "anything"}[self.kind]

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer (RFC 6901)."""
        return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in self.path)


class Extracted(NamedTuple):
    """What the job needs of one record: key bytes, weight, event time in ms, and `JobSpec.fields` in order.

    `skipped` are the positions of fields whose values are of the wrong type; as fields they are None.
    """

    key: bytes
    weight: int | float
    time_ms: int
    fields: tuple[FieldValue, ...]
    skipped: tuple[int, ...] = ()


Reason = Literal[
    "aggregate-failed",
    "integer-too-large",
    "invalid-header",
    "invalid-json",
    "key-too-large",
    "no-key",
    "no-timestamp",
    "no-value",
    "no-weight",
    "not-an-object",
    "timestamp-in-the-future",
    "wrong-type",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""All reasons for which a job can't use a record."""

AGGREGATE_FAILED: Reason = "aggregate-failed"
"""The code of an aggregate that is not the library's raises an error: at an event, or when a result is made."""


@dataclass(frozen=True)
class Rejection:
    """Why a record can't be used: a short code, and one line that says what is wrong and what to do."""

    reason: Reason
    detail: str


class RejectedError(Exception):
    """An event can't be used; raised while it is read."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection(reason, detail)


def parse_path(text: str) -> tuple[str, ...]:
    """Path of a field given as a JSON pointer (`/user/id`) or as the plain name of a top-level member."""
    if not text.startswith("/"):
        return (text,)
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def look_up(document: object, path: tuple[str, ...]) -> object:
    """What stands at a path of a document; None if nothing does."""
    for token in path:
        if not isinstance(document, dict):
            return None
        document = document.get(token)
    return document
