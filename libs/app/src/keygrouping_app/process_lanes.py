"""Where plain functions run that keep a CPU busy: in processes, of which each is a lane.

A thread of the member stands for each process: it sends calls over a pipe, as many as take some milliseconds, and
takes their ends. A call that is at work for long gives back those behind it, which another process runs. A process
whose call is late, or that has ended by itself, is replaced.

Executors are no use here: those of the standard library and loky break as a whole when one process dies, can't say
what it was doing, end no call that is late, and cost the member 90 µs of CPU for each call, where a pipe costs 15, and
below 1 when it carries many at once.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Literal

from keygrouping_app.events import Outgoing, Source
from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.lanes import QUICK_SECONDS, OnEnd, PooledLanes
from keygrouping_app.scheduler import Call, Failure
from keygrouping_app.worker_process import (
    BACK,
    NAME,
    STOP,
    UNUSABLE,
    Answer,
    RawCall,
    RawOutput,
    Task,
    packed_event,
    work,
)

log = logging.getLogger(__name__)

_SPAWN = multiprocessing.get_context("spawn")
"""A fork would copy the locks that other threads hold."""
_STARTING = threading.Lock()
"""multiprocessing looks after all processes whenever one is started, and not from several threads at once."""
_MOST_CALLS = 256
_MOST_BYTES = 1 << 20
"""Of calls that go over together, beyond the first."""
_GIVE_BACK_SECONDS = 0.02
"""Seconds without an end after which calls that have not begun are asked back."""
_END_SECONDS = 5.0
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before a process is started again that could not start; after the last one the app ends."""
Fate = Literal["late", "died", "given up"]


class EndedError(Exception):
    """The process has ended."""


class Process:
    """One process, and its pipe: of one thread, but for `kill` and `give_up`."""

    def __init__(self, task: bytes, name: str) -> None:
        self.name = name
        self._task = task
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None
        self.given_up = False
        """Whether it was ended as what it runs belongs to another member now."""

    def start(self) -> None:
        """Returns when it is ready for calls; AppError if it can't be."""
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=work, args=(theirs, self._task), name=NAME + self.name, daemon=True)
        with _STARTING:
            process.start()
        theirs.close()
        self._process, self._pipe, self.given_up = process, ours, False
        # multiprocessing's own way at the interpreter's end is a signal that the process leaves to its member.
        atexit.register(process.kill)
        try:
            fault = ours.recv()
        except (EOFError, OSError):
            fault = f"its process ended at its start, {self.end(_END_SECONDS)}: what it has written tells why"
        if fault is not None:
            self.end(_END_SECONDS)
            raise AppError([f"{self.name}: {fault}"])

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        process = self._process
        return process is not None and not wait([process.sentinel], 0)

    def send(self, what: list[RawCall] | str) -> None:
        """EndedError if nobody is there."""
        assert self._pipe is not None
        try:
            self._pipe.send(what)
        except OSError as error:
            raise EndedError from error

    def answer(self, seconds: float) -> Answer | None:
        """The next answer, None if there is none in this time; EndedError."""
        assert self._pipe is not None
        try:
            if not self._pipe.poll(max(0.0, seconds)):
                return None
            found: Answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise EndedError from error
        return found

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            self._process.kill()

    def give_up(self) -> None:
        """Ends it at once: its calls have not failed."""
        self.given_up = True
        self.kill()

    def stop(self) -> None:
        """Ends it when the call that runs has ended; what takes too long is killed."""
        with suppress(EndedError):
            self.send(STOP)
        self.end(_END_SECONDS)

    def end(self, seconds: float) -> str:
        """Waits for its end, and kills it if that takes longer. How it has ended, for people."""
        process, pipe = self._process, self._pipe
        assert process is not None
        assert pipe is not None
        if not wait([process.sentinel], seconds):
            process.kill()
            wait([process.sentinel])
        with _STARTING:
            process.join()
        atexit.unregister(process.kill)
        pipe.close()
        code = process.exitcode or 0
        return f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with exit code {code}"


