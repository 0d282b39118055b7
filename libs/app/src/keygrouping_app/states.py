"""The states of one partition's keys: found before a call, kept after it, and written by the transaction it is in."""

from __future__ import annotations

import math
import time as clock
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import orjson

from keygrouping_app.kept import Kept, StateError, UnusableStateError, parts_of
from keygrouping_app.state import State
from keygrouping_app.stores import ALL, DiskStore, MemoryStore, Store, one_source

_MOST_ENDED = 500
"""States that end by their age in one transaction."""
_MOST_NOTED = 16
"""Calls of a key that are remembered after a transaction has failed: others may fail for hours."""
_LARGEST_INT = 2**63
RESERVED = b"\0keygrouping-part:"
"""With which the keys of parts of states begin, see `parts`, and no key of a state."""
LARGEST_KEY = 16_384
"""Bytes of a key that has a state."""


def key_bytes(group: Hashable, *, by_field: bool) -> bytes:
    """How a key with a state is written. StateError if there can't be one.

    `by_field`: whether it is what `key=` says, and not the bytes of the record's key.
    """
    if group is None:
        raise StateError("an event without a key has no state: give it one, or take it by a handler without state")
    key = _encoded(group, by_field)
    if len(key) > LARGEST_KEY:
        raise StateError(f"a key with state has at most {LARGEST_KEY} bytes, not {len(key)}: use a digest of it")
    if key.startswith(RESERVED):
        raise StateError(f"a key with state does not begin with {RESERVED!r}: use another one")
    return key


def _encoded(group: Hashable, by_field: bool) -> bytes:
    if not by_field:
        assert isinstance(group, bytes)
        return group
    if isinstance(group, bool | float) and group == group // 1 and abs(group) < _LARGEST_INT:
        group = int(group)  # equal keys are one key
    try:
        if isinstance(group, str | int | float) and math.isfinite(group if isinstance(group, float) else 0):
            return orjson.dumps(group)
    except (TypeError, ValueError):
        pass  # too large for JSON, or half a character
    raise StateError(f"a key with state is a text or a number, not {group!r:.200}: let key= give one")


def _source_of(key: bytes) -> int:
    """The input of a key that is written with its number."""
    return int(key.partition(b":")[0])


def _new_store(state: State, source_of: Callable[[bytes], int]) -> Store:
    if state.store == "disk":
        return DiskStore(source_of=source_of)
    return MemoryStore(timed=state.ttl is not None, source_of=source_of)


class InputKey(NamedTuple):
    """What orders the events of a key that may be handed over: the number of its input's partition, and the key there.

    Inputs may have the same key, and each has a state of it.
    """

    source: int
    key: Hashable


_Made: TypeAlias = tuple[int, Sequence[int]]
"""A call that has changed a state: the time of its latest event, and the offsets of all. A plain tuple, as each call
makes one."""


