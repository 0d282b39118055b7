"""An app with state as its users run it.

state_program.py BROKERS PREFIX LOG SECONDS STORE STANDBYS MOVES PORT [STEP MOMENT]

MOVES is `none`, `ordered`, or the grouping that plans: then one partition's keys cost three times as much as others,
lanes are few, and plans come every two seconds.

It kills itself at the third transaction that is this STEP of a hand-over: `before` anything of it is written, while it
is `open` and all is written, or `after` its end was answered.

Each key's state is the chain of its events: whoever leaves one out, has one twice or in another order, has another
digest. Two keys have states that go in parts, and grow and shrink. Calls fail at random, before and after they have
changed the state; events with a negative value are refused.
"""

import asyncio
import hashlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from keygrouping.app import App, Event, Output, Reject, Retries, State
from keygrouping_app.events import Outgoing
from keygrouping_app.kafka.transactions import OnceProducer, Transactions

brokers, prefix, log, seconds, store, standbys, moves, port, *struck = sys.argv[1:]
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


planner: Any = None if moves == "none" else moves
is_planned = moves not in ("none", "ordered")


@app.on(
    f"{prefix}-in",
    state=State(Chain, store=kind, standbys=int(standbys), moves=planner),
    concurrency=4 if is_planned else 16,
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
    cost = 3 if is_planned and event.key.startswith("p0-") else 1
    await asyncio.sleep(random.expovariate(1 / float(seconds)) * cost)
    if event.value < 0:
        raise Reject("less than nothing")
    if random.random() < 0.02:
        raise OSError("behind")
    os.write(file, b".")
    return Output(f"{prefix}-out", [event.identity, chain.count, chain.digest], key=event.key)


def step_of(records: Iterable[Outgoing]) -> str:
    """What a transaction with these does for keys that move; empty if nothing."""
    headers = {name for each in records for name, _ in each.headers}
    is_answer, has_state = "keygrouping-answer" in headers, "keygrouping-state" in headers
    if is_answer or has_state:
        return ("sends-on" if has_state else "sends-home") if is_answer else "sends"
    if "keygrouping-call" in headers:
        return "calls"
    topics = {each.topic.removeprefix(f"{prefix}-group.") for each in records}
    if f"{prefix}-in.moved" in topics:
        return "forwards"
    return "handles-at-slot" if any(each.endswith(".moved.states") for each in topics) else ""


def strike(step: str, moment: str) -> None:
    """Has this process kill itself."""
    commit, end = Transactions.commit, OnceProducer.commit_transaction
    found = 0
    armed: OnceProducer | None = None

    async def struck_commit(self: Transactions, what: Any, outgoing: Any, states: Any = (), *more: Any) -> Any:
        nonlocal found, armed
        found += (is_step := step_of([*outgoing, *states]) == step)
        is_third = is_step and found == 3  # those of other partitions go on meanwhile
        if is_third and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if is_third:
            armed = self._producer
        committed = await commit(self, what, outgoing, states, *more)
        if is_third:
            os.kill(os.getpid(), signal.SIGKILL)
        return committed

    async def struck_end(self: OnceProducer) -> None:
        if self is armed and moment == "open":
            os.kill(os.getpid(), signal.SIGKILL)
        await end(self)

    patch.object(Transactions, "commit", struck_commit).start()
    patch.object(OnceProducer, "commit_transaction", struck_end).start()


if __name__ == "__main__":
    if is_planned:
        patch.multiple("keygrouping_app.kafka.planner", _SPAN=2.0, _BEGIN=1.0).start()
    if struck:
        strike(*struck)
    app.run()
