"""Lanes of each kind give a handler its key's state, and keep what it has made of it only if it succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import state_handlers
from keygrouping_app import App, Event, Outgoing, State, Topic
from keygrouping_app.events import Record, Source, event_of
from keygrouping_app.kept import Kept
from keygrouping_app.scheduler import Failure
from keygrouping_app.states import States

SEEN = State(state_handlers.Seen)
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "event loop": (state_handlers.note_async, {"concurrency": 3}),
    "threads": (state_handlers.note, {"concurrency": 3}),
    "processes": (state_handlers.note, {"processes": 2}),
    "threads, in batches": (state_handlers.note_batch, {"concurrency": 3, "batch": 5}),
    "processes, in batches": (state_handlers.note_batch, {"processes": 2, "batch": 5}),
}


class Ends:
    """What lanes tell."""

    def __init__(self) -> None:
        self.offsets: set[int] = set()
        self.failures: dict[int, str] = {}
        self.details: dict[int, str] = {}

    def __call__(self, ended: list[Event], _: list[Outgoing], failure: Failure | None) -> None:
        self.offsets |= {event.offset for event in ended}
        if failure is not None:
            self.failures |= {event.offset: failure.reason for event in ended}
            self.details |= {event.offset: failure.detail for event in ended}


@asynccontextmanager
async def lanes_of(kind: str, state: State, ends: Ends) -> AsyncIterator[Any]:
    function, options = KINDS[kind]
    app = App("billing")
    app.on("t", state=state, retries=0, timeout=5, breaker=None, **options)(function)
    app.check()
    lanes = app._lanes(app.handlers[0], {})(ends)
    try:
        await lanes.begin()
        yield lanes
    finally:
        await lanes.end()


def events_of(source: Source, *acts: tuple[str, str]) -> list[Event]:
    """By key and what to do."""
    return [
        event_of(Record("t", 0, number, number, key.encode(), orjson.dumps({"do": do})), source)
        for number, (key, do) in enumerate(acts)
    ]


async def until_ended(lanes: Any, ends: Ends, count: int) -> None:
    async def ended() -> None:
        while len(ends.offsets) < count:  # noqa: ASYNC110 -- nobody tells of it
            await asyncio.sleep(0.01)

    waiting = asyncio.create_task(ended())
    await asyncio.wait([waiting, lanes.failure], timeout=120, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if lanes.failure.done():
        lanes.failure.result()
    assert len(ends.offsets) == count


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_call_has_made_of_the_state_is_kept_if_it_succeeds(kind: str) -> None:
    by_a = [("a", "work"), ("a", "raise"), ("a", "reject"), ("a", "work")]
    by_b = [("b", "work"), ("b", "raise"), ("b", "work")]
    acts = [*by_a, *by_b]
    states, ends = States(SEEN), Ends()
    async with lanes_of(kind, SEEN, ends) as lanes:
        lanes.offer(events_of(Source(Topic("t"), states), *acts))
        await until_ended(lanes, ends, len(acts))
    assert ends.failures == {1: "failed", 2: "rejected", 5: "failed"}
    assert states.take() == {b"a": Kept(b'{"offsets":[0,3]}', 3, 1), b"b": Kept(b'{"offsets":[4,6]}', 6, 1)}


@pytest.mark.parametrize(
    ("kind", "do", "reason"), [("event loop", "sleep", "timeout"), ("processes", "die", "crashed")]
)
async def test_a_call_that_is_stopped_leaves_the_state(kind: str, do: str, reason: str) -> None:
    states, ends = States(SEEN), Ends()
    async with lanes_of(kind, SEEN, ends) as lanes:
        lanes.offer(events_of(Source(Topic("t"), states), ("a", "work"), ("a", do), ("a", "work")))
        await until_ended(lanes, ends, 3)
    assert ends.failures == {1: reason}
    assert states.take() == {b"a": Kept(b'{"offsets":[0,2]}', 2, 1)}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_state_that_cannot_be_read_makes_dead_letters_of_its_key_s_events_and_stays(kind: str) -> None:
    state = State(state_handlers.Seen, version=2, upgrade=state_handlers.broken_upgrade, ttl=60)
    states, ends = States(state), Ends()
    states.restore(b"a", Kept(b'{"old":1}', 1, 1))
    async with lanes_of(kind, state, ends) as lanes:
        acts = [("a", "work"), ("b", "work"), ("a", "work"), ("a", "work"), ("b", "work")]
        lanes.offer(events_of(Source(Topic("t"), states), *acts))
        await until_ended(lanes, ends, len(acts))
        assert lanes.tally.dead["unreadable_state"] == 3
        assert lanes.scheduler.retried == 0
    assert ends.failures == dict.fromkeys([0, 2, 3], "unreadable_state")
    assert "can't be read as version 2 of Seen (version 1 had {'old': 1})" in ends.details[0]
    assert "keygrouping redrive --reason unreadable_state" in ends.details[0]
    assert states.take() == {b"a": Kept(b'{"old":1}', 3, 1), b"b": Kept(b'{"offsets":[1,4]}', 4, 2)}
