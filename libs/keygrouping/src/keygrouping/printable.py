"""Texts of others, such as keys, on their way to a terminal."""

import json


def printable(text: str) -> str:
    """A text that does nothing to a terminal: what is not printable (controls, changes of direction) as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_json(text: str) -> str:
    """JSON text that does nothing to a terminal; the same data."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
