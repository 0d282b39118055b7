"""A run of handlers without Kafka, and what came of it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from keygrouping_app.events import Event, Outgoing, Record, Source, events_of
from keygrouping_app.handlers import AppError, Function, Handler
from keygrouping_app.kept import Kept
from keygrouping_app.lanes import LoopLanes, OnEnd
from keygrouping_app.partials import merger_of, partial_of
from keygrouping_app.scheduler import Failure
from keygrouping_app.state import Form, State
from keygrouping_app.states import States
from keygrouping_app.virtual_time import VirtualTime

_LONG = 3600.0
"""Seconds; an outage that a test plays is shorter."""


@dataclass(slots=True)
class Tested:
    """What came of a test: each event is in one of `handled` and `dead`, in the order in which they ended.

    A state that an event has left, and that can't be merged or published, is in `dead` as well, as an event of the
    topic `APP.TOPIC.partials`.
    """

    __test__: ClassVar[bool] = False
    """Of pytest, which takes a class of this name for tests of a user's otherwise."""
    handled: list[Event] = field(default_factory=list)
    dead: list[tuple[Event, Failure]] = field(default_factory=list)
    outputs: list[Outgoing] = field(default_factory=list)
    states: dict[str, dict[Any, Any]] = field(default_factory=dict)
    """The state of each key at the end, by the topic of its handler and the key: as text where it is the record's."""
    retries: int = 0
    seconds: float = 0.0
    """Virtual time from the first event to the end of the last."""