class States:
    """Of one partition. What has changed is taken by a transaction, which gives it back if it fails.

    `by_field`: whether keys are what `key=` says, and not the bytes of the records' keys. `by_input`: whether they are
    of several inputs, and written with the input's number; or they are `InputKey`s of the input `source`.
    """

    def __init__(
        self, state: State, *, by_field: bool = False, by_input: bool = False, source: int | None = None
    ) -> None:
        self._by_input = by_input
        self._source = source
        self._sources: set[int] = set()
        """Inputs whose keys were here."""
        self._floors: dict[bytes, int] = {}
        """The latest time of their inputs' events when states came here of which no event has come since: those that
        were held meanwhile are of an earlier time, and behind them."""
        self._version = state.version
        self._ttl = math.inf if state.ttl is None else state.ttl * 1000
        self._by_field = by_field
        self._store = _new_store(state, _source_of if by_input else one_source)
        self._changed: dict[bytes, Kept | None] = {}
        self._newest: dict[int, int] = {}
        """The latest time of an event that was handled here, ms since the epoch, by input if there may be several. It
        is not ahead of the clock: one event of a wrong time must not end the states of all other keys.

        What was restored doesn't count: events that were read before it by another member, and had not ended there,
        are of an earlier time and still to come.
        """
        self._parts: dict[bytes, int] = {}
        """How many parts states have in the changelog, beside their records."""
        self._made: defaultdict[bytes, list[_Made]] = defaultdict(list)
        """Which calls have made what has changed; those of the last transaction are `_taken`."""
        self._taken: defaultdict[bytes, list[_Made]] = defaultdict(list)
        self._withheld: set[bytes] = set()
        """Keys of what has changed and is not to be written for now, as the changelog refuses it."""
        self.why_refused: Callable[[Mapping[bytes, Kept | None]], str] | None = None
        """Why the changelog is known to refuse these states; empty: it is not. None: nothing is known of it."""
        self._closed = False
        self.largest = 0
        """Bytes of the largest state that was kept or restored."""

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[tuple[Hashable, Kept]]:
        """All of them, by what orders their keys' events."""
        for key, kept in self._store.items():
            yield self.group_of(key), kept

    def groups(self) -> Iterator[Hashable]:
        """What orders the events of each key that has a state."""
        return map(self.group_of, self._store.keys())

    @property
    def size(self) -> int:
        """Bytes of all keys and states."""
        return self._store.size

    def find(self, group: Hashable, time: int) -> Kept | None:
        """The state that an event of this time finds; None if it finds none. StateError if the key can have none."""
        kept = self._store.get(self.key_of(group))
        return None if kept is None or time - kept.time > self._ttl else kept

    def keep(
        self, group: Hashable, found: Kept | None, data: bytes | None, time: int, offsets: Sequence[int] = ()
    ) -> None:
        """A call of events at these offsets, the latest of this time, has made this of the state that it has found.

        None: as a new one.
        """
        if self._closed:
            return  # it was late, and its partition has gone meanwhile
        source = self._source_in_store(group)
        if self._by_input:
            self._sources.add(source)
            self._floors.pop(self.key_of(group), None)
        self._newest[source] = max(self._newest.get(source, -1), min(time, int(1000 * clock.time())))
        if self._is_same(found, data):
            return
        key = self.key_of(group)
        if data is not None:
            self._put(key, self._made_of(key, data, time))
            self._made[key].append((time, offsets))
        elif self._store.length(key) is not None:
            self._put(key, None)
            self._made[key].append((time, offsets))

    def why_not_kept(self, group: Hashable, found: Kept | None, data: bytes | None, time: int) -> str:
        """Why the changelog is known to refuse what would be kept so; empty: it may be."""
        if self.why_refused is None or self._closed or self._is_same(found, data):
            return ""
        key = self.key_of(group)
        if data is None:
            return self.why_refused({key: None}) if self._store.length(key) is not None else ""
        return self.why_refused({key: self._made_of(key, data, time)})

    def _is_same(self, found: Kept | None, data: bytes | None) -> bool:
        return found is not None and found.data == data and found.version == self._version

    def _made_of(self, key: bytes, data: bytes, time: int) -> Kept:
        before = self._store.get(key)
        return Kept(data, max(0, time, -1 if before is None else before.time), self._version)

    def renew(self, group: Hashable, time: int) -> None:
        """Events, the latest of this time, could not read the state: it ends by its age as if they had changed it.

        Here, if the changelog refuses that: it is as old as before for the next owner.
        """
        if self._closed or self._ttl == math.inf:
            return
        key = self.key_of(group)
        kept = self._store.get(key)
        if kept is None or time <= kept.time:
            return
        kept = kept._replace(time=time)
        if self.why_refused is not None and self.why_refused({key: kept}):
            self._store.put(key, kept)
        else:
            self._put(key, kept)

    def end_old(self, is_busy: Callable[[Hashable], bool]) -> None:
        """Forgets states that no later event will find, but for those of keys that have events in memory."""
        if self._ttl == math.inf:
            return
        left = _MOST_ENDED
        for source, newest in [*self._newest.items()]:
            limit = math.ceil(newest - self._ttl)
            old = [
                key
                for key in self._store.before(limit, left, source)
                if self._floors.get(key, -1) < limit and not is_busy(self.group_of(key))
            ]
            for key in old:
                self._put(key, None)
            if old:  # the others are first next time
                self._newest[source] = self._newest.pop(source)
                left -= len(old)

    def sample(self, most: int) -> list[tuple[Hashable, Kept]]:
        """Some of them, or all if they are no more, by what orders their keys' events."""
        found = [(key, self._store.get(key)) for key in self._store.sample(most)]
        return [(self.group_of(key), kept) for key, kept in found if kept is not None]

    @property
    def withheld(self) -> Set[bytes]:
        """The keys of what has changed and is not written for now."""
        return self._withheld

    def withhold(self, keys: Iterable[bytes]) -> bool:
        """Has these not written until an event changes them or `write_withheld`; False if events have changed all."""
        found = [key for key in keys if key in self._changed and not self._made.get(key)]
        self._withheld.update(found)
        for key in found:
            del self._changed[key]
        return bool(found)

    def write_withheld(self) -> None:
        """Has all of them written by the next transaction."""
        self._changed |= {key: self._store.get(key) for key in self._withheld}
        self._withheld.clear()

    def will_write(self, key: bytes) -> bool:
        """Whether the next transaction writes the state of a key."""
        return key in self._changed

    def take(self) -> dict[bytes, Kept | None]:
        """What has changed since this was asked last."""
        taken, self._changed = self._changed, {}
        self._taken, self._made = self._made, defaultdict(list)
        return taken

    def made_by(self, key: bytes, since: float = -math.inf) -> list[int]:
        """The offsets of the events that have changed a state, of what was taken last: those of calls with an event of
        this time or later, or of all if there are none; of the latest calls alone, if transactions have failed."""
        calls = self._taken.get(key, [])
        late = [call for call in calls if call[0] >= since]
        return [offset for _, offsets in late or calls for offset in offsets]

    def give_back(self, taken: dict[bytes, Kept | None]) -> None:
        """What was taken is not written."""
        self._changed = taken | self._changed
        later, self._made, self._taken = self._made, self._taken, defaultdict(list)
        for key, made in later.items():
            self._made[key] += made
        for calls in self._made.values():
            latest = max(calls, key=lambda call: call[0])
            del calls[:-_MOST_NOTED]
            if latest not in calls:  # The state owes its time to it, which may be what is refused.
                calls.insert(0, latest)

    def written(self, taken: Mapping[bytes, Kept | None]) -> None:
        """What was taken is in the changelog."""
        for key, kept in taken.items():
            self._note_parts(key, parts_of(kept))

    def ended_parts(self, key: bytes, kept: Kept | None) -> range:
        """The numbers of the parts that the changelog has of a state, and that it has no more once this is written."""
        return range(parts_of(kept) + 1, self._parts.get(key, 0) + 1)

    def restore(self, key: bytes, kept: Kept | None, parts: int = 0) -> None:
        """Takes what the changelog says of a key, and in how many parts beside its record.

        UnusableStateError if a newer program has written it.
        """
        self._note_parts(key, parts)
        if kept is not None:
            self._check_version(kept)
            if self._by_input:
                self._sources.add(_source_of(key))
        self._store.put(key, kept)
        self._note_size(kept)

    def length(self, group: Hashable) -> int | None:
        """Bytes of the state of a key; None if it has none."""
        return self._store.length(self.key_of(group))

    def peek(self, group: Hashable) -> Kept | None:
        """The state of a key, however old it is."""
        return self._store.get(self.key_of(group))

    def arrive(self, group: InputKey, kept: Kept) -> None:
        """A state has come from elsewhere, to be written by the next transaction."""
        self._check_version(kept)
        key = self.key_of(group)
        if self._by_input:
            self._sources.add(group.source)
            self._floors[key] = self._newest.get(group.source, -1)
        self._put(key, kept)

    def end(self, group: Hashable) -> None:
        """A state is lost, which is to be written by the next transaction."""
        self._put(self.key_of(group), None)

    def drop(self, group: Hashable) -> None:
        """A state has gone elsewhere, and what the changelog has to say of it is written."""
        key = self.key_of(group)
        self._floors.pop(key, None)
        self._changed.pop(key, None)
        self._withheld.discard(key)
        self._made.pop(key, None)
        self._parts.pop(key, None)
        self._store.put(key, None)

    def close(self) -> None:
        """Frees what it takes. What is kept from now on is forgotten."""
        self._closed = True
        self._changed.clear()
        self._withheld.clear()
        self._made.clear()
        self._store.close()

    def key_of(self, group: Hashable) -> bytes:
        """The key in the changelog. StateError if there can't be one."""
        if not isinstance(group, InputKey):
            return self._plain_key_of(group)
        plain = self._plain_key_of(group.key)
        return b"%d:%s" % (group.source, plain) if self._by_input else plain

    def group_of(self, key: bytes) -> Hashable:
        """What orders the events of a key in the changelog."""
        if self._by_input:
            source, _, plain = key.partition(b":")
            return self.of_input(int(source), plain)
        return self._plain_group_of(key) if self._source is None else self.of_input(self._source, key)

    def of_input(self, source: int, key: bytes) -> InputKey:
        """What orders the events of a key in the changelog of an input."""
        return InputKey(source, self._plain_group_of(key))

    def in_input(self, group: InputKey) -> bytes:
        """The key in the changelog of its input."""
        return self._plain_key_of(group.key)

    def look(self, text: bytes) -> list[tuple[Hashable, Kept]]:
        """The states of keys that are written so: a number's is that of the text, too."""
        found = [(key, self._store.get(key)) for key in self._keys_written(text)]
        return [(self.group_of(key), kept) for key, kept in found if kept is not None]

    def groups_written(self, text: bytes) -> list[Hashable]:
        """What may order the events of a key that is written so."""
        found = []
        for key in self._keys_written(text):
            with suppress(ValueError, StateError):  # no JSON, or of no kind that keys are
                if self.key_of(group := self.group_of(key)) == key:
                    found.append(group)
        return found

    def _keys_written(self, text: bytes) -> list[bytes]:
        keys = list(dict.fromkeys([orjson.dumps(text.decode(errors="replace")), text] if self._by_field else [text]))
        if self._by_input:
            return [b"%d:%s" % (source, key) for source in sorted(self._sources) for key in keys]
        return keys

    def _check_version(self, kept: Kept) -> None:
        if kept.version > self._version:
            raise UnusableStateError(
                f"states of version {kept.version} are there, and this program has version {self._version}: it is an "
                "older one, run the newer"
            )

    def _source_in_store(self, group: Hashable) -> int:
        return group.source if self._by_input and isinstance(group, InputKey) else ALL

    def _plain_group_of(self, key: bytes) -> Hashable:
        group: Hashable = orjson.loads(key) if self._by_field else key
        return group

    def _plain_key_of(self, group: Hashable) -> bytes:
        return key_bytes(group, by_field=self._by_field)

    def _put(self, key: bytes, kept: Kept | None) -> None:
        self._store.put(key, kept)
        self._changed[key] = kept
        self._withheld.discard(key)
        self._note_size(kept)

    def _note_parts(self, key: bytes, parts: int) -> None:
        if parts:
            self._parts[key] = parts
        else:
            self._parts.pop(key, None)

    def _note_size(self, kept: Kept | None) -> None:
        if kept is not None:
            self.largest = max(self.largest, len(kept.data))
