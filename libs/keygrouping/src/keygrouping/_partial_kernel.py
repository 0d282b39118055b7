"""Reads partials at one stretch, by a table of what may stand in them; needs numba.

Nearly all that workers write is read here, whatever the order of its members. All else is left to the caller: escapes
in texts, numbers of more than 18 digits, sums of more than three parts, members that are there twice or unknown.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.job._json_kernel import after_blanks, begins_with, bits_of, end_of_text, read_digits, read_value
from keygrouping.job.kinds import NULL, REAL, TEXT, WHOLE
from keygrouping.partial_layout import (
    AFTER,
    DIGITS,
    FIRST,
    FORM,
    LIST,
    LISTED,
    NAME,
    OBJECT,
    OPENED,
    RECEIPT,
    SCALAR,
    SIZE,
    SLOT,
    TOPIC,
    TOPIC_BYTES,
    WORDS,
)
from keygrouping.raw_bytes import View, byte, eight, view_of

_QUOTE, _COMMA, _MINUS, _COLON, _ZERO, _NINE, _A, _F, _BACKSLASH = 34, 44, 45, 58, 48, 57, 97, 102, 92
_OPEN, _CLOSE, _BEGIN, _END = 123, 125, 91, 93
_MOST_DIGITS = 18
_Z, _LOWER, _UNDERSCORE = 122, 32, 95
_RECEIPT_BYTES = 32
_DEEPEST = 100
"""Levels of what may be anything: parsers have their own bounds beyond that."""


@kernel
def read_partials(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    schema: NDArray[np.uint8],
    kinds: NDArray[np.uint8],
    cells: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Reads each partial; gives which ones could be. `schema` is the table, whose first row is that of the whole.

    Of each member `kinds` gets the kind by slot and row; it is zero before. `cells` has three rows for each slot: the
    bits of a number or of a list's three, both halves of a sum of hashes, or where a text begins and anything ends.
    """
    plain = np.empty(len(starts), np.bool_)
    levels = np.empty((4, 2), np.int64)
    text, table = view_of(data), view_of(schema)
    for row in range(len(starts)):
        end = starts[row] + max(0, sizes[row])
        plain[row] = read_members(text, starts[row], end, table, kinds, cells, row, levels)
    return plain


@kernel
def read_members(  # noqa: PLR0913 -- numba passes on no table of its own for nothing
    text: View,
    at: int,
    end: int,
    table: View,
    kinds: NDArray[np.uint8],
    cells: NDArray[np.int64],
    row: int,
    levels: NDArray[np.int64],
) -> bool:
    """Reads the members of the object byte(text, at:end) and of the objects in it; `levels` is room for its own use."""
    at = after_blanks(text, at, end)
    if at >= end or byte(text, at) != _OPEN:
        return False
    depth, parent, guess, at, fresh = 0, 0, field(table, 0, FIRST), at + 1, True
    while True:
        at, name, size = next_name(text, at, end, fresh)
        if at < 0:
            return False
        fresh = False
        if name < 0:
            if depth == 0:
                return after_blanks(text, at, end) == end
            depth -= 1
            parent, guess = levels[depth, 0], levels[depth, 1]
            continue
        entry = entry_of(text, name, end, size, table, parent, guess)
        slot = field(table, entry, SLOT) if entry >= 0 else 0
        if entry < 0 or kinds[slot, row]:
            return False
        form = field(table, entry, FORM)
        if form == OBJECT:
            if at >= end or byte(text, at) != _OPEN:
                return False
            kinds[slot, row] = OPENED
            levels[depth, 0], levels[depth, 1] = parent, entry + 1
            depth, parent, guess, at, fresh = depth + 1, entry, field(table, entry, FIRST), at + 1, True
            continue
        cell = 3 * slot
        at, kinds[slot, row], cells[cell, row], cells[cell + 1, row], cells[cell + 2, row] = read_as(
            text, at, end, form
        )
        if at < 0:
            return False
        guess = entry + 1


