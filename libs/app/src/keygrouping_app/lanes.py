"""Where handlers run: coroutine functions on lanes of the event loop, plain functions on threads (or in processes:
`process_lanes`).

A lane of the event loop is one task for its whole life, so an event costs none, and `asyncio.timeout` and the like
find the task that they stand in. Context variables live as long as the lane: set them where a handler begins. A
deadline cancels the coroutine. A thread can't be stopped: one that is late keeps its lane and its key until it
returns, and everything else goes on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

from keygrouping_app.costs import Costs, CostsOfWork
from keygrouping_app.events import Event, Outgoing, Source
from keygrouping_app.failures import failure_of
from keygrouping_app.fit import Fit
from keygrouping_app.handlers import AppError, Function, Handler, UnusableHandlerError, outputs_of
from keygrouping_app.kept import Kept, UnreadableStateError, UnusableStateError
from keygrouping_app.partials import Partials
from keygrouping_app.scheduler import Call, Failure
from keygrouping_app.state import Form
from keygrouping_app.tally import HANDLED, REFUSED_STATE, UNREADABLE, Tally, Typical

log = logging.getLogger(__name__)

OnEnd: TypeAlias = Callable[[list[Event], list[Outgoing], Failure | None], None]
"""Told of events that have ended, with what the handler has returned for them, or why they have failed for good.

