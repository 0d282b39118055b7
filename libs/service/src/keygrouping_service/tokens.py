"""The file of bearer tokens: who has which, and what it allows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

Role = Literal["read", "write"]
ROLES = ("read", "write")

FORM = "write one a line as NAME ROLE TOKEN, such as `alice write 3f9c...` (openssl rand -hex 32); ROLE: read or write"
"""What a line of the file has to look like."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True)
class Token:
    """A token as it is known: its holder's name, which the audit tells, its role, and a hash of it."""

    name: str
    role: Role
    digest: bytes

    @property
    def writes(self) -> bool:
        """Whether it allows changes; whoever may write may read."""
        return self.role == "write"


def digest(token: str) -> bytes:
    """Of one length whatever the token's, which comparing must not tell."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def parse(text: str) -> tuple[list[Token], list[str]]:
    """The tokens of a file's text, and a fault for each line that holds none; faults never quote a token.

    Empty lines are skipped. One name may have several tokens, which is how they rotate.
    """
    tokens: list[Token] = []
    faults: list[str] = []
    for number, words in _lines(text):
        fault = _fault(words)
        if fault is None and any(known.digest == digest(words[2]) for known in tokens):
            fault = "its token stands in a line before"
        if fault is None:
            tokens.append(Token(words[0], cast(Role, words[1]), digest(words[2])))
        else:
            faults.append(f"line {number}: {fault}")
    return tokens, faults


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if words := line.split():
            yield number, words


def _fault(words: list[str]) -> str | None:
    if len(words) != 3:
        return f"{len(words)} words instead of three: {FORM}"
    if not _NAME.fullmatch(words[0]):
        return "the name has other characters than letters, digits and ._@-, or more than 64"
    if words[1] not in ROLES:
        return f"the role is neither read nor write: {FORM}"
    return None
