"""Durations as people write them."""

import re

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)")

PATTERN = "^[0-9]+ *(ms|s|m|h|d)$"
"""What the text of a duration looks like."""
LONG_PATTERN = "^0*[1-9][0-9]* *(ms|s|m|h|d)$"
"""The same of one that is not 0."""


def parse_duration(value: object) -> int:
    """Milliseconds of a duration such as 1500, "250ms", "30s", "5m", "1h" or "1d"; ValueError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is no duration: give milliseconds or a text such as '30s', '5m', '1h', '1d'")
    return int(match[1]) * _UNITS[match[2]]
