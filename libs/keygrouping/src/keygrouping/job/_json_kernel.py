"""Members of many flat JSON objects, read where their bytes lie; needs numba.

What it takes, it takes as orjson does, to the last bit. What is unusual it leaves alone: escapes, nesting, a name that
comes twice, integers of more than 18 digits, numbers that it can't round for sure, and whatever is no JSON.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.compiled import kernel
from keygrouping.job.kinds import BOOLEAN, MISSING, NULL, REAL, TEXT, WHOLE
from keygrouping.raw_bytes import View, byte, eight, not_plain, trailing_zeros, view_of

_QUOTE, _COMMA, _MINUS, _POINT, _ZERO, _NINE, _COLON, _BACKSLASH = 34, 44, 45, 46, 48, 57, 58, 92
_OPEN, _CLOSE, _BLANK = 123, 125, 32
_MOST_DIGITS = 18
"""Digits that a signed integer of 64 bits holds, whatever they are. One without sign holds one more."""

_AT_ONCE = 32
"""Bytes of a string that are looked at together."""
_TEN = np.uint64(10)

_ZEROS, _ABOVE_NINE, _TOPS = (np.uint64(0x0101010101010101 * each) for each in (_ZERO, 0x80 - 10, 0x80))
"""The same in each of eight bytes: the digit 0, what takes a number above 9 to 128, and 128."""
_TENS = np.array([10**digits for digits in range(9)], np.uint64)

_LEAST_POWER, _MOST_POWER = -342, 308


def _power(exponent: int) -> int:
    """The first 128 bits of a power of ten, rounded down."""
    if exponent >= 0:
        power: int = 10**exponent
        return power << 128 - power.bit_length() if power.bit_length() <= 128 else power >> power.bit_length() - 128
    divisor: int = 10**-exponent
    quotient = (1 << 128 + divisor.bit_length()) // divisor
    return quotient >> quotient.bit_length() - 128


_POWERS = np.array(
    [divmod(_power(exponent), 1 << 64) for exponent in range(_LEAST_POWER, _MOST_POWER + 1)],
    np.uint64,
)
_MOST_EXACT_POWER = 22
_EXACT_POWERS = np.array([10.0**exponent for exponent in range(_MOST_EXACT_POWER + 1)])
_MOST_EXACT = np.uint64(1 << 53)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_ROUNDED_OFF = np.uint64(0x1FF)


class Names(NamedTuple):
    """The wanted names, one after the other in `data`: name i lies from ends[i] to ends[i + 1].

    `words` are their first eight bytes as little-endian numbers.
    """

    data: NDArray[np.uint8]
    ends: NDArray[np.int64]
    words: NDArray[np.uint64]


class Members(NamedTuple):
    """What was found, by name and row: see `Member`."""

    kinds: NDArray[np.uint8]
    bits: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


@kernel
def read_all(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64], names: Names, members: Members
) -> NDArray[np.bool_]:
    """Reads each document; gives which ones could be. `members.kinds` is zero before.

    Names and members are used here and nowhere below: to pass them on costs more than to read a member.
    """
    plain = np.empty(len(starts), np.bool_)
    text = view_of(data)
    for row in range(len(starts)):
        end = starts[row] + max(0, sizes[row])
        at, more = first_member(text, starts[row], end)
        while more:
            name = at
            size, value, after, kind, bits = read_member(text, name, end)
            for place in range(len(names.ends) - 1):
                start = names.ends[place]
                if (
                    names.ends[place + 1] - start == size
                    and begins_with(text, name, end, names.words[place], size)
                    and (size <= 8 or are_same(text, name, names.data, start, size))
                ):
                    quotes = 1 if kind == TEXT else 0
                    after = after if members.kinds[place, row] == MISSING else -1
                    members.kinds[place, row] = kind
                    members.bits[place, row] = bits
                    members.starts[place, row] = value + quotes
                    members.sizes[place, row] = after - value - 2 * quotes
            at, more = next_member(text, after, end)
        plain[row] = at >= 0
    return plain


@kernel
def first_member(data: View, at: int, end: int) -> Any:
    """Where the first name in the object byte(data, at:end) begins, and that there is one; -1 if it is no object."""
    at = after_blanks(data, at, end)
    if at >= end or byte(data, at) != _OPEN:
        return -1, False
    at = after_blanks(data, at + 1, end)
    if at < end and byte(data, at) == _CLOSE:
        return (at if after_blanks(data, at + 1, end) == end else -1), False
    if at < end and byte(data, at) == _QUOTE:
        return at + 1, True
    return -1, False


@kernel
def next_member(data: View, at: int, end: int) -> Any:
    """Like `first_member`, of the one that follows a value that ends at `at`."""
    if at < 0:
        return -1, False
    at = after_blanks(data, at, end)
    if at < end and byte(data, at) == _CLOSE:
        return (at if after_blanks(data, at + 1, end) == end else -1), False
    if at >= end or byte(data, at) != _COMMA:
        return -1, False
    at = after_blanks(data, at + 1, end)
    if at < end and byte(data, at) == _QUOTE:
        return at + 1, True
    return -1, False


@kernel
def read_member(data: View, at: int, end: int) -> Any:
    """The member whose name begins at `at`: the name's size, where the value begins and ends, its kind and bits.

    As if its name were of -1 bytes, and as if it ended at -1, if it is none that can be read here.
    """
    stop = end_of_text(data, at, end)
    value = after_blanks(data, stop + 1, end) if stop >= 0 else end
    if value >= end or byte(data, value) != _COLON:
        return -1, -1, -1, NULL, 0
    value = after_blanks(data, value + 1, end)
    after, kind, bits = read_value(data, value, end)
    return (stop - at if after >= 0 else -1), value, after, kind, bits


@kernel
def begins_with(data: View, at: int, end: int, word: np.uint64, size: int) -> bool:
    """Whether the text there, of this size, has the first bytes of this little-endian number: as many, up to eight."""
    size = min(size, 8)
    seen = np.uint64(0)
    if end - at >= 8:
        seen = eight(data, at)
    else:
        for i in range(size):
            seen |= np.uint64(byte(data, at + i)) << np.uint64(8 * i)
    return size == 0 or (seen ^ word) << np.uint64(64 - 8 * size) == 0


@kernel
def are_same(data: View, at: int, other: NDArray[np.uint8], place: int, size: int) -> bool:
    """Whether as many bytes from there on are the same."""
    same = 0
    while same < size and byte(data, at + same) == other[place + same]:
        same += 1
    return same == size


@kernel
def read_value(data: View, at: int, end: int) -> Any:
    """Where the value that begins at `at` ends, its kind, and its bits if it is a number; -1 if it can't be read."""
    if at >= end:
        return -1, NULL, 0
    first = byte(data, at)
    if first == _QUOTE:
        stop = end_of_text(data, at + 1, end)
        return (stop + 1 if stop >= 0 else -1), TEXT, 0
    if first == _MINUS or _ZERO <= first <= _NINE:
        return read_number(data, at, end)
    if is_word(data, at, end, 0x65757274):  # true
        return at + 4, BOOLEAN, 0
    if is_word(data, at, end, 0x6C6C756E):  # null
        return at + 4, NULL, 0
    if first == 102 and is_word(data, at + 1, end, 0x65736C61):  # f, alse
        return at + 5, BOOLEAN, 0
    return -1, NULL, 0


