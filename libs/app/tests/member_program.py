"""An app as its users run it, which writes down what it does.

member_program.py BROKERS PREFIX LOG SECONDS LANES EXACTLY_ONCE COMMIT_INTERVAL
"""

import asyncio
import math
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from keygrouping.app import TEXT, App, Event, Output, Topic
from keygrouping_app.kafka.assignment import Assignment
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.member import Member, Owner
from keygrouping_service.testing import note

brokers, prefix, log, seconds, lanes, exactly, interval = sys.argv[1:]
app = App(
    f"{prefix}-group",
    brokers=brokers,
    dead_letters=f"{prefix}-dead",
    session_timeout=6,  # the shortest that brokers take: what a killed member had waits for it
    max_events=2000,
    commit_interval=float(interval),
)
file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
commits = os.open(f"{log}.commits", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
ownership = os.open(f"{log}.ownership", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
begin, commit = Member.__init__, Member.commit
session_end = 0.0


async def say_commit(member: Member, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Commits, and writes down for which partitions the commit was answered, and when it began."""
    began = time.monotonic_ns()
    await commit(member, offsets)
    for tp in offsets:
        note(commits, began, os.getpid(), tp.partition)


class Saying:
    """An owner that writes down what its member tells it."""

    def __init__(self, member: Member, owner: Owner) -> None:
        assert isinstance(owner, Assignment)
        self._member = member
        self._owner = owner

    def _say(self, what: str, tp: TopicPartition | None = None) -> None:
        """Writes down that it has a partition from now on, or no more, in which generation, and its session's end."""
        generation, end = self._member._session.generation, int(session_end * 1e9)
        partition = tp.partition if tp else -1
        note(ownership, what, time.monotonic_ns(), os.getpid(), partition, generation, end)

    def gain(self, tp: TopicPartition) -> None:
        """It is ours."""
        self._say("gain", tp)
        self._owner.gain(tp)

    async def give_up(self, tp: TopicPartition) -> None:
        """It is nobody's, when all that ran has ended."""
        await self._owner.give_up(tp)
        self._say("gone", tp)

    def lose(self, tp: TopicPartition) -> None:
        """It is or may be somebody else's, perhaps while something of it runs."""
        self._say("lost" if tp in self._owner.partitions else "gone", tp)
        self._owner.lose(tp)

    def may_start(self, until: float) -> None:
        """How long the session lasts, the last time that it was known."""
        global session_end
        if math.isfinite(until):
            session_end = until
            self._say("session")
        self._owner.may_start(until)


def begin_saying(member: Member, settings: Settings, topics: Iterable[str], owner: Owner, *more: Any) -> None:
    """As a member begins, and writes down what it tells its owner."""
    begin(member, settings, topics, Saying(member, owner), *more)


Member.__init__ = begin_saying  # type: ignore[assignment, method-assign]
Member.commit = say_commit  # type: ignore[assignment, method-assign]


def say(what: str, event: Event) -> None:
    """Notes what a handler has done."""
    note(file, what, time.monotonic_ns(), os.getpid(), event.key, event.partition, event.offset)


@app.lifespan
async def up() -> AsyncIterator[None]:
    """Tells that it runs: from now on it ends by SIGTERM as it should."""
    sys.stdout.write("up\n")
    sys.stdout.flush()
    yield


@app.on(f"{prefix}-in", concurrency=int(lanes), timeout=20, exactly_once=exactly == "1")
async def work(event: Event) -> Output | None:
    """Takes a random time."""
    say("start", event)
    await asyncio.sleep(random.expovariate(1 / float(seconds)))
    say("end", event)
    return Output(Topic(f"{prefix}-out", value=TEXT), event.identity, key=event.key) if exactly == "1" else None


if __name__ == "__main__":
    app.run()
