"""The app: which functions handle which topics, and what they are given."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar

from keygrouping_app.breaker import Breaker
from keygrouping_app.codecs import Topic, as_topic
from keygrouping_app.events import Event
from keygrouping_app.handlers import AppError, Handler, Key, Order, Retries
from keygrouping_app.lanes import Lanes, LoopLanes, OnEnd, ThreadLanes
from keygrouping_app.lifespans import Lifespan, needed, provided, wanted_by
from keygrouping_app.moments import Start, Until, faults_of, moment_of
from keygrouping_app.partials import partials_of
from keygrouping_app.state import State
from keygrouping_app.tested import Tested, run_test
from keygrouping_app.tracing import traced
from keygrouping_app.typed import type_faults

if TYPE_CHECKING:
    from keygrouping_app.kafka.clients import Settings
    from keygrouping_app.worker_process import Task

FunctionType = TypeVar("FunctionType", bound=Callable[..., Any])
_USUAL_BREAKER = Breaker()
_USUAL_LANES = 16
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
LifespanType = TypeVar("LifespanType", bound=Lifespan)

_LEAST_THRESHOLD = 100_000
_OBJECTS_PER_EVENT = 5
"""As many as are held for one that is the only one of its key, of those that the collector counts."""


class App:
    """Functions on topics, run by one consumer group.

    Handlers are declared by `on`, what they need besides events by `lifespan`.

    - `name`: the group's.
    - `brokers`: Kafka's address, `host:port,host:port`.
    - `dead_letters`: the topic for events that have failed for good.
    - `kafka`: further options of aiokafka's clients, such as `security_protocol` and `ssl_context`.
    - `instance_id`: makes the member static: it may restart within `session_timeout` seconds without a rebalance.
    - `session_timeout`: seconds without a sign of life after which the group takes a member's partitions.
    - `commit_interval`: seconds between commits. What has ended since the last one runs again after a crash.
    - `port`: of `/metrics`, `/healthz`, `/readyz`, `/keys`, `/grouping` and `/state/KEY`, on all addresses; None:
      nothing is served.
    - `start`: where a topic begins of which the group has committed nothing: "earliest", "latest", or a time (a
      datetime or ISO 8601, with its zone): the first record of that time or later. It is committed before anything is
      read, so it stays what it was. Partitions that are added later begin at their first record.
    - `until`: where the app ends, a time likewise or "latest", what there is when it first sees a partition: when the
      group has committed all before it, every member ends. None: it runs on.
    - `max_events`, `max_bytes`: what a member holds in memory at most, events and outputs that are still to be written,
      shared evenly by its partitions; one more fetch may lie above it.
    """

    def __init__(  # noqa: PLR0913 -- independent settings, each with a default
        self,
        name: str,
        *,
        brokers: str = "localhost:9092",
        dead_letters: str = "dead-letters",
        start: Start = "earliest",
        until: Until = None,
        kafka: Mapping[str, Any] | None = None,
        instance_id: str | None = None,
        session_timeout: float = 45.0,
        commit_interval: float = 0.05,
        max_events: int = 50_000,
        max_bytes: int = 64 << 20,
        port: int | None = None,
    ) -> None:
        self.name = name
        self.brokers = brokers
        self.port = port
        self._dead_letters = dead_letters
        self._start: Start = start
        self._until: Until = until
        self._kafka = dict(kafka or {})
        self._instance_id = instance_id
        self._session_timeout = session_timeout
        self._commit_interval = commit_interval
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.handlers: list[Handler] = []
        self._lifespans: dict[str, Lifespan] = {}

    def on(  # noqa: PLR0913 -- independent settings, each with a default
        self,
        topic: str | Topic,
        *,
        key: Key = None,
        order: Order | EllipsisType = ...,
        concurrency: int | None = None,
        processes: int | None = None,
        batch: bool | int = False,
        retries: int | Retries = 3,
        timeout: float = 60.0,
        exactly_once: bool = False,
        rate: float | None = None,
        rate_per_key: float | None = None,
        breaker: Breaker | None = _USUAL_BREAKER,
        state: State | Callable[[], Any] | None = None,
        split: bool = False,
    ) -> Callable[[FunctionType], FunctionType]:
        """Makes a function the handler of a topic; the function itself stays as it is.

        A coroutine function runs on the event loop and is cancelled `timeout` seconds after it has begun. A plain
        function runs on a thread; one that is late keeps its lane and its key until it returns, unless it has
        `processes`. It is given the event and, by the names of its further parameters, what lifespans yield. It
        returns `Output`, one or a list, or None.

        - `key`: what orders events: the record's key, a JSON pointer into the value, or what a function of the event
          gives. Events without one have no order.
        - `order`: "key": events of a key one after another, keys side by side; None: all side by side, as with `split`.
        - `concurrency`: how many calls run at once in a member, its lanes; 16 if it isn't given.
        - `processes`: a plain function that keeps a CPU busy runs in so many processes of the member, each of which is
          a lane. A call that is late is ended with its process. The function, and lifespans that it needs, have to be
          at the top level of a module; these lifespans run in each of the processes.
        - `batch`: the function takes a list: the events of one key that wait, up to 1000 or to the number given here.
          If it raises, the events come again one by one, so that only the one to blame fails for good.
        - `retries`: how often a failed event is tried again, while other keys go on: see `Retries`.
        - `exactly_once`: what the function returns is written in the transaction that commits its event as ended, so
          readers of committed records see it once, whatever crashes. What it does elsewhere may still happen again.
        - `rate`: events a second that start in a member at most, tries included; keys that wait hold no lane.
        - `rate_per_key`: the same of each key.
        - `breaker`: when the handler pauses as a whole, as something that it needs is away: see `Breaker`; None: never.
        - `state`: what each key has of its own, a class such as a dataclass or what `State` says. The function takes it
          behind the event and changes it in place. What it was changed to is committed together with the event and with
          what the function returns, as with `exactly_once`. The events of a key have to come from one partition, or,
          with `split`, `State` has to say how states are merged: each call is given a new one then.
        - `split`: all members share the events of hot keys, which then have no order. A member that has more to do than
          others writes what it has too much to the topic `NAME.overflow`, of which each member has partitions.
        """

        if not isinstance(topic, str | Topic):
            raise TypeError(f"the topic is missing, or is none: write @app.on('orders'), not @app.on with {topic!r}")

        def declare(function: FunctionType) -> FunctionType:
            handler = Handler(
                topic=as_topic(topic),
                function=function,
                key=key,
                order=(None if split else "key") if isinstance(order, EllipsisType) else order,
                concurrency=(processes or _USUAL_LANES) if concurrency is None else concurrency,
                processes=processes,
                batch=batch,
                retries=retries if isinstance(retries, Retries) else Retries(times=retries),
                timeout=timeout,
                exactly_once=exactly_once,
                rate=rate,
                rate_per_key=rate_per_key,
                breaker=breaker,
                state=state if state is None or isinstance(state, State) else State(state),
                split=split,
            )
            self.handlers.append(handler)
            return function

        return declare

    def lifespan(self, function: LifespanType) -> LifespanType:
        """Makes an async generator function part of the app's life: it runs up to its `yield` before the first event,
        and from there after the last one, in the reverse order of declaration.

        What it yields is given to handlers, and to lifespans declared later, that have a parameter of its name. One
        that only handlers with `processes` need, themselves or by other lifespans, runs in each of their processes and
        not in the member's own. ValueError if there is one of its name.
        """
        name = getattr(function, "__name__", repr(function))
        if name in self._lifespans:
            raise ValueError(f"there is a lifespan {name} already: what it yields is given by its name")
        if name in ("events", "states"):
            raise ValueError(f"no lifespan is called {name}: App.test could not replace it")
        self._lifespans[name] = function
        return function

    def override(self, given: Mapping[str, Any], connection: Mapping[str, Any]) -> None:
        """Takes other values for arguments of the class, by name, and further options of aiokafka's clients.

        The command `keygrouping app` gives it what the environment says.
        """
        for name, value in given.items():
            setattr(self, name if name in vars(self) else f"_{name}", value)
        self._kafka |= connection

    def faults(self) -> list[str]:
        """All that is wrong with it, each with what to do."""
        topics = [handler.topic.name for handler in self.handlers]
        found = [
            *(self._type_faults() or self._faults_of_settings()),
            *([] if topics else ["the app has no handlers: declare one with @app.on('topic')"]),
            *(
                f"topic {topic!r} has {topics.count(topic)} handlers: a group reads a topic once; use another App"
                for topic in sorted(set(topics), key=str)
                if topics.count(topic) > 1
            ),
        ]
        given: set[str] = set()
        for name, function in self._lifespans.items():
            if not inspect.isasyncgenfunction(function):
                found.append(f"lifespan {name}: write it as async def with one yield")
            missing = [each for each in wanted_by(function) if each not in given]
            found += [f"lifespan {name}: parameter {each!r} is given by no lifespan before it" for each in missing]
            given.add(name)
        found += self._faults_of_split()
        for handler in self.handlers:
            if handler.state is not None and not _TOPIC.fullmatch(self._longest_topic(handler, handler.state)):
                found.append(
                    f"{handler.name} on {handler.topic.name!r}: its states are kept in a topic named by app and topic, "
                    f"and {self.name!r} can't be part of one: use letters, digits, '.', '_', '-', up to 249 together"
                )
            found += [*handler.faults(dict.fromkeys(given)), *self._faults_of_processes(handler)]
        return found

    def _type_faults(self) -> list[str]:
        given = {name.removeprefix("_"): value for name, value in vars(self).items()}
        return [*type_faults(App.__init__, given)]

    def _faults_of_settings(self) -> list[str]:
        """Of those that have to do with no handler."""
        return [
            *([] if self.name else ["the app has no name: App('billing'); it is its consumer group's"]),
            *([] if self.brokers else ["brokers is empty: give Kafka's address, 'host:port'"]),
            *self._faults_of_dead_letters(),
            *([] if 1 <= self._session_timeout <= 3600 else ["session_timeout: give seconds from 1 to 3600"]),
            *([] if 0 <= self._commit_interval <= 60 else ["commit_interval: give seconds from 0 to 60"]),
            *faults_of(self._start, self._until),
            *([] if self._max_events >= 1 and self._max_bytes >= 1 else ["max_events, max_bytes: give 1 or more"]),
            *([] if self.port is None or 0 <= self.port <= 65_535 else ["port: give one up to 65535, or None"]),
        ]

    def _longest_topic(self, handler: Handler, state: State) -> str:
        """Of those that keep its states."""
        topic = partials_of(self.name, handler.topic.name) if handler.split else handler.topic.name
        moved = f"{self.name}.{topic}.moved" if state.moves else topic
        return f"{self.name}.{moved}.states"

    def _faults_of_dead_letters(self) -> list[str]:
        if not self._dead_letters:
            return ["dead_letters is empty: give the topic for events that fail for good"]
        if any(handler.topic.name == self._dead_letters for handler in self.handlers):
            return [
                f"topic {self._dead_letters!r} is where the app writes its own dead letters, which would come to its "
                "handler again: give the app another topic by dead_letters="
            ]
        return []

    def _faults_of_split(self) -> list[str]:
        split = [handler for handler in self.handlers if handler.split]
        found = []
        if len(split) > 1:
            found.append(f"{len(split)} handlers have split=True: an app has one such topic; use another App")
        if split and not _TOPIC.fullmatch(f"{self.name}.overflow"):
            found.append(
                f"{split[0].name} on {split[0].topic.name!r}: its hot keys are shared by a topic named by the app, and "
                f"{self.name!r} can't be part of one: use letters, digits, '.', '_', '-', up to 240"
            )
        mergers = {partials_of(self.name, each.topic.name) for each in split if each.state is not None}
        found += [
            f"{each.name} on {each.topic.name!r}: that is where the app merges states: read its changelog instead"
            for each in self.handlers
            if each.topic.name in mergers
        ]
        return found

    def check(self) -> None:
        """AppError with all that is wrong."""
        if faults := self.faults():
            raise AppError(faults)

    def run(self) -> None:
        """Runs the app until SIGTERM or SIGINT, or up to `until`: then what runs ends, all is committed, and the group
        is left.

        The process is the app's: garbage is collected more rarely, and an app that can't run ends it, with code 2 and a
        line for each fault, or with code 1 if no broker is reached. Other errors if it can't go on.
        """
        from multiprocessing import current_process

        from keygrouping_app.faults import faults_told
        from keygrouping_app.worker_process import NAME

        with faults_told("app"):
            if current_process().name.startswith(NAME):
                raise AppError(
                    ["app.run() is called wherever the module is imported: put it under if __name__ == '__main__':"]
                )
            asyncio.run(self._until_signal())

    async def serve(self, stop: asyncio.Event) -> None:
        """Like `run`, on an event loop that is there already, until `stop` is set or `until` reached."""
        self.check()
        from keygrouping_app.kafka.runner import Runner

        async with provided(self._of_member(), {}) as values:
            named = [self._named(each) for each in self.handlers]
            handlers = {each.topic.name: (each, self._lanes(each, values)) for each in named}
            runner = Runner(self.settings(), handlers)
            with ExitStack() as stack:
                if self.port is not None:
                    from keygrouping_app.telling import told

                    stack.enter_context(told(self.port, runner))
                await runner.run(stop)

    def settings(self) -> Settings:
        """What its clients of Kafka are made with."""
        from keygrouping_app.kafka.clients import Settings

        return Settings(
            group=self.name,
            brokers=self.brokers,
            dead_letters=self._dead_letters,
            options=self._kafka,
            instance_id=self._instance_id,
            session_timeout=self._session_timeout,
            commit_interval=self._commit_interval,
            max_events=self._max_events,
            max_bytes=self._max_bytes,
            start=moment_of(self._start),
            until=None if self._until is None else moment_of(self._until),
        )

    async def _until_signal(self) -> None:
        stop = asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, stop.set)
        _collect_rarely(self._max_events)
        await self.serve(stop)

    async def test(
        self, events: Iterable[Event], *, states: Mapping[str, Mapping[Any, Any]] | None = None, **given: Any
    ) -> Tested:
        """Runs handlers on events (see `Event.of`) without Kafka, until all have ended, and tells what came of them.

        `states`: what keys have at the beginning, by topic and key, as `Tested.states` tells what they have at the end.

        Time is virtual: retries, deadlines and `asyncio.sleep` in handlers take none. Plain functions run on the event
        loop, with `processes`, too. `given` are replacements of what lifespans yield, by name; those lifespans don't
        run.
        """
        self.check()
        if strange := sorted(given.keys() - self._lifespans.keys()):
            raise AppError(f"{name} is yielded by no lifespan: nothing is to be replaced" for name in strange)
        async with provided(self._lifespans, given) as values:
            named = [self._named(each) for each in self.handlers]
            return await run_test(named, events, partial(self.bound, provided=values), states or {})

    def _named(self, handler: Handler) -> Handler:
        """With the topics that are named by the app."""
        merges = handler.split and handler.state is not None
        return replace(handler, partials=partials_of(self.name, handler.topic.name)) if merges else handler

    def bound(self, handler: Handler, provided: dict[str, Any]) -> Callable[..., Any]:
        """A handler's function with what lifespans have given, in spans where the process takes some."""
        wants = {name: provided[name] for name in handler.wants}
        return traced(handler, partial(handler.function, **wants) if wants else handler.function, self.name)

    def _lanes(self, handler: Handler, values: dict[str, Any]) -> Callable[[OnEnd], Lanes]:
        if handler.processes is not None:
            from keygrouping_app.process_lanes import ProcessLanes

            return partial(ProcessLanes, handler, self._task(handler))
        return partial(LoopLanes if handler.is_async else ThreadLanes, handler, self.bound(handler, values))

    def _task(self, handler: Handler) -> Task:
        from keygrouping_app.worker_process import Task

        logs = logging.getLogger()
        return Task(handler, needed(self._lifespans, handler.wants), self.name, logs.level if logs.handlers else None)

    def _of_member(self) -> dict[str, Lifespan]:
        """The lifespans of the member's own process: all but those that only handlers in other processes need."""
        in_processes = {name for each in self.handlers if each.processes for name in self._needed_by(each)}
        here = {name for each in self.handlers if not each.processes for name in self._needed_by(each)}
        return {name: each for name, each in self._lifespans.items() if name in here or name not in in_processes}

    def _needed_by(self, handler: Handler) -> Iterable[str]:
        return needed(self._lifespans, handler.wants)

    def _faults_of_processes(self, handler: Handler) -> list[str]:
        """What keeps another process from finding the function and its lifespans."""
        if handler.processes is None:
            return []
        try:
            self._task(handler).packed()
        except Exception as error:
            return [
                f"{handler.name} on {handler.topic.name!r}: processes={handler.processes}, and another process can't "
                f"find it or what it needs ({error}): define handler, lifespans and codecs at the top level of a "
                "module, with @app.on and @app.lifespan above all other decorators"
            ]
        return []


def _collect_rarely(max_events: int) -> None:
    """Events come and go by the ten thousand, without cycles: the collector needn't look at them before there are many
    more objects than are held for them, nor ever again at all modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(max(_LEAST_THRESHOLD, _OBJECTS_PER_EVENT * max_events), 20, 20)
