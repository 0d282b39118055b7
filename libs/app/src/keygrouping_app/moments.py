"""Where an app begins and ends in its topics, as its user says it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Literal, TypeAlias

Start: TypeAlias = Literal["earliest", "latest"] | datetime | str
Until: TypeAlias = Literal["latest"] | datetime | str | None
Moment: TypeAlias = Literal["earliest", "latest"] | int
"""An end of the topic, or the first record of a time in ms and later."""

_WANTED = "a time with its zone, such as '2026-11-01T00:00:00Z', that is not in the future"


def moment_of(given: datetime | str) -> Moment:
    """What was given, read. ValueError if it is none."""
    if given == "earliest":
        return "earliest"
    if given == "latest":
        return "latest"
    at = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    if at.tzinfo is None:
        raise ValueError("a time without its zone")
    milliseconds = int(at.timestamp() * 1000)
    if not 0 <= milliseconds <= time.time() * 1000:
        raise ValueError("a time in the future, or before 1970")
    return milliseconds


def faults_of(start: Start, until: Until) -> Iterator[str]:
    """What is wrong with both, each with what to do."""
    begins = _read(start)
    if begins is None:
        yield f"start is {start!r}: give 'earliest', 'latest', or {_WANTED}"
    if until is None:
        return
    ends = _read(until)
    if ends is None or ends == "earliest":
        yield f"until is {until!r}: give 'latest', {_WANTED}, or nothing to run on"
    elif isinstance(begins, int) and isinstance(ends, int) and begins >= ends:
        yield f"until ({until}) is no later than start ({start}): nothing lies between them"


def _read(given: datetime | str) -> Moment | None:
    try:
        return moment_of(given)
    except (ValueError, TypeError, OverflowError):
        return None