They are of one source, and of one call if anything was returned or has failed."""

QUICK_SECONDS = 0.005
"""How long lanes go on without a turn of the event loop while handlers never wait, and what is handed over at once."""
_MOST_AHEAD = 256
"""Calls that are handed to threads beyond the lanes there are, while calls are quick."""


class Lanes:
    """The lanes of one handler; a `function` is the handler's with what lifespans give already bound."""

    def __init__(self, handler: Handler, on_end: OnEnd) -> None:
        self.handler = handler
        self.scheduler = handler.scheduler()
        self.tally = Tally()
        self._form = None if handler.state is None else Form(handler.state)
        self.fit = None if self._form is None else Fit(self._form)
        self.partials = Partials(handler) if handler.state is not None and handler.split else None
        """On their way from calls, if states merge."""
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self.costs = Costs(self._loop.time())
        self.costs_here = CostsOfWork(self._loop.time(), handler.concurrency) if handler.moves else None
        """Of keys that may be handed over, since the member's partitions have changed."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.failure: asyncio.Future[None] = self._loop.create_future()
        """Fails with what should never happen: an error outside of handlers. Its events have not ended."""

    async def begin(self) -> None:
        """Returns when it can work; AppError if it can't."""

    async def end(self) -> None:
        """Returns when nothing is left of it; what runs is not waited for."""
        self.close()

    def offer(self, events: Iterable[Event]) -> list[Event]:
        """Takes events of one source, and gives them; those of which the key can't be read end at once."""
        events, now = list(events), self._loop.time()
        for event in events:
            event.since = now
        taken = events if self.handler.key is None and self._form is None else self._readable(events)
        if taken and self._form is not None:
            taken = taken[0].source.here(taken)
        self.resume(taken)
        return taken

    def resume(self, events: Iterable[Event]) -> None:
        """Takes events that it was offered before."""
        self.scheduler.offer(events)
        self._rouse()

    def _readable(self, events: Iterable[Event]) -> list[Event]:
        good = []
        for event in events:
            try:
                self.handler.set_group(event)
                event.group = event.source.group_of(event)
                if event.source.states is not None:
                    event.source.states.key_of(event.group)
                elif self.partials is not None:
                    self.partials.check(event.group)
                hash(event.group)  # its queue is found by it
            except Exception as error:
                failure = failure_of(error, expired=False)
                self.tally.dead[failure.reason] += 1
                self.tally.ended += 1
                self._on_end([event], [], failure)
            else:
                good.append(event)
        return good

    def unreadable(self, kept: Kept) -> str | None:
        """Why the handler can't be given this state; None: it can, as far as a codec can tell now."""
        assert self._form is not None
        try:
            self._form.read(kept)
        except UnreadableStateError as error:
            return str(error)
        except OSError:
            return None
        return None

    def withdraw(self, source: Source) -> None:
        """Starts nothing of a source any more; what runs of it may end."""
        self.scheduler.withdraw(source)
        self._rouse()

    def abandon(self, source: Source) -> None:
        """Like `withdraw`, but what can be cancelled is: somebody else has the source already."""
        self.withdraw(source)

    def may_start(self, until: float) -> None:
        """Starts nothing from this moment of the event loop's clock on; what runs may end."""
        was_over = self._loop.time() >= self.scheduler.until
        self.scheduler.until = until
        if was_over:
            self._rouse()

    def close(self) -> None:
        """Starts nothing any more; what runs on the event loop is cancelled."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _rouse(self) -> None:
        raise NotImplementedError

    def _is_late(self, call: Call) -> None:
        raise NotImplementedError

    def _started(self, call: Call) -> None:
        if self._timer is None:
            self._arm(call.deadline)

    def _ended(self, call: Call, result: Any, error: BaseException | None) -> float:
        """Gives the time of its end."""
        outputs, failure = _NO_OUTPUTS, None
        if isinstance(error, UnusableStateError):
            self._end_app(call, str(error))
            return self._loop.time()
        if result is not None and error is None:
            try:
                outputs = outputs_of(result, call.events[-1])
            except UnusableHandlerError as unusable:
                self._end_app(call, str(unusable))
                return self._loop.time()
            except (ValueError, OSError) as wrong:
                error = wrong
        if error is not None:
            failure = failure_of(error, call.expired)
        now = self._loop.time()
        self._finish(call, outputs, failure, _seconds(call, now), now)
        return now

    def _find_state(self, call: Call) -> None:
        """What the call begins with; to be asked on the event loop, when no other call of its key runs."""
        event = call.events[0]
        if self.partials is not None:
            return  # a new one
        assert event.source.states is not None
        try:
            call.kept = event.source.states.find(call.queue.key, event.time)
        except UnusableStateError as error:
            self._end_app(call, str(error))
            raise

    def _keep_state(self, call: Call) -> list[Outgoing] | Failure:
        """Gives what is to be written of it to another partition's owner, if states merge; or why it is not kept."""
        if self.partials is not None:
            return self.partials.of(call)
        states = call.events[0].source.states
        assert states is not None
        try:
            if why := states.why_not_kept(call.queue.key, call.kept, call.after, _place_of(call)[0]):
                return Failure(REFUSED_STATE, why, retry=False)
            states.keep(call.queue.key, call.kept, call.after, *_place_of(call))
        except UnusableStateError as error:
            self._end_app(call, str(error))
            raise
        return []

    def _renew_state(self, call: Call) -> None:
        """It could not be read: it is to be there when it can be."""
        states = call.events[0].source.states
        assert states is not None
        try:
            states.renew(call.queue.key, _place_of(call)[0])
        except UnusableStateError as error:
            self._end_app(call, str(error))
            raise

    def _end_app(self, call: Call, why: str) -> None:
        """Without a key's state, or with a handler that can't work, the app can't go on.

        The call does not end, so none of its events counts as ended.
        """
        self._fail(AppError([f"{self.handler.name} on {self.handler.topic.name!r}, key {call.queue.key!r}: {why}"]))

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)

    def _record_end(self, call: Call, outputs: list[Outgoing], failure: Failure | None, seconds: float) -> None:
        self._finish(call, outputs, failure, seconds, self._loop.time())

    def _finish(self, call: Call, outputs: list[Outgoing], failure: Failure | None, seconds: float, now: float) -> None:
        scheduler, tally = self.scheduler, self.tally
        circuit = scheduler.circuit
        was_open = circuit is not None and circuit.is_open
        tally.add(HANDLED if failure is None else failure.reason, seconds)
        if failure is None and self._form is not None:
            partials = self._keep_state(call)
            if isinstance(partials, Failure):
                failure = partials
            elif partials:
                outputs = [*outputs, *partials]
        ended = scheduler.finish(call, now, failure)
        if ended and failure is not None and failure.reason == UNREADABLE:
            self._renew_state(call)
        self._charge(call, seconds, len(ended), now)
        if ended:
            tally.ended += len(ended)
            if failure is not None:
                tally.dead[failure.reason] += len(ended)
            self._on_end(ended, outputs, failure)
        elif failure is not None:
            self._watch()
        if circuit is not None and circuit.is_open is not was_open:
            self._tell_breaker(failure)
            self._rouse()

    def _charge(self, call: Call, seconds: float, ended: int, now: float) -> None:
        if not self.handler.split:
            self.costs.add(call.queue.key, seconds, ended, now)
            if self.costs_here is not None:
                self.costs_here.add(call.queue.key, seconds, ended, now)
            return
        count = len(call.events)
        for event in call.events:
            self.costs.add(event.group, seconds / count, ended // count, now)

    def _succeeded(self, calls: list[Call]) -> None:
        """Calls of a handler without state have returned nothing. Together they cost less than by `_ended`."""
        circuit = self.scheduler.circuit
        if circuit is not None and circuit.troubled:
            for call in calls:
                self._ended(call, None, None)
            return
        now = self._loop.time()
        seconds = [_seconds(call, now) for call in calls]
        self.tally.add_all(HANDLED, seconds)
        if self.handler.split:
            for call, took in zip(calls, seconds, strict=True):
                self._charge(call, took, len(call.events), now)
        else:
            self.costs.add_all([call.queue.key for call in calls], seconds, [len(call.events) for call in calls], now)
        for events in self.scheduler.succeed(calls):
            self.tally.ended += len(events)
            self._on_end(events, _NO_OUTPUTS, None)

    def _tell_breaker(self, failure: Failure | None) -> None:
        name = self.handler.name
        if failure is None:
            log.warning("%s works again: its circuit breaker is closed", name)
        else:
            log.warning(
                "%s: most calls fail, so its circuit breaker is open and one call at a time is tried: %s",
                name,
                failure.detail,
            )

    def _arm(self, moment: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= moment:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        assert self._timer is not None
        # The event loop rings up to its clock's resolution too early.
        now = max(self._loop.time(), self._timer.when())
        self._timer = None
        self.scheduler.wake(now)
        for call in self.scheduler.expire(now):
            self._is_late(call)
        self._rouse()
        self._watch()

    def _watch(self) -> None:
        moments = (self.scheduler.next_start(), self.scheduler.next_deadline())
        if not self._closed and (coming := [moment for moment in moments if moment is not None]):
            self._arm(min(coming))


class LoopLanes(Lanes):
    """Runs a coroutine function."""

    def __init__(self, handler: Handler, function: Function, on_end: OnEnd) -> None:
        super().__init__(handler, on_end)
        self._function = function
        self._run: Function = function if self._form is None else partial(self._with_state, self._form)
        self._lanes: set[asyncio.Task[None]] = set()
        self._resting: list[asyncio.Future[None]] = []
        self._at_work: dict[Call, asyncio.Task[None]] = {}
        self._latest: Call | None = None
        """The one that has begun last."""
        self._turn = time.perf_counter()
        """When the event loop's turn began, or one before it: see `_let_turn`."""
        self._turning = False

    def close(self) -> None:
        super().close()
        for lane in self._lanes:
            lane.cancel()

    def abandon(self, source: Source) -> None:
        super().abandon(source)
        for call, lane in self._at_work.items():
            if call.events[0].source is source:
                lane.cancel()

    def _rouse(self) -> None:
        for _ in range(0 if self._closed else self.scheduler.startable):
            while self._resting:
                place = self._resting.pop()
                if not place.done():
                    place.set_result(None)
                    break
            else:
                if len(self._lanes) >= self.handler.concurrency:
                    return
                lane = self._loop.create_task(self._lane(), name=f"{self.handler.name}-{len(self._lanes)}")
                lane.add_done_callback(self._lane_ended)
                self._lanes.add(lane)

    def _lane_ended(self, lane: asyncio.Task[None]) -> None:
        if not lane.cancelled() and (error := lane.exception()):
            self._fail(error)

    def _is_late(self, call: Call) -> None:
        self._at_work[call].cancel()

    async def _lane(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        loop, scheduler, run, form = self._loop, self.scheduler, self._run, self._form
        batch = bool(self.handler.batch)
        now = loop.time()
        while True:
            call = scheduler.start(now)
            if call is None:
                await self._rest()
                now = loop.time()
                continue
            if self._timer is None:
                self._arm(call.deadline)
            self._at_work[call], self._latest = task, call
            # Here and not in a coroutine of its own, for which each event would pay. A list is the handler's own.
            result: Any = None
            error: BaseException | None = None
            try:
                result = await run(call if form else [*call.events] if batch else call.events[0])
            except asyncio.CancelledError as cancelled:
                if self._closed:
                    raise
                error = cancelled
            except (Exception, SystemExit, GeneratorExit) as broken:  # of the handler's call, not of the app's
                error = broken
            finally:
                del self._at_work[call]
            while task.cancelling():
                task.uncancel()
            now = self._ended(call, result, error)
            # Where others have begun meanwhile, it has waited, and the event loop has turned.
            if self._latest is call and time.perf_counter() - self._turn > QUICK_SECONDS:
                self._let_turn()
                await asyncio.sleep(0)
                now = loop.time()

    def _let_turn(self) -> None:
        """Has the next turn's beginning noted before any lane goes on: they share its time, however many they are."""
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._turning, self._turn = False, time.perf_counter()

    async def _with_state(self, form: Form, call: Call) -> Any:
        self._find_state(call)
        state = form.read(call.kept)
        result = await self._function([*call.events] if self.handler.batch else call.events[0], state)
        call.after = form.write(state)
        return result

    async def _rest(self) -> None:
        if self.scheduler.held:
            self._watch()
        place = self._loop.create_future()
        self._resting.append(place)
        await place


class PooledLanes(Lanes):
    """Runs a plain function on threads that take calls as soon as they are free.

    While calls are quick, more of them are handed over than there are lanes, so that a thread takes one after another:
    an end that the event loop has to hear of before the next call begins costs more than a quick call does. They wait
    for the next free thread, not for one of their own, so one that hangs keeps none of them.
    """

    def __init__(self, handler: Handler, on_end: OnEnd) -> None:
        super().__init__(handler, on_end)
        self._calls: deque[Call] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._rung = False
        self._news: deque[Call | Callable[[], object]] = deque()
        """Calls that have succeeded, see `_succeeded`, and what else is to be done."""
        self._told = False
        self._typical = Typical()

    def close(self) -> None:
        super().close()
        self._calls.clear()

    @property
    def _limited(self) -> bool:
        """What is handed over early begins when it may: that would be too many at once for a rate."""
        return bool(self.handler.rate or self.handler.rate_per_key)

    def _call_thread(self) -> None:
        """Calls one thread at a time: it calls the next one when it has taken a call and more are left."""
        if self._calls and not self._rung:
            self._rung = True
            self._bell.put(True)

    def _next_call(self, now: float) -> Call | None:
        """Taken from those that wait, if anything may start."""
        call = self._open_call()
        if call is not None and now >= self.scheduler.until:
            self._calls.appendleft(call)
            return None
        return call

    def _open_call(self) -> Call | None:
        """Taken from those that wait; those of closed sources begin no more."""
        while True:
            try:
                call = self._calls.popleft()
            except IndexError:
                return None
            if not call.events[0].source.closed:
                return call
            self._tell(partial(self._drop, call))

    def _drop(self, call: Call) -> None:
        self.scheduler.finish(call, self._loop.time(), _WITHDRAWN)

    def _tell(self, news: Call | Callable[[], object]) -> bool:
        """Has it taken note of on the event loop; False if nobody is there any more to hear of it."""
        self._news.append(news)
        if not self._told:
            self._told = True
            try:
                self._loop.call_soon_threadsafe(self._hear)
            except RuntimeError:  # the event loop has ended, and so has all that waited for this
                return False
        return True

    def _hear(self) -> None:
        self._told = False  # before anything is taken, so that what comes meanwhile is told of
        succeeded: list[Call] = []
        while self._news:
            news = self._news.popleft()
            if isinstance(news, Call):
                succeeded.append(news)
                continue
            if succeeded:
                self._succeeded(succeeded)
                succeeded = []
            news()
        if succeeded:
            self._succeeded(succeeded)
        self._rouse()


class ThreadLanes(PooledLanes):
    """Runs a plain function, each call on one of as many threads as there are lanes."""

    def __init__(self, handler: Handler, function: Function, on_end: OnEnd) -> None:
        super().__init__(handler, on_end)
        self._function = function
        self._threads = 0

    def close(self) -> None:
        super().close()
        for _ in range(self._threads):
            self._bell.put(False)

    def _rouse(self) -> None:
        ahead = 0 if self._limited else min(_MOST_AHEAD, int(QUICK_SECONDS / max(self._typical.seconds, 1e-6)))
        calls = [] if self._closed else self.scheduler.start_all(self._loop.time(), ahead)
        if calls:
            self._started(calls[0])
            for _ in range(self._threads, min(self.handler.concurrency, len(self.scheduler.running))):
                self._threads += 1
                name = f"{self.handler.name}-{self._threads}"
                # A daemon: one that hangs must not keep the process from its end.
                threading.Thread(target=self._lane, name=name, daemon=True).start()
            for call in calls if self._form is not None else ():
                self._find_state(call)
            self._calls.extend(calls)
        self._call_thread()
        if self.scheduler.held:
            self._watch()

    def _is_late(self, call: Call) -> None:
        event = call.events[0]
        log.warning(
            "%s has been at work on %r for %.0f s, longer than its timeout; a thread can't be stopped, so its lane and "
            "its key wait for it",
            *(self.handler.name, event, self._loop.time() - call.started),
        )

    def _lane(self) -> None:
        clock = self._loop.time
        while self._bell.get():
            self._rung = False  # before anything is taken, so that what comes meanwhile is called for
            now = clock()
            while (call := self._next_call(now)) is not None:
                self._call_thread()
                news = self._work(call)
                # Others were handed over before it, so only now is it clear when it began.
                call.started, call.ended = now, (now := clock())
                self._typical.add(now - call.started)
                if not self._tell(news):
                    return

    def _work(self, call: Call) -> Call | Callable[[], object]:
        """Calls the handler. Gives the call if it has returned nothing, else what ends it on the event loop."""
        result, error = None, None
        try:
            # A list of the handler's own: it may take it apart.
            given: Any = [*call.events] if self.handler.batch else call.events[0]
            if self._form is None:
                result = self._function(given)
                if result is None:
                    return call
            else:
                state = self._form.read(call.kept)
                result = self._function(given, state)
                call.after = self._form.write(state)
        except BaseException as broken:  # whatever it is, it must not end the thread
            error = broken
        try:
            return partial(self._ended, call, result, error)
        finally:
            error = None  # its traceback has this frame: a cycle would keep all that the handler had


def _place_of(call: Call) -> tuple[int, list[int]]:
    """The time of its latest event, and the offsets of all."""
    return max(event.time for event in call.events), [event.raw.offset for event in call.events]


def _seconds(call: Call, now: float) -> float:
    return (now if call.ended is None else call.ended) - call.started


_NO_OUTPUTS: list[Outgoing] = []
"""Never changed."""
_WITHDRAWN = Failure("withdrawn", "its partition went to another member")
