"""States that merge: what calls leave, on whatever member they ran, becomes one state of each key.

Each call of a handler with `split` and `State(merge=...)` begins with a new state. What it leaves is a *partial*: it is
written to the topic `partials` in the transaction that commits the call's event, those of a key in one transaction as
one. From there an ordinary handler with a state, the merger, takes them, as the aggregator takes the partials of the
pipeline's workers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from keygrouping_app.codecs import BYTES, JSON, Topic
from keygrouping_app.events import Event, Headers, Outgoing, Raw, Source, UndecodableError, size_of
from keygrouping_app.handlers import Handler
from keygrouping_app.kept import Kept, UnreadableStateError, UnusableStateError
from keygrouping_app.moves import VERSION, version_of
from keygrouping_app.scheduler import Call
from keygrouping_app.state import Form, State
from keygrouping_app.states import key_bytes
from keygrouping_app.surplus import TIME


def partials_of(app: str, topic: str) -> str:
    """The name of the topic of partial states of a handler's keys."""
    return f"{app}.{topic}.partials"


def marks_of(app: str, topic: str) -> str:
    """The name of the topic where each partition of an input tells that it has begun to leave partial states."""
    return f"{partials_of(app, topic)}.inputs"


class Partials:
    """Of one handler, on their way to the merger."""

    def __init__(self, handler: Handler) -> None:
        assert handler.state is not None
        self.topic = handler.partials
        self._state = handler.state
        self._form = Form(handler.state)
        self._by_field = handler.key is not None

    def check(self, group: Hashable) -> None:
        """StateError if a key can't have a state."""
        key_bytes(group, by_field=self._by_field)

    def of(self, call: Call) -> list[Outgoing]:
        """What a call has left of its key's state: one record, or none if it is as a new one."""
        if call.after is None:
            return []
        (event,) = call.events
        return [self._record(key_bytes(event.group, by_field=self._by_field), call.after, event.time)]

    def together(self, records: Sequence[Outgoing]) -> list[Outgoing]:
        """The records of a transaction, with one partial of each key at most; all others as they are, and before."""
        by_key: defaultdict[bytes, list[Outgoing]] = defaultdict(list)
        others: list[Outgoing] = []
        for record in records:
            if record.topic == self.topic and record.key is not None:
                by_key[record.key].append(record)
            else:
                others.append(record)
        return [*others, *(one for partials in by_key.values() for one in self._merged(partials))]

    def _merged(self, partials: list[Outgoing]) -> Iterable[Outgoing]:
        if len(partials) == 1:
            return partials
        merge = self._state.merge
        assert merge is not None
        try:
            first = self._form.read(self._kept(partials[0]))
            for other in partials[1:]:
                merge(first, self._form.read(self._kept(other)))
            data = self._form.write(first)
        except Exception:
            return partials  # the merger meets the same one by one, and tells which can't be merged
        key, time = partials[0].key, max(_time_of(each.headers, -1) for each in partials)
        return [] if data is None or key is None else [self._record(key, data, time)]

    def _kept(self, record: Outgoing) -> Kept:
        assert record.value is not None
        return Kept(record.value, 0, self._state.version)

    def _record(self, key: bytes, data: bytes, time: int) -> Outgoing:
        """Of the time when it is written, as retention counts from it."""
        headers = ((VERSION, b"%d" % self._state.version), (TIME, b"%d" % time))
        return Outgoing(self.topic, None, -1, key, data, headers)


class Partial(Event, kw_only=True):
    """A partial state that was read; its time is that of the latest event in it."""

    sent: int

    @property
    def time(self) -> int:
        """Ms since the epoch."""
        return self.sent


def partial_of(raw: Raw, source: Source) -> Partial:
    """The partial that a record is."""
    return Partial(raw, source, raw.key, size_of(raw), sent=_time_of(raw.headers, raw.timestamp))


class Merger:
    """The function of the handler that takes partials: merges each into the state of its key."""

    def __init__(self, state: State, name: str, topic: str, *, by_field: bool) -> None:
        self.topic = topic
        """The input of the handler that leaves them."""
        self._state = state
        self._form = Form(state)
        self._by_field = by_field
        self.__qualname__ = f"{name} (merge)"

    async def __call__(self, partials: list[Event], state: Any) -> Any:
        """Gives what `publish` makes of the state then."""
        assert self._state.merge is not None
        for each in partials:
            self._state.merge(state, self._read(each))
        if self._state.publish is None:
            return None
        last = partials[-1]
        return self._state.publish(_key_of(last) if self._by_field else last.key, state)

    def _read(self, partial: Event) -> Any:
        data, version = partial.raw.value, version_of(partial.headers)
        if version > self._state.version:
            raise UnusableStateError(
                f"partial states of version {version} are there, and this program has version {self._state.version}: "
                "it is an older one, run the newer"
            )
        try:
            return self._form.read(Kept(data or b"", partial.time, version))
        except UnreadableStateError as error:
            raise UndecodableError(f"a partial state can't be read: {error}") from error


def merger_of(handler: Handler) -> Handler:
    """The handler that takes the partials of another one, and keeps the states of its keys."""
    assert handler.state is not None
    by_field = handler.key is not None
    return Handler(
        topic=Topic(handler.partials, value=BYTES, key=JSON if by_field else handler.topic.key),
        function=Merger(handler.state, handler.name, handler.topic.name, by_field=by_field),
        key=_key_of if by_field else None,
        order="key",
        concurrency=1,  # merges wait for nothing, so more of them would not get more done
        batch=True,
        retries=handler.retries,
        timeout=handler.timeout,
        state=replace(handler.state, merge=None, publish=None),
    )


def with_mergers(handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """These by topic, and those that take partials of some of them."""
    return {**handlers, **{each.partials: merger_of(each) for each in handlers.values() if each.partials}}


def _key_of(partial: Event) -> Hashable:
    """As `key=` has given it, and `States` has written it."""
    try:
        key: Hashable = orjson.loads(partial.raw.key or b"")
    except ValueError as error:
        raise UndecodableError(f"the key of a partial state can't be read: {error}") from error
    return key


def _time_of(headers: Headers, otherwise: int) -> int:
    """What the header says."""
    for name, value in headers:
        if name == TIME and value is not None and value.removeprefix(b"-").isdigit():
            return int(value)
    return otherwise
