"""Event times of files: the formats by name, and how a column's format is told by what stands in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from keygrouping.instants import ms_of, ms_of_number, ms_of_rfc3339

AUTO = "auto"
ISO = "iso"


class _Epoch(NamedTuple):
    """A count since 1970: milliseconds of a unit, units per millisecond, and what people call it."""

    unit_ms: int
    per_ms: int
    words: str


_EPOCHS = {
    "epoch_s": _Epoch(1000, 1, "seconds since 1970"),
    "epoch_ms": _Epoch(1, 1, "milliseconds since 1970"),
    "epoch_us": _Epoch(1, 1000, "microseconds since 1970"),
    "epoch_ns": _Epoch(1, 1_000_000, "nanoseconds since 1970"),
}

TIME_FORMATS = (AUTO, ISO, *_EPOCHS)
"""Names of time formats; any other format is one of `datetime.strptime`, in UTC unless it says otherwise."""

_EARLIEST_MS, _LATEST_MS = 300_000_000_000, 10_000_000_000_000
"""July 1979 to November 2286: within it no two units of epoch times can be mistaken for each other."""

_EXAMPLES = 3


def time_reader(time_format: str) -> Callable[[Any], int]:
    """What reads a value as ms since the epoch; raises ValueError, TypeError or OverflowError if it is no time."""
    if time_format in _EPOCHS:
        epoch = _EPOCHS[time_format]
        return lambda value: ms_of_number(_decimal(value), epoch.unit_ms, epoch.per_ms)
    if time_format == ISO:
        return _iso_ms
    return lambda value: ms_of(datetime.strptime(value, time_format))


def in_words(time_format: str) -> str:
    """A format for people, with the name by which it is asked for."""
    if time_format in _EPOCHS:
        return f"{_EPOCHS[time_format].words} ({time_format})"
    return "ISO 8601 (iso)" if time_format == ISO else f"the format {time_format}"


def told_by(values: Sequence[Any]) -> str:
    """The format that most of the values have; ValueError with examples if none of them has one that can be told."""
    votes = Counter(found for found in map(_format_of, values) if found is not None)
    if not votes:
        met = dict.fromkeys(f"{value!r:.40}" for value in values if value is not None)
        raise ValueError(", ".join(list(met)[:_EXAMPLES]) or "nothing")
    return votes.most_common(1)[0][0]


def _format_of(value: Any) -> str | None:
    for name in _EPOCHS:
        if _is_time(value, name, _EARLIEST_MS, _LATEST_MS):
            return name
    return ISO if _is_time(value, ISO, -_LATEST_MS * 100, _LATEST_MS * 100) else None


def _is_time(value: Any, time_format: str, earliest_ms: int, latest_ms: int) -> bool:
    try:
        return earliest_ms <= time_reader(time_format)(value) < latest_ms
    except (ValueError, TypeError, OverflowError):
        return False


def _decimal(value: Any) -> int | str | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise TypeError("neither a number nor the text of one")
    return value


def _iso_ms(value: str) -> int:
    """RFC 3339 first; what Python takes beyond that loses its digits after the sixth, which changes no millisecond."""
    time = ms_of_rfc3339(value)
    return ms_of(datetime.fromisoformat(value)) if time is None else time
