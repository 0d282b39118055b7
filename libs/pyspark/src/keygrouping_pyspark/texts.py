"""An aggregate's SQL text, taken apart: `name([DISTINCT] argument, ...) [FILTER (WHERE condition)] [[AS] name]`."""

import re
from typing import NamedTuple

_ROWS = re.compile(r"^\s*count\s*\(\s*\*\s*\)", re.I)
_HEAD = re.compile(r"\s*([a-z_]\w*)\s*\(", re.I)
_DISTINCT = re.compile(r"\s*DISTINCT\b(?=\s*\S)", re.I)
_WHERE = re.compile(r"\s*FILTER\s*\(\s*WHERE\b", re.I)
_NAMED = re.compile(r"\s*|(\s*AS\b)?\s*(\w+|`[^`]*`)\s*", re.I)
# Escapes, comments, names of arguments, stars, and what only some functions take: too rare to be understood.
_OTHER = re.compile(r"\\|--|/\*|=>|[(,.]\s*\*|\bNULLS\s*\)|\(\s*ALL\b", re.I)
# What may be one; comments, too, as one may stand behind them.
_STAR = re.compile(r"(^|[(,./])\s*\*|--")
_QUOTES, _OPEN, _CLOSED = "'\"`", "([", ")]"


class Text(NamedTuple):
    """An aggregate in pieces of SQL text."""

    name: str
    arguments: list[str]
    distinct: bool
    condition: str | None


def taken_apart(text: str) -> Text | None:
    """None for all that is more than one aggregate, and for what is not understood."""
    text = _ROWS.sub("count(1)", text)
    head = _HEAD.match(text)
    if not head or _OTHER.search(text):
        return None
    arguments, rest = _listed(text[head.end() :])
    if not arguments:
        return None
    distinct = _DISTINCT.match(arguments[0])
    if distinct:
        arguments[0] = arguments[0][distinct.end() :]
    conditions: list[str] = []
    where = _WHERE.match(rest)
    if where:
        conditions, rest = _listed(rest[where.end() :])
    if not all(map(str.strip, arguments)) or len(conditions) != bool(where) or not _NAMED.fullmatch(rest):
        return None
    return Text(head[1].lower(), arguments, distinct is not None, next(iter(conditions), None))


def may_have_star(text: str) -> bool:
    """Whether something in it may stand for all columns: True if in doubt."""
    return _STAR.search(text) is not None


def _listed(text: str) -> tuple[list[str], str]:
    """What is between commas up to the bracket that closes, and what follows; nothing without such a bracket."""
    found: list[str] = []
    start, depth, quote = 0, 0, ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSED and depth:
            depth -= 1
        elif letter in _CLOSED:
            return [*found, text[start:place]], text[place + 1 :]
        elif letter == "," and not depth:
            found.append(text[start:place])
            start = place + 1
    return [], ""