@kernel
def is_word(data: View, at: int, end: int, word: int) -> bool:
    """Whether these four bytes, as a little-endian number, come next."""
    if end - at < 4:
        return False
    seen = np.int64(0)
    for i in range(4):
        seen |= np.int64(byte(data, at + i)) << 8 * i
    return bool(seen == word)


@kernel
def after_blanks(data: View, at: int, end: int) -> int:
    """The first place that holds no white space."""
    while at < end and byte(data, at) <= _BLANK and (byte(data, at) == _BLANK or byte(data, at) in (9, 10, 13)):
        at += 1
    return at


@kernel
def end_of_text(data: View, at: int, end: int) -> int:
    """Where the quote stands that ends a string of UTF-8 without escapes; -1 if there is none."""
    while at < end:
        odd = odd_from(data, at, end)
        if odd == 0:
            at = min(at + _AT_ONCE, end)
            continue
        at += trailing_zeros(odd)
        here = byte(data, at)
        if here == _QUOTE:
            return at
        if here < _BLANK or here == _BACKSLASH:
            return -1
        at = at + 1 if here < 128 else after_letter(data, at, end)
        if at < 0:
            return -1
    return -1


@kernel
def odd_from(data: View, at: int, end: int) -> Any:
    """A bit for each of the next bytes up to the end: 1 where `not_plain` says so, or where nobody has looked."""
    left = end - at
    if left >= _AT_ONCE:
        return not_plain(data, at)
    return not_plain(data, end - _AT_ONCE) >> np.uint64(_AT_ONCE - left) if end >= _AT_ONCE else _ONE


