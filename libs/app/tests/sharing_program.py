"""An app that shares hot keys, as its users run it, which writes down what it does.

sharing_program.py BROKERS PREFIX LOG SECONDS LANES SESSION at-least-once|exactly-once|merged [first]

`first`: it kills itself while its first transaction of an input partition is open and all of it is written.
"""

import asyncio
import hashlib
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from keygrouping.app import TEXT, App, Event, Output, Reject, State, Topic
from keygrouping_app.kafka.transactions import OnceProducer
from keygrouping_service.testing import note

brokers, prefix, log, seconds, lanes, session, how, *struck = sys.argv[1:]
app = App(
    f"{prefix}-group",
    brokers=brokers,
    dead_letters=f"{prefix}-dead",
    session_timeout=float(session),
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


@dataclass
class Seen:
    """Of a key's events: how many there were, and which, in whatever order."""

    count: int = 0
    digest: int = 0


def merge(left: Seen, right: Seen) -> None:
    """Adds the events of both."""
    left.count += right.count
    left.digest = (left.digest + right.digest) % 2**61


def publish(key: str, seen: Seen) -> Output:
    """Tells each state that there was."""
    return Output(f"{prefix}-seen", [seen.count, seen.digest], key=key)


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


async def merged(event: Event, seen: Seen) -> Output:
    """Notes the event in the state of its key, too, and before it may fail."""
    merge(seen, Seen(1, int.from_bytes(hashlib.sha256(event.identity.encode()).digest()[:7])))
    return await work(event)


given: dict[str, Any] = {"split": True, "concurrency": int(lanes), "timeout": 20}
if how == "merged":
    app.on(f"{prefix}-in", state=State(Seen, merge=merge, publish=publish), **given)(merged)
else:
    app.on(f"{prefix}-in", exactly_once=how == "exactly-once", **given)(work)


def strike() -> None:
    """Has this process kill itself."""
    end = OnceProducer.commit_transaction

    async def struck_end(self: OnceProducer) -> None:
        if self._txn_manager.transactional_id.startswith(f"{prefix}-group/{prefix}-in/"):
            os.kill(os.getpid(), signal.SIGKILL)
        await end(self)

    patch.object(OnceProducer, "commit_transaction", struck_end).start()


if __name__ == "__main__":
    if struck:
        strike()
    app.run()
