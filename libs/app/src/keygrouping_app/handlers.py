"""What `App.on` was told of a handler, checked as a whole."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from keygrouping_app.breaker import LEAST_EVENTS, Breaker
from keygrouping_app.codecs import Topic
from keygrouping_app.events import Event, Outgoing, Output, UndecodableError
from keygrouping_app.failures import OutputError
from keygrouping_app.scheduler import Scheduler
from keygrouping_app.state import State
from keygrouping_app.typed import fields_of, type_faults

Order: TypeAlias = Literal["key"] | None
Key: TypeAlias = str | Callable[[Event], Hashable] | None
Function: TypeAlias = Callable[..., Any]

LARGEST_OUTPUT = 1_000_000
"""Bytes of a record that a handler returns; brokers take a little more by default (`message.max.bytes`)."""
_LARGEST_BATCH = 1000
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class AppError(ValueError):
    """An app that can't run; its text lists all faults, each with what to do."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join(self.faults))


class UnusableHandlerError(Exception):
    """A handler that can't work as it is written, whatever it is given: no event is to blame."""


def all_done(*steps: Callable[[], object]) -> None:
    """Takes all the steps, and tells the faults of all in one AppError."""
    faults: list[str] = []
    for step in steps:
        try:
            step()
        except AppError as wrong:
            faults += wrong.faults
    if faults:
        raise AppError(faults)


@dataclass(frozen=True, slots=True)
class Retries:
    """Further tries of an event that has failed: the pause begins at `first` seconds and doubles up to `most`.

    Each pause is between half and one and a half times that long, so that failures don't come back together.
    """

    times: int = 3
    first: float = 0.5
    most: float = 60.0

    def delay(self, tries: int) -> float:
        """Seconds before the next try of an event that has failed `tries` times."""
        return min(self.most, self.first * 2.0 ** min(tries - 1, 60)) * random.uniform(0.5, 1.5)