@kernel
def field(table: View, entry: int, which: int) -> Any:
    """A number of a row of the table."""
    return np.int64(eight(table, 8 * (WORDS * entry + which)))


@kernel
def next_name(text: View, at: int, end: int, fresh: bool) -> Any:
    """Where the next member's value begins, where its name begins, and the name's size; the object is `fresh` if none
    was read before.

    The name begins at -1 where the object ends, and the value where that is behind it; at -1 if neither comes next.
    """
    at = after_blanks(text, at, end)
    if at < end and byte(text, at) == _CLOSE:
        return at + 1, -1, 0
    if not fresh:
        at = after_blanks(text, at + 1, end) if at < end and byte(text, at) == _COMMA else end
    if at >= end or byte(text, at) != _QUOTE:
        return -1, -1, 0
    stop = end_of_text(text, at + 1, end)
    colon = after_blanks(text, stop + 1, end) if stop >= 0 else end
    if colon >= end or byte(text, colon) != _COLON:
        return -1, -1, 0
    return after_blanks(text, colon + 1, end), at + 1, stop - at - 1


@kernel
def entry_of(text: View, at: int, end: int, size: int, table: View, parent: int, guess: int) -> int:
    """The row for the member of this name; -1 if there is none. The guess is looked at first."""
    first, after = field(table, parent, FIRST), field(table, parent, AFTER)
    if guess < after and is_named(text, at, end, size, table, guess):
        return guess
    for entry in range(first, after):
        if is_named(text, at, end, size, table, entry):
            return entry
    return -1


@kernel
def is_named(text: View, at: int, end: int, size: int, table: View, entry: int) -> bool:
    """Whether the row is that of the name which begins there."""
    place = 8 * (WORDS * entry + NAME)
    if field(table, entry, SIZE) != size or not begins_with(text, at, end, eight(table, place), size):
        return False
    same = 8
    while same < size and byte(text, at + same) == byte(table, place + same):
        same += 1
    return same >= size


@kernel
def read_as(text: View, at: int, end: int, form: int) -> Any:
    """Where a value ends that is written like this, its kind, and its three cells; it ends at -1 if it isn't."""
    if form == LIST:
        return read_list(text, at, end)
    if form == SCALAR:
        after, kind, bits = read_value(text, at, end)
        return after, kind, bits, 0, 0
    if form == DIGITS:
        after, kind, number = read_whole_text(text, at, end)
        return after, kind, number, 0, 0
    if form == TOPIC:
        return (at + TOPIC_BYTES + 2 if is_topic(text, at, end) else -1), TEXT, at + 1, 0, 0
    if form == RECEIPT:
        after, high, low = read_receipt(text, at, end)
        return after, TEXT, high, low, 0
    after = after_any(text, at, end)
    return after, TEXT, at, after, 0


@kernel
def is_quoted(text: View, at: int, end: int, size: int) -> bool:
    """Whether there is room for a text of so many bytes, and quotes around it."""
    return bool(end - at >= size + 2 and byte(text, at) == _QUOTE and byte(text, at + size + 1) == _QUOTE)


@kernel
def is_topic(text: View, at: int, end: int) -> bool:
    """Whether the id of a topic comes next, see `partial.PATTERNS`."""
    good = bool(is_quoted(text, at, end, TOPIC_BYTES))
    for place in range(at + 1, at + 1 + TOPIC_BYTES if good else at):
        sign = byte(text, place)
        is_letter = _A <= (sign | _LOWER) <= _Z
        good &= is_letter or _ZERO <= sign <= _NINE or sign in (_MINUS, _UNDERSCORE)
    return good


