"""An app with state as its users run it.

state_program.py BROKERS PREFIX LOG SECONDS STORE STANDBYS MOVES PORT

Each key's state is the chain of its events: whoever leaves one out, has one twice or in another order, has another
digest. Two keys have states that go in parts, and grow and shrink. Calls fail at random, before and after they have
changed the state; events with a negative value are refused.
"""

import asyncio
import hashlib
import os
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from keygrouping.app import App, Event, Output, Reject, Retries, State

brokers, prefix, log, seconds, store, standbys, moves, port = sys.argv[1:]
kind: Any = store
app = App(
    f"{prefix}-group",
    brokers=brokers,
    dead_letters=f"{prefix}-dead",
    session_timeout=6,  # the shortest that brokers take: what a killed member had waits for it
    max_events=2000,
    port=int(port),
)
file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@dataclass
class Chain:
    """Of a key's events that were not refused."""

    count: int = 0
    total: int = 0
    digest: str = ""
    ballast: str = ""


@app.lifespan
async def up() -> AsyncIterator[None]:
    """Tells that it runs: from now on it ends by SIGTERM as it should."""
    sys.stdout.write("up\n")
    sys.stdout.flush()
    yield


@app.on(
    f"{prefix}-in",
    state=State(Chain, store=kind, standbys=int(standbys), moves="ordered" if moves == "1" else None),
    retries=Retries(1000, 0.01, 0.05),
    breaker=None,
    timeout=20,
)
async def add(event: Event, chain: Chain) -> Output:
    """Takes a random time, and tells where its event is in the chain."""
    if random.random() < 0.02:
        raise OSError("before")
    chain.count += 1
    chain.total += event.value
    chain.digest = hashlib.sha256(f"{chain.digest} {event.identity} {event.value}".encode()).hexdigest()
    if event.key in {"p0-39", "p1-38"}:
        chain.ballast = "x" * (chain.count % 4 * 200_000)
    await asyncio.sleep(random.expovariate(1 / float(seconds)))
    if event.value < 0:
        raise Reject("less than nothing")
    if random.random() < 0.02:
        raise OSError("behind")
    os.write(file, b".")
    return Output(f"{prefix}-out", [event.identity, chain.count, chain.digest], key=event.key)


if __name__ == "__main__":
    app.run()
