"""What runs in a process of a handler with `processes`: it takes calls from a pipe, and answers how they ended.

Three threads: the handler's; one that reads the pipe, so that calls that have not begun can be asked back while one
runs, and so that the process ends with its member, however that ends; and the event loop's, on which lifespans live.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from keygrouping_app.events import Event, Headers, Outgoing, Record, Source, event_of
from keygrouping_app.failures import failure_of
from keygrouping_app.handlers import AppError, Function, Handler, UnusableHandlerError, outputs_of
from keygrouping_app.kept import Kept, UnusableStateError
from keygrouping_app.lifespans import Lifespan, provided
from keygrouping_app.logs import set_up_logging
from keygrouping_app.scheduler import Failure
from keygrouping_app.state import Form
from keygrouping_app.tracing import traced

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

RawEvent: TypeAlias = tuple[int, int, int, bytes | None, bytes | None, Headers, int]
"""Partition, offset, timestamp, key, value, headers and failed tries: pickled, a record's own class costs ten times
that."""
RawOutput: TypeAlias = tuple[str, int | None, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
RawCall: TypeAlias = tuple[int, list[RawEvent], Kept | None]
"""A number that is given once, the events, and the state that they find, if the handler has one."""
End: TypeAlias = tuple[int, list[RawOutput], bytes | None, Failure | None, float]
"""The call's number, what its handler returned and made of the state, why it failed, and how many seconds it took."""
Answer: TypeAlias = tuple[list[End], list[int]]
"""Calls that have ended, and those that are given back and have not begun."""

UNUSABLE = "unusable"
"""Reason of a failure that ends the app: see `UnusableStateError`, `UnusableHandlerError`."""
STOP, BACK = "stop", "back"
"""Instead of calls: end when those that are here have ended; give back those that have not begun."""
NAME = "keygrouping-"
"""What the names of these processes begin with."""
_FLUSH_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is told at its start. `logs` is the level of the member's log; None: it has no log."""

    handler: Handler
    lifespans: Mapping[str, Lifespan]
    group: str
    logs: int | None = None

    def packed(self) -> bytes:
        """For the pipe; an error of pickle's if another process could not find the function or a lifespan.

        The key has been read of what comes over the pipe, by a function that may be any, and states are merged by
        the member.
        """
        state = self.handler.state
        mine = None if state is None else replace(state, merge=None, publish=None)
        return pickle.dumps(replace(self, handler=replace(self.handler, key=None, state=mine)))


def packed_event(event: Event) -> RawEvent:
    """The event for the pipe."""
    raw = event.raw
    return event.partition, event.offset, event.time, raw.key, raw.value, event.headers, event.tries


def work(pipe: Connection, packed: bytes) -> None:
    """The process's life. The first answer is None, or what keeps it from its work."""
    # These go to all processes of a terminal or a service: the member says when it is time.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    calls = Calls(pipe)
    threading.Thread(target=calls.read, name="pipe", daemon=True).start()
    asyncio.run(_live(calls, packed))


async def _live(calls: Calls, packed: bytes) -> None:
    try:
        task: Task = pickle.loads(packed)
    except Exception as error:
        calls.say(f"it is not found in a process of its own ({error!r}): define it at the top level of a module")
        return
    try:
        if task.logs is not None:
            set_up_logging(os.environ, task.logs)
    except AppError as error:
        calls.say(str(error))
        return
    async with AsyncExitStack() as stack:
        try:
            values = await stack.enter_async_context(provided(task.lifespans, {}))
        except Exception as error:
            logging.getLogger(__name__).exception("a lifespan of %s failed", task.handler.name)
            calls.say(f"a lifespan fails in its process: {error!r}")
            return
        wants = {name: values[name] for name in task.handler.wants}
        function = partial(task.handler.function, **wants) if wants else task.handler.function
        calls.say(None)
        await _on_thread(partial(calls.work, task.handler, traced(task.handler, function, task.group)))


async def _on_thread(function: Callable[[], None]) -> None:
    """A plain thread: an executor's would keep the process from its end."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def run() -> None:
        try:
            function()
        finally:
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=run, name="handler", daemon=True).start()
    await done


class Calls:
    """What came over the pipe and what goes back."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._waiting: SimpleQueue[tuple[RawCall, bool] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._ends: list[End] = []
        self._at_once = False
        self._sent = 0.0

    def say(self, what: str | Answer | None) -> None:
        """Sends; whoever sends holds the lock, but for the first answer."""
        try:
            self._pipe.send(what)
        except OSError:
            os._exit(1)

    def read(self) -> None:
        """Ends the process when nobody is at the other end any more: a call that runs is another member's then."""
        while True:
            try:
                what = self._pipe.recv()
            except (EOFError, OSError):
                os._exit(1)
            if what == STOP:
                self._waiting.put(None)
            elif what == BACK:
                self._give_back()
            else:
                self._at_once = False
                last = len(what) - 1
                for place, call in enumerate(what):
                    self._waiting.put((call, place == last))

    def work(self, handler: Handler, function: Function) -> None:
        """Runs calls until STOP."""
        batch = bool(handler.batch)
        form = None if handler.state is None else Form(handler.state)
        while (waiting := self._waiting.get()) is not None:
            (number, raw, kept), is_last = waiting
            source = Source(handler.topic, partition=raw[0][0])
            events = [_event(each, source) for each in raw]
            began = time.perf_counter()
            outputs, after, failure = _called(function, events, batch, form, kept)
            now = time.perf_counter()
            with self._lock:
                self._ends.append((number, outputs, after, failure, now - began))
                # One answer for many quick calls; but a slow one keeps the others' no longer than it must.
                if is_last or self._at_once or now - self._sent > _FLUSH_SECONDS:
                    self._sent = now
                    self._flush([])

    def _give_back(self) -> None:
        with self._lock:
            back, stop = [], False
            while True:
                try:
                    waiting = self._waiting.get_nowait()
                except Empty:
                    break
                if waiting is None:
                    stop = True
                else:
                    back.append(waiting[0][0])
            if stop:
                self._waiting.put(None)
            self._at_once = True
            self._flush(back)

    def _flush(self, back: list[int]) -> None:
        ends, self._ends = self._ends, []
        self.say((ends, back))


def _event(raw: RawEvent, source: Source) -> Event:
    partition, offset, timestamp, key, value, headers, tries = raw
    event = event_of(Record(source.topic.name, partition, offset, timestamp, key, value, headers), source)
    event.tries = tries
    return event


def _called(
    function: Function, events: list[Event], batch: bool, form: Form | None, kept: Kept | None
) -> tuple[list[RawOutput], bytes | None, Failure | None]:
    try:
        given: Any = [*events] if batch else events[0]  # A list of the handler's own: it may take it apart.
        after = None
        if form is None:
            result = function(given)
        else:
            state = form.read(kept)
            result = function(given, state)
            after = form.write(state)
        return [_raw(output) for output in outputs_of(result, events[-1])], after, None
    except (UnusableStateError, UnusableHandlerError) as error:
        return [], None, Failure(UNUSABLE, str(error))
    except BaseException as error:  # whatever it is, it must not end the process
        return [], None, failure_of(error, expired=False)


def _raw(output: Outgoing) -> RawOutput:
    return output.topic, output.partition, output.time, output.key, output.value, output.headers
