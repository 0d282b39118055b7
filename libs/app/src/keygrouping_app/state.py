"""What a handler's state is: how it begins, how it is written and read, and how large and how old it may become.

What is kept between two calls are bytes. Each call gets an object that was read from them, and what the handler has
made of it is written when the call has succeeded. So a call that fails leaves the state as it was, whatever it has done
to the object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from keygrouping_app.codecs import JSON, Codec
from keygrouping_app.kept import Kept, StateError, UnreadableStateError
from keygrouping_app.same import require_same
from keygrouping_app.typed import fields_of, type_faults

_MOVES = (None, "ordered", "llfd", "mintable", "minmig", "mixed")
_UNCHANGING = (int, float, str, bytes, tuple, frozenset, type(None))
LARGEST_STATE = 64 << 20
"""Bytes that a state may be allowed to have at most: it is written in one transaction."""


@dataclass(frozen=True, slots=True)
class State:
    """A state per key, for `@app.on(topic, state=...)`; a class by itself stands for `State(class)`.

    - `of`: makes the state of a key that has none: a dataclass or msgspec Struct all fields of which have a default,
      `dict`, or, with `codec`, anything that is called without arguments. Handlers change it in place. A state that is
      as a new one is not kept: setting all of it back deletes it.
    - `codec`: reads and writes it; by default as JSON.
    - `version`: of what is written. Raise it when states that are kept can't be read any more, and give `upgrade`.
    - `upgrade`: is given what an earlier version has written (as parsed JSON; with `codec`, as bytes) and the version's
      number, and returns what `version` would have written.
    - `ttl`: a state ends when an event is more than so many seconds, by the events' own times, later than its last
      change; None: never.
    - `largest`: bytes of one state; an event that makes it larger is a dead letter.
    - `store`: "memory", or "disk" (SQLite) where states are larger than memory.
    - `standbys`: how many other members keep a copy of the states of each partition, in their own store: one of them
      takes over without reading the whole changelog first when the owner ends, or dies.
    - `moves`: whether keys may be handed over to other members with their states, while the stream runs: None, they
      don't; "ordered", when the API is told to; or by that and by plan, "llfd", "mintable", "minmig" or "mixed".
    - `merge`: for `split=True`: `merge(left, right)` changes `left` in place to what the events of both would have
      left, in whatever order. Each call is given a new state, and what it leaves is merged into the state of its key.
    - `publish`: with `merge`: is given a key and its state whenever something was merged into it, and returns `Output`,
      one or a list, or None, as handlers do.
    """

    of: Callable[[], Any]
    codec: Codec | None = None
    version: int = 1
    upgrade: Callable[[Any, int], Any] | None = None
    ttl: float | None = None
    largest: int = 1_000_000
    store: Literal["memory", "disk"] = "memory"
    standbys: int = 0
    moves: Literal["ordered", "llfd", "mintable", "minmig", "mixed"] | None = None
    merge: Callable[[Any, Any], None] | None = None
    publish: Callable[[Any, Any], Any] | None = None

    @property
    def name(self) -> str:
        """Of what makes it."""
        return str(getattr(self.of, "__name__", self.of))

    def faults(self) -> Iterable[str]:
        """What is wrong with it, each with what to do."""
        # What makes it is looked at below, as more has to be right with it than its type.
        given = {name: value for name, value in fields_of(self).items() if name != "of"}
        if wrong_types := [*type_faults(State, given, "state.")]:
            return wrong_types
        checks = [
            ("version", self.version, self.version >= 1, "1 or more"),
            ("ttl", self.ttl, self.ttl is None or self.ttl > 0, "seconds, more than 0, or None"),
            ("largest", self.largest, 1 <= self.largest <= LARGEST_STATE, f"bytes, 1 to {LARGEST_STATE}"),
            ("store", self.store, self.store in ("memory", "disk"), "'memory' or 'disk'"),
            ("moves", self.moves, self.moves in _MOVES, f"None, {', '.join(map(repr, _MOVES[1:]))}"),
            ("standbys", self.standbys, self.standbys >= 0, "0 or more"),
        ]
        found = [f"state.{name} is {value!r}: give {wanted}" for name, value, ok, wanted in checks if not ok]
        if self.version > 1 and self.upgrade is None:
            found.append(f"state.version is {self.version}: give upgrade=, which makes states of earlier versions new")
        if self.publish is not None and self.merge is None:
            found.append("state.publish is for states that merge: give merge=, too, or let the handler return outputs")
        wrong = [*self._faults_of_form()]
        return [*found, *wrong, *([] if wrong else self._faults_of_merge())]

    def _faults_of_form(self) -> Iterable[str]:
        if _is_frozen(self.of):
            yield f"state {self.name} is frozen: a handler changes it in place, so let its fields be set"
        elif isinstance(self.of, type) and issubclass(self.of, _UNCHANGING):
            yield f"state {self.name}: a handler can't change it in place: give a class with a field for it"
        elif self.codec is None and not _is_known(self.of):
            yield f"state {self.name}: give a dataclass, a msgspec Struct or dict, or State(..., codec=...)"
        else:
            try:
                Form(self)
            except Exception as error:
                yield (
                    f"state {self.name} can't be made without arguments, written and read again ({error}): "
                    "give all of its fields a default, of types that JSON has, or State(..., codec=...)"
                )

    def _faults_of_merge(self) -> Iterable[str]:
        """New states are what no event has changed, so together they are as a new one."""
        if self.merge is None:
            return
        wanted = "merge(left, right) changes left in place to what the events of both would have left"
        try:
            left = self.of()
            given = self.merge(left, self.of())
            is_new = Form(self).write(left) is None
        except Exception as error:
            yield f"state {self.name}: merge fails for two new states ({error!r}): {wanted}"
            return
        if given is not None:
            yield f"state {self.name}: merge returns {given!r:.100}: {wanted}, and returns nothing"
        elif not is_new:
            yield f"state {self.name}: merge makes something else of two new states: {wanted}"


class Form:
    """How states of a kind are read and written."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._codec = state.codec or _codec_of(state.of)
        self._new = self._encoded(state.of())
        self._codec.decode(self._new)

    def read(self, kept: Kept | None) -> Any:
        """The state for a call: as it is kept, or a new one. UnreadableStateError; OSError of a codec's registry."""
        if kept is None:
            return self.state.of()
        try:
            return self._codec.decode(kept.data if kept.version == self.state.version else self._upgraded(kept))
        except OSError:
            raise
        except Exception as error:
            raise UnreadableStateError(
                f"its state can't be read as version {self.state.version} of {self.state.name} ({error!s:.300}). "
                f"It was written by version {kept.version}: if the class has changed since, raise State(version=...) "
                "and give upgrade=, else correct its codec or upgrade"
            ) from error

    def write(self, state: Any) -> bytes | None:
        """The bytes to be kept; None if it is as a new one.

        StateError if it can't be kept; OSError of a codec's registry.
        """
        try:
            data = self._encoded(state)
            if self.state.codec is None:
                require_same(state, self._codec.decode(data))
            elif data != self._new:
                # What could not be read any more must not be kept: a field may have been set to what it can't be.
                self._codec.decode(data)
        except OSError:
            raise
        except Exception as error:
            raise StateError(f"the state {self.state.name} can't be written and read again: {error}") from error
        if data == self._new:
            return None
        if len(data) > self.state.largest:
            raise StateError(
                f"the state {self.state.name} would have {len(data)} bytes, more than {self.state.largest}: "
                "let it keep less, or allow more by State(largest=...)"
            )
        return data

    def _encoded(self, state: Any) -> bytes:
        data: object = self._codec.encode(state)
        if not isinstance(data, bytes):
            raise TypeError(f"its codec gives {type(data).__name__}, and bytes are wanted")
        return data

    def _upgraded(self, kept: Kept) -> bytes:
        upgrade = self.state.upgrade
        if upgrade is None or kept.version > self.state.version:
            raise ValueError("that version is unknown here")
        if self.state.codec is not None:
            raw: bytes = upgrade(kept.data, kept.version)
            return raw
        return orjson.dumps(upgrade(orjson.loads(kept.data), kept.version))


class _Dict:
    """JSON of a dict, and of nothing else."""

    def decode(self, data: bytes) -> Any:
        found = JSON.decode(data)
        if not isinstance(found, dict):
            raise TypeError(f"it is no dict but {type(found).__name__}")
        return found

    def encode(self, value: Any) -> bytes:
        return JSON.encode(value)


class _Typed:
    """JSON of a dataclass or Struct."""

    def __init__(self, of: Any) -> None:
        import msgspec  # when it is needed only

        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(of)

    def decode(self, data: bytes) -> Any:
        return self._decoder.decode(data)

    def encode(self, value: Any) -> bytes:
        return self._encoder.encode(value)


def _codec_of(of: Callable[[], Any]) -> Codec:
    return _Dict() if of is dict else _Typed(of)


def _is_known(of: Any) -> bool:
    return isinstance(of, type) and (of is dict or dataclasses.is_dataclass(of) or _is_struct(of))


def _is_struct(of: object) -> bool:
    return hasattr(of, "__struct_config__")


def _is_frozen(of: Any) -> bool:
    if _is_struct(of):
        return bool(of.__struct_config__.frozen)
    parameters = getattr(of, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)
