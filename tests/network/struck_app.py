"""The app that faults strike: it passes each event on to `routed`, and rejects one in so many."""

from __future__ import annotations

import asyncio
import json
import os
import random
from dataclasses import dataclass
from typing import Any

from keygrouping.app import BYTES, App, Event, Output, Reject, Retries, State, Topic

REJECTED = int(os.environ["REJECTED"])
"""One event in so many goes to the dead letters."""
FAILING = 10
"""One try in so many fails."""
SECONDS = 0.02
"""What an event takes on average."""
LANES = 3
"""Of a member that shares hot keys: so few that the one with most to do keeps more than half of them busy."""

# As the services' clients: those of requests that are held are sent again before they are let go.
app = App("struck", dead_letters=os.environ["KEYGROUPING_DEAD_LETTERS_TOPIC"], kafka={"request_timeout_ms": 15_000})


async def pass_on(event: Event) -> Output:
    """Takes a random time."""
    await asyncio.sleep(random.expovariate(1 / SECONDS))
    if json.loads(event.value)["id"] % REJECTED == 0:
        raise Reject("one in so many")
    if random.randrange(FAILING) == 0:
        raise LookupError("it may work next time")
    return Output(Topic(os.environ["KEYGROUPING_ROUTED_TOPIC"], value=BYTES, key=BYTES), event.value, key=event.key)


async def count_and_pass_on(event: Event, counts: dict[str, int]) -> list[Output]:
    """With a state that goes along when its key moves, and is told after each event."""
    counts["events"] = counts.get("events", 0) + 1
    told = {"id": json.loads(event.value)["id"], "partition": event.partition, "events": counts["events"]}
    return [await pass_on(event), Output(os.environ["KEYGROUPING_LATE_TOPIC"], told, key=key_of(event))]


@dataclass
class Seen:
    """Of a key's events: how many there were, and sums that tell which one is too many or too few."""

    events: int = 0
    ids: int = 0
    squares: int = 0


def merge(left: Seen, right: Seen) -> None:
    """Adds the events of both."""
    left.events += right.events
    left.ids += right.ids
    left.squares += right.squares


def publish(key: str, seen: Seen) -> Output:
    """Tells each state that there was."""
    return Output(os.environ["KEYGROUPING_RESULTS_TOPIC"], seen, key=key)


async def note_and_pass_on(event: Event, seen: Seen) -> Output:
    """With a state that is merged: it is there before the event is rejected, or fails."""
    number = json.loads(event.value)["id"]
    merge(seen, Seen(1, number, number * number))
    return await pass_on(event)


def key_of(event: Event) -> str:
    """Every event has a state."""
    return (event.key or b"").decode()


def declare() -> None:
    """Makes one of them the handler."""
    given: dict[str, Any] = {"retries": Retries(20, first=0.05, most=1)}
    topic = Topic(os.environ["KEYGROUPING_EVENTS_TOPIC"], value=BYTES, key=BYTES)
    if os.environ["RUNNER"] == "app-moves":
        app.on(topic, key=key_of, state=State(dict, moves="ordered"), **given)(count_and_pass_on)
    elif os.environ["RUNNER"] == "app-shared":
        state = State(Seen, merge=merge, publish=publish)
        app.on(topic, key=key_of, split=True, concurrency=LANES, state=state, **given)(note_and_pass_on)
    else:
        app.on(topic, exactly_once=os.environ["RUNNER"] == "app-exactly-once", **given)(pass_on)


declare()
