"""A run of handlers without Kafka, and what came of it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from keygrouping_app.events import Event, Outgoing, Record, Source, events_of
from keygrouping_app.handlers import AppError, Function, Handler, outputs_of
from keygrouping_app.kept import Kept
from keygrouping_app.lanes import LoopLanes
from keygrouping_app.partials import merger_of, partial_of
from keygrouping_app.scheduler import Failure
from keygrouping_app.state import Form, State
from keygrouping_app.states import States
from keygrouping_app.virtual_time import VirtualTime

_LONG = 3600.0
"""Seconds; an outage that a test plays is shorter."""


@dataclass(slots=True)
class Tested:
    """What came of a test: each event is in one of `handled` and `dead`, in the order in which they ended."""

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
    total = sum(map(len, waiting.values()))
    done = asyncio.Event()

    def on_end(ended: list[Event], outputs: list[Outgoing], failure: Failure | None) -> None:
        tested.outputs += outputs
        if failure is None:
            tested.handled += ended
        else:
            tested.dead += [(event, failure) for event in ended]
        if len(tested.handled) + len(tested.dead) == total:
            done.set()

    with VirtualTime() as clock:
        begun = clock.now()
        lanes = [LoopLanes(by_topic[topic], _on_loop(by_topic[topic], bind), on_end) for topic in waiting]
        try:
            for each in lanes:
                topic = each.handler.topic.name
                each.offer(_placed(sources[topic], waiting[topic]))
            if total:
                ends: list[asyncio.Future[Any]] = [
                    asyncio.ensure_future(done.wait()),
                    *(each.failure for each in lanes),
                ]
                await _first([*ends, asyncio.ensure_future(_outage(lanes))])
        finally:
            for each in lanes:
                each.close()
        tested.seconds = clock.now() - begun
    for handler in [each for each in by_topic.values() if each.partials]:
        tested.outputs = await _merged(handler, sources[handler.topic.name].states, tested.outputs)
    tested.states = {
        topic: dict(_told(by_topic[topic], each.states)) for topic, each in sources.items() if each.states is not None
    }
    tested.retries = sum(each.scheduler.retried for each in lanes)
    return tested


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


async def _merged(handler: Handler, states: States | None, outputs: Iterable[Outgoing]) -> list[Outgoing]:
    """Merges what calls have left into the states of their keys; gives the other outputs, and what is published of
    each key."""
    assert states is not None
    assert handler.state is not None
    merger, form = merger_of(handler), Form(handler.state)
    source = Source(merger.topic, states)
    by_key: defaultdict[Hashable, list[Event]] = defaultdict(list)
    found: list[Outgoing] = []
    for number, each in enumerate(outputs):
        if each.topic != handler.partials:
            found.append(each)
            continue
        raw = Record(each.topic, 0, number, each.time, each.key, each.value, each.headers)
        partial = partial_of(raw, source)
        merger.set_group(partial)
        _check_merge(handler.state, form, partial)
        by_key[partial.group].append(partial)
    for group, events in by_key.items():
        latest = max(event.time for event in events)
        kept = states.find(group, latest)
        state = form.read(kept)
        published = await merger.function(events, state)
        states.keep(group, kept, form.write(state), latest)
        found += outputs_of(published, events[-1])
    return found


def _check_merge(state: State, form: Form, partial: Event) -> None:
    """AppError if it is not the same when it is merged into a new state, as the first one of each key is."""
    assert state.merge is not None
    kept = Kept(partial.raw.value or b"", partial.time, state.version)
    first, alone = state.of(), form.read(kept)
    state.merge(first, form.read(kept))
    if first != alone and form.write(first) != kept.data:
        raise AppError(
            [f"state {state.name}: merged into a new one, {alone!r:.500} becomes {first!r:.500}: merge has to keep it"]
        )


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