async def run_test(
    handlers: Iterable[Handler],
    events: Iterable[Event],
    bind: Callable[[Handler], Function],
    states: Mapping[str, Mapping[Any, Any]],
) -> Tested:
    """Offers all events at once and returns when all have ended.

    AppError if an event is of a topic without handler, or a state of one whose handler has none.
    """
    by_topic = {handler.topic.name: handler for handler in handlers}
    tested = Tested()
    waiting = _by_topic(events)
    if strange := sorted(waiting.keys() - by_topic.keys()):
        raise AppError(f"topic {topic!r} has no handler: declare one with @app.on({topic!r})" for topic in strange)
    sources = _sources(by_topic, states, waiting)

    def on_end(ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        tested.outputs += outputs
        if failure is None:
            tested.handled += ended
        else:
            tested.dead += [(event, failure) for event in ended]

    with VirtualTime() as clock:
        begun = clock.now()
        offers = [
            (by_topic[topic], _on_loop(by_topic[topic], bind), _placed(sources[topic], given))
            for topic, given in waiting.items()
        ]
        tested.retries = await _handled(offers, on_end)
        tested.seconds = clock.now() - begun
        for handler in [each for each in by_topic.values() if each.partials]:
            tested.retries += await _merged(handler, sources[handler.topic.name].states, tested)
    tested.states = {
        topic: dict(_told(by_topic[topic], each.states)) for topic, each in sources.items() if each.states is not None
    }
    return tested


async def _handled(offers: Iterable[tuple[Handler, Function, list[Event]]], on_end: OnEnd) -> int:
    """Returns when all events that handlers are offered have ended; gives how many tries were further ones."""
    left, done = 0, asyncio.Event()

    def ended(events: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        nonlocal left
        on_end(events, outputs, failure)
        left -= len(events)
        if not left:
            done.set()

    lanes = []
    try:
        for handler, function, events in offers:
            left += len(events)
            lanes.append((LoopLanes(handler, function, ended), events))
        for each, events in lanes:
            each.offer(events)
        if lanes:
            ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(done.wait()), *(each.failure for each, _ in lanes)]
            await _first([*ends, asyncio.ensure_future(_outage([each for each, _ in lanes]))])
    finally:
        for each, _ in lanes:
            each.close()
    return sum(each.scheduler.retried for each, _ in lanes)


def _sources(
    handlers: Mapping[str, Handler], states: Mapping[str, Mapping[Any, Any]], events: Mapping[str, Iterable[Event]]
) -> dict[str, Source]:
    """A partition of each topic, with these states. AppError if a topic's handler has none."""
    sources = {
        topic: Source(handler.topic, _states(handler, states.get(topic, {}), _first_time(events.get(topic, ()))))
        for topic, handler in handlers.items()
    }
    if strange := [topic for topic in states if topic not in sources or sources[topic].states is None]:
        raise AppError(f"topic {topic!r} has no handler with state: give it state=" for topic in strange)
    return sources


async def _merged(handler: Handler, states: States | None, tested: Tested) -> int:
    """Merges what calls have left into the states of their keys, as the merger of a running app does; gives how many
    tries were further ones. The outputs are then the others, and what is published of each key."""
    assert states is not None
    assert handler.state is not None
    merger, form = merger_of(handler), Form(handler.state)
    source = Source(merger.topic, states)
    left = [each for each in tested.outputs if each.topic == handler.partials]
    tested.outputs = [each for each in tested.outputs if each.topic != handler.partials]
    partials: list[Event] = []
    for number, each in enumerate(left):
        raw = Record(each.topic, 0, number, each.time, each.key, each.value, each.headers)
        partials.append(partial_of(raw, source))
        _check_merge(handler.state, form, partials[-1])

    def on_end(ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        tested.outputs += outputs
        if failure is not None:
            tested.dead += [(event, failure) for event in ended]

    return await _handled([(merger, merger.function, partials)], on_end) if partials else 0


def _check_merge(state: State, form: Form, partial: Event) -> None:
    """AppError if it is not the same when it is merged into a new state, as the first one of each key is, or a new one
    into it. What can't be merged at all is a dead letter."""
    assert state.merge is not None
    kept = Kept(partial.raw.value or b"", partial.time, state.version)
    alone = form.read(kept)
    for left, right, what in (
        (state.of(), form.read(kept), f"merged into a new one, {alone!r:.500}"),
        (form.read(kept), state.of(), f"a new one merged into it, {alone!r:.500}"),
    ):
        try:
            state.merge(left, right)
            is_kept = left == alone or form.write(left) == kept.data
        except Exception:
            return
        if not is_kept:
            raise AppError([f"state {state.name}: {what} becomes {left!r:.500}: merge has to keep it"])


async def _first(ends: list[asyncio.Future[Any]]) -> None:
    done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for each in (ends[0], ends[-1]):
        each.cancel()
    for each in done:
        each.result()


async def _outage(lanes: list[LoopLanes]) -> None:
    """AppError when a breaker has been open so long that nobody in the test will close it."""
    while True:
        await asyncio.sleep(_LONG)
        now = asyncio.get_running_loop().time()
        for each in lanes:
            circuit = each.scheduler.circuit
            if circuit is not None and circuit.is_open and now - circuit.opened_at > _LONG:
                raise AppError(
                    [
                        f"{each.handler.name} has failed for an hour of virtual time, and its breaker is open: let it "
                        "succeed again in the test, or declare it with breaker=None to see its dead letters"
                    ]
                )


def _by_topic(events: Iterable[Event]) -> dict[str, list[Event]]:
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        found[event.topic].append(event)
    return dict(found)


def _placed(source: Source, events: list[Event]) -> list[Event]:
    """The events as those of one partition, read with the codecs that the handler was declared with."""
    placed = []
    for offset, event in enumerate(events):
        raw = event.raw
        assert isinstance(raw, Record)
        placed.append(replace(raw, offset=offset))
    return events_of(placed, source)


def _first_time(events: Iterable[Event]) -> int:
    return min((event.time for event in events), default=0)


def _states(handler: Handler, given: Mapping[Any, Any], time: int) -> States | None:
    if handler.state is None:
        return None
    states, form = States(handler.state, by_field=handler.key is not None), Form(handler.state)
    for key, state in given.items():
        group = key if handler.key is not None or isinstance(key, bytes) else handler.topic.key.encode(key)
        states.keep(group, None, form.write(state), time)
    return states


def _told(handler: Handler, states: States) -> Iterator[tuple[Any, Any]]:
    assert handler.state is not None
    form = Form(handler.state)
    for group, kept in states:
        key = handler.topic.key.decode(group) if isinstance(group, bytes) else group
        yield key, form.read(kept)


def _on_loop(handler: Handler, bind: Callable[[Handler], Function]) -> Function:
    function = bind(handler)
    if handler.is_async:
        return function

    async def run(events: Any, *state: Any) -> Any:
        return function(events, *state)

    return run
