"""The app that faults strike: it passes each event on to `routed`, and rejects one in so many."""

from __future__ import annotations

import asyncio
import json
import os
import random

from keygrouping.app import BYTES, App, Event, Output, Reject, Retries, Topic

REJECTED = int(os.environ["REJECTED"])
"""One event in so many goes to the dead letters."""
FAILING = 10
"""One try in so many fails."""
SECONDS = 0.02
"""What an event takes on average."""

# As the services' clients: those of requests that are held are sent again before they are let go.
app = App("struck", dead_letters=os.environ["KEYGROUPING_DEAD_LETTERS_TOPIC"], kafka={"request_timeout_ms": 15_000})


@app.on(
    Topic(os.environ["KEYGROUPING_EVENTS_TOPIC"], value=BYTES, key=BYTES),
    exactly_once=bool(os.environ["EXACTLY_ONCE"]),
    retries=Retries(20, first=0.05, most=1),
)
async def pass_on(event: Event) -> Output:
    """Takes a random time."""
    await asyncio.sleep(random.expovariate(1 / SECONDS))
    if json.loads(event.value)["id"] % REJECTED == 0:
        raise Reject("one in so many")
    if random.randrange(FAILING) == 0:
        raise LookupError("it may work next time")
    return Output(Topic(os.environ["KEYGROUPING_ROUTED_TOPIC"], value=BYTES, key=BYTES), event.value, key=event.key)