@kernel
def read_whole_text(text: View, at: int, end: int) -> Any:
    """Where the digits of an integer end that stand there as text, its kind, and itself; -1 if there are none."""
    if end - at < 3 or byte(text, at) != _QUOTE:
        return -1, NULL, 0
    negative = byte(text, at + 1) == _MINUS
    first = at + 2 if negative else at + 1
    after, number = read_digits(text, first, end, np.uint64(0))
    if not 0 < after - first <= _MOST_DIGITS or after >= end or byte(text, after) != _QUOTE:
        return -1, NULL, 0
    return after + 1, WHOLE, -np.int64(number) if negative else np.int64(number)


@kernel
def read_list(text: View, at: int, end: int) -> Any:
    """Like `read_as`, of a list of up to three numbers; its cells are their bits as floats."""
    first = second = third = np.int64(0)
    if at >= end or byte(text, at) != _BEGIN:
        return -1, NULL, first, second, third
    at, kind = after_blanks(text, at + 1, end), LISTED
    if at < end and byte(text, at) == _END:
        return at + 1, kind, first, second, third
    while kind < LISTED + 3:
        at, bits = read_float(text, at, end)
        kind += 1
        first, second, third = second, third, bits
        if at >= end or byte(text, at) != _COMMA or kind == LISTED + 3:
            break
        at = after_blanks(text, at + 1, end)
    after = at + 1 if at < end and byte(text, at) == _END else -1
    if kind == LISTED + 1:
        return after, kind, third, first, first
    if kind == LISTED + 2:
        return after, kind, second, third, first
    return after, kind, first, second, third


@kernel
def read_float(text: View, at: int, end: int) -> Any:
    """What follows a number and the blanks behind it, and its bits as a float; the end if there is none."""
    after, kind, bits = read_value(text, at, end)
    if after < 0 or (kind != WHOLE and kind != REAL):
        return end, np.int64(0)
    return after_blanks(text, after, end), bits_of(np.float64(bits)) if kind == WHOLE else np.int64(bits)


@kernel
def read_receipt(text: View, at: int, end: int) -> Any:
    """Where a sum of hashes ends, and its halves, the upper one first; -1 if there is none."""
    if not is_quoted(text, at, end, _RECEIPT_BYTES):
        return -1, 0, 0
    half = _RECEIPT_BYTES // 2
    good, high = read_hexadecimal(text, at + 1, half)
    well, low = read_hexadecimal(text, at + 1 + half, half)
    return (at + _RECEIPT_BYTES + 2 if good and well else -1), np.int64(high), np.int64(low)


@kernel
def read_hexadecimal(text: View, at: int, size: int) -> Any:
    """Whether so many bytes are hexadecimal digits, and their number."""
    number, good = np.uint64(0), True
    for place in range(at, at + size):
        sign = byte(text, place)
        is_letter = _A <= sign <= _F
        good &= is_letter or _ZERO <= sign <= _NINE
        number = number << np.uint64(4) | np.uint64(sign - (_A - 10) if is_letter else sign - _ZERO) & np.uint64(15)
    return good, number


@kernel
def after_any(text: View, at: int, end: int) -> Any:
    """Where a value ends, if it is JSON, which a parser has yet to say; -1 if there is no end."""
    if at < end and byte(text, at) == _QUOTE:
        return after_quotes(text, at + 1, end)
    if at >= end or (byte(text, at) != _OPEN and byte(text, at) != _BEGIN):
        return np.int64(read_value(text, at, end)[0])
    depth = 0
    while at < end:
        here = byte(text, at)
        at += 1
        if here == _QUOTE:
            at = after_quotes(text, at, end)
            if at < 0:
                return -1
        elif here in (_OPEN, _BEGIN):
            depth += 1
            if depth > _DEEPEST:
                return -1
        elif here in (_CLOSE, _END):
            depth -= 1
            if depth == 0:
                return at
    return -1


@kernel
def after_quotes(text: View, at: int, end: int) -> int:
    """Where a text ends, its quote included, whatever is in it; -1 if there is none."""
    while at < end:
        here = byte(text, at)
        if here == _QUOTE:
            return at + 1
        at += 2 if here == _BACKSLASH else 1
    return -1