@kernel
def after_letter(data: View, at: int, end: int) -> int:
    """Where a code point of several bytes ends; -1 if it is not UTF-8: too long, a surrogate, or above U+10FFFF."""
    lead = byte(data, at)
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC2 or lead > 0xF4 or end - at < size:
        return -1
    least = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    most = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if not least <= byte(data, at + 1) <= most:
        return -1
    for i in range(2, size):
        if not 0x80 <= byte(data, at + i) <= 0xBF:
            return -1
    return at + size


@kernel
def read_number(data: View, at: int, end: int) -> Any:
    """Like `read_value`, of a number: an integer, or the bits of a float."""
    negative = byte(data, at) == _MINUS
    first = at + 1 if negative else at
    at, mantissa = read_digits(data, first, end, np.uint64(0))
    digits = at - first
    if digits == 0 or digits > _MOST_DIGITS or (digits > 1 and byte(data, first) == _ZERO):
        return -1, NULL, 0
    if at >= end or (byte(data, at) != _POINT and byte(data, at) | 32 != 101):
        if negative and mantissa == 0:  # -0 is 0
            return -1, NULL, 0
        return at, WHOLE, -np.int64(mantissa) if negative else np.int64(mantissa)
    exponent = 0
    if byte(data, at) == _POINT:
        point = at + 1
        at = point if mantissa else after_zeros(data, point, end)
        digits = digits if mantissa else point - at
        at, mantissa = read_digits(data, at, end, mantissa)
        exponent = point - at
        if exponent == 0 or digits - exponent > _MOST_DIGITS + 1:
            return -1, NULL, 0
        if exponent == -1 and mantissa % _TEN == 0:  # as 8881625240990930.0, which is sure without the zero
            mantissa, exponent = mantissa // _TEN, 0
    if at < end and byte(data, at) | 32 == 101:  # e
        at, power = read_power(data, at + 1, end)
        exponent += power
    bits = nearest(mantissa, exponent) if at >= 0 else np.int64(-1)
    return (at if bits >= 0 else -1), REAL, (bits | np.int64(-(1 << 63)) if negative else bits)


@kernel
def after_zeros(data: View, at: int, end: int) -> int:
    """The first place that holds no zero."""
    while at < end and byte(data, at) == _ZERO:
        at += 1
    return at


@kernel
def read_digits(data: View, at: int, end: int, number: np.uint64) -> Any:
    """Where the digits that begin at `at` end, and the number with them behind it; it is wrong if they are too many."""
    while end - at >= 8:
        digits = eight(data, at) ^ _ZEROS
        size = trailing_zeros(((digits + _ABOVE_NINE) | digits) & _TOPS) >> 3
        if size == 0:
            return at, number
        number = number * _TENS[size] + of_digits(digits << np.uint64(64 - 8 * size))
        at += size
        if size < 8:
            return at, number
    while at < end and _ZERO <= byte(data, at) <= _NINE:
        number = number * np.uint64(10) + np.uint64(byte(data, at) - _ZERO)
        at += 1
    return at, number


