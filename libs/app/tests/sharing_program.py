"""An app that shares hot keys, as its users run it, which writes down what it does.

sharing_program.py BROKERS PREFIX LOG SECONDS LANES EXACTLY_ONCE
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator

from keygrouping.app import TEXT, App, Event, Output, Reject, Topic
from keygrouping_service.testing import note

brokers, prefix, log, seconds, lanes, exactly = sys.argv[1:]
app = App(
    f"{prefix}-group",
    brokers=brokers,
    dead_letters=f"{prefix}-dead",
    session_timeout=6,  # the shortest that brokers take: what a killed member had waits for it
    max_events=2000,
)
file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def say(what: str, event: Event) -> None:
    """Notes what a handler has done."""
    note(file, what, time.monotonic_ns(), os.getpid(), event.identity)


@app.lifespan
async def up() -> AsyncIterator[None]:
    """Tells that it runs: from now on it ends by SIGTERM as it should."""
    sys.stdout.write("up\n")
    sys.stdout.flush()
    yield


@app.on(f"{prefix}-in", split=True, concurrency=int(lanes), timeout=20, exactly_once=exactly == "1")
async def work(event: Event) -> Output:
    """Takes a random time; fails now and then, and for good if the value says so."""
    say("start", event)
    await asyncio.sleep(random.expovariate(1 / float(seconds)))
    if event.value == "bad":
        say("end", event)
        raise Reject("bad")
    if random.random() < 0.01:
        raise ValueError("tried again")
    say("end", event)
    return Output(Topic(f"{prefix}-out", value=TEXT), event.identity, key=event.key)


if __name__ == "__main__":
    app.run()