class ProcessLanes(PooledLanes):
    """Runs a plain function in `handler.processes` processes."""

    def __init__(self, handler: Handler, task: Task, on_end: OnEnd) -> None:
        super().__init__(handler, on_end)
        packed = task.packed()
        self._processes = [Process(packed, f"{handler.name}-{n}") for n in range(1, handler.concurrency + 1)]
        self._at_work: dict[Process, dict[int, Call]] = {}
        self._suspects: set[Call] = set()
        """Those of a process that has ended with several calls: it is not known which one was to blame."""
        self._numbers = count()
        self._threads: list[threading.Thread] = []
        self._ending = threading.Event()

    async def begin(self) -> None:
        starting = [asyncio.to_thread(each.start) for each in self._processes]
        faults = await asyncio.gather(*starting, return_exceptions=True)
        for process, fault in zip(self._processes, faults, strict=True):
            if fault is None:
                thread = threading.Thread(target=self._keep, args=(process,), name=process.name, daemon=True)
                thread.start()
                self._threads.append(thread)
        for fault in faults:
            if fault is not None:
                raise fault

    async def end(self) -> None:
        self.close()
        for each in list(self._at_work):
            each.give_up()
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for process in self._processes:
            process.kill()  # what is left may be starting
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        super().close()
        self._ending.set()
        for _ in self._processes:
            self._bell.put(False)

    def withdraw(self, source: Source) -> None:
        super().withdraw(source)
        # What waits is dropped here and now: all processes may hang.
        others = []
        while (call := self._open_call()) is not None:
            others.append(call)
        self._calls.extend(others)
        self._call_thread()

    def abandon(self, source: Source) -> None:
        super().abandon(source)
        for process, calls in list(self._at_work.items()):
            if any(call.events[0].source is source for call in list(calls.values())):
                process.give_up()

    def _drop(self, call: Call) -> None:
        self._suspects.discard(call)
        super()._drop(call)

    def _rouse(self) -> None:
        ahead = 0 if self._limited else 2 * len(self._processes) * self._together
        now = self._loop.time()
        while not self._closed and (call := self.scheduler.start(now, ahead)) is not None:
            if self._form is not None:
                self._find_state(call)
            self._calls.append(call)
        self._call_thread()
        if self.scheduler.held:
            self._watch()

    def _is_late(self, call: Call) -> None:
        """Lateness counts from when the call began in its process."""

    @property
    def _together(self) -> int:
        """Calls that go over at once."""
        return max(1, min(_MOST_CALLS, int(QUICK_SECONDS / max(self._typical.seconds, 1e-6))))

    # On the threads.

    def _keep(self, process: Process) -> None:
        try:
            while self._bell.get():
                self._rung = False  # before anything is taken, so that what comes meanwhile is called for
                while calls := self._taken():
                    self._call_thread()
                    if not process.alive and not self._replace(process, "died"):
                        return
                    if (fate := self._run(process, calls)) is not None and not self._replace(process, fate):
                        return
        except BaseException as error:  # no event has ended by it
            self._tell(partial(self._fail, error))
        finally:
            process.stop()

    def _taken(self) -> list[Call]:
        """What goes over next: a part of what waits, so that some is left for the others."""
        wanted = min(self._together, -(-len(self._calls) // len(self._processes)))
        calls: list[Call] = []
        size, now = 0, self._loop.time()
        while len(calls) < max(1, wanted) and size < _MOST_BYTES and (call := self._next_call(now)) is not None:
            if call in self._suspects:
                if calls:
                    self._calls.appendleft(call)
                else:
                    self._suspects.discard(call)
                    calls.append(call)
                break
            calls.append(call)
            size += sum(event.size for event in call.events) + (0 if call.kept is None else len(call.kept.data))
        return calls

    def _run(self, process: Process, calls: list[Call]) -> Fate | None:
        """Gives calls to a process and takes their ends; how the process has ended, if it has."""
        left = dict(zip(self._numbers, calls, strict=False))
        self._at_work[process] = left
        fate: Fate | None = None
        began = time.monotonic()
        try:
            process.send(
                [(number, [packed_event(each) for each in call.events], call.kept) for number, call in left.items()]
            )
            for ends, back in self._answers(process, left):
                if back:
                    self._calls.extend([left.pop(number) for number in back])
                    self._call_thread()
                for number, outputs, after, failure, seconds in ends:
                    call = left.pop(number)
                    call.after = after
                    self._note(call, outputs, failure, seconds)
            if left:
                fate = "late"
                process.kill()
        except EndedError:
            fate = "given up" if process.given_up else "died"
        del self._at_work[process]
        if fate is not None:
            self._lost(process, fate, list(left.values()), time.monotonic() - began)
        return fate

    def _answers(self, process: Process, left: dict[int, Call]) -> Iterator[Answer]:
        """What the process answers, until nothing is left of its calls, or the first of them is late."""
        began = time.monotonic()
        alone = len(left) == 1
        while left:
            late = began + self.handler.timeout - time.monotonic()
            answer = process.answer(late if alone else min(late, _GIVE_BACK_SECONDS))
            if answer is not None:
                if answer[0]:
                    began = time.monotonic()
                yield answer
            elif late <= 0:
                return
            elif not alone:
                alone = True
                process.send(BACK)

    def _note(self, call: Call, outputs: list[RawOutput], failure: Failure | None, seconds: float) -> None:
        self._typical.add(seconds)
        if failure is not None and failure.reason == UNUSABLE:
            self._tell(partial(self._end_app, call, failure.detail))
            return
        self._tell(partial(self._record_end, call, [Outgoing(*each) for each in outputs], failure, seconds))

    def _lost(self, process: Process, fate: Fate, calls: list[Call], seconds: float) -> None:
        """What becomes of the calls of a process that has ended."""
        how = process.end(_END_SECONDS)
        if len(calls) == 1 and fate != "given up":
            self._tell(partial(self._record_end, calls[0], [], self._failure(fate, how), seconds))
            return
        if fate != "given up":
            # One of them may be to blame: each goes over by itself, and only that one fails.
            self._suspects.update(calls)
        self._calls.extendleft(reversed(calls))
        self._call_thread()

    def _failure(self, fate: Fate, how: str) -> Failure:
        if fate == "late":
            told = (
                f"the handler was at work longer than its timeout of {self.handler.timeout:g} s: its process was ended"
            )
            return Failure("timeout", told, dependency=True)
        return Failure("crashed", f"its process ended {how} while it was at work", dependency=True)

    def _replace(self, process: Process, fate: Fate) -> bool:
        """Starts it again; False if it can't be or these lanes are closed."""
        self._tell(partial(self._count, fate))
        for pause in (*_PAUSES, None):
            if self._closed:
                return False
            try:
                process.start()
            except AppError as error:
                if pause is None:
                    raise
                log.warning("%s; it is started again in %g s", error, pause)
                self._ending.wait(pause)
            else:
                return True
        raise AssertionError

    def _count(self, fate: Fate) -> None:
        if fate != "given up":
            self.tally.replaced[fate] += 1
