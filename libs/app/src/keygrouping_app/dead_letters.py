"""What goes to the dead letters: the event as it came, and headers that say why and where it came from."""

from __future__ import annotations

from dataclasses import replace

from keygrouping_app.events import Event, Outgoing
from keygrouping_app.handlers import LARGEST_OUTPUT
from keygrouping_app.scheduler import Failure

PREFIX = "keygrouping-"
_TRUNCATED = f"{PREFIX}truncated"
EVENT_TIME = f"{PREFIX}event-time"
"""Header of a letter that is not of its event's time: that time, ms since the epoch."""
_TOLD = 9
"""How many headers say why and where from; an event's own come first."""
REDRIVEN = f"{PREFIX}redriven"
"""Header of an event that was sent again: `topic/partition/offset` of the dead letter that it was."""
HEADERS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("app", "reason", "detail", "digest", "tries", "identity", "topic", "partition", "offset", "truncated"),
        *("event-time", "redriven"),
    )
)
"""Ours, which an event that is sent again doesn't keep."""


def dead_letter(event: Event, failure: Failure, topic: str, app: str) -> Outgoing:
    """The record for the topic of dead letters; one that is too large for it comes without value."""
    told = {
        "keygrouping-app": app,
        "keygrouping-reason": failure.reason,
        "keygrouping-detail": failure.detail,
        "keygrouping-digest": failure.digest,
        "keygrouping-tries": str(event.tries),
        "keygrouping-identity": event.identity,
        "keygrouping-topic": event.topic,
        "keygrouping-partition": str(event.partition),
        "keygrouping-offset": str(event.offset),
    }
    own = [(name.encode(errors="backslashreplace").decode(), value) for name, value in event.headers]
    headers = (*own, *((name, text.encode(errors="replace")) for name, text in told.items()))
    # A record has a key or a value.
    value = b"" if event.raw.key is None and event.raw.value is None else event.raw.value
    letter = Outgoing(topic, None, event.time, event.raw.key, value, headers)
    if event.time < 0:
        letter = written_now(letter)
    return letter if letter.size <= LARGEST_OUTPUT else without_value(letter)


def corrected(letter: Outgoing, *, is_late: bool) -> Outgoing | None:
    """What is written instead of a dead letter that its topic does not take; None: there is nothing else.

    `is_late`: as its time is refused.
    """
    if is_late:
        return None if _says(letter, EVENT_TIME) else written_now(letter)
    return None if _says(letter, _TRUNCATED) else without_value(letter)


def written_now(letter: Outgoing) -> Outgoing:
    """Of the time when it is written."""
    return replace(letter, time=-1, headers=(*letter.headers, (EVENT_TIME, str(letter.time).encode())))


def without_value(letter: Outgoing) -> Outgoing:
    """Its key, and the headers that say why."""
    told = _TOLD + _says(letter, EVENT_TIME)
    cut = (*letter.headers[-told:], (_TRUNCATED, str(letter.size).encode()))
    key = letter.key if letter.key is None or len(letter.key) < LARGEST_OUTPUT // 2 else None
    return replace(letter, key=key, value=None if key is not None else b"", headers=cut)


def _says(letter: Outgoing, header: str) -> bool:
    """Whether it has one of those that follow the others."""
    return header in [name for name, _ in letter.headers[-2:]]
