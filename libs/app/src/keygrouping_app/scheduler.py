"""Which event is handled next: a pure state machine that knows no Kafka, no clock and no event loop.

Every key that has events has a queue, and the queues that may start take turns, so a key with many events gets no more
turns than one with few. But one of which so many wait that they take longer than all others on half of the lanes goes
on at once: its events run one after another, so whatever it waits for makes all end later. Such keys never have more
than half of the lanes. A queue whose event is running, or waits for its next try, is not among those that take turns:
it keeps nobody from a lane. Events without order share one queue, of which as many run at once as there are lanes.

What waits for its rate is not among them either, and while the breaker is open none starts but a probe.

The caller offers events, starts calls while `start` gives one, and tells how each has ended. Times are seconds of a
clock of the caller's.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice, takewhile
from typing import Literal, TypeAlias

import msgspec

from keygrouping_app.breaker import Circuit
from keygrouping_app.events import Event, Source
from keygrouping_app.kept import Kept
from keygrouping_app.rates import Limit


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call has failed: a word for what it was, a line for people, and whether another try may help.

    `digest` is the same for failures at the same place of the code; empty if no code has failed. `dependency`: whether
    something that the handler needs may be to blame, and not the event or the code: then the breaker counts it.
    """

    reason: str
    detail: str
    retry: bool = True
    digest: str = ""
    dependency: bool = False


_Events: TypeAlias = deque[Event] | list[Event]
_MOST_KEPT = 500
"""Events that are looked at to be taken back, and stay."""


class _Queue(msgspec.Struct, eq=False, gc=False):
    """Events that wait, of one key (`serial`) or without order."""

    key: Hashable
    serial: bool
    events: _Events
    source: Source | None = None
    """The source of all that waits, if a batch may take any of it; None: batches have to look at each event."""
    turn: bool = False
    """Whether it is among those that take turns."""


class Call(msgspec.Struct, eq=False, gc=False):
    """A handler at work on one event, or on several of one key."""

    queue: _Queue
    events: list[Event]
    started: float
    """When it has got its lane; once it has ended on a thread, when it began there."""
    deadline: float
    ended: float | None = None
    """When it has ended on a thread; None: not yet, or when that is told."""
    expired: bool = False
    """Whether it was told that its deadline has passed."""
    kept: Kept | None = None
    """The state that it has found, if its handler has one."""
    after: bytes | None = None
    """What it has made of the state; None: as a new one."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A key of which events wait: how many, the first of them, and what for; no key: those without order."""

    key: Hashable
    events: int
    first: Event
    what: Literal["lane", "key", "try", "rate"]


