"""What a handler is given, and what it may return."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from keygrouping_app.codecs import Codec, Topic, as_topic
from keygrouping_app.states import States

Headers = Sequence[tuple[str, bytes | None]]

_UNREAD: Any = object()


class Raw(Protocol):
    """A record as it was read; `timestamp` is ms since the epoch."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class Placed(Raw, Protocol):
    """A record that says where it stands; aiokafka's ConsumerRecord is one."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Record:
    """A record that was made here instead of read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class UndecodableError(ValueError):
    """Bytes that are not what the topic's codec reads; the event is dead-lettered without another try."""


class Source:
    """A partition as long as a member owns it: what its events belong to.

    `events` and `bytes` are what is held of it in memory. Once `closed` nothing of it is started any more. `states` are
    those of its keys, if its handler has some.
    """

    __slots__ = ("bytes", "closed", "events", "partition", "running", "states", "topic")

    def __init__(self, topic: Topic, states: States | None = None, partition: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.states = states
        self.events = 0
        self.bytes = 0
        self.running = 0
        self.closed = False

    def hold(self, events: Sequence[Event]) -> None:
        """These events of it are held."""
        self.events += len(events)
        self.bytes += sum([event.size for event in events])

    def let_go(self, events: Sequence[Event]) -> None:
        """These events of it are held no longer."""
        self.events -= len(events)
        self.bytes -= sum([event.size for event in events])

    def group_of(self, event: Event) -> Hashable:
        """What orders an event of it."""
        return event.group

    def here(self, events: list[Event]) -> list[Event]:
        """Those that are handled here: all, but for keys that were handed over."""
        return events


class Event(msgspec.Struct, eq=False):
    """One record of a topic, read when it is asked for.

    `identity` (`topic/partition/offset`) is the same whenever the event is handled again: sinks can drop doubles by it.
    """

    raw: Raw
    source: Source
    group: Hashable
    """What orders it: the events of one group run one after another; None: it has no order."""
    size: int
    """Bytes of key and value."""
    tries: int = 0
    """How often it has failed until now."""
    since: float = 0.0
    """When its handler's lanes took it, by the event loop's clock."""
    solo: bool = False
    """Whether it is handled in a batch of its own, as one that it was in has failed."""
    _key: Any = _UNREAD
    _value: Any = _UNREAD

    @classmethod
    def of(
        cls, topic: str | Topic, value: Any = None, *, key: Any = None, headers: Headers = (), time: int = 0
    ) -> Event:
        """An event for `App.test`: value and key are encoded by the topic's codec; time is ms since the epoch."""
        of = as_topic(topic)
        raw = Record(of.name, 0, -1, time, _encoded(of.key, key), _encoded(of.value, value), headers)
        return event_of(raw, Source(of))

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.source.topic.name

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.source.partition

    @property
    def offset(self) -> int:
        """The offset in the partition."""
        return self.raw.offset

    @property
    def time(self) -> int:
        """The record's timestamp, ms since the epoch."""
        return self.raw.timestamp

    @property
    def headers(self) -> Headers:
        """Names and values, as they came."""
        return self.raw.headers

    @property
    def identity(self) -> str:
        """`topic/partition/offset`."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def key(self) -> Any:
        """The key as the topic's codec reads it (text by default); None if there is none. UndecodableError."""
        if self._key is _UNREAD:
            self._key = _decoded(self.source.topic.key, self.raw.key, "key", self)
        return self._key

    @property
    def value(self) -> Any:
        """The value as the topic's codec reads it (JSON by default); None if there is none. UndecodableError."""
        if self._value is _UNREAD:
            self._value = _decoded(self.source.topic.value, self.raw.value, "value", self)
        return self._value

    def forget(self) -> None:
        """Key and value are decoded once more when they are asked for: a call that has failed may have changed them."""
        self._key = self._value = _UNREAD

    def __repr__(self) -> str:
        return f"<Event {self.identity} key={self.raw.key!r}>"


def event_of(raw: Raw, source: Source) -> Event:
    """The event that a record of a source is, ordered by its key."""
    return Event(raw, source, raw.key, size_of(raw))


def events_of(records: Iterable[Raw], source: Source) -> list[Event]:
    """Like `event_of` for each of them, but quicker."""
    return [Event(raw, source, key := raw.key, len(raw.value or b"") + len(key or b"")) for raw in records]


def size_of(raw: Raw) -> int:
    """Bytes of key and value."""
    return len(raw.value or b"") + len(raw.key or b"")


@dataclass(frozen=True, slots=True)
class Output:
    """A record that a handler returns, to be written before its event counts as handled.

    `partition` None: by the key, as Kafka's default partitioner chooses it. `time` (ms since the epoch) None: that of
    the event. Value and key are encoded by the topic's codec.
    """

    topic: str | Topic
    value: Any = None
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    time: int | None = None

    def encoded(self, event: Event) -> Outgoing:
        """The record as bytes; ValueError if a codec can't write it."""
        topic = as_topic(self.topic)
        key, value = _encoded(topic.key, self.key), _encoded(topic.value, self.value)
        time = event.time if self.time is None else self.time
        return Outgoing(topic.name, self.partition, time, key, value, tuple(self.headers))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record as it is written; `partition` None: by the key."""

    topic: str
    partition: int | None
    time: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """Its bytes, but for what the format adds."""
        named = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + named


def _decoded(codec: Codec, data: bytes | None, what: str, event: Event) -> Any:
    if data is None:
        return None
    try:
        return codec.decode(data)
    except OSError:  # of a registry or the like: not the bytes are to blame
        raise
    except Exception as error:
        raise UndecodableError(f"the {what} of {event.identity} can't be read: {error}") from error


def _encoded(codec: Codec, value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else codec.encode(value)
