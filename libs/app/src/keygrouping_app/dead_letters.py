"""What goes to the dead letters: the event as it came, and headers that say why and where it came from."""

from __future__ import annotations

from keygrouping_app.events import Event, Outgoing
from keygrouping_app.handlers import LARGEST_OUTPUT
from keygrouping_app.scheduler import Failure

PREFIX = "keygrouping-"
REDRIVEN = f"{PREFIX}redriven"
"""Header of an event that was sent again: `topic/partition/offset` of the dead letter that it was."""
HEADERS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("app", "reason", "detail", "digest", "tries", "identity", "topic", "partition", "offset", "truncated"),
        "redriven",
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
    letter = Outgoing(topic, None, event.time, event.raw.key, event.raw.value, headers)
    if letter.size <= LARGEST_OUTPUT:
        return letter
    cut = (*headers[len(own) :], ("keygrouping-truncated", str(letter.size).encode()))
    key = event.raw.key if event.raw.key is None or len(event.raw.key) < LARGEST_OUTPUT // 2 else None
    return Outgoing(topic, None, event.time, key, None, cut)
