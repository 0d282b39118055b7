"""Events of hot keys on their way through a slot: as records, and as the events that they were."""

from __future__ import annotations

from keygrouping_app.events import Event, Headers, Outgoing, Raw, Source, size_of

SOURCE = "keygrouping-source"
"""Header of a record of a slot: the event's identity, `topic/partition/offset`."""
TIME = "keygrouping-time"
"""Header of a record of a slot: the event's time, ms since the epoch. The record's own is when it was written, as
retention counts from it: an old event is kept as long as others."""
_OURS = 2
LARGEST = 900_000
"""Bytes of what is written to a slot at most."""
_FORMAT, _FORMAT_OF_HEADER = 100, 10
"""Bytes at most that the format adds to a record in a batch of its own, and to each header."""


class Surplus(Event, kw_only=True):
    """An event that was read from a slot: topic, partition, offset, time and headers are those of its source.

    `place` is its source's topic, partition and offset, `sent` its record's time there. `own`: how many of the headers
    of its record here, the last ones, are ours.
    """

    place: tuple[str, int, int]
    sent: int
    own: int

    @property
    def topic(self) -> str:
        """The source's topic."""
        return self.place[0]

    @property
    def partition(self) -> int:
        """The number of the source's partition."""
        return self.place[1]

    @property
    def offset(self) -> int:
        """The offset in that partition."""
        return self.place[2]

    @property
    def time(self) -> int:
        """The source record's timestamp, ms since the epoch."""
        return self.sent

    @property
    def headers(self) -> Headers:
        """Names and values, as they came: without ours."""
        return self.raw.headers[: len(self.raw.headers) - self.own]


def may_be_written(event: Event, largest: int = LARGEST) -> bool:
    """Whether brokers take it as a record of a slot; `largest`: bytes of a batch that they take."""
    if event.size > largest or (event.raw.key is None and event.raw.value is None):
        return False
    # As `record_of` makes it, which would cost more: many events that wait are looked at.
    headers = [*event.headers, (SOURCE, b""), (TIME, b"")]
    named = sum(len(name.encode()) + len(value or b"") + _FORMAT_OF_HEADER for name, value in headers)
    return event.size + named + len(event.identity.encode()) + len(str(event.time)) + _FORMAT <= largest


def record_of(event: Event, topic: str, slot: int) -> Outgoing:
    """The event as a record of a slot, of the time when it is written."""
    ours = ((SOURCE, event.identity.encode()), (TIME, b"%d" % event.time))
    return Outgoing(topic, slot, -1, event.raw.key, event.raw.value, (*event.headers, *ours))


def surplus_of(raw: Raw, source: Source, topic: str) -> Surplus:
    """The event that a slot's record is; what others have written there has its identity from the slot itself."""
    if (found := _written(raw.headers)) is not None:
        (place, sent), own = found, _OURS
    else:
        place, sent, own = (topic, source.partition, raw.offset), raw.timestamp, 0
    return Surplus(raw, source, raw.key, size_of(raw), place=place, sent=sent, own=own)


def source_of(raw: Raw, topic: str) -> str:
    """The topic that a record of a slot is from: that of the slots, `topic`, if others have written it."""
    found = _written(raw.headers)
    return topic if found is None else found[0][0]


def _written(headers: Headers) -> tuple[tuple[str, int, int], int] | None:
    """The place and the time that our headers tell; None if they are not ours."""
    ours = headers[-_OURS:]
    if [name for name, _ in ours] == [SOURCE, TIME]:
        name, _, place = _text(ours[0][1]).partition("/")
        partition, _, offset = place.partition("/")
        time = _text(ours[1][1])
        if name and partition.isdecimal() and offset.isdecimal() and time.removeprefix("-").isdecimal():
            return (name, int(partition), int(offset)), int(time)
    return None


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