class Scheduler:
    """The queues of one handler.

    At most `concurrency` calls run at once, each with at most `batch` events of one key and one source and for
    `timeout` seconds. A failed event is tried again `retries` times, after `delay(tries)` seconds each. `rate` and
    `rate_per_key` limit how many events start a second. While `circuit` is open, calls that fail with what it counts
    are no tries.
    """

    def __init__(  # noqa: PLR0913 -- independent settings, each with a default
        self,
        *,
        concurrency: int,
        ordered: bool = True,
        batch: int = 1,
        timeout: float = 60.0,
        retries: int = 0,
        delay: Callable[[int], float] = lambda _: 0.0,
        rate: float | None = None,
        rate_per_key: float | None = None,
        circuit: Circuit | None = None,
    ) -> None:
        self._concurrency = concurrency
        self._ordered = ordered
        self._batch = batch
        self._timeout = timeout
        self._retries = retries
        self._delay = delay
        self._rate = None if rate is None else Limit(rate)
        self._rate_per_key = None if rate_per_key is None else Limit(rate_per_key)
        self.circuit = circuit
        # Single events are taken from the front. Batches are mostly all that waits, so a list is handed on as it is;
        # it becomes a deque where less of it is taken, as what comes behind would move each time.
        self._events_of: type[deque[Event]] | type[list[Event]] = deque[Event] if batch == 1 else list[Event]
        self._queues: dict[Hashable, _Queue] = {}
        self._loose = _Queue(None, False, self._events_of())
        self._turns: deque[_Queue] = deque()
        self._later: list[tuple[float, int, _Queue, Event]] = []
        self._limited: list[tuple[float, int, _Queue]] = []
        self._held = False
        self._waiting = 0
        """Events in all queues."""
        self._sequence = count()
        self.until = math.inf
        """From when on nothing may start."""
        self.running: dict[Call, None] = {}
        """In the order in which they were started, so of their deadlines, too."""
        self.retried = 0
        """How many tries were made again until now."""

    def offer(self, events: Iterable[Event]) -> None:
        """Takes events; those of a key in the order in which they are to be handled."""
        queues, turns, loose, ordered = self._queues, self._turns, self._loose, self._ordered
        events_of = self._events_of
        taken: list[Event] = []
        of: Source | None = None
        """The source of those that were taken."""
        for event in events:
            source = event.source
            if source is not of:
                self._hold(of, taken)
                of, taken = source, []
            taken.append(event)
            group = event.group if ordered else None
            if group is None:
                queue = loose
                if not queue.events:
                    queue.source = source
            else:
                found = queues.get(group)
                if found is None:
                    queue = queues[group] = _Queue(group, True, events_of(), source, True)
                    turns.append(queue)
                else:
                    queue = found
            queue.events.append(event)
            if queue.source is not source:
                queue.source = None
        self._hold(of, taken)
        self._give_turn(loose)

    def start_all(self, now: float, ahead: int = 0) -> list[Call]:
        """All calls that `start` would give one after another."""
        started = []
        if self._rate is self._rate_per_key is None and not (self.circuit is not None and self.circuit.is_open):
            if self._later:
                self.wake(now)
            turns, running, most = self._turns, self.running, self._concurrency + ahead
            while turns and len(running) < most and now < self.until:
                started.append(self._begin(turns.popleft(), now))
        else:
            while (call := self.start(now, ahead)) is not None:
                started.append(call)
        return started

    def start(self, now: float, ahead: int = 0) -> Call | None:
        """The next call; None if no lane is free or nothing may start yet.

        `ahead`: how many calls are taken beyond those for which there are lanes, to begin as soon as one is free.
        """
        if self._later or self._limited:
            self.wake(now)
        if not self._turns or now >= self.until or len(self.running) >= self._concurrency + ahead:
            self._held = False
            return None
        circuit, per_key = self.circuit, self._rate_per_key
        gated = self._rate is not None or (circuit is not None and circuit.is_open)
        if gated and self._is_held(now):
            return None
        queue = self._turns.popleft() if per_key is None else self._next_allowed(per_key, now)
        if queue is None:
            return None
        call = self._begin(queue, now)
        if gated or per_key is not None:
            self._let_through(call, now)
        return call

    def _begin(self, queue: _Queue, now: float) -> Call:
        queue.turn = False
        events = self._take(queue)
        self._waiting -= len(events)
        if not queue.serial:
            self._give_turn(queue)
        call = Call(queue, events, now, now + self._timeout)
        self.running[call] = None
        events[0].source.running += 1
        return call

    def finish(self, call: Call, now: float, failure: Failure | None = None) -> list[Event]:
        """A call has ended. Gives the events that have ended with it: all, or none if they are tried again.

        What has failed of a closed source has not ended: its next owner tries it again, unless that can't help.
        """
        del self.running[call]
        source = call.events[0].source
        source.running -= 1
        if self.circuit is not None and (failure is not None or self.circuit.troubled):
            self._tell(self.circuit, call, now, failure)
        if failure is not None and not source.closed:
            return self._failed(call, now, failure)
        source.let_go(call.events)
        self._free(call.queue)
        # Of a batch each would be tried by itself, so one that can't be handled says nothing of the others.
        final = failure is None or (not failure.retry and len(call.events) == 1)
        return call.events if final else []

    def succeed(self, calls: Iterable[Call]) -> Iterable[list[Event]]:
        """Like `finish` for calls that have succeeded, while nothing has failed that the breaker counts.

        Gives the events that have ended, those of each source together.
        """
        ended: dict[Source, list[Event]] = {}
        for call in calls:
            del self.running[call]
            source = call.events[0].source
            source.running -= 1
            self._free(call.queue)
            if source in ended:
                ended[source] += call.events
            else:
                ended[source] = [*call.events]
        for source, events in ended.items():
            source.let_go(events)
        return ended.values()

    def withdraw(self, source: Source) -> None:
        """Closes a source: what waits of it is forgotten, what runs may end."""
        source.closed = True
        later = [entry for entry in self._later if entry[3].source is source]
        self._later = [entry for entry in self._later if entry[3].source is not source]
        heapq.heapify(self._later)
        for _, _, queue, _ in later:
            self._go_on(queue)
        gone = [event for *_, event in later]
        for queue in [*self._queues.values(), self._loose]:
            here = [event for event in queue.events if event.source is source]
            if here:
                gone += here
                queue.events = self._events_of(event for event in queue.events if event.source is not source)
                self._waiting -= len(here)
        self._drop_empty_turns()
        source.let_go(gone)

    def take_back(self, wanted: Mapping[Hashable, int], may: Callable[[Event], bool]) -> list[Event]:
        """Takes waiting events without order of these groups that have not been tried yet, up to so many of each.

        The latest are the first, as those before them begin soon. They are held no longer. It looks at no more than
        some hundred that are not taken.
        """
        left, count = dict(wanted), sum(wanted.values())
        events, kept, taken = self._loose.events, list[Event](), list[Event]()
        while events and count > 0 and len(kept) < _MOST_KEPT:
            event = events.pop()
            if not event.tries and not event.solo and left.get(event.group, 0) > 0 and may(event):
                left[event.group] -= 1
                count -= 1
                taken.append(event)
            else:
                kept.append(event)
        events.extend(reversed(kept))
        self._waiting -= len(taken)
        for event in taken:
            event.source.let_go([event])
        if not events:
            self._drop_empty_turns()
        return taken

    def take_key(self, key: Hashable) -> list[Event]:
        """Takes all events of a key that wait, those that have been tried first. What runs of it may end, see `has`."""
        queue = self._queues.get(key)
        if queue is None:
            return []
        later = [event for *_, other, event in self._later if other is queue]
        self._later = [entry for entry in self._later if entry[2] is not queue]
        heapq.heapify(self._later)
        taken = [*later, *queue.events]
        self._waiting -= len(queue.events)
        queue.events = self._events_of()
        self._drop_empty_turns()
        if later and key in self._queues:
            del self._queues[key]
        for event in taken:
            event.source.let_go([event])
        return taken

    def wake(self, now: float) -> None:
        """Gives a turn to what is to be tried again by now, and to keys that have waited for their rate."""
        while self._later and self._later[0][0] <= now:
            _, _, queue, event = heapq.heappop(self._later)
            self._put_back(queue, [event])
        while self._limited and self._limited[0][0] <= now:
            self._give_turn(heapq.heappop(self._limited)[2])

    def next_start(self) -> float | None:
        """When the first event may start that waits for its next try, its rate or a probe; None: none waits for it.

        It may be over: time goes on between the look at what may start and this one, and `wake` has to be told again.
        """
        moments = [heap[0][0] for heap in (self._later, self._limited) if heap]
        if self._held and self._gated and self._turns:
            moments.append(self._gate())
        return min((moment for moment in moments if moment < float("inf")), default=None)

    def next_deadline(self) -> float | None:
        """When the first of the calls must have ended that were not told yet; None: there is none."""
        return next((call.deadline for call in self.running if not call.expired), None)

    def expire(self, now: float) -> list[Call]:
        """The calls whose deadline has passed since this was asked last."""
        late = [call for call in self.running if call.deadline <= now and not call.expired]
        for call in late:
            call.expired = True
        return late

    def has(self, key: Hashable) -> bool:
        """Whether an event of the key waits, runs or is to be tried again."""
        return key in self._queues

    @property
    def waits(self) -> int:
        """How many events wait for their call."""
        return self._waiting

    @property
    def idle(self) -> bool:
        """Whether nothing runs, nothing waits and nothing is to be tried again."""
        return not (self.running or self._turns or self._later or self._limited)

    @property
    def held(self) -> bool:
        """Whether something would start but for a rate or the breaker."""
        return bool(self._limited) or (self._held and self._gated)

    def waiting(self) -> Iterator[Waiting]:
        """All keys of which events wait: for a lane, for the call of their key, for their next try, for their rate."""
        running = {call.queue for call in self.running if call.queue.serial}
        limited = {queue for *_, queue in self._limited}
        for _, _, queue, event in self._later:
            yield Waiting(queue.key, 1 + (len(queue.events) if queue.serial else 0), event, "try")
        later = {queue for _, _, queue, _ in self._later if queue.serial}
        for queue in (*self._queues.values(), self._loose):
            if queue.events and queue not in later:
                what: Literal["lane", "key", "rate"] = "key" if queue in running else "lane"
                yield Waiting(queue.key, len(queue.events), queue.events[0], "rate" if queue in limited else what)

    @property
    def startable(self) -> int:
        """How many calls could start now."""
        return min(len(self._turns) + len(self._loose.events), self._concurrency - len(self.running))

    def _hold(self, source: Source | None, events: list[Event]) -> None:
        """These events of a source wait."""
        if source is not None:
            self._waiting += len(events)
            source.hold(events)

    def _free(self, queue: _Queue) -> None:
        """A call of it has ended."""
        if not queue.events:
            if queue.serial:
                del self._queues[queue.key]
        elif not queue.turn:
            queue.turn = True
            if len(self.running) + len(self._turns) < self._concurrency or self._is_behind(queue):
                self._turns.appendleft(queue)  # there is a lane for all that wait, or it is what all will wait for
            else:
                self._turns.append(queue)

    def _take(self, queue: _Queue) -> list[Event]:
        waiting = queue.events
        if self._batch == 1 and isinstance(waiting, deque):
            return [waiting.popleft()]
        if queue.source is not None and len(waiting) <= self._batch:
            queue.events = []
            return waiting if isinstance(waiting, list) else [*waiting]
        if isinstance(waiting, list):
            waiting = queue.events = deque(waiting)
        count = self._alike(waiting) if queue.source is None else self._batch
        return [waiting.popleft() for _ in range(count)]

    def _alike(self, waiting: deque[Event]) -> int:
        """How many of the first ones may be in one batch."""
        first = waiting[0]
        if first.solo:
            return 1
        first_ones = islice(waiting, self._batch)
        return sum(1 for _ in takewhile(lambda each: each.source is first.source and not each.solo, first_ones))

    @property
    def _gated(self) -> bool:
        return self._rate is not None or (self.circuit is not None and self.circuit.is_open)

    def _gate(self) -> float:
        """From when on a call may start, as far as rate and breaker of the whole handler say."""
        free = self._rate.free_at(None) if self._rate is not None else 0.0
        return max(free, self.circuit.free_at) if self.circuit is not None and self.circuit.is_open else free

    def _is_held(self, now: float) -> bool:
        self._held = self._gate() > now
        return self._held

    def _let_through(self, call: Call, now: float) -> None:
        if self._rate is not None:
            self._rate.take(None, len(call.events), now)
        if self._rate_per_key is not None and call.queue.serial:
            self._rate_per_key.take(call.queue.key, len(call.events), now)
        if self.circuit is not None and self.circuit.is_open:
            self.circuit.probe(call)

    def _next_allowed(self, limit: Limit, now: float) -> _Queue | None:
        """The first queue that may start by its key's rate; those before it leave their turns until they may."""
        while self._turns:
            queue = self._turns.popleft()
            if not queue.serial:
                return queue
            free = limit.free_at(queue.key)
            if free <= now:
                return queue
            queue.turn = False
            heapq.heappush(self._limited, (free, next(self._sequence), queue))
        return None

    def _tell(self, circuit: Circuit, call: Call, now: float, failure: Failure | None) -> None:
        event = call.events[0]
        if failure is None:
            circuit.succeeded(call)
        elif failure.dependency and not event.source.closed:
            circuit.failed(call, (event.partition, event.offset), now)
        else:
            circuit.skipped(call, now)

    def _failed(self, call: Call, now: float, failure: Failure) -> list[Event]:
        queue = call.queue
        for event in call.events:
            event.forget()
        if failure.dependency and self.circuit is not None and self.circuit.is_open:
            self.retried += 1
            # The next probe is another event's, where order allows it: these may be to blame for their failure.
            self._put_back(queue, call.events, first=queue.serial)
            return []
        if len(call.events) > 1:
            # One of them may be to blame: each is tried by itself, and only that one fails for good.
            for event in call.events:
                event.solo = True
            self._put_back(queue, call.events)
            return []
        (event,) = call.events
        event.tries += 1
        if not failure.retry or event.tries > self._retries:
            event.source.let_go(call.events)
            self._go_on(queue)
            return call.events
        self.retried += 1
        heapq.heappush(self._later, (now + self._delay(event.tries), next(self._sequence), queue, event))
        return []

    def _put_back(self, queue: _Queue, events: list[Event], first: bool = True) -> None:
        queue.source = None
        if isinstance(queue.events, list):
            queue.events = deque(queue.events)
        if first:
            queue.events.extendleft(reversed(events))
        else:
            queue.events.extend(events)
        self._waiting += len(events)
        self._give_turn(queue)

    def _is_behind(self, queue: _Queue) -> bool:
        """Whether its events take longer one after another than all on half of the lanes."""
        return len(queue.events) // self._batch * self._concurrency > 2 * self._waiting

    def _go_on(self, queue: _Queue) -> None:
        if queue.events:
            self._give_turn(queue)
        elif queue.serial:
            del self._queues[queue.key]

    def _give_turn(self, queue: _Queue) -> None:
        if queue.events and not queue.turn:
            queue.turn = True
            self._turns.append(queue)

    def _drop_empty_turns(self) -> None:
        for queue in self._turns:
            if not queue.events:
                queue.turn = False
                if queue.serial:
                    del self._queues[queue.key]
        self._turns = deque(queue for queue in self._turns if queue.turn)
        for _, _, queue in self._limited:
            if not queue.events:
                del self._queues[queue.key]
        self._limited = [entry for entry in self._limited if entry[2].events]
        heapq.heapify(self._limited)