@dataclass(frozen=True, slots=True)
class Handler:
    """One function on one topic, see `App.on`."""

    topic: Topic
    function: Function
    key: Key
    order: Order
    concurrency: int
    batch: bool | int
    retries: Retries
    timeout: float
    exactly_once: bool = False
    rate: float | None = None
    rate_per_key: float | None = None
    breaker: Breaker | None = None
    processes: int | None = None
    state: State | None = None
    split: bool = False
    partials: str = ""
    """The topic to which its calls' states go, if they merge: named by the app, once its name is known."""

    @property
    def kept(self) -> State | None:
        """The state that each key of its topic has where its partition is; with `split` a merger has it instead."""
        return None if self.split else self.state

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__qualname__", self.function))

    @property
    def most(self) -> int:
        """Events of a call at most."""
        return _LARGEST_BATCH if self.batch is True else max(1, int(self.batch))

    @property
    def wants(self) -> list[str]:
        """The names of its parameters behind event and state: what lifespans have to give."""
        return list(inspect.signature(self.function).parameters)[1 if self.state is None else 2 :]

    @property
    def in_transactions(self) -> bool:
        """Whether what it returns is committed together with its events; a state always is."""
        return self.exactly_once or self.state is not None

    @property
    def moves(self) -> bool:
        """Whether its keys may be handed over with their states."""
        return self.kept is not None and self.kept.moves is not None

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function, or an object that is called like one."""
        called = vars(type(self.function)).get("__call__")
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(called)

    def scheduler(self) -> Scheduler:
        """Its queues, empty."""
        return Scheduler(
            concurrency=self.concurrency,
            ordered=self.order == "key",
            batch=self.most,
            timeout=self.timeout,
            retries=self.retries.times,
            delay=self.retries.delay,
            rate=self.rate,
            rate_per_key=self.rate_per_key,
            circuit=None if self.breaker is None else self.breaker.circuit(),
        )

    def set_group(self, event: Event) -> None:
        """Sets what orders the event; UndecodableError if its value has no such field."""
        if isinstance(self.key, str):
            event.group = _at(self.key, event)
        elif self.key is not None:
            event.group = self.key(event)

    def faults(self, given: Mapping[str, Any]) -> list[str]:
        """What is wrong with it, each with what to do; `given` is what lifespans give."""
        found = [
            *self._faults_of_settings(),
            *(
                f"parameter {name!r} is given by no lifespan: write one, @app.lifespan async def {name}(): yield ..."
                for name in self.wants
                if name not in given
            ),
        ]
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            found.append("it yields: return an Output, or a list of them")
        takes = self._takes()
        if takes < 1:
            found.append("it takes no argument: its first one is the event (with batch, the list of events)")
        if self.state is not None:
            if takes < 2:
                found.append("it takes no state: its second argument is the key's state")
            found += self.state.faults()
        return [f"{self.name} on {self.topic.name!r}: {fault}" for fault in found]

    def _faults_of_settings(self) -> Iterable[str]:
        """Of types first: what is of another one can't be compared."""
        parts = {"": self, "topic.": self.topic, "retries.": self.retries, "breaker.": self.breaker}
        wrong = [
            fault
            for place, part in parts.items()
            if is_dataclass(part)
            for fault in type_faults(type(part), fields_of(part), place)
        ]
        return wrong or [f"{name} is {value!r}: give {wanted}" for name, value, ok, wanted in self._checks() if not ok]

    def _checks(self) -> list[tuple[str, Any, bool, str]]:
        per_key = self.rate_per_key
        key_ok = self.key is None or callable(self.key) or (isinstance(self.key, str) and self.key.startswith("/"))
        return [
            ("topic", self.topic.name, bool(self.topic.name), "the name of a topic"),
            ("key", self.key, key_ok, "a JSON pointer such as '/user/id', a function of the event, or nothing"),
            ("order", self.order, self.order in ("key", None), "'key' or None"),
            ("concurrency", self.concurrency, 1 <= self.concurrency <= 100_000, "a number from 1 to 100000"),
            (
                "concurrency",
                self.concurrency,
                self.processes in (None, 0, self.concurrency),
                "it or processes: each process is one lane",
            ),
            ("processes", self.processes, self.processes is None or 1 <= self.processes <= 256, "1 to 256, or None"),
            ("processes", self.processes, self.processes is None or not self.is_async, "it to plain functions only"),
            ("batch", self.batch, 0 <= self.batch <= 100_000, "True, or the most events of a batch"),
            ("timeout", self.timeout, 0 < self.timeout <= 86_400, "seconds, up to a day"),
            ("retries", self.retries.times, self.retries.times >= 0, "0 or more"),
            ("retries.first", self.retries.first, self.retries.first >= 0, "seconds"),
            ("retries.most", self.retries.most, self.retries.most >= self.retries.first, "no less than first"),
            ("rate", self.rate, self.rate is None or self.rate > 0, "events a second, more than 0"),
            ("rate_per_key", per_key, per_key is None or per_key > 0, "events a second, more than 0"),
            ("rate_per_key", per_key, per_key is None or self.order == "key", "it with order='key' only"),
            (
                "order",
                self.order,
                self.order == "key" or self.state is None or self.split,
                "'key': a state has its events in order",
            ),
            (
                "split",
                self.split,
                not self.split or self.order is None,
                "it without order='key': hot keys run on all members, so their events have no order",
            ),
            (
                "split",
                self.split,
                not self.split or self.state is None or self.state.merge is not None,
                "State(merge=...) with it, or leave it out: a key with a state that does not merge stays whole",
            ),
            (
                "state.merge",
                None if self.state is None else self.state.merge,
                self.split or self.state is None or self.state.merge is None,
                "it with split=True only: without, a key has one state",
            ),
            (
                "batch",
                self.batch,
                self.state is None or not self.split or not self.batch,
                "none with split and state: events without order are of several keys, and each key has a state",
            ),
            *([] if self.breaker is None else _checks_of(self.breaker)),
        ]

    def _takes(self) -> int:
        """How many arguments it takes by their place."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return sum(each.kind in kinds for each in inspect.signature(self.function).parameters.values())


def _checks_of(breaker: Breaker) -> list[tuple[str, Any, bool, str]]:
    least = LEAST_EVENTS
    return [
        ("breaker.calls", breaker.calls, breaker.calls >= least, f"{least} or more"),
        ("breaker.share", breaker.share, 0 <= breaker.share < 1, "a part of the calls, from 0 to below 1"),
        ("breaker.first", breaker.first, breaker.first > 0, "seconds, more than 0"),
        ("breaker.most", breaker.most, breaker.most >= breaker.first, "no less than first"),
    ]


def outputs_of(result: Any, event: Event) -> list[Outgoing]:
    """The records that a handler has returned: None, an `Output` or several; OutputError for anything else.

    UnusableHandlerError for what no event is to blame for; OSError of a codec that asks somebody.
    """
    if result is None:
        return []
    outputs = [result] if isinstance(result, Output) else result
    if not isinstance(outputs, list | tuple) or not all(isinstance(output, Output) for output in outputs):
        _check_is_awaited(result)
        raise OutputError(f"a handler returns None, an Output or a list of them, not {result!r:.200}")
    try:
        written = [output.encoded(event) for output in outputs]
    except OSError:
        raise
    except Exception as error:
        raise OutputError(f"an Output can't be encoded: {error}") from error
    for output in written:
        if fault := _fault_of(output):
            raise OutputError(f"an Output for {output.topic!r} {fault}")
    return written


def _check_is_awaited(result: Any) -> None:
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()
    raise UnusableHandlerError(
        "it is a plain function and returns a coroutine, which nobody awaits: declare it, and what wraps it, as async "
        "def"
    )


def _fault_of(output: Outgoing) -> str | None:
    """Why no broker would take it, if that can be told without one."""
    if not (isinstance(output.topic, str) and _is_topic(output.topic)):
        return "is for no valid name of a topic"
    if output.key is None and output.value is None:
        return "has neither a key nor a value"
    if not (isinstance(output.key, bytes | None) and isinstance(output.value, bytes | None)):
        return "is not encoded as bytes"
    if output.headers and not all(_is_header(each) for each in output.headers):
        return "has headers that are not pairs of a text and bytes"
    if not isinstance(output.partition, int | None) or (output.partition or 0) < 0:
        return f"is for no partition: {output.partition!r}"
    if not isinstance(output.time, int) or output.time >= 1 << 63:
        return f"has no time in ms: {output.time!r}"
    if output.size > LARGEST_OUTPUT:
        return f"has {output.size} bytes, more than {LARGEST_OUTPUT}"
    return None


@lru_cache(maxsize=1024)
def _is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _is_header(header: object) -> bool:
    match header:
        case (str(name), bytes() | None):
            return _is_utf8(name)
    return False


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _at(pointer: str, event: Event) -> Hashable:
    found = event.value
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (LookupError, TypeError, ValueError):
            raise UndecodableError(f"the value of {event.identity} has no field {pointer}") from None
    if not isinstance(found, str | int | float | bool | None):
        raise UndecodableError(f"the field {pointer} of {event.identity} is no single value")
    return found
