"""Text values in states of bounded size."""

from keygrouping.hashing import hash_key

LONGEST = 128
"""Most UTF-8 bytes of a value in a state."""

_HASHED = 16


def bounded(value: object) -> str:
    """The value as text of at most LONGEST UTF-8 bytes; integers as their decimal text.

    A longer text becomes its beginning, an ellipsis and the hash of the whole in hexadecimal digits, so that long
    texts stay different from each other.
    """
    text = str(value)
    if len(text) * 4 <= LONGEST or len(data := text.encode()) <= LONGEST:
        return text
    beginning = data[: LONGEST - _HASHED - len("…".encode())].decode(errors="ignore")
    return f"{beginning}…{hash_key(data) & (1 << 64) - 1:016x}"
