"""Event times in whole milliseconds: whatever is finer is cut off, by integer arithmetic.

Rounding would move an event into the next window, and a float of seconds since 1970 knows no exact milliseconds. So
every time here goes down to the millisecond that it lies in, before 1970 as well.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

RFC_3339 = r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))"
"""All of a time as text, as a regular expression of Python and of Java: day, clock, fraction, and the offset's sign,
hours and minutes. Its digits are ASCII ones.
"""

_TEXT = re.compile(RFC_3339, re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MOST_DIGITS = 40
"""Most digits of a number of seconds: more would only cost time."""


def ms_of(moment: datetime) -> int:
    """Milliseconds since the epoch at which, or after which, a moment lies; without a zone it is UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def ms_of_rfc3339(text: str) -> int | None:
    """Milliseconds of a text such as 2026-01-31T12:00:00.123456789+01:00; None if it is none.

    Any number of digits may follow the point. There is no second 60 and no hour 24.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    day, clock, fraction, sign, hours, minutes = found.groups()
    if int(hours or 0) > 23 or int(minutes or 0) > 59:
        return None
    try:
        local = ms_of(datetime(*map(int, (*day.split("-"), *clock.split(":")))))  # type: ignore[arg-type]
    except ValueError:
        return None
    offset = 60_000 * (60 * int(hours or 0) + int(minutes or 0))
    return local + int((fraction or "")[:3].ljust(3, "0")) + (offset if sign == "-" else -offset)


def ms_of_number(number: int | str | Decimal, unit_ms: int, per_ms: int = 1) -> int:
    """Milliseconds of a number of units of `unit_ms` milliseconds each, exactly as its decimal digits say.

    Of units that are shorter, `per_ms` make one times `unit_ms`. ValueError if it is no finite decimal number, or one
    of more digits than any time has.
    """
    if isinstance(number, int):
        return number * unit_ms // per_ms
    try:
        value = Decimal(number)
    except ArithmeticError:
        raise ValueError(f"{number!r} is no number") from None
    if not value.is_finite() or len(value.as_tuple().digits) > _MOST_DIGITS or abs(value.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"{number!r} is no time")
    numerator, denominator = value.as_integer_ratio()
    return numerator * unit_ms // (denominator * per_ms)