@kernel
def of_digits(digits: np.uint64) -> np.uint64:
    """The number of eight decimal digits, a byte each, the first one in the lowest byte: by pairs, fours and all."""
    pairs = (digits * np.uint64(10 * 256 + 1)) >> np.uint64(8) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100 * 65536 + 1)) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF)
    return (fours * np.uint64(10_000 * (1 << 32) + 1)) >> np.uint64(32)


@kernel
def read_power(data: View, at: int, end: int) -> Any:
    """Where an exponent ends, and what it is; -1 if it is none, or a large one."""
    negative = at < end and byte(data, at) == _MINUS
    if negative or (at < end and byte(data, at) == 43):
        at += 1
    after, power = read_digits(data, at, end, np.uint64(0))
    if after == at or after - at > 4:
        return -1, 0
    return after, -np.int64(power) if negative else np.int64(power)


@kernel
def nearest(mantissa: np.uint64, exponent: int) -> np.int64:
    """The bits of the double nearest to mantissa x 10^exponent; -1 where that is not sure, subnormal or infinite.

    Where both are exact as doubles, so is what one operation makes of them; else the method of Eisel and Lemire, as
    Go's strconv has it.
    """
    if mantissa <= _MOST_EXACT and -_MOST_EXACT_POWER <= exponent <= _MOST_EXACT_POWER:
        if exponent < 0:
            return bits_of(np.float64(mantissa) / _EXACT_POWERS[-exponent])
        return bits_of(np.float64(mantissa) * _EXACT_POWERS[exponent])
    if mantissa == 0:
        return np.int64(0)
    if exponent < _LEAST_POWER or exponent > _MOST_POWER:
        return np.int64(-1)
    zeros = leading_zeros(mantissa)
    mantissa <<= np.uint64(zeros)
    binary: Any = (217706 * exponent >> 16) + 64 + 1023 - zeros
    high, low = product(mantissa, _POWERS[exponent - _LEAST_POWER, 0])
    if high & _ROUNDED_OFF == _ROUNDED_OFF and low + mantissa < mantissa:
        further, rest = product(mantissa, _POWERS[exponent - _LEAST_POWER, 1])
        wider = low + further
        high += _ONE if wider < low else np.uint64(0)
        if high & _ROUNDED_OFF == _ROUNDED_OFF and wider + _ONE == 0 and rest + mantissa < mantissa:
            return np.int64(-1)
        low = wider
    top = high >> np.uint64(63)
    found = high >> (top + np.uint64(9))
    binary -= 1 - np.int64(top)
    if low == 0 and high & _ROUNDED_OFF == 0 and found & np.uint64(3) == 1:
        return np.int64(-1)
    found = (found + (found & _ONE)) >> _ONE
    if found >> np.uint64(53):
        found >>= _ONE
        binary += 1
    if binary < 1 or binary >= 0x7FF:
        return np.int64(-1)
    return np.int64(binary) << 52 | np.int64(found & np.uint64((1 << 52) - 1))


@kernel
def bits_of(number: np.float64) -> np.int64:
    """A double as it stands in memory."""
    return np.float64(number).view(np.int64)


@kernel
def leading_zeros(number: np.uint64) -> int:
    """Zero bits above the highest one."""
    zeros = 0
    step = 32
    while step:
        if number >> np.uint64(64 - step) == 0:
            number <<= np.uint64(step)
            zeros += step
        step >>= 1
    return zeros


@kernel
def product(left: np.uint64, right: np.uint64) -> Any:
    """The high and the low 64 bits of a product."""
    left_low, left_high = left & _LOW, left >> _HALF
    right_low, right_high = right & _LOW, right >> _HALF
    middle = left_high * right_low + ((left_low * right_low) >> _HALF)
    other = left_low * right_high + (middle & _LOW)
    return left_high * right_high + (middle >> _HALF) + (other >> _HALF), left * right
