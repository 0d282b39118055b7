"""Texts of others, such as keys, on their way to a terminal."""


def printable(text: str) -> str:
    """A text that does nothing to a terminal: what is not printable (controls, changes of direction) as escapes."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
